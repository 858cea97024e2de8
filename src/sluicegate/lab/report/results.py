"""Report results: which runs a report needs, and the results of them by scenario.

Ours runs with every seed. A candidate that must fail runs with the first, which is enough when it
misses a goal there, because the worst of more seeds is no better; if it misses none, it runs with
the others too. A few others run with the first seed, for the plots. What runs by the clock on the
wall, drills above all, runs alone.

`page` renders these results, `plots` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.goals import GoalResult, Margin, judge_goals, tightest
from sluicegate.lab.jobs import RunResult, RunSpec, run_all
from sluicegate.lab.plots import OTHERS_MAX
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.scenario import (
    DRILL,
    KERNELS,
    TASKS,
    AnyScenario,
    Curves,
    Figures,
)
from sluicegate.lab.text import format_number
from sluicegate.system import now_us

NAMES_MAX: Final = 200
SIMULATED: Final = (KERNELS, TASKS)
_US: Final = 1e6


@final
@dataclass(slots=True)
class ScenarioReport:
    """A scenario, and the results of its runs."""

    where: str
    scenario: AnyScenario
    figures: dict[str, dict[str, dict[int, Figures]]] = field(default_factory=dict)
    curves: dict[str, dict[str, Curves]] = field(default_factory=dict)
    wall_us: dict[str, int] = field(default_factory=dict)  # by candidate

    def record(self, result: RunResult) -> None:
        """Add the result of a run."""
        spec = result.spec
        cases = self.figures.setdefault(spec.candidate, {case: {} for case in self.scenario.rigs})
        cases[spec.case][spec.seed] = result.figures
        if result.curves:
            self.curves.setdefault(spec.candidate, {})[spec.case] = result.curves
        self.wall_us[spec.candidate] = self.wall_us.get(spec.candidate, 0) + result.wall_us

    def judge(self, candidate: str) -> list[GoalResult]:
        """Compare its runs with the goals, in the order of the cases."""
        cases = self.figures[candidate].items()
        figures = {case: dict(sorted(runs.items())) for case, runs in cases if runs}
        return judge_goals(self.scenario.goals, self.scenario.rigs, figures)

    def meets_goals(self, candidate: str) -> bool:
        """Whether it meets every goal with the worst of its seeds."""
        return all(result.met for result in self.judge(candidate))

    def holds(self) -> bool:
        """Whether the claim holds: ours meets every goal, and whoever must fail misses one."""
        failing = not any(self.meets_goals(name) for name in self.scenario.must_fail)
        return self.meets_goals(self.scenario.ours) and failing

    def margin(self, candidate: str) -> Margin | None:
        """The goal of which the candidate's worst run uses most, and how much; None without one."""
        if not any(self.figures.get(candidate, {}).values()):
            return None
        return tightest(self.judge(candidate), self.scenario.rigs)

    def drills(self) -> list[str]:
        """The candidates that ran with real processes and sockets."""
        return [name for name in self.figures if self.mode(name) == DRILL]

    def mode(self, candidate: str) -> str:
        """How it runs."""
        return self.scenario.candidate(candidate).mode

    def speed(self, candidate: str) -> float | None:
        """Simulated seconds for each second of one core; None where nothing is simulated."""
        if self.mode(candidate) not in SIMULATED or not self.wall_us.get(candidate):
            return None
        simulated_us = 0
        for case, runs in self.figures[candidate].items():
            span_us = getattr(self.scenario.rigs[case], "span_us", None)
            if not isinstance(span_us, int):
                return None
            simulated_us += span_us * len(runs)
        return simulated_us / self.wall_us[candidate]


@final
@dataclass(frozen=True, slots=True)
class LabReport:
    """The reports of all scenarios, with which seeds they ran, and how long that took."""

    scenarios: tuple[ScenarioReport, ...]
    seeds: range
    jobs: int
    wall_s: float
    at_us: int

    def holds(self) -> bool:
        """Whether every claim holds, or says where and why it does not."""
        return all(one.holds() or one.scenario.limits for one in self.scenarios)


def choose_scenarios(names: Sequence[str]) -> list[str]:
    """The scenarios to run: those named, or all of ours."""
    if len(names) > NAMES_MAX:
        raise BadValue("NAME", len(names), f"give at most {NAMES_MAX} names")
    places = list(names)
    if not places or "all" in places:
        places = [*scenarios.TABLE, *(name for name in places if scenarios.is_file(name))]
    return list(dict.fromkeys(places))


