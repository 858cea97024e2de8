"""Report results: which runs a report needs, and the results of them by scenario.

Ours runs with every seed. A candidate that must fail runs with the first, which is enough when it
misses a goal there, because the worst of more seeds is no better; if it misses none, it runs with
the others too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.goals import GoalResult, Margin, judge_goals, tightest
from sluicegate.lab.jobs import RunResult, RunSpec, run_all
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.scenario import AnyScenario, Curves, Figures
from sluicegate.lab.text import format_number
from sluicegate.system import now_us

NAMES_MAX: Final = 200
_US: Final = 1e6


@final
@dataclass(slots=True)
class ScenarioReport:
    """A scenario, and the results of its runs."""

    where: str
    scenario: AnyScenario
    figures: dict[str, dict[str, dict[int, Figures]]] = field(default_factory=dict)
    curves: dict[str, dict[str, Curves]] = field(default_factory=dict)

    def record(self, result: RunResult) -> None:
        """Add the result of a run."""
        spec = result.spec
        cases = self.figures.setdefault(spec.candidate, {case: {} for case in self.scenario.rigs})
        cases[spec.case][spec.seed] = result.figures
        if result.curves:
            self.curves.setdefault(spec.candidate, {})[spec.case] = result.curves

    def judge(self, candidate: str) -> list[GoalResult]:
        """Compare its runs with the goals, in the order of the cases."""
        cases = self.figures[candidate].items()
        figures = {case: dict(sorted(runs.items())) for case, runs in cases if runs}
        return judge_goals(self.scenario.goals, self.scenario.rigs, figures)

    def meets_goals(self, candidate: str) -> bool:
        """Whether it meets every goal with the worst of its seeds."""
        return all(result.met for result in self.judge(candidate))

    def holds(self) -> bool:
        """Whether the claim holds: ours meets every goal, and all that must fail miss one."""
        failing = not any(self.meets_goals(name) for name in self.scenario.must_fail)
        return self.meets_goals(self.scenario.ours) and failing

    def margin(self, candidate: str) -> Margin | None:
        """The goal of which the candidate's worst run uses most, and how much; None without one."""
        if not any(self.figures.get(candidate, {}).values()):
            return None
        return tightest(self.judge(candidate), self.scenario.rigs)


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


def run_report(places: Iterable[str], seeds: range, jobs: int, progress: RunProgress) -> LabReport:
    """Run all that the report needs."""
    begun_us = now_us()
    reports = {where: ScenarioReport(where, scenarios.find(where)) for where in places}
    for runs in (_first_runs, _more_runs):
        specs = [*runs([*reports.values()], seeds)]
        progress.expect([spec.kind for spec in specs], jobs)
        for result in run_all(specs, jobs):
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


def _first_runs(reports: Sequence[ScenarioReport], seeds: range) -> Iterator[RunSpec]:
    """Seed after seed, so that the first fifth shows how long the rest will take."""
    for seed in seeds:
        for one in reports:
            scenario = one.scenario
            begins = seed == seeds[0]
            names = [scenario.ours, *(scenario.must_fail if begins else ())]
            for case in scenario.rigs:
                for name in names:
                    yield RunSpec(one.where, name, case, seed, begins)


def _more_runs(reports: Sequence[ScenarioReport], seeds: range) -> Iterator[RunSpec]:
    """Candidates that must fail and have not yet, with the other seeds."""
    for one in reports:
        for name in one.scenario.must_fail:
            if one.meets_goals(name):
                for seed in seeds[1:]:
                    for case in one.scenario.rigs:
                        yield RunSpec(one.where, name, case, seed)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
