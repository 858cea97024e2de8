"""Checks: the acceptance figures of a scenario, and what runs say to them.

A goal is met by the worst of all seeds, or it is not met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

from sluicegate.contracts.errors import BadValue

Bound: TypeAlias = float | Callable[[Any], float]  # the second where a rig says what is possible


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One figure and its bound; `cases` names the rigs it is for, all if there are none."""

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

    def met(self, value: float, rig: Any) -> bool:
        """Whether a run with this figure meets it."""
        bound = self.bound(rig)
        return value <= bound if self.at_least is None else value >= bound

    def worst(self, values: Sequence[float]) -> int:
        """Which of the values is the worst."""
        order = range(len(values))
        if self.at_least is None:
            return max(order, key=lambda at: values[at])
        return min(order, key=lambda at: values[at])

    def words(self, rig: Any) -> str:
        """As a person reads it."""
        sign = "<=" if self.at_least is None else ">="
        return f"{self.figure} {sign} {self.bound(rig):.4g}"


class Finding(NamedTuple):
    """What the runs of one rig say to one goal."""

    case: str
    goal: Goal
    worst: float
    seed: int  # of the worst
    met: bool


def judge(
    goals: Sequence[Goal],
    rigs: Mapping[str, Any],
    seen: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> list[Finding]:
    """Every goal against the runs of every rig that it is for: `seen[case][seed]`."""
    findings: list[Finding] = []
    for case, runs in seen.items():
        for goal in goals:
            if goal.cases and case not in goal.cases:
                continue
            seeds = list(runs)
            values = [runs[seed][goal.figure] for seed in seeds]
            at = goal.worst(values)
            met = goal.met(values[at], rigs[case])
            findings.append(Finding(case, goal, values[at], seeds[at], met))
    return findings
