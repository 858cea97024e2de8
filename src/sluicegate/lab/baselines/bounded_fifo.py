"""Bounded FIFO: a queue of a fixed length, and a refusal when it is full.

It is the thread pool with a bounded queue that most servers have. At its best the bound is twice
the workers, as here, which is right for this service time and this number of workers and no other:
a bound above what is served within the callers' timeout is no bound at all. It does not adapt when
the service slows down, knows no class and no deadline.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.lines import Unit
from sluicegate.lab.rig import Rig

LENGTH_PER_WORKER: Final = 2


@final
class BoundedFifo:
    """A queue of at most `length_max`."""

    __slots__ = ("_length_max", "_units")

    def __init__(self, length_max: int) -> None:
        if length_max < 1:
            raise BadValue("length_max", length_max, "give at least 1")
        self._length_max = length_max
        self._units: deque[Unit] = deque()

    def arrive(self, unit: Unit, now_us: int, lost: list[Unit]) -> None:
        """Whoever finds it full is refused."""
        if len(self._units) >= self._length_max:
            lost.append(unit)
        else:
            self._units.append(unit)

    def take(self, now_us: int, lost: list[Unit]) -> Unit | None:
        """The oldest."""
        return self._units.popleft() if self._units else None

    def waiting(self) -> int:
        """How many are held."""
        return len(self._units)


def bounded_fifo(rig: Rig) -> BoundedFifo:
    """Twice as many as there are workers."""
    return BoundedFifo(LENGTH_PER_WORKER * rig.workers)
