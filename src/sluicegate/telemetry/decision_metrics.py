"""Decision metrics: exact counts of decisions, round trips and leases, without their keys.

It is an Observer that needs nothing but Python. Each thread writes counters of its own, so a
decision takes no lock, and no count is lost where two threads add to one. A snapshot sums them up,
with those of threads that have ended.
`prometheus.py` renders a snapshot.

Bounds: `rules_max` rules by name, the outcomes and reasons of `labels.py`, fixed buckets, and the
numbers of as many threads as live at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from threading import RLock, local
from typing import Final, cast, final
from weakref import ref

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.telemetry.labels import (
    ALLOWED,
    LEASE_EVENTS,
    REFUSED,
    RULES_MAX_DEFAULT,
    RuleLabels,
    outcome_of,
    reason_of,
)
from sluicegate.telemetry.snapshot import DecisionCount, Histogram, LeaseCount, MetricsSnapshot

# Upper bounds of the buckets: of a round trip in microseconds, and of the decisions that shared it.
# As tuples of any length, because mypyc makes those of a known length anew at every call.
ROUND_TRIP_US_BOUNDS: Final[tuple[int, ...]] = (
    50, 100, 200, 500,
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
)  # fmt: skip
BATCH_BOUNDS: Final[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)
_EVENT_AT: Final = {event: at for at, event in enumerate(LEASE_EVENTS)}


@final
class _RuleCounts:
    """The counts of one rule in one thread."""

    __slots__ = ("allowed", "leased", "rare", "refused")

    def __init__(self) -> None:
        self.allowed = 0
        self.refused: dict[str, int] = {}  # by reason
        self.rare: dict[tuple[str, str], int] = {}  # by outcome and reason
        self.leased = [0] * len(LEASE_EVENTS)

    def add(self, other: _RuleCounts) -> None:
        self.allowed += other.allowed
        # What another thread may be adding to is copied before it is walked.
        for reason, count in other.refused.copy().items():
            self.refused[reason] = self.refused.get(reason, 0) + count
        for kind, count in other.rare.copy().items():
            self.rare[kind] = self.rare.get(kind, 0) + count
        for at, units in enumerate(other.leased):
            self.leased[at] += units


@final
class _Counts:
    """All counts of one thread; only that thread writes them."""

    __slots__ = (
        "batched",
        "batches",
        "failures",
        "folded",
        "last_us",
        "rules",
        "trips",
        "trips_us",
    )

    def __init__(self) -> None:
        self.rules: dict[str, _RuleCounts] = {}
        self.folded = 0
        self.trips = [0] * (len(ROUND_TRIP_US_BOUNDS) + 1)
        self.trips_us = 0
        self.batches = [0] * (len(BATCH_BOUNDS) + 1)
        self.batched = 0
        self.failures = 0
        self.last_us = 0  # the latest instant at which something was degraded

    def add(self, other: _Counts) -> None:
        for rule, counts in other.rules.copy().items():
            mine = self.rules.get(rule)
            if mine is None:
                mine = self.rules[rule] = _RuleCounts()
            mine.add(counts)
        self.folded += other.folded
        for at, count in enumerate(other.trips):
            self.trips[at] += count
        self.trips_us += other.trips_us
        for at, count in enumerate(other.batches):
            self.batches[at] += count
        self.batched += other.batched
        self.failures += other.failures
        self.last_us = max(self.last_us, other.last_us)


@final
class DecisionMetrics:
    """An Observer that counts; `snapshot` returns the counts.

    The first `rules_max` rules are counted by name, all further ones together as `other`. With a
    `clock`, which must be the limiter's, a failure of the store that is still going on is counted
    to the present instant; without, to the last event.
    """

    __slots__ = (
        "_clock",
        "_ended_counts",
        "_ended_serials",
        "_failed_us",
        "_labels",
        "_local",
        "_lock",
        "_past_us",
        "_serial",
        "_shown_us",
        "_threads",
    )

    def __init__(self, *, rules_max: int = RULES_MAX_DEFAULT, clock: Clock | None = None) -> None:
        self._clock = clock
        self._labels = RuleLabels(rules_max)
        self._local = local()
        # Reentrant: a signal's handler may ask for a decision while a snapshot is taken.
        self._lock = RLock()
        self._threads: dict[int, tuple[object, _Counts]] = {}
        self._serial = 0
        self._ended_serials: deque[int] = deque()  # serials of threads that are no more
        self._ended_counts = _Counts()  # what they have counted
        self._failed_us: int | None = None  # since when the store fails
        self._past_us = 0  # how long it failed before
        self._shown_us = 0

    @property
    def rules_max(self) -> int:
        """How many rules are counted by name."""
        return self._labels.rules_max

    @property
    def threads(self) -> int:
        """Of how many threads the counts are kept apart; one that has ended is summed up later."""
        return len(self._threads)

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Count one decision."""
        counts = self._own_counts()
        rule = counts.rules.get(decision.rule_id)
        if rule is None:
            rule = self._rule(counts, decision.rule_id)
        if not decision.degraded and not decision.shadow:
            if decision.allowed:
                rule.allowed += 1
            else:
                reason = reason_of(decision)
                rule.refused[reason] = rule.refused.get(reason, 0) + 1
            return
        kind = (outcome_of(decision), reason_of(decision))
        rule.rare[kind] = rule.rare.get(kind, 0) + 1
        if decision.degraded and ended_us > counts.last_us:
            counts.last_us = ended_us

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """Count one round trip, and when the store began to fail and recovered."""
        counts = self._own_counts()
        if failure:
            counts.failures += 1
            if ended_us > counts.last_us:
                counts.last_us = ended_us
            if self._failed_us is None:
                self._mark_failed(ended_us)
            return
        # A failure may be refused in no time, so the histograms hold only what was answered.
        took_us = max(ended_us - began_us, 0)
        counts.trips[bisect_left(ROUND_TRIP_US_BOUNDS, took_us)] += 1
        counts.trips_us += took_us
        counts.batches[bisect_left(BATCH_BOUNDS, decisions)] += 1
        counts.batched += decisions
        if self._failed_us is not None:
            self._mark_recovered(ended_us)

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Count units of a lease; what is none of `LEASE_EVENTS` is not counted."""
        at = _EVENT_AT.get(event, -1)
        if at < 0:
            return
        counts = self._own_counts()
        found = counts.rules.get(rule)
        if found is None:
            found = self._rule(counts, rule)
        found.leased[at] += units

    def snapshot(self) -> MetricsSnapshot:
        """Everything counted so far, by all threads."""
        with self._lock:
            self._sum_up_ended()
            total = _Counts()
            total.add(self._ended_counts)
            for _, counts in self._threads.copy().values():
                total.add(counts)
            degraded_us = self._degraded_us(total.last_us)
            degraded = self._failed_us is not None
        return MetricsSnapshot(
            decisions=_decisions(total),
            leases=_leases(total),
            round_trips_us=Histogram(ROUND_TRIP_US_BOUNDS, tuple(total.trips), total.trips_us),
            batches=Histogram(BATCH_BOUNDS, tuple(total.batches), total.batched),
            store_failures=total.failures,
            degraded=degraded,
            degraded_us=degraded_us,
            folded=total.folded,
        )

    # Threads.

    def _own_counts(self) -> _Counts:
        try:
            return cast("_Counts", self._local.counts)
        except AttributeError:
            return self._begin()

    def _begin(self) -> _Counts:
        """Give this thread its counts, and take over those of threads that have ended."""
        counts = _Counts()
        # Held by the thread alone, so it dies with it. A set, because a set can be watched.
        token: set[int] = set()
        with self._lock:
            self._sum_up_ended()
            self._serial += 1
            serial, ended = self._serial, self._ended_serials
            watch = ref(token, lambda _: ended.append(serial))
            self._threads[serial] = (watch, counts)
        self._local.token = token
        self._local.counts = counts
        return counts

    def _sum_up_ended(self) -> None:
        while self._ended_serials:
            found = self._threads.pop(self._ended_serials.popleft(), None)
            if found is not None:
                self._ended_counts.add(found[1])

    def _rule(self, counts: _Counts, rule: str) -> _RuleCounts:
        """The counts of a rule that this thread does not know by name."""
        label = self._labels.label(rule)
        if label != rule:
            counts.folded += 1
        found = counts.rules.get(label)
        if found is None:
            found = counts.rules[label] = _RuleCounts()
        return found

    # The store's failure.

    def _mark_failed(self, at_us: int) -> None:
        with self._lock:
            if self._failed_us is None:
                self._failed_us = at_us

    def _mark_recovered(self, at_us: int) -> None:
        with self._lock:
            if self._failed_us is not None:
                self._past_us += max(at_us - self._failed_us, 0)
                self._failed_us = None

    def _degraded_us(self, last_us: int) -> int:
        degraded_us = self._past_us
        if self._failed_us is not None:
            until_us = last_us if self._clock is None else self._clock.now_us()
            degraded_us += max(until_us - self._failed_us, 0)
        # An answer may come a little earlier than a look in between has guessed; a counter that
        # fell would be read as one that began anew.
        self._shown_us = max(self._shown_us, degraded_us)
        return self._shown_us


def _decisions(total: _Counts) -> tuple[DecisionCount, ...]:
    found: list[DecisionCount] = []
    for rule, counts in total.rules.items():
        if counts.allowed:
            found.append(DecisionCount(rule, ALLOWED, "", counts.allowed))
        for reason, count in counts.refused.items():
            found.append(DecisionCount(rule, REFUSED, reason, count))
        for (outcome, reason), count in counts.rare.items():
            found.append(DecisionCount(rule, outcome, reason, count))
    return tuple(sorted(found))


def _leases(total: _Counts) -> tuple[LeaseCount, ...]:
    return tuple(
        LeaseCount(rule, event, units)
        for rule, counts in sorted(total.rules.items())
        if any(counts.leased)
        for event, units in zip(LEASE_EVENTS, counts.leased, strict=True)
    )
