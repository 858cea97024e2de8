"""folly CoDel: first in, first out, and what waited too long in an overloaded interval is lost.

It is the rule of the folly library, the product's kernel `codel.Codel` with folly's own target and
interval. It is a strong baseline: nothing collapses under it. It is not aware of deadlines or
classes, keeps dead units until their turn comes, and bounds nothing.
"""

from __future__ import annotations

from collections import deque
from typing import final

from sluicegate.kernels.codel import Codel
from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig


@final
class FollyCodel:
    """A queue that sheds at its front."""

    __slots__ = ("_codel", "_units")

    def __init__(self) -> None:
        self._codel = Codel()
        self._units: deque[Unit] = deque()

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Everyone waits."""
        self._units.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest that CoDel lets pass."""
        while self._units:
            unit = self._units.popleft()
            if not self._codel.drop(now_us - unit.arrived_us, now_us):
                return unit
            lost.append(unit)
        return None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def folly_codel(rig: Rig) -> FollyCodel:
    """With folly's defaults, for any rig."""
    return FollyCodel()
