"""Every scenario in virtual time over many seeds: ours keeps its claim, and what must fail fails.

Ours without a policy must fail too, or the policy is not what the claim rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from sluicegate.lab.goals import GoalResult, judge_goals
from sluicegate.lab.scenario import AnyScenario, repeatable
from sluicegate.lab.scenarios import TABLE
from tests.prove.seeds import in_slice, seeds

SLICES: Final = 3  # CI plays a third of them each day, with the seed of the day
PLAYED: Final = [each for each in TABLE.values() if in_slice(each.number, SLICES)]


def must_fail(scenario: AnyScenario) -> list[str]:
    """Whoever the scenario names, and ours without any one policy."""
    without = [name for name in scenario.candidates if name.startswith("without-")]
    return [*dict.fromkeys([*scenario.must_fail, *without])]


def missed(scenario: AnyScenario, candidate: str, seed: int) -> Iterator[GoalResult]:
    """The goals that it misses with this seed, case by case; those without a goal are not played.

    Whoever wants to know only whether one is missed plays no case more than that takes.
    """
    for case in scenario.rigs:
        if any(not goal.cases or case in goal.cases for goal in scenario.goals):
            with repeatable(scenario, candidate, case, seed):
                figures = {case: {seed: scenario.run_once(candidate, case, seed)}}
            judged = judge_goals(scenario.goals, scenario.rigs, figures)
            yield from (one for one in judged if not one.met)


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=100, part=1))
@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.name)
def test_a_claim_holds_on_every_seed(scenario: AnyScenario, seed: int) -> None:
    assert not [*missed(scenario, scenario.ours, seed)]


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=20, part=0))
@pytest.mark.parametrize("scenario", TABLE.values(), ids=lambda scenario: scenario.name)
def test_what_must_fail_fails_on_every_seed(scenario: AnyScenario, seed: int) -> None:
    assert not [name for name in must_fail(scenario) if not any(missed(scenario, name, seed))]
