"""Static QPS: so many a second, counted in fixed windows, and a queue behind.

It is the limit that is set once, after a load test. At its best it is set to nine tenths of the
capacity, as here: above that the windows' edges let the queue stand. It is not right any more once
the cost of the work or the speed of the backend changes, which is why there are other ways.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig

SHARE: Final = 0.9
WINDOW_US: Final = 1_000_000


@final
class StaticRate:
    """At most `per_s` in each second of the clock."""

    __slots__ = ("_units", "_window")

    def __init__(self, per_s: int) -> None:
        self._window = FixedWindow(per_s, WINDOW_US)
        self._units: deque[Unit] = deque()

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Whoever finds the window spent is refused."""
        if self._window.take(1, now_us).allowed:
            self._units.append(unit)
        else:
            lost.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest."""
        return self._units.popleft() if self._units else None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def static_rate(rig: Rig) -> StaticRate:
    """Nine tenths of the capacity at speed 1."""
    return StaticRate(max(int(SHARE * rig.capacity_per_s), 1))
