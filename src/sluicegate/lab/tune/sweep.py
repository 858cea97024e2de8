"""Tuning, its sweep: points of settings, each tried in scenarios, and which of them is the knee.

A point is a set of defaults. Of each, the worst seed of two figures is set against each other. On
the frontier are the points that no other beats in both; the knee is the one of them after which a
little more of one figure costs much of the other: the farthest from the straight line between the
ends of the frontier, both figures measured in parts of their span. Points that miss a goal are
shown, but are not on the frontier, unless all do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import hypot, isfinite
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.jobs import Unit, play_all
from sluicegate.lab.progress import Progress
from sluicegate.lab.scenario import AnyScenario, Figures, Step, gather
from sluicegate.lab.tune.defaults import Change

POINTS_MAX: Final = 1_000
# Of figures that no goal is about: of these more is better, of others less.
_MORE: Final = ("goodput", "success", "jain", "hit_ratio", "recall", "utilization", "throughput")


class Axis(NamedTuple):
    """A figure of a case of a scenario."""

    where: str
    case: str
    figure: str

    def words(self) -> str:
        """As a person reads it."""
        return f"{self.figure} of {self.where}, {self.case}"


Point = tuple[Change, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What to try, and where; `cases` are of scenarios, all of a scenario's if it has none."""

    name: str
    title: str
    points: tuple[Point, ...]
    cases: Mapping[str, tuple[str, ...]]
    x: Axis
    y: Axis
    contender: str | None = None  # None: ours

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= POINTS_MAX:
            raise BadValue("points", len(self.points), f"give from 1 to {POINTS_MAX:,}")


class Tried(NamedTuple):
    """A point, the worst of both figures, and the goals that it misses."""

    point: Point
    x: float
    y: float
    missed: tuple[str, ...]


class Frontier(NamedTuple):
    """The points that no other beats, from the least of one figure to the least of the other."""

    points: tuple[int, ...]
    knee: int | None


def grid(changes: Iterable[Sequence[Change]]) -> tuple[Point, ...]:
    """Every value of each field with every value of all others."""
    return tuple(product(*changes))


def try_all(
    sweep: Sweep, seeds: Sequence[int], progress: Progress, *, jobs: int = 1
) -> Iterator[Tried]:
    """Each point as soon as all its runs have ended, in their order."""
    found = {where: scenarios.find(where) for where in sweep.cases}
    per_point = list(_units(sweep, found, seeds))
    units = [unit for of_point in per_point for unit in of_point]
    progress.expect(units, jobs)
    left = [len(of_point) for of_point in per_point]
    at_of = {unit.changes: at for at, of_point in enumerate(per_point) for unit in of_point}
    steps: list[dict[str, list[Step]]] = [{where: [] for where in found} for _ in per_point]
    shown = 0
    for ran in play_all(units, jobs):
        progress.ran(ran)
        unit = ran.unit
        at = at_of[unit.changes]
        step = Step(unit.contender, unit.case, unit.seed, ran.figures, 0, 0)
        steps[at][unit.where].append(step)
        left[at] -= 1
        while shown < len(left) and not left[shown]:
            yield _tried(sweep, found, sweep.points[shown], steps[shown])
            shown += 1


def frontier(tried: Sequence[Tried], *, x_more: bool, y_more: bool) -> Frontier:
    """Who is not beaten, and the knee."""
    able = [at for at, one in enumerate(tried) if isfinite(one.x) and isfinite(one.y)]
    meeting = [at for at in able if not tried[at].missed]
    able = meeting or able
    # From here on less is better.
    seen = {
        at: (-tried[at].x if x_more else tried[at].x, -tried[at].y if y_more else tried[at].y)
        for at in able
    }
    best = [
        at
        for at in able
        if not any(
            other[0] <= seen[at][0] and other[1] <= seen[at][1] and other != seen[at]
            for other in seen.values()
        )
    ]
    best.sort(key=lambda at: seen[at])
    return Frontier(tuple(best), _knee(best, seen))


def more_is_better(scenario: AnyScenario, figure: str) -> bool:
    """As the goals say, or the name of the figure."""
    for goal in scenario.goals:
        if goal.figure == figure:
            return goal.at_least is not None
    return figure.startswith(_MORE)


def _knee(best: Sequence[int], seen: Mapping[int, tuple[float, float]]) -> int | None:
    if not best:
        return None
    xs, ys = ([seen[at][axis] for at in best] for axis in (0, 1))
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    part = {at: ((seen[at][0] - min(xs)) / wide, (seen[at][1] - min(ys)) / high) for at in best}
    if len(best) > 2:
        # The ends are (0, 1) and (1, 0); below the line between them the sum is less than 1.
        return min(best, key=lambda at: part[at][0] + part[at][1])
    return min(best, key=lambda at: hypot(*part[at]))


def _units(
    sweep: Sweep, found: Mapping[str, AnyScenario], seeds: Sequence[int]
) -> Iterator[list[Unit]]:
    for axis in (sweep.x, sweep.y):
        if axis.where not in found:
            raise BadValue("axis", axis.where, f"give one of {', '.join(found)}")
    for point in sweep.points:
        of_point = []
        for where, cases in sweep.cases.items():
            scenario = found[where]
            who = sweep.contender or scenario.ours
            scenario.contender(who)
            for case in cases or tuple(scenario.rigs):
                if case not in scenario.rigs:
                    raise BadValue("case", case, f"give one of {', '.join(scenario.rigs)}")
                of_point += [Unit(where, who, case, seed, changes=point) for seed in seeds]
        yield of_point


def _tried(
    sweep: Sweep, found: Mapping[str, AnyScenario], point: Point, steps: dict[str, list[Step]]
) -> Tried:
    missed = []
    for where, ended in steps.items():
        trial = gather(found[where], ended)
        for who in trial.seen:
            missed += [
                f"{where} {finding.case} {finding.goal.figure}"
                for finding in trial.findings(who)
                if not finding.met
            ]
    x, y = (_worst(found[axis.where], axis, steps[axis.where]) for axis in (sweep.x, sweep.y))
    return Tried(point, x, y, tuple(missed))


def _worst(scenario: AnyScenario, axis: Axis, ended: Sequence[Step]) -> float:
    runs: list[Figures] = [step.figures for step in ended if step.case == axis.case]
    if not runs:
        raise BadValue("axis", axis.case, "give a case that is tried")
    if axis.figure not in runs[0]:
        raise BadValue("axis", axis.figure, f"give one of {', '.join(runs[0])}")
    values = [run[axis.figure] for run in runs]
    return min(values) if more_is_better(scenario, axis.figure) else max(values)
