"""The queue before the workers, as the kernel-only mode sees it.

A queue takes arrivals and gives the next unit to serve; units that it loses it appends to a list.
It may refuse an arrival, hold it, or lose it later. All of them are in `baselines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final


@final
@dataclass(slots=True, eq=False)
class WorkUnit:
    """One attempt at one unit of work in the kernel-only mode."""

    kind: int
    caller: int
    arrived_us: int
    deadline_us: int
    attempt: int
    work_us: int = 0
    abandoned: bool = False  # its caller waits no longer


class WorkQueue(Protocol):
    """The queue before the workers."""

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Take a unit in, or lose it, or lose another in its place."""
        ...

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """The unit to serve now; None if there is none."""
        ...

    def waiting(self) -> int:
        """How many are held, the dead among them included."""
        ...
