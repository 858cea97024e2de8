"""Suppression's rig, and the scenario scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Even, Steps, poisson_count
from sluicegate.lab.rigs.account_steps import (
    AccountSteps,
    play_steps,
    shown_us,
    spent_us,
    step_figures,
)
from sluicegate.lab.rigs.accounts import (
    BUCKET_US,
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
from sluicegate.lab.scenarios.suppression import SCENARIO, fixed_shares, no_suppression
from sluicegate.testing import SeededChance
from tests.prove.seeds import first

S = 1_000_000
L = 400
STEP_GOALS = ("late_s", "beyond_s", "moved_s", "off")
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


def test_what_comes_in_batches_is_as_much_as_what_comes_by_itself() -> None:
    steps = replace(RIG, arrivals=Steps(((0, L), (2 * S, 3 * L))), batch_us=10_000)
    runs = [play(rig, no_suppression, 1) for rig in (steps, replace(steps, batch_us=0))]
    for begin_s, end_s, limits in ((0, 2, 1), (2, 4, 3)):
        for run in runs:
            count = sum(run.attempted[begin_s * PER_S : end_s * PER_S])
            assert count == pytest.approx(2 * limits * L, rel=0.1)
    with pytest.raises(BadValue, match="batch_us"):
        replace(steps, arrivals=Even(L))


@pytest.mark.parametrize("mean", [0.3, 7.0, 60.0])
def test_counts_have_poissons_mean_and_variance(mean: float) -> None:
    draw = SeededChance(1).draw
    counts = [poisson_count(mean, draw) for _ in range(4_000)]
    found = sum(counts) / len(counts)
    assert found == pytest.approx(mean, rel=0.05)
    assert sum((count - found) ** 2 for count in counts) / len(counts) == pytest.approx(
        mean, rel=0.1
    )


def test_a_step_is_spent_by_the_burst_and_shown_when_chance_explains_it_no_more() -> None:
    rig = AccountSteps(per_s=L).rig(1.5)
    run = AccountRun(rig.span_us)
    run.attempted[rig.step_us // BUCKET_US :] = [30] * (len(run.attempted) - 3 * PER_S)
    run.admitted[:] = run.attempted
    assert spent_us(rig, run) - rig.step_us == pytest.approx(2.0 * S, abs=0.11 * S)
    # 0.5 t > 1 + 3 sqrt(t / 400)
    assert shown_us(rig, run) - rig.step_us == pytest.approx(2.5 * S, abs=0.11 * S)
    found = step_figures(rig, run)
    assert found["late_s"] == found["moved_s"] == float("inf"), "1.5 limits pass in every second"
    assert found["beyond_s"] > 4
    assert found["off"] > 0.4
    first = shown_us(rig, run) // BUCKET_US + PER_S
    run.admitted[first:] = [20] * (len(run.admitted) - first)
    found = step_figures(rig, run)
    assert 0 < found["late_s"] < found["spent_late_s"] < 2
    assert found["moved_s"] == found["off"] == 0


def test_a_step_needs_a_number_of_limits() -> None:
    with pytest.raises(BadValue, match="times"):
        AccountSteps(per_s=L, times=(1.0,))


@pytest.mark.prove
def test_a_step_of_any_size_is_held_as_soon_as_it_can_be_told_from_chance() -> None:
    rig = AccountSteps(per_s=100, times=(1.2, 3.0))
    small = replace(
        SCENARIO,
        rigs={"steps": rig},
        goals=tuple(
            replace(goal, cases=()) for goal in SCENARIO.goals if goal.figure in STEP_GOALS
        ),
    )
    assert run_trials(small, [SCENARIO.ours], range(2)).meets_goals(SCENARIO.ours)
    for name in SCENARIO.must_fail:
        assert not run_trials(small, [name], range(1)).meets_goals(name), name
    assert len(SCENARIO.curves(rig, play_steps(rig, no_suppression, 1))["attempted"]) > 50


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
    first(1, [("ladder", True), *((name, False) for name in SCENARIO.must_fail)]),
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
