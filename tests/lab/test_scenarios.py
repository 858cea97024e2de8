"""The scenarios keep their promises: one seed here; tests/prove/test_scenario_seeds.py has more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.scenario import AnyScenario, run_trials
from sluicegate.lab.scenarios import TABLE, find
from sluicegate.lab.station_candidates import ALL, BASELINES, OURS
from tests.lab.rigs import small
from tests.prove.seeds import in_slice

SCENARIOS = list(TABLE.values())
# The quick ones: those of one station. Others are tried scaled down in tests/lab/scenarios.
STATIONS = [one for one in SCENARIOS if "queue" in one.candidates and "queue" not in one.must_fail]
SECOND = 1_000_000
GUIDE = Path(__file__).parents[2] / "docs/guides/lab.md"


def met(scenario: AnyScenario, candidate: str, of: Iterable[int] = range(1)) -> bool:
    return run_trials(scenario, [candidate], of).meets_goals(candidate)


def lightest(scenario: AnyScenario) -> AnyScenario:
    """Return a scenario with its first case alone, which is the one of the least load."""
    case, rig = next(iter(scenario.rigs.items()))
    goals = [goal for goal in scenario.goals if not goal.cases or case in goal.cases]
    return replace(
        scenario, rigs={case: rig}, goals=tuple(replace(goal, cases=()) for goal in goals)
    )


def test_guide_names_scenarios_and_candidates_that_there_are() -> None:
    rows = re.findall(r"(?m)^\| (\d+) \| `([\w-]+)` \|.*\| ([^|]*) \|$", GUIDE.read_text())
    named = {name: (int(number), {*re.findall(r"`([\w-]+)`", last)}) for number, name, last in rows}
    assert named == {one.name: (one.number, {*one.must_fail}) for one in SCENARIOS}


@pytest.mark.parametrize("scenario", STATIONS, ids=lambda scenario: scenario.name)
def test_queue_meets_every_goal(scenario: AnyScenario) -> None:
    assert met(lightest(scenario), "queue")


@pytest.mark.parametrize("scenario", STATIONS, ids=lambda scenario: scenario.name)
def test_the_baseline_that_must_fail_fails(scenario: AnyScenario) -> None:
    assert not met(scenario, scenario.must_fail[0])


def test_the_production_queue_meets_the_goals_at_twice_the_load() -> None:
    overload = TABLE["overload"]
    rig = replace(overload.rigs["2x"], span_us=2 * SECOND)
    goals = tuple(goal for goal in overload.goals if not goal.cases or "2x" in goal.cases)
    all_goals = tuple(replace(goal, cases=()) for goal in goals)
    assert met(replace(overload, rigs={"2x": rig}, goals=all_goals), "queue")


# A slice is one in four of the scenarios.
SLICES = 4
PROVEN = [scenario for scenario in SCENARIOS if in_slice(scenario.number, SLICES)]


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


def test_every_candidate_is_ours_or_a_baseline() -> None:
    assert set(ALL) == set(OURS) | set(BASELINES)
    assert not set(OURS) & set(BASELINES)


def test_trials_run_every_candidate_case_and_seed() -> None:
    scenario = replace(
        TABLE["overload"], rigs={"2x": small(2), "3x": small(3)}, goals=TABLE["overload"].goals[-1:]
    )
    results = run_trials(scenario, ["queue", "fifo"], range(4, 6))
    runs = [
        (name, case, seed)
        for name, cases in results.figures.items()
        for case, of_seeds in cases.items()
        for seed in of_seeds
    ]
    assert runs == [*product(("queue", "fifo"), ("2x", "3x"), (4, 5))]
    again = run_trials(scenario, ["queue"], range(4, 5))
    assert {name: cases[4] for name, cases in again.figures["queue"].items()} == {
        name: cases[4] for name, cases in results.figures["queue"].items()
    }


def test_a_scenario_that_names_nobody_real_is_refused() -> None:
    overload = TABLE["overload"]
    with pytest.raises(BadValue, match="must_fail"):
        replace(overload, must_fail=("nobody",))
    with pytest.raises(BadValue, match="candidate"):
        overload.candidate("nobody")
    with pytest.raises(BadValue, match=r"goal\.cases"):
        replace(overload, rigs={"9x": small(9)})
