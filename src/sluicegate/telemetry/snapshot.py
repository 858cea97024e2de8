"""What decision metrics counted up to one instant: values that stand still, compare and travel.

Plain Python even where the counters are compiled: a frozen dataclass of mypyc cannot be unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class DecisionCount(NamedTuple):
    """Decisions of one kind, by the labels of `labels.py`."""

    rule: str
    outcome: str
    reason: str
    decisions: int


class LeaseCount(NamedTuple):
    """Units of leases that were taken, spent, returned, or have lapsed."""

    rule: str
    event: str
    units: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often a value fell up to each bound and above the one before; last, above all."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    total: int  # of the values

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Everything counted so far."""

    decisions: tuple[DecisionCount, ...]
    leases: tuple[LeaseCount, ...]
    round_trips_us: Histogram  # of those that were answered
    batches: Histogram  # decisions that shared one of them
    store_failures: int
    degraded: bool  # whether the last round trip failed
    degraded_us: int
    folded: int  # decisions and lease events of rules that have no label of their own

    def count(
        self, outcome: str | None = None, *, rule: str | None = None, reason: str | None = None
    ) -> int:
        """Return how many decisions there were, of all kinds or of those given."""
        return sum(
            found.decisions
            for found in self.decisions
            if outcome in {None, found.outcome}
            and rule in {None, found.rule}
            and reason in {None, found.reason}
        )
