"""Store metrics: round trips to a service's store, leases, and how stale their blocks become.

An Observer that leaves decisions to `ServiceMetrics`, which counts them by priority and rule; a
`DecisionMetrics` inside counts the rest. The freshness lag is the age of a block of a lease when it
was last spent from: by up to that long the store's count ran ahead of what is enforced here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from threading import Lock
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.telemetry.prometheus import MetricFamily, families, histogram
from sluicegate.telemetry.snapshot import Histogram, MetricsSnapshot

LAG_US_BOUNDS: Final[tuple[int, ...]] = (
    1_000, 5_000, 10_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 60_000_000,
)  # fmt: skip
_OF_DECISIONS: Final = frozenset({"sluicegate_decisions", "sluicegate_rules_folded"})


@final
class StoreMetrics:
    """A `contracts.observer.Observer` of round trips and leases."""

    wants_decisions = False
    __slots__ = ("_lags", "_lags_us", "_lock", "_metrics", "failures", "last_failure")

    def __init__(self, clock: Clock) -> None:
        self._metrics = DecisionMetrics(clock=clock)
        self._lags = [0] * (len(LAG_US_BOUNDS) + 1)
        self._lags_us = 0
        self._lock = Lock()
        self.failures = 0  # round trips that failed
        self.last_failure = ""  # what was last seen of a store that failed

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Counted elsewhere, by rule and priority."""

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """One round trip."""
        self._metrics.record_round_trip(decisions, began_us, ended_us, failure)
        if failure:
            self.last_failure = failure
            with self._lock:
                self.failures += 1

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Units of a lease."""
        self._metrics.record_lease(rule, event, units)

    def record_lease_lag(self, rule: str, lag_us: int) -> None:
        """A block that was this old when it was last spent of."""
        with self._lock:
            self._lags[bisect_left(LAG_US_BOUNDS, lag_us)] += 1
            self._lags_us += lag_us

    def snapshot(self) -> MetricsSnapshot:
        """What was counted of round trips and leases."""
        return self._metrics.snapshot()

    def families(self) -> Iterable[MetricFamily]:
        """The metrics."""
        lag = Histogram(LAG_US_BOUNDS, tuple(self._lags), self._lags_us)
        return [
            *[family for family in families(self.snapshot()) if family.name not in _OF_DECISIONS],
            histogram(
                "sluicegate_limiter_freshness_lag_seconds",
                "How old blocks of leases were when they were last spent of.",
                lag,
                1_000_000,
                "seconds",
            ),
        ]