def run_report(
    places: Iterable[str],
    seeds: range,
    jobs: int,
    progress: RunProgress,
    *,
    drills: bool = True,
    everyone: bool = False,
) -> LabReport:
    """Run everything; with `everyone` also the candidates that are in no plot."""
    begun_us = now_us()
    reports = {where: ScenarioReport(where, scenarios.find(where)) for where in places}
    if not drills:
        reports = {
            where: one for where, one in reports.items() if one.mode(one.scenario.ours) != DRILL
        }

    def mode(spec: RunSpec) -> str:
        return reports[spec.where].mode(spec.candidate)

    first = [
        spec
        for spec in _first_runs(list(reports.values()), seeds, everyone=everyone)
        if drills or mode(spec) != DRILL
    ]
    # What runs by the clock on the wall needs the machine for itself.
    rounds: tuple[tuple[Callable[[], list[RunSpec]], int], ...] = (
        (lambda: [spec for spec in first if mode(spec) in SIMULATED], jobs),
        (lambda: [spec for spec in first if mode(spec) not in SIMULATED], 1),
        (lambda: list(_more_runs(list(reports.values()), seeds)), jobs),
    )
    for specs_of, at_once in rounds:
        specs = specs_of()
        progress.expect([spec.kind for spec in specs], at_once)
        for result in run_all(specs, at_once):
            reports[result.spec.where].record(result)
            progress.record(result.spec.kind, result.wall_us)
    wall_s = (now_us() - begun_us) / _US
    return LabReport(tuple(reports.values()), seeds, jobs, wall_s, begun_us)


def summary(report: LabReport) -> Iterator[str]:
    """A line for each scenario, for the terminal."""
    for one in report.scenarios:
        scenario = one.scenario
        results = one.judge(scenario.ours)
        met = sum(result.met for result in results)
        mark = "met   " if met == len(results) else "MISSED"
        line = f"{mark} {scenario.number:>3}  {scenario.name}: {met} of {len(results)} goals"
        for name in scenario.must_fail:
            if one.meets_goals(name):
                line += f"; {name} must fail and does not"
        yield line
        for result in results:
            if not result.met:
                goal = result.goal.text(scenario.rigs[result.case])
                worst = f"{format_number(result.worst)} with seed {result.seed}"
                yield f"            {result.case}: {goal}, and it is {worst}"


def as_json(report: LabReport) -> dict[str, Any]:
    """Every figure, for programs; what is infinite is null."""
    return {
        "version": 1,
        "seeds": list(report.seeds),
        "scenarios": [
            {
                "number": one.scenario.number,
                "name": one.scenario.name,
                "kept": one.holds(),
                "figures": {
                    who: {
                        case: {
                            str(seed): {name: _finite(value) for name, value in run.items()}
                            for seed, run in sorted(runs.items())
                        }
                        for case, runs in cases.items()
                    }
                    for who, cases in one.figures.items()
                },
            }
            for one in report.scenarios
        ],
    }


def _first_runs(
    reports: Sequence[ScenarioReport], seeds: range, *, everyone: bool
) -> Iterator[RunSpec]:
    """Seed after seed, so that the first fifth shows how long the rest will take."""
    for seed in seeds:
        for one in reports:
            scenario = one.scenario
            begins = seed == seeds[0]
            names = _choose_candidates(scenario, everyone=everyone) if begins else [scenario.ours]
            for case in scenario.rigs:
                for name in names:
                    yield RunSpec(one.where, name, case, seed, begins)


def _choose_candidates(scenario: AnyScenario, *, everyone: bool) -> list[str]:
    """Ours, who must fail, drills, and as many others as a plot has room for."""
    first = [scenario.ours, *scenario.must_fail]
    others = [name for name in scenario.candidates if name not in first]
    drills = [name for name in others if scenario.candidate(name).mode == DRILL]
    simulated = [name for name in others if name not in drills]
    wanted = {*first, *drills, *(simulated if everyone else simulated[:OTHERS_MAX])}
    return [name for name in scenario.candidates if name in wanted]


def _more_runs(reports: Sequence[ScenarioReport], seeds: range) -> Iterator[RunSpec]:
    """Who must fail and has not yet, with the other seeds."""
    for one in reports:
        for name in one.scenario.must_fail:
            if one.figures.get(name) and one.meets_goals(name):
                for seed in seeds[1:]:
                    for case in one.scenario.rigs:
                        yield RunSpec(one.where, name, case, seed)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
