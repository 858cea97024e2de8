"""The verbs `sluicegate lab list`, `run` and `compare`: run scenarios and print their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from sluicegate.command_line.text import table
from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.goals import GoalResult, Margin, tightest
from sluicegate.lab.jobs import RunSpec, collect_results, run_groups
from sluicegate.lab.progress import RunProgress
from sluicegate.lab.scenario import AnyScenario, Figures, ScenarioResults, repeat_command
from sluicegate.lab.text import format_number

Write: TypeAlias = Callable[[str], object]

MET: Final = 0
MISSED: Final = 1
ALL: Final = "all"


def list_scenarios(write: Write) -> int:
    """Every scenario: number, name, title, cases, candidates, goals."""
    for scenario in scenarios.TABLE.values():
        write(f"{scenario.number:>2}  {scenario.name}: {scenario.title}\n")
        write(f"      {scenario.why}\n")
        write(f"      cases {', '.join(scenario.rigs)}; ours is {scenario.ours}\n")
        write(f"      goals {'; '.join(_goals(scenario))}\n")
        others = [name for name in scenario.candidates if name != scenario.ours]
        write(f"      others {', '.join(others)}; {' and '.join(scenario.must_fail)} must fail\n")
    return MET


def _goals(scenario: AnyScenario) -> Iterator[str]:
    for goal in scenario.goals:
        first = goal.cases[0] if goal.cases else next(iter(scenario.rigs))
        where = f" at {', '.join(goal.cases)}" if goal.cases else ""
        yield goal.text(scenario.rigs[first]) + where


def run_scenarios(
    name: str,
    seeds: Sequence[int],
    write: Write,
    progress: RunProgress,
    *,
    jobs: int = 1,
    candidate: str | None = None,
    case: str | None = None,
    as_json: bool = False,
) -> int:
    """Run one candidate of a scenario, or of all of them, against the goals."""
    if name != ALL:
        places = [name]
    elif candidate is not None or case is not None:
        raise BadValue("NAME", name, "name one scenario with --as or --case; all have other names")
    else:
        places = list(scenarios.TABLE)
    found = [(where, _restrict(scenarios.find(where), case)) for where in places]
    wanted = [(where, scenario, [candidate or scenario.ours]) for where, scenario in found]
    claims = []
    for (where, _, names), results in zip(wanted, _run(wanted, seeds, progress, jobs), strict=True):
        claims.append(_Claim.of(results, names[0], seeds))
        if not as_json:
            _write_claim(claims[-1], where, seeds, write)
    if as_json:
        played = {"seeds": [seeds[0], seeds[-1]], "claims": [one.as_json() for one in claims]}
        write(f"{json.dumps(played, indent=1)}\n")
    elif len(claims) > 1:
        write("\n")
        for line in table(CLAIM_COLUMNS, [one.row() for one in claims]):
            write(f"{line}\n")
    return MET if all(one.met for one in claims) else MISSED


CLAIM_COLUMNS: Final = ("", "held", "of", "used", "of the tightest goal")


class _Claim(NamedTuple):
    """What became of a claim: its goals, how many seeds met all, and where it was closest."""

    scenario: AnyScenario
    candidate: str
    judged: Sequence[GoalResult]
    held: int
    runs: int
    margin: Margin | None

    @classmethod
    def of(cls, results: ScenarioResults, candidate: str, seeds: Sequence[int]) -> _Claim:
        """Judge a candidate's runs."""
        scenario, judged = results.scenario, results.judge(candidate)
        held = results.count_held(candidate, seeds)
        return cls(scenario, candidate, judged, held, len(seeds), tightest(judged, scenario.rigs))

    @property
    def met(self) -> bool:
        """Whether every seed meets every goal."""
        return self.held == self.runs

    def closest(self) -> str:
        """The goal that is closest to its bound, and which run came so close."""
        if self.margin is None:
            return ""
        one = self.margin.result
        goal = one.goal.text(self.scenario.rigs[one.case])
        return f"{goal} at {one.case}: {format_number(one.worst)} (seed {one.seed})"

    def row(self) -> tuple[str, ...]:
        """A line of the table of all claims."""
        used = "" if self.margin is None else f"{self.margin.used:.3f}"
        return self.scenario.name, str(self.held), str(self.runs), used, self.closest()

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        rigs = self.scenario.rigs
        return {
            "scenario": self.scenario.name,
            "candidate": self.candidate,
            "held": self.held,
            "runs": self.runs,
            "own_settings": dict(self.scenario.own_settings),
            "goals": [one.as_json(rigs[one.case]) for one in self.judged],
        }


