from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.hunt import invariants
from sluicegate.lab.hunt.invariants import RECORDED, TABLE, check, count_swings
from sluicegate.lab.hunt.record import (
    CANCELLED,
    DONE,
    REFUSED,
    VIOLATIONS_MAX,
    HuntRecord,
    HuntUnit,
    SpendingLimit,
)
from sluicegate.lab.hunt.setup import HuntLoad, Setup

SETUP = Setup(stage="server", seed=0, span_ms=1_000, loads=(HuntLoad(name="a"),))
MS = 1_000
S = 1_000_000


def unit_of(
    criticality: Criticality,
    arrived_us: int,
    *,
    begun_us: int = -1,
    ended_us: int = -1,
    reason: str = "",
    deadline_us: int | None = None,
) -> HuntUnit:
    unit = HuntUnit(0, arrived_us, deadline_us)
    unit.criticality = criticality
    unit.begun_us, unit.ended_us = begun_us, ended_us
    unit.waited_us = max(ended_us, begun_us) - arrived_us
    unit.reason = reason
    unit.status = REFUSED if reason else DONE
    return unit


def names(record: HuntRecord) -> list[str]:
    return [broken.invariant for broken in check(SETUP, record)]


def test_an_empty_tale_breaks_nothing() -> None:
    assert check(SETUP, HuntRecord()) == []


def test_a_level_above_its_bound_is_found_and_one_at_it_is_not() -> None:
    record = HuntRecord()
    record.bounds["places taken"] = 8
    for level in (3, 8, 5):
        record.level("places taken", level)
    assert names(record) == []
    record.level("places taken", 9)
    assert names(record) == ["bounded"]


def test_spending_is_held_against_rate_and_burst_in_every_span() -> None:
    record = HuntRecord()
    record.limits["ann"] = SpendingLimit(10.0, 5.0)
    for n in range(5):
        record.spend("ann", 100 * S + n, 1)
    record.spend("ann", 100 * S + 200 * MS, 1)
    record.spend("ann", 100 * S + 200 * MS, 1)
    assert names(record) == []
    record.spend("ann", 100 * S + 250 * MS, 1)
    assert names(record) == ["not over-admitted"]


def test_what_is_given_back_may_be_spent_again_but_nothing_is_saved_up() -> None:
    record = HuntRecord()
    record.limits["ann"] = SpendingLimit(0.001, 5.0)
    for amount in (5, -5, 5, -5, -5, 5):
        record.spend("ann", S, amount)
    assert names(record) == []
    record.spend("ann", S, 1)
    assert names(record) == ["not over-admitted"]


def test_what_is_left_at_the_end_is_found() -> None:
    record = HuntRecord()
    record.left = {"waiting": 0, "at work": 1}
    assert names(record) == ["nothing left"]


def test_work_begun_after_its_deadline_and_a_refusal_told_after_it_are_found() -> None:
    critical = Criticality.CRITICAL
    record = HuntRecord()
    record.units = [
        unit_of(critical, 0, begun_us=10, ended_us=90, deadline_us=50),
        unit_of(critical, 0, ended_us=50 + 5 * MS, reason="deadline", deadline_us=50),
    ]
    assert names(record) == []
    late = unit_of(critical, 0, begun_us=51, ended_us=90, deadline_us=50)
    refusal = unit_of(critical, 0, ended_us=50 * MS, reason="deadline", deadline_us=50)
    for unit in (late, refusal):
        record.units = [unit]
        assert names(record) == ["in time"]
    refusal.status = CANCELLED
    assert names(record) == []


def test_bulk_that_overtakes_a_critical_unit_that_waits_in_vain_is_found() -> None:
    waits = unit_of(Criticality.CRITICAL, 0, ended_us=100 * MS, reason="queue_timeout")
    served = [
        unit_of(Criticality.DEGRADED, 0, begun_us=n * MS, ended_us=n * MS + 1) for n in range(50)
    ]
    bulk = [unit_of(Criticality.BULK, 0, begun_us=n * MS, ended_us=n * MS + 1) for n in range(2, 9)]
    record = HuntRecord()
    record.units = [waits, *served, *bulk[:4]]
    assert names(record) == [], "two, and a twentieth of what was begun"
    record.units = [waits, *served, *bulk]
    assert names(record) == ["critical waits for nobody less"]


def test_bulk_that_passes_the_shedder_between_critical_units_that_do_not_is_found() -> None:
    def shed_at(*at_ms: int) -> list[HuntUnit]:
        return [unit_of(Criticality.CRITICAL, ms * MS, reason="shed") for ms in at_ms]

    bulk = [
        unit_of(Criticality.BULK, 50 * MS + n, begun_us=50 * MS + n, ended_us=S) for n in range(12)
    ]
    record = HuntRecord()
    record.units = [*shed_at(0), *bulk, *shed_at(199)]
    assert names(record) == ["critical goes last"]
    record.units = [*shed_at(0), *bulk, *shed_at(200)]
    assert names(record) == [], "the level may have risen and fallen in between"
    floor = [unit_of(Criticality.BULK, 60 * MS, reason="shed") for _ in range(300)]
    record.units = [*shed_at(0), *bulk, *floor, *shed_at(199)]
    assert names(record) == [], "so many may pass by the floor"


def test_what_passes_may_wander_but_not_swing() -> None:
    record = HuntRecord()
    record.step_us, record.settled = 500 * MS, (0, 100 * S)
    record.courses["admitted"] = [(n * 500 * MS, 1_000 + 300 * (n % 2)) for n in range(20)]
    assert names(record) == []
    record.courses["admitted"] = [(n * 500 * MS, 1_600 * (n % 4 > 1)) for n in range(20)]
    assert names(record) == ["steady"]
    record.settled = None
    assert names(record) == [], "something changed outside"


@pytest.mark.parametrize(
    ("values", "swings"),
    [([5, 5, 5], 0), ([0, 10, 0, 10], 3), ([0, 4, 0, 4], 0), ([0, 3, 6, 9, 12], 1), ([9, 0], 1)],
)
def test_swings_are_counted_where_it_turns(values: list[int], swings: int) -> None:
    assert count_swings(values, 5) == swings


def test_what_a_stage_has_seen_is_named_once_and_kept_in_bounds() -> None:
    record = HuntRecord()
    for n in range(100):
        record.add_violation("own reads", f"a read of k{n} was stale")
    assert len(record.violations) == VIOLATIONS_MAX
    assert check(SETUP, record) == [("own reads", "a read of k0 was stale")]


def test_every_invariant_has_a_sentence() -> None:
    assert all(invariant.__doc__ for invariant in TABLE.values())
    assert not set(TABLE) & set(RECORDED)
    assert invariants.BULK_SHARE_MAX < 0.1
