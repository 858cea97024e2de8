"""The scenarios keep their promises: one seed here, five in `make prove`, one of those in CI."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.contenders import ALL, BASELINES, OURS
from sluicegate.lab.scenario import KERNELS, TASKS, AnyScenario, gather, steps
from sluicegate.lab.scenarios import TABLE, find
from tests.lab.rigs import small
from tests.prove.seeds import in_slice, seeds, whole

SCENARIOS = list(TABLE.values())
# The quick ones: those of one station. Others are tried scaled down in tests/lab/scenarios.
STATIONS = [scenario for scenario in SCENARIOS if "kernels" in scenario.contenders]
SECOND = 1_000_000


def met(scenario: AnyScenario, contender: str, of: Iterable[int] = range(1)) -> bool:
    return gather(scenario, steps(scenario, [contender], of)).met(contender)


@pytest.mark.parametrize("scenario", STATIONS, ids=lambda scenario: scenario.name)
def test_the_kernels_meet_every_goal(scenario: AnyScenario) -> None:
    assert met(scenario, "kernels")


@pytest.mark.parametrize("scenario", STATIONS, ids=lambda scenario: scenario.name)
def test_the_baseline_that_must_fail_fails(scenario: AnyScenario) -> None:
    assert not met(scenario, scenario.must_fail[0])


def test_the_production_queue_meets_the_goals_at_twice_the_load() -> None:
    overload = TABLE["overload"]
    rig = replace(overload.rigs["2x"], span_us=2 * SECOND)
    goals = tuple(goal for goal in overload.goals if not goal.cases or "2x" in goal.cases)
    kept = tuple(replace(goal, cases=()) for goal in goals)
    assert met(replace(overload, rigs={"2x": rig}, goals=kept), "queue")


# A slice is one of the five seeds for one in four of the scenarios. What is measured by the clock
# on the wall is for a quiet machine.
SLICES = 4
PROVEN = [
    scenario
    for scenario in SCENARIOS
    if in_slice(scenario.number, SLICES)
    and scenario.contender(scenario.ours).mode in {KERNELS, TASKS}
]


@pytest.mark.prove
@pytest.mark.parametrize("scenario", PROVEN, ids=lambda scenario: scenario.name)
def test_ours_meets_every_goal_with_five_seeds(scenario: AnyScenario) -> None:
    played = range(5) if whole() else [seed // SLICES % 5 for seed in seeds(5, 1)]
    assert met(scenario, scenario.ours, played)


@pytest.mark.prove
@pytest.mark.parametrize("scenario", PROVEN, ids=lambda scenario: scenario.name)
def test_who_must_fail_fails_and_so_does_ours_without_its_policy(scenario: AnyScenario) -> None:
    for name in scenario.must_fail:
        assert not met(scenario, name), name


def test_scenarios_are_numbered_in_order_and_found_by_name_or_number() -> None:
    numbers = [scenario.number for scenario in SCENARIOS]
    assert numbers == sorted(set(numbers))
    assert find("1") is find("overload") is TABLE["overload"]
    with pytest.raises(BadValue, match="overload"):
        find("overlord")


def test_every_contender_is_ours_or_a_baseline() -> None:
    assert set(ALL) == set(OURS) | set(BASELINES)
    assert not set(OURS) & set(BASELINES)


def test_trials_run_every_contender_case_and_seed_and_count_them() -> None:
    scenario = replace(
        TABLE["overload"], rigs={"2x": small(2), "3x": small(3)}, goals=TABLE["overload"].goals[-1:]
    )
    seen = list(steps(scenario, ["kernels", "fifo"], range(4, 6)))
    assert [(s.contender, s.case, s.seed) for s in seen[:4]] == [
        ("kernels", "2x", 4),
        ("fifo", "2x", 4),
        ("kernels", "3x", 4),
        ("fifo", "3x", 4),
    ]
    assert (seen[-1].done, seen[-1].runs) == (8, 8)
    again = list(steps(scenario, ["kernels", "fifo"], range(4, 6)))
    assert seen == again


def test_a_scenario_that_names_nobody_real_is_refused() -> None:
    overload = TABLE["overload"]
    with pytest.raises(BadValue, match="must_fail"):
        replace(overload, must_fail=("nobody",))
    with pytest.raises(BadValue, match="contender"):
        overload.contender("nobody")
    with pytest.raises(BadValue, match=r"goal\.cases"):
        replace(overload, rigs={"9x": small(9)})
