"""No control: whoever comes waits, for as long as it takes, first in, first out.

It is what a server with a pool of workers and an accept queue does by itself. It is not what one
with a client timeout looks like from inside: the dead are served too, because nobody tells it.
"""

from __future__ import annotations

from collections import deque
from typing import final

from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig


@final
class NoControl:
    """A queue without an end."""

    __slots__ = ("_units",)

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Everyone waits."""
        self._units.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest."""
        return self._units.popleft() if self._units else None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def no_control(rig: Rig) -> NoControl:
    """For any rig the same."""
    return NoControl()
