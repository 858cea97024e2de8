"""The law of each baseline that is named after a system, one step at a time."""

from __future__ import annotations

import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.admission_levels import DEPLOYED_TICK_US, TICK_US, Cohorts, Pid
from sluicegate.lab.baselines.credits import Breakwater, CreditPool
from sluicegate.lab.baselines.entry_rates import TopFull, rate_factor
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.station_candidates import BASELINES, SETTLED
from sluicegate.lab.work_queue import WorkUnit

MS = 1_000
SECOND = 1_000_000


def unit(at_us: int, *, kind: int = 0, timeout_us: int = 500 * MS) -> WorkUnit:
    return WorkUnit(kind, 0, at_us, at_us + timeout_us, 0)


# Breakwater.


def test_credits_grow_by_one_or_a_thousandth_of_the_clients_below_the_target() -> None:
    few, many = CreditPool(8, 100, 80 * MS), CreditPool(8, 5_000, 80 * MS)
    few.tick(79 * MS)
    many.tick(0)
    assert (few.credits, many.credits) == (9.0, 13.0)


def test_credits_shrink_by_how_far_the_delay_is_above_the_target_and_never_below_the_workers() -> (
    None
):
    pool = CreditPool(8, 100, 80 * MS)
    pool.credits = 1_000.0
    pool.tick(80 * MS)
    assert pool.credits == 1_000.0, "at the target nothing is too much"
    pool.tick(160 * MS)
    assert pool.credits == pytest.approx(980.0), "one target too much: 2%"
    pool.tick(80_000 * MS)
    assert pool.credits == pytest.approx(490.0), "half at most"
    for _ in range(10):
        pool.tick(80_000 * MS)
    assert pool.credits == 8.0


def test_who_has_no_credit_waits_at_the_client_for_a_round_trip() -> None:
    line, lost = Breakwater(1, 1, 10 * MS), list[WorkUnit]()
    first, second, third = unit(0), unit(1), unit(2)
    line.arrive(first, 0, lost)
    assert line.take(0, lost) is first
    line.arrive(second, 1, lost)
    line.arrive(third, 2, lost)
    assert (line.waiting(), lost) == (2, [])
    assert line.take(5 * MS, lost) is second, "whoever is done gives the credit on"
    assert line.take(25 * MS, lost) is None
    assert lost == [third]


def test_the_server_refuses_what_comes_behind_more_than_twice_the_target() -> None:
    line, lost = Breakwater(1, 100, 10 * MS), list[WorkUnit]()
    line._pool.credits = 50.0
    line.arrive(unit(0), 0, lost)
    line.take(0, lost)
    line.arrive(unit(1 * MS), 1 * MS, lost)
    line.arrive(unit(160 * MS), 160 * MS, lost)
    assert lost == []
    late = unit(162 * MS)
    line.arrive(late, 162 * MS, lost)
    assert lost == [late]


# TopFull.


def test_a_rate_is_cut_by_what_is_too_much_and_raised_by_a_tenth_of_what_is_left() -> None:
    assert rate_factor(100.0, 100.0) == 1.0
    assert rate_factor(101.0, 100.0) == pytest.approx(0.95), "at least 5%"
    assert rate_factor(125.0, 100.0) == pytest.approx(0.8)
    assert rate_factor(1_000.0, 100.0) == 0.5, "half at most"
    assert rate_factor(50.0, 100.0) == pytest.approx(1.05)
    assert rate_factor(0.0, 100.0) == pytest.approx(1.1)


def test_the_lowest_priority_is_cut_first_and_the_highest_is_raised_first() -> None:
    line = TopFull([int(Criticality.BULK), int(Criticality.CRITICAL)], 10.0 * MS)
    lost: list[WorkUnit] = []
    for at in range(10):
        line.arrive(unit(at, kind=0), at, lost)
        line.arrive(unit(at, kind=1), at, lost)
    for _ in range(20):
        line.take(400 * MS, lost)  # 410 ms each, against an objective of 100
    line.arrive(unit(SECOND), SECOND, lost)
    assert line.rates == [5.0, 0.0], "half of the ten that came, and CRITICAL has no limit"
    line._apis[0].held_back = line._apis[1].held_back = 1
    line._apis[1].rate = 8.0
    line.arrive(unit(2 * SECOND), 2 * SECOND, lost)
    assert line.rates == [5.0, pytest.approx(8.8)]


# Cinnamon.


def test_as_deployed_the_error_is_over_what_went_out_and_twice_a_second() -> None:
    """160 come and 40 go in half a second, of 50 that could: an error of 110 over 40, or over 50.

    The first five ticks of the other form are each a tenth of a second.
    """
    rig = Rig(kinds=(WorkKind(name="get", arrivals=Poisson(1.0), callers=500),))
    found = []
    for over_out in (True, False):
        line = Pid(Cohorts(rig, 1 << 60), 50.0, tick_us=DEPLOYED_TICK_US, over_out=over_out)
        lost: list[WorkUnit] = []
        for at in range(160):
            line.arrive(WorkUnit(0, at, at, SECOND, 0), at, lost)
        for _ in range(40):
            line.take(1_000, lost)
        line.arrive(unit(DEPLOYED_TICK_US - 1), DEPLOYED_TICK_US - 1, lost)
        assert line._sum == 0.0
        line.arrive(unit(DEPLOYED_TICK_US), DEPLOYED_TICK_US, lost)
        found.append(line._sum)
    assert found == [min(111 / 40 * 0.5, 1 / 1.4), min(111 / 50 * 0.5, 1 / 1.4)]
    assert TICK_US < DEPLOYED_TICK_US


# All of them.


def test_where_the_load_stays_a_level_has_time_to_come_down() -> None:
    """DAGOR moves once a second: measured from the second second on it has not come down yet."""
    kinds = (
        WorkKind(
            name="critical",
            arrivals=Poisson(80.0),
            criticality=Criticality.CRITICAL,
            callers=200,
        ),
        WorkKind(name="bulk", arrivals=Poisson(720.0), criticality=Criticality.BULK, callers=200),
    )
    rig = Rig(kinds=kinds, workers=4, span_us=4 * SECOND, warm_us=SECOND)
    early = figures(rig, BASELINES["dagor"].run(rig, 1))
    settled = figures(rig, SETTLED["dagor"].run(rig, 1))
    assert early["success.critical"] < 0.9
    assert settled["success.critical"] > 0.98
