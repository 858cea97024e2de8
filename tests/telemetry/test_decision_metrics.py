from __future__ import annotations

import gc
import pickle
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate import BadValue
from sluicegate.contracts.observer import Observer
from sluicegate.telemetry.decision_metrics import (
    BATCH_BOUNDS,
    ROUND_TRIP_US_BOUNDS,
    DecisionMetrics,
)
from sluicegate.telemetry.labels import OTHER
from sluicegate.telemetry.snapshot import DecisionCount, LeaseCount
from sluicegate.testing import HandClock
from tests.telemetry.decisions import (
    COST_ABOVE_LIMIT,
    NOW,
    SECOND,
    STORE_UNAVAILABLE,
    allowed,
    refused,
    tried_out,
)
from tests.telemetry.threads import in_threads


def test_decisions_are_counted_by_rule_outcome_and_reason() -> None:
    tally = DecisionMetrics()
    observer: Observer = tally
    for decision in (
        allowed(),
        allowed(),
        refused(),
        refused("login", COST_ABOVE_LIMIT),
        tried_out(),
        allowed("api", degraded=True),
        refused("api", STORE_UNAVAILABLE, degraded=True),
    ):
        observer.record_decision(decision, "user:1", NOW, NOW + 5)
    snapshot = tally.snapshot()
    assert snapshot.decisions == (
        DecisionCount("api", "degraded_allowed", "", 1),
        DecisionCount("api", "degraded_refused", "store_unavailable", 1),
        DecisionCount("login", "allowed", "", 2),
        DecisionCount("login", "refused", "cost_above_limit", 1),
        DecisionCount("login", "refused", "rate_limited", 1),
        DecisionCount("login", "shadow_refused", "rate_limited", 1),
    )
    assert snapshot.count() == 7
    assert snapshot.count("refused") == 2
    assert snapshot.count("refused", reason="rate_limited") == 1
    assert snapshot.count(rule="api") == 2
    assert snapshot.folded == 0


def test_nothing_told_is_nothing_counted() -> None:
    snapshot = DecisionMetrics().snapshot()
    assert not snapshot.decisions
    assert not snapshot.leases
    assert (snapshot.round_trips_us.count, snapshot.batches.count, snapshot.store_failures) == (
        0,
        0,
        0,
    )
    assert (snapshot.degraded, snapshot.degraded_us, snapshot.folded) == (False, 0, 0)


def test_rules_beyond_the_bound_are_counted_together_and_told_apart_by_nothing() -> None:
    tally = DecisionMetrics(rules_max=2)
    assert tally.rules_max == 2
    for rule in ("a", "b", "c", "d", "c", "a", OTHER):
        tally.record_decision(allowed(rule), "k", NOW, NOW)
    tally.record_lease("e", "taken", 10)
    snapshot = tally.snapshot()
    assert {row.rule: row.decisions for row in snapshot.decisions} == {"a": 2, "b": 1, OTHER: 4}
    assert snapshot.leases[0] == LeaseCount(OTHER, "taken", 10)
    # The rule that is called `other` was not folded, and the lease was.
    assert snapshot.folded == 4


def test_whatever_rules_come_the_labels_stay_within_their_bound() -> None:
    tally = DecisionMetrics()
    for at in range(10_000):
        tally.record_decision(allowed(f"rule {at}"), "k", NOW, NOW)
        tally.record_lease(f"rule {at}", "spent", 1)
    snapshot = tally.snapshot()
    assert len({row.rule for row in snapshot.decisions}) == 201
    assert snapshot.count() == 10_000
    assert snapshot.folded == 2 * 9_800


def test_keys_leave_no_trace() -> None:
    tally = DecisionMetrics()
    for at in range(100):
        tally.record_decision(refused(), f"user:{at}", NOW, NOW)
    assert "user:" not in repr(tally.snapshot())


def test_round_trips_fall_into_their_buckets() -> None:
    tally = DecisionMetrics()
    for took_us, decisions in ((0, 1), (50, 1), (51, 2), (1_000, 3), (5_000_001, 1_025), (-7, 1)):
        tally.record_round_trip(decisions, NOW, NOW + took_us, "")
    snapshot = tally.snapshot()
    trips = dict(zip((*ROUND_TRIP_US_BOUNDS, None), snapshot.round_trips_us.counts, strict=True))
    assert {bound: count for bound, count in trips.items() if count} == {
        50: 3,
        100: 1,
        1_000: 1,
        None: 1,
    }
    assert snapshot.round_trips_us.total == 0 + 50 + 51 + 1_000 + 5_000_001
    assert snapshot.round_trips_us.count == 6
    batches = dict(zip((*BATCH_BOUNDS, None), snapshot.batches.counts, strict=True))
    assert {bound: count for bound, count in batches.items() if count} == {
        1: 3,
        2: 1,
        4: 1,
        None: 1,
    }
    assert snapshot.batches.total == 1 + 1 + 2 + 3 + 1_025 + 1


