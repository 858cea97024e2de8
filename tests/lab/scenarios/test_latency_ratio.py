"""The rig of latencies over hours, and the scenario scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import run_trials
from sluicegate.lab.scenarios.latency_ratio import (
    SCENARIO,
    STRESS,
    LatencyRig,
    LatencyRun,
    StressReading,
    WorkClass,
    day,
    play,
)
from tests.prove.seeds import first

S = 1_000_000
SHORT = {
    "stress": replace(STRESS, sick_us=(200 * S, 900 * S), span_us=930 * S),
    "day": replace(day(1), span_us=2_400 * S),
}


class RecordingReader:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.work: list[tuple[str, int, int]] = []

    def record_work(self, operation: str, service_us: int, now_us: int) -> None:
        self.work.append((operation, service_us, now_us))

    def reading(self, now_us: int) -> StressReading:
        return StressReading(1.0, False)


def work_of(rig: LatencyRig, seed: int = 1) -> list[tuple[str, int, int]]:
    watcher = RecordingReader()
    play(rig, lambda: watcher, seed)
    return watcher.work


def test_work_comes_at_its_rate_in_order_and_takes_its_median() -> None:
    rig = LatencyRig(works=(WorkClass(name="get", per_s=((0, 100.0),)),), span_us=60 * S)
    work = work_of(rig)
    assert len(work) == pytest.approx(6_000, rel=0.05)
    assert [at_us for _, _, at_us in work] == sorted(at_us for _, _, at_us in work)
    assert sorted(us for _, us, _ in work)[len(work) // 2] == pytest.approx(5_000, rel=0.05)


def test_a_class_changes_its_rate_and_is_none_before_its_first() -> None:
    scan = WorkClass(name="scan", per_s=((10 * S, 10.0), (20 * S, 100.0)))
    assert [scan.per_s_at(at_us) for at_us in (0, 10 * S, 20 * S)] == [0.0, 10.0, 100.0]
    work = work_of(LatencyRig(works=(scan,), span_us=30 * S))
    assert min(at_us for _, _, at_us in work) >= 10 * S


def test_the_day_swings_load_and_burden_and_sickness_multiplies() -> None:
    get = WorkClass(name="get", per_s=((0, 100.0),), sigma=0.001)
    rig = LatencyRig(
        works=(get,),
        swing=0.5,
        burden=1.0,
        day_us=100 * S,
        span_us=100 * S,
        sick_us=(90 * S, 100 * S),
        slower=3.0,
    )
    work = work_of(rig)
    night = [us for _, us, at_us in work if at_us < 5 * S]
    noon = [us for _, us, at_us in work if 48 * S <= at_us < 53 * S]
    sick = [us for _, us, at_us in work if at_us >= 95 * S]
    assert 2.5 < len(noon) / len(night) < 3.5
    assert sum(noon) / len(noon) == pytest.approx(10_000, rel=0.02)
    assert sum(sick) / len(sick) == pytest.approx(15_000, rel=0.05)


def test_a_trip_is_where_stress_begins() -> None:
    run = LatencyRun()
    run.stressed = [True, True, False, True, False, False, True]
    assert run.trips == 3


@pytest.mark.parametrize(
    ("field", "value"), [("works", ()), ("swing", 1.0), ("sick_us", (5, 1)), ("span_us", 1)]
)
def test_a_rig_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadValue):
        replace(STRESS, **{field: value})  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_run() -> None:
    rig = replace(STRESS, sick_us=(0, 0), span_us=5 * S)
    assert work_of(rig, 1) == work_of(rig, 1) != work_of(rig, 2)


@pytest.mark.parametrize(
    ("candidate", "well"),
    first(2, [("stress", True), *((name, False) for name in SCENARIO.must_fail)]),
)
def test_ours_meets_the_goals_and_those_who_must_fail_do_not(candidate: str, well: bool) -> None:
    case = "day" if candidate == "without-classes" else "stress"
    rigs = SHORT if well else {case: SHORT[case]}
    goals = tuple(goal for goal in SCENARIO.goals if not goal.cases or case in goal.cases)
    small = replace(SCENARIO, rigs=rigs, goals=SCENARIO.goals if well else goals)
    assert run_trials(small, [candidate], range(1)).meets_goals(candidate) is well


@pytest.mark.prove
def test_a_day_of_24_hours_passes_without_an_alarm() -> None:
    whole = replace(SCENARIO, rigs={"day": day(24)}, goals=SCENARIO.goals[-1:])
    assert run_trials(whole, ["stress"], range(1)).meets_goals("stress")


def test_its_curves_are_short() -> None:
    run = play(SHORT["stress"], RecordingReader, 1)
    assert len(SCENARIO.curves(SHORT["stress"], run)["ratio"]) <= 500
