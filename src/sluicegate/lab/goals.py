"""Goals: the acceptance figures of a scenario, and how runs compare with them.

A goal is met when every seed meets it; the worst is named, and how many met it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import BadValue

Bound: TypeAlias = float | Callable[[Any], float]  # a function where the bound depends on the rig


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure and its bound, for the rigs of `cases`; for all rigs if `cases` is empty."""

    figure: str
    at_least: Bound | None = None
    at_most: Bound | None = None
    cases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise BadValue(f"goal.{self.figure}", None, "give at_least or at_most, and not both")

    def bound(self, rig: Any) -> float:
        """The bound for that rig."""
        bound = self.at_most if self.at_least is None else self.at_least
        assert bound is not None
        return bound(rig) if callable(bound) else bound

    def is_met(self, value: float, rig: Any) -> bool:
        """Whether a run with this figure meets it."""
        bound = self.bound(rig)
        return value <= bound if self.at_least is None else value >= bound

    def used(self, value: float, rig: Any) -> float:
        """How much of what the goal allows a run has used: 1 is at the bound, more is missed.

        A share that must be reached allows what is missing from all: 0.99 where 0.98 must be is
        half of it.
        """
        bound = self.bound(rig)
        if self.at_least is None:
            return value / bound if bound > 0 else (0.0 if value <= bound else inf)
        if bound < 1:
            return (1 - value) / (1 - bound) if value < 1 else 0.0
        return bound / value if value > 0 else inf

    def text(self, rig: Any) -> str:
        """As people read it: `goodput >= 0.95`."""
        sign = "<=" if self.at_least is None else ">="
        return f"{self.figure} {sign} {self.bound(rig):.4g}"


class GoalResult(NamedTuple):
    """How the runs of one rig compare with one goal."""

    case: str
    goal: Goal
    worst: float
    seed: int  # of the worst
    held: int  # runs that meet it
    runs: int

    @property
    def met(self) -> bool:
        """Whether every run meets it."""
        return self.held == self.runs

    def as_json(self, rig: Any) -> dict[str, Any]:
        """The same for programs; what is infinite is null."""
        return {
            "case": self.case,
            "goal": self.goal.text(rig),
            "worst": _finite(self.worst),
            "seed": self.seed,
            "used": _finite(self.goal.used(self.worst, rig)),
            "held": self.held,
            "runs": self.runs,
            "met": self.met,
        }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


class Margin(NamedTuple):
    """How much of what a goal allows its worst run has used: 1 is at the bound, more is missed."""

    used: float
    result: GoalResult


def tightest(results: Sequence[GoalResult], rigs: Mapping[str, Any]) -> Margin | None:
    """The goal of which most is used; None without one."""
    used = [Margin(one.goal.used(one.worst, rigs[one.case]), one) for one in results]
    return max(used, key=lambda one: one.used) if used else None


def judge_goals(
    goals: Sequence[Goal],
    rigs: Mapping[str, Any],
    figures: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> list[GoalResult]:
    """Compare every goal with the runs of every rig that it is for: `figures[case][seed]`."""
    results: list[GoalResult] = []
    for case, runs in figures.items():
        for goal in goals:
            if goal.cases and case not in goal.cases:
                continue
            values = {seed: _value(run, goal.figure) for seed, run in runs.items()}
            pick = max if goal.at_least is None else min
            seed = pick(values, key=values.__getitem__)
            worst = values[seed]
            held = sum(goal.is_met(value, rigs[case]) for value in values.values())
            results.append(GoalResult(case, goal, worst, seed, held, len(runs)))
    return results


def _value(figures: Mapping[str, float], name: str) -> float:
    value = figures.get(name)
    if not isinstance(value, int | float):
        remedy = f"let `measure` return a number of that name; it returns {', '.join(figures)}"
        raise BadValue(f"goal.{name}", value, remedy)
    return value
