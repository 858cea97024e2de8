"""Trials of a scenario that is scaled down. Nothing here is a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluicegate.lab.scenario import AnyScenario, run_trials


def met(scenario: AnyScenario, candidate: str, rigs: Mapping[str, Any]) -> bool:
    """Whether one run of each rig meets the goals that are for it."""
    goals = tuple(
        replace(goal, cases=())
        for goal in scenario.goals
        if not goal.cases or set(goal.cases) & set(rigs)
    )
    scaled = replace(scenario, rigs=rigs, goals=goals)
    return run_trials(scaled, [candidate], range(1)).meets_goals(candidate)