def compare_candidates(
    name: str,
    others: Sequence[str],
    seeds: Sequence[int],
    write: Write,
    progress: RunProgress,
    *,
    jobs: int = 1,
) -> int:
    """Run ours and others on the same seeds, and print the mean of each figure."""
    scenario = scenarios.find(name)
    names = list(dict.fromkeys([scenario.ours, *others]))
    [results] = _run([(name, scenario, names)], seeds, progress, jobs)
    write(f"{scenario.title}; seeds {seeds[0]} to {seeds[-1]}, the mean of them\n")
    for case in scenario.rigs:
        write(f"\n{case}\n")
        runs = {who: list(results.figures[who][case].values()) for who in names}
        measured = {column for who in names for run in runs[who] for column in run}
        columns = [column for column in scenario.columns if column in measured]
        rows = [[who, *(_mean(runs[who], column) for column in columns)] for who in names]
        for line in table(["", *columns], rows):
            write(f"{line}\n")
    write("\n")
    for who in names:
        write(f"{who} {'meets every goal' if results.meets_goals(who) else 'misses a goal'}\n")
    return MET if results.meets_goals(scenario.ours) else MISSED


def _mean(runs: Sequence[Figures], column: str) -> str:
    values = [run[column] for run in runs if column in run]
    return format_number(sum(values) / len(values)) if values else "-"


def _write_claim(claim: _Claim, where: str, seeds: Sequence[int], write: Write) -> None:
    """Print how a candidate's runs compare with the goals, and how to repeat what missed."""
    scenario, candidate, judged = claim.scenario, claim.candidate, claim.judged
    write(f"{scenario.title}: {candidate}, seeds {seeds[0]} to {seeds[-1]}, the worst of them\n")
    if scenario.scale:
        write(f"scale: {scenario.scale}\n")
    if candidate == scenario.ours:
        for setting, reason in scenario.own_settings.items():
            write(f"own setting: {setting}: {reason}\n")
    rows = [
        (
            "met   " if one.met else "MISSED",
            one.case,
            one.goal.text(scenario.rigs[one.case]),
            f"{format_number(one.worst)} (seed {one.seed})",
            f"{one.held} of {one.runs}",
        )
        for one in judged
    ]
    for line in table(rows[0], rows[1:]):
        write(f"{line}\n")
    missed = [one for one in judged if not one.met]
    if missed and scenario.limits:
        write(f"limits: {scenario.limits}\n")
    for one in missed:
        command = repeat_command(scenario, candidate, one.case, one.seed, where=where)
        write(f"repeat: {command}\n")


def _restrict(scenario: AnyScenario, case: str | None) -> AnyScenario:
    """Only that case of it, and the goals that are about it."""
    if case is None:
        return scenario
    if case not in scenario.rigs:
        raise BadValue("--case", case, f"give one of {', '.join(scenario.rigs)}")
    goals = tuple(
        replace(goal, cases=()) for goal in scenario.goals if not goal.cases or case in goal.cases
    )
    return replace(scenario, rigs={case: scenario.rigs[case]}, goals=goals)


def _run(
    wanted: Sequence[tuple[str, AnyScenario, Sequence[str]]],
    seeds: Sequence[int],
    progress: RunProgress,
    jobs: int,
) -> Iterator[ScenarioResults]:
    """Each scenario's results as soon as all its runs have ended, in order."""
    groups: list[list[RunSpec]] = []
    for where, scenario, names in wanted:
        for name in names:
            scenario.candidate(name)
        groups.append(
            [RunSpec(where, who, case, s) for s in seeds for case in scenario.rigs for who in names]
        )
    for (_, scenario, _), results in zip(wanted, run_groups(groups, progress, jobs), strict=True):
        yield collect_results(scenario, results)
