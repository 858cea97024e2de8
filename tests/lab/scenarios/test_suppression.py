"""Suppression's rig, and the scenario scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even, Steps
from sluicegate.lab.baselines.account_schemes import fixed_shares, no_suppression
from sluicegate.lab.rigs.accounts import (
    PER_S,
    AccountRig,
    AccountRun,
    ConformingArrivals,
    overshoot_s,
    play,
    rates,
    settled_s,
    suppressing,
    swing,
)
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.suppression import SCENARIO
from sluicegate.testing import SeededChance

S = 1_000_000
L = 400
RIG = AccountRig(arrivals=Even(L), per_s=L, nodes=4, span_us=4 * S)
STEP = replace(
    RIG,
    arrivals=Steps(((0, 0.8 * L), (S, 10 * L), (14 * S, 0.9 * L))),
    hot=((0, 0), (11 * S, 3), (14 * S, 1)),
    step_us=S,
    shift_us=11 * S,
    drop_us=14 * S,
    span_us=16 * S,
)
SURGE = replace(
    RIG,
    arrivals=Steps(((0, 0.8 * L), (4 * S, 10 * L))),
    step_us=4 * S,
    parted_us=(2 * S, 8 * S),
    cut=1,
    span_us=8 * S,
)
BURSTS = replace(
    RIG, arrivals=ConformingArrivals(per_s=L, burst=L), hot=((0, 0), (3 * S, 2)), span_us=6 * S
)


def flat(*per_bucket: int) -> AccountRun:
    """A run that has admitted so many in each twentieth of a second, by whole seconds."""
    run = AccountRun(len(per_bucket) * S)
    for at, count in enumerate(per_bucket):
        run.admitted[at * PER_S : (at + 1) * PER_S] = [count] * PER_S
    return run


def test_rates_are_in_limits_and_settled_is_when_the_last_second_off_begins() -> None:
    run = flat(20, 60, 40, 20, 20, 20)  # of 20 a bucket, 400 a second
    assert rates(RIG, run, 0, 2 * S, 1)[::PER_S] == [1.0, 3.0]
    assert settled_s(RIG, run, S, 6 * S, 0.95, 1.05) == pytest.approx(1.95, abs=0.051)
    assert settled_s(RIG, run, 3 * S, 6 * S, 0.95, 1.05) == 0.0
    assert settled_s(RIG, run, 0, 3 * S, 0.95, 1.05) == float("inf")


def test_overshoot_is_what_was_admitted_above_the_limit_beyond_one_burst() -> None:
    run = flat(20, 60, 40, 20, 0, 20)
    assert overshoot_s(RIG, run, S, 6 * S) == pytest.approx(2.0 + 1.0 - 1.0)
    assert overshoot_s(RIG, run, S, 6 * S, 1.5) == pytest.approx(1.5 + 0.5 - 1.0)
    assert overshoot_s(RIG, run, 3 * S, 6 * S) == 0.0


def test_a_swing_has_a_height_and_a_period_and_a_wobble_has_none() -> None:
    height, period_s = swing(RIG, flat(*[0, 60, 20, 0, 40, 20] * 2), 0, 12 * S)
    assert height == pytest.approx(3.0)
    assert period_s == pytest.approx(3.0, abs=0.2)
    height, period_s = swing(RIG, flat(20, 24, 16, 24, 16), 0, 5 * S)
    assert height == pytest.approx(0.4)
    assert period_s == 0.0


@pytest.mark.parametrize("burst", [1, 50, 500])
def test_conforming_traffic_is_all_that_the_limit_allows_and_not_one_more(burst: int) -> None:
    level, last_us, least = float(burst), 0, float(burst)
    arrivals = ConformingArrivals(per_s=100, burst=burst).instants_us(SeededChance(1))
    count = 0
    for at_us in arrivals:
        if at_us > 60 * S:
            break
        assert at_us >= last_us
        level = min(level + (at_us - last_us) * 100 / S, float(burst)) - 1
        assert level > -1e-3
        least, last_us, count = min(least, level), at_us, count + 1
    assert least < 0.1, "it spends its burst"
    assert count > 1_000


def test_the_hot_node_moves_in_a_ring_and_takes_its_share_with_it() -> None:
    rig = replace(RIG, nodes=3, hot=((0, 2), (2 * S, 1)))
    assert [rig.hot_at(at) for at in (0, 2 * S - 1, 2 * S)] == [2, 2, 1]
    assert play(rig, no_suppression, 1).refused == 0
    # Of Zipf's thirds the hottest has 6/11, and a fixed share is one third.
    refused = play(replace(rig, span_us=20 * S), fixed_shares, 1).refused
    assert refused > 0.1 * L * 20


def test_nodes_that_are_cut_off_keep_their_limit_without_a_word() -> None:
    cut = play(SURGE, suppressing(), 1)
    uncut = play(replace(SURGE, parted_us=None), suppressing(), 1)
    assert uncut.admitted[: 2 * PER_S] == cut.admitted[: 2 * PER_S]
    assert uncut.admitted != cut.admitted


@pytest.mark.parametrize(("field", "value"), [("nodes", 0), ("cut", 4), ("hot", ((1, 0),))])
def test_a_rig_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=field):
        replace(RIG, **{field: value})  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_run() -> None:
    rig = replace(STEP, span_us=2 * S)
    admitted = [play(rig, suppressing(), seed).admitted for seed in (1, 1, 2)]
    assert admitted[0] == admitted[1] != admitted[2]


@pytest.mark.parametrize(
    ("candidate", "well"),
    [("ladder", True), *((name, False) for name in SCENARIO.must_fail)],
)
def test_ours_meets_the_goals_and_those_who_must_fail_do_not(candidate: str, well: bool) -> None:
    rigs = {"step": STEP, "bursts": BURSTS} | ({"surge": SURGE} if well else {})
    goals = [
        replace(goal, cases=tuple(case for case in goal.cases if case in rigs))
        for goal in SCENARIO.goals
    ]
    small = replace(SCENARIO, rigs=rigs, goals=tuple(goal for goal in goals if goal.cases))
    assert run_trials(small, [candidate], range(1)).meets_goals(candidate) is well


def test_its_curves_are_short_and_in_limits() -> None:
    curves = SCENARIO.curves(STEP, play(STEP, no_suppression, 1))
    assert all(50 <= len(points) <= 500 for points in curves.values())
    assert max(rate for _, rate in curves["admitted"]) > 8