def test_a_failure_is_counted_apart_from_what_was_answered() -> None:
    tally = DecisionMetrics()
    tally.record_round_trip(8, NOW, NOW + 3, "timeout")
    snapshot = tally.snapshot()
    assert snapshot.store_failures == 1
    assert snapshot.round_trips_us.count == snapshot.batches.count == 0


def test_degraded_time_runs_from_the_first_failure_to_the_next_answer() -> None:
    tally = DecisionMetrics()
    tally.record_round_trip(1, NOW, NOW + SECOND, "timeout")
    tally.record_round_trip(1, NOW + SECOND, NOW + 2 * SECOND, "timeout")
    snapshot = tally.snapshot()
    # Without a clock, up to what was told last.
    assert (snapshot.degraded, snapshot.degraded_us) == (True, SECOND)
    tally.record_decision(allowed(degraded=True), "k", NOW + 3 * SECOND, NOW + 3 * SECOND)
    assert tally.snapshot().degraded_us == 2 * SECOND
    tally.record_round_trip(1, NOW + 4 * SECOND, NOW + 5 * SECOND, "")
    snapshot = tally.snapshot()
    assert (snapshot.degraded, snapshot.degraded_us, snapshot.store_failures) == (
        False,
        4 * SECOND,
        2,
    )
    tally.record_round_trip(1, NOW + 8 * SECOND, NOW + 9 * SECOND, "")
    assert tally.snapshot().degraded_us == 4 * SECOND
    tally.record_round_trip(1, NOW + 10 * SECOND, NOW + 10 * SECOND, "gone")
    tally.record_round_trip(1, NOW + 10 * SECOND, NOW + 11 * SECOND, "")
    assert tally.snapshot().degraded_us == 5 * SECOND


def test_with_a_clock_a_failure_under_way_is_counted_to_the_present() -> None:
    clock = HandClock()
    tally = DecisionMetrics(clock=clock)
    tally.record_round_trip(1, clock.now_us(), clock.now_us(), "timeout")
    clock.advance(s=7)
    assert tally.snapshot().degraded_us == 7 * SECOND


def test_degraded_time_never_falls() -> None:
    clock = HandClock()
    tally = DecisionMetrics(clock=clock)
    tally.record_round_trip(1, NOW, NOW, "timeout")
    clock.advance(s=7)
    assert tally.snapshot().degraded_us == 7 * SECOND
    # An answer that came before the look, and was told after it.
    tally.record_round_trip(1, NOW, NOW + 6 * SECOND, "")
    assert tally.snapshot().degraded_us == 7 * SECOND
    # A clock that goes back.
    clock.go_back(s=100)
    tally.record_round_trip(1, NOW, NOW + 9 * SECOND, "timeout")
    tally.record_round_trip(1, NOW, NOW + 8 * SECOND, "")
    assert tally.snapshot().degraded_us == 7 * SECOND


def test_units_of_leases_are_counted_by_what_became_of_them() -> None:
    tally = DecisionMetrics()
    tally.record_lease("api", "taken", 100)
    for _ in range(60):
        tally.record_lease("api", "spent", 1)
    tally.record_lease("api", "returned", 30)
    tally.record_lease("api", "lapsed", 10)
    tally.record_lease("api", "stolen", 5)
    assert tally.snapshot().leases == (
        LeaseCount("api", "taken", 100),
        LeaseCount("api", "spent", 60),
        LeaseCount("api", "returned", 30),
        LeaseCount("api", "lapsed", 10),
    )


def test_a_snapshot_stands_still_and_travels() -> None:
    tally = DecisionMetrics()
    tally.record_decision(allowed(), "k", NOW, NOW)
    tally.record_round_trip(3, NOW, NOW + 70, "")
    before = tally.snapshot()
    tally.record_decision(refused(), "k", NOW, NOW)
    tally.record_decision(allowed(), "k", NOW, NOW)
    assert before.count() == 1
    assert pickle.loads(pickle.dumps(before)) == before
    assert {before: "a value"}[before] == "a value"


