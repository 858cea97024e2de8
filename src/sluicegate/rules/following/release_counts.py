"""Release counts: what was decided by each release that a node runs, for its reports.

A canary is judged by them: what is refused by the release on trial beside what is by the live one.
Whoever decides keeps a `DecisionCounts` for each, begun anew when another release takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Protocol, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.following.fleet_books import FleetBooks


class Counted(Protocol):
    """Decisions by class, and how many of them refused."""

    decided: list[int]
    refused: list[int]


@final
class DecisionCounts:
    """A `Counted` for any threads."""

    __slots__ = ("_lock", "decided", "refused")

    def __init__(self) -> None:
        self._lock = Lock()
        self.decided = [0] * len(Criticality)
        self.refused = [0] * len(Criticality)

    def record(self, priority: Criticality, *, allowed: bool) -> None:
        """Count one decision."""
        with self._lock:
            self.decided[priority] += 1
            if not allowed:
                self.refused[priority] += 1


def release_counts(
    books: FleetBooks | None, live: Counted, canary: Counted | None
) -> dict[str, Sequence[int]]:
    """By release and class, how many decisions and how many of them refused."""
    counts: dict[str, Sequence[int]] = {}
    if books is None:
        return counts
    for version, counted in ((books.live_version, live), (books.canary_version, canary)):
        if counted is not None and version:
            for member in Criticality:
                pair = [counted.decided[member], counted.refused[member]]
                counts[f"{version}/{member.name}"] = pair
    return counts
