"""A sweep: points of settings, each run in scenarios, and which of them is the knee.

A point is a set of defaults. Its two figures are those of its worst seed. On the frontier are the
points that no other beats in both figures; the knee is the one of them after which a little more of
one figure costs much of the other: the farthest from the straight line between the ends of the
frontier, both figures measured in parts of their range. Points that miss a goal are shown, but are
not on the frontier, unless all do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import hypot, isfinite
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.jobs import RunResult, RunSpec, collect_results, run_groups
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.scenario import AnyScenario
from sluicegate.lab.tune.defaults import SettingChange

POINTS_MAX: Final = 1_000
# Of figures that no goal is about: of these more is better, of others less.
_MORE: Final = ("goodput", "success", "jain", "hit_ratio", "recall", "utilization", "throughput")


class Axis(NamedTuple):
    """A figure of a case of a scenario."""

    where: str
    case: str
    figure: str

    def text(self) -> str:
        """As people read it."""
        return f"{self.figure} of {self.where}, {self.case}"


Point = tuple[SettingChange, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSweep:
    """The points to run, and where: `cases` by scenario, all of its cases if there are none."""

    name: str
    title: str
    points: tuple[Point, ...]
    cases: Mapping[str, tuple[str, ...]]
    x: Axis
    y: Axis
    candidate: str | None = None  # None: ours

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= POINTS_MAX:
            raise BadValue("points", len(self.points), f"give from 1 to {POINTS_MAX:,}")


class PointResult(NamedTuple):
    """A point, its two figures, and the goals that it misses."""

    point: Point
    x: float
    y: float
    missed: tuple[str, ...]


class Frontier(NamedTuple):
    """The points that no other beats, from the least of one figure to the least of the other."""

    points: tuple[int, ...]
    knee: int | None


def grid(changes: Iterable[Sequence[SettingChange]]) -> tuple[Point, ...]:
    """Every value of each field with every value of all others."""
    return tuple(product(*changes))


def run_sweep(
    sweep: SettingsSweep, seeds: Sequence[int], progress: RunProgress, *, jobs: int = 1
) -> Iterator[PointResult]:
    """Each point's result as soon as all its runs have ended, in order."""
    found = {where: scenarios.find(where) for where in sweep.cases}
    groups = list(_specs(sweep, found, seeds))
    results_of = run_groups(groups, progress, jobs)
    for point, results in zip(sweep.points, results_of, strict=True):
        yield _point_result(sweep, found, point, results)


def find_frontier(results: Sequence[PointResult], *, x_more: bool, y_more: bool) -> Frontier:
    """The frontier and its knee; `x_more` says whether more of that figure is better."""
    finite = [at for at, one in enumerate(results) if isfinite(one.x) and isfinite(one.y)]
    able = [at for at in finite if not results[at].missed] or finite
    # From here on less is better.
    costs = {
        at: (
            -results[at].x if x_more else results[at].x,
            -results[at].y if y_more else results[at].y,
        )
        for at in able
    }
    best = [
        at
        for at, (x, y) in costs.items()
        if not any(other != (x, y) and other[0] <= x and other[1] <= y for other in costs.values())
    ]
    best.sort(key=lambda at: costs[at])
    return Frontier(tuple(best), _knee(best, costs))


def frontier_of(sweep: SettingsSweep, results: Sequence[PointResult]) -> Frontier:
    """The frontier of a sweep's results."""
    x_more, y_more = (
        more_is_better(scenarios.find(axis.where), axis.figure) for axis in (sweep.x, sweep.y)
    )
    return find_frontier(results, x_more=x_more, y_more=y_more)


def more_is_better(scenario: AnyScenario, figure: str) -> bool:
    """Whether more of the figure is better: as the goals have it, else by its name."""
    for goal in scenario.goals:
        if goal.figure == figure:
            return goal.at_least is not None
    return figure.startswith(_MORE)


def _knee(best: Sequence[int], costs: Mapping[int, tuple[float, float]]) -> int | None:
    if not best:
        return None
    xs, ys = ([costs[at][axis] for at in best] for axis in (0, 1))
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    part = {at: ((costs[at][0] - min(xs)) / wide, (costs[at][1] - min(ys)) / high) for at in best}
    if len(best) > 2:
        # The ends are (0, 1) and (1, 0); below the line between them the sum is less than 1.
        return min(best, key=lambda at: part[at][0] + part[at][1])
    return min(best, key=lambda at: hypot(*part[at]))


def _specs(
    sweep: SettingsSweep, found: Mapping[str, AnyScenario], seeds: Sequence[int]
) -> Iterator[list[RunSpec]]:
    for axis in (sweep.x, sweep.y):
        if axis.where not in found:
            raise BadValue("axis", axis.where, f"give one of {', '.join(found)}")
    for point in sweep.points:
        of_point = []
        for where, cases in sweep.cases.items():
            scenario = found[where]
            who = sweep.candidate or scenario.ours
            scenario.candidate(who)
            for case in cases or tuple(scenario.rigs):
                if case not in scenario.rigs:
                    raise BadValue("case", case, f"give one of {', '.join(scenario.rigs)}")
                of_point += [RunSpec(where, who, case, seed, changes=point) for seed in seeds]
        yield of_point


def _point_result(
    sweep: SettingsSweep,
    found: Mapping[str, AnyScenario],
    point: Point,
    results: Sequence[RunResult],
) -> PointResult:
    missed = []
    for where, scenario in found.items():
        collected = collect_results(scenario, [one for one in results if one.spec.where == where])
        missed += [
            f"{where} {result.case} {result.goal.figure}"
            for who in collected.figures
            for result in collected.judge(who)
            if not result.met
        ]
    x, y = (_worst(found[axis.where], axis, results) for axis in (sweep.x, sweep.y))
    return PointResult(point, x, y, tuple(missed))


def _worst(scenario: AnyScenario, axis: Axis, results: Sequence[RunResult]) -> float:
    runs = [
        one.figures
        for one in results
        if one.spec.where == axis.where and one.spec.case == axis.case
    ]
    if not runs:
        raise BadValue("axis", axis.case, "give a case that is in the sweep")
    if axis.figure not in runs[0]:
        raise BadValue("axis", axis.figure, f"give one of {', '.join(runs[0])}")
    values = [run[axis.figure] for run in runs]
    return min(values) if more_is_better(scenario, axis.figure) else max(values)