@pytest.mark.usefixtures("hasty_threads")
def test_no_count_is_lost_between_threads() -> None:
    tally = DecisionMetrics(rules_max=3)
    each = 3_000

    def work(at: int) -> None:
        for number in range(each):
            tally.record_decision(allowed(), "k", NOW, NOW)
            tally.record_decision(refused("login" if number % 2 else f"r{at}"), "k", NOW, NOW)
            tally.record_decision(tried_out(), "k", NOW, NOW)
            tally.record_round_trip(2, NOW, NOW + 10, "" if number % 3 else "timeout")
            tally.record_lease("login", "spent", 1)

    in_threads(12, work)
    snapshot = tally.snapshot()
    assert snapshot.count() == 3 * 12 * each
    assert snapshot.count("allowed", rule="login") == 12 * each
    assert snapshot.count("shadow_refused") == 12 * each
    assert snapshot.count("refused", rule="login") == 12 * each // 2
    assert snapshot.count("refused") == 12 * each
    assert snapshot.store_failures == 12 * each // 3
    assert snapshot.round_trips_us.count == 12 * each * 2 // 3
    assert snapshot.round_trips_us.total == 10 * snapshot.round_trips_us.count
    assert snapshot.batches.total == 2 * snapshot.batches.count
    assert snapshot.leases[1] == LeaseCount("login", "spent", 12 * each)
    assert len({row.rule for row in snapshot.decisions}) == 4
    assert snapshot.folded == 10 * each // 2


@pytest.mark.usefixtures("hasty_threads")
def test_snapshots_that_are_taken_while_threads_count_only_ever_grow() -> None:
    tally = DecisionMetrics()
    done = threading.Event()
    counts: list[int] = []

    def look() -> None:
        while not done.is_set():
            snapshot = tally.snapshot()
            counts.append(snapshot.count() + snapshot.store_failures)

    looker = threading.Thread(target=look)
    looker.start()

    def work(at: int) -> None:
        for number in range(1_500):
            tally.record_decision(allowed(f"{at}-{number % 10}"), "k", NOW, NOW)
            tally.record_decision(refused(f"{at}-{number % 10}"), "k", NOW, NOW)
            tally.record_round_trip(1, NOW, NOW, "x" if number % 2 else "")

    in_threads(4, work)
    done.set()
    looker.join()
    assert counts == sorted(counts)
    assert tally.snapshot().count() == 2 * 4 * 1_500


def test_threads_that_end_leave_their_counts_and_nothing_else() -> None:
    tally = DecisionMetrics()
    for _ in range(50):
        in_threads(4, lambda _: tally.record_decision(allowed(), "k", NOW, NOW))
    gc.collect()
    assert tally.snapshot().count() == 200
    assert tally.threads == 0
    tally.record_decision(allowed(), "k", NOW, NOW)
    assert tally.threads == 1
    # And without anybody who looks, those that come make room for themselves.
    for _ in range(50):
        in_threads(1, lambda _: tally.record_decision(allowed(), "k", NOW, NOW))
    assert tally.threads <= 2
    assert tally.snapshot().count() == 251


@given(
    decisions=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.booleans(), st.booleans(), st.booleans()),
        max_size=60,
    ),
    rules_max=st.integers(1, 8),
)
def test_the_sum_is_what_a_plain_counter_says(
    decisions: list[tuple[str, bool, bool, bool]], rules_max: int
) -> None:
    tally = DecisionMetrics(rules_max=rules_max)
    named: set[str] = set()
    oracle: Counter[tuple[str, str]] = Counter()
    for rule, allows, degrades, tries in decisions:
        decision = allowed(rule) if allows else tried_out(rule) if tries else refused(rule)
        tally.record_decision(decision.with_marks(degraded=degrades), "k", NOW, NOW)
        if len(named) < rules_max:
            named.add(rule)
        if not allows and tries:
            outcome = "shadow_refused"
        else:
            outcome = ("degraded_" if degrades else "") + ("allowed" if allows else "refused")
        oracle[rule if rule in named else OTHER, outcome] += 1
    sums: Counter[tuple[str, str]] = Counter()
    snapshot = tally.snapshot()
    for row in snapshot.decisions:
        sums[row.rule, row.outcome] += row.decisions
    assert sums == oracle
    assert snapshot.folded == sum(count for (rule, _), count in oracle.items() if rule == OTHER)


def test_a_bound_below_one_is_told() -> None:
    with pytest.raises(BadValue, match="rules_max"):
        DecisionMetrics(rules_max=0)
