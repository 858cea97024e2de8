"""Show: what `sluicegate lab` prints, made of trials. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import floor, isfinite, log10
from typing import Final, TypeAlias

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import scenarios
from sluicegate.lab.checks import Finding
from sluicegate.lab.jobs import Unit, play_all
from sluicegate.lab.progress import Progress
from sluicegate.lab.scenario import AnyScenario, Step, Trial, gather, repeat_command

Write: TypeAlias = Callable[[str], object]

MET: Final = 0
MISSED: Final = 1
ALL: Final = "all"
_NOTHING: Final = 1e-9  # and less


def listed(write: Write) -> int:
    """Every scenario: number, name, title, cases, contenders, goals."""
    for scenario in scenarios.TABLE.values():
        write(f"{scenario.number:>2}  {scenario.name}: {scenario.title}\n")
        write(f"      {scenario.why}\n")
        write(f"      cases {', '.join(scenario.rigs)}; ours is {scenario.ours}\n")
        write(f"      goals {'; '.join(_goals(scenario))}\n")
        others = [name for name in scenario.contenders if name != scenario.ours]
        write(f"      others {', '.join(others)}; {' and '.join(scenario.must_fail)} must fail\n")
    return MET


def _goals(scenario: AnyScenario) -> Iterator[str]:
    for goal in scenario.goals:
        first = goal.cases[0] if goal.cases else next(iter(scenario.rigs))
        where = f" at {', '.join(goal.cases)}" if goal.cases else ""
        yield goal.words(scenario.rigs[first]) + where


def some(
    name: str,
    seeds: Sequence[int],
    write: Write,
    progress: Progress,
    *,
    jobs: int = 1,
    contender: str | None = None,
    case: str | None = None,
) -> int:
    """One contender of a scenario, or of all of them, against the goals."""
    if name != ALL:
        places = [name]
    elif contender is not None or case is not None:
        raise BadValue("NAME", name, "name one scenario with --as or --case; all have other names")
    else:
        places = list(scenarios.TABLE)
    found = {where: _only(scenarios.find(where), case) for where in places}
    chosen = {where: contender or scenario.ours for where, scenario in found.items()}
    wanted = [(where, found[where], [chosen[where]]) for where in places]
    codes = [
        tell_findings(trial, where, chosen[where], seeds, write)
        for where, trial in _played(wanted, seeds, progress, jobs)
    ]
    return max(codes)


def several(
    name: str,
    others: Sequence[str],
    seeds: Sequence[int],
    write: Write,
    progress: Progress,
    *,
    jobs: int = 1,
) -> int:
    """Ours and others on the same seeds; the mean of each figure."""
    scenario = scenarios.find(name)
    names = list(dict.fromkeys([scenario.ours, *others]))
    (_, trial), *_ = _played([(name, scenario, names)], seeds, progress, jobs)
    write(f"{scenario.title}; seeds {seeds[0]} to {seeds[-1]}, the mean of them\n")
    for case in scenario.rigs:
        write(f"\n{case}\n")
        write_table(trial, names, case, write)
    write("\n")
    for who in names:
        write(f"{who} {'meets every goal' if trial.met(who) else 'misses a goal'}\n")
    return MET if trial.met(scenario.ours) else MISSED


def tell_findings(
    trial: Trial, where: str, contender: str, seeds: Sequence[int], write: Write
) -> int:
    """What a contender's runs say to the goals, and how to repeat what missed."""
    scenario = trial.scenario
    findings = trial.findings(contender)
    write(f"{scenario.title}: {contender}, seeds {seeds[0]} to {seeds[-1]}, the worst of them\n")
    write(f"  played with {scenario.contender(contender).mode}\n")
    if scenario.scale:
        write(f"scale: {scenario.scale}\n")
    write_findings(findings, trial, write)
    missed = [finding for finding in findings if not finding.met]
    if missed and scenario.limits:
        write(f"limits: {scenario.limits}\n")
    for finding in missed:
        command = repeat_command(scenario, contender, finding.case, finding.seed, where=where)
        write(f"repeat: {command}\n")
    return MISSED if missed else MET


def write_findings(findings: Iterable[Finding], trial: Trial, write: Write) -> None:
    """A row for each goal in each case."""
    rows = [
        (
            "met   " if finding.met else "MISSED",
            finding.case,
            finding.goal.words(trial.scenario.rigs[finding.case]),
            f"{number(finding.worst)} (seed {finding.seed})",
        )
        for finding in findings
    ]
    for row in aligned(rows):
        write(f"  {row}\n")


def write_table(trial: Trial, names: Sequence[str], case: str, write: Write) -> None:
    """A row for each contender, a column for each figure that the scenario shows."""
    shown = trial.scenario.shown
    rows = [("", *shown)]
    for who in names:
        runs = list(trial.seen[who][case].values())
        means = (sum(found[figure] for found in runs) / len(runs) for figure in shown)
        rows.append((who, *(number(mean) for mean in means)))
    for row in aligned(rows):
        write(f"  {row}\n")


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns under each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def number(value: float) -> str:
    """Short, and never in powers of ten."""
    if not isfinite(value):
        return "never"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.001 or size < _NOTHING:
        return f"{round(value, 4):.4g}"
    return f"{value:.{1 - floor(log10(size))}f}".rstrip("0")  # two digits, wherever they begin


def _only(scenario: AnyScenario, case: str | None) -> AnyScenario:
    if case is None:
        return scenario
    if case not in scenario.rigs:
        raise BadValue("--case", case, f"give one of {', '.join(scenario.rigs)}")
    goals = tuple(goal for goal in scenario.goals if not goal.cases or case in goal.cases)
    kept = tuple(replace(goal, cases=()) for goal in goals)
    return replace(scenario, rigs={case: scenario.rigs[case]}, goals=kept)


def _played(
    wanted: Sequence[tuple[str, AnyScenario, Sequence[str]]],
    seeds: Sequence[int],
    progress: Progress,
    jobs: int,
) -> Iterator[tuple[str, Trial]]:
    """Each scenario's trial as soon as all its runs have ended, in the order they are wanted."""
    left: dict[str, int] = {}
    units: list[Unit] = []
    for where, scenario, names in wanted:
        for name in names:
            scenario.contender(name)
        of_it = [
            Unit(where, who, case, s) for s in seeds for case in scenario.rigs for who in names
        ]
        left[where] = len(of_it)
        units += of_it
    progress.expect(units, jobs)
    steps: dict[str, list[Step]] = {where: [] for where in left}
    waiting = list(wanted)
    for ran in play_all(units, jobs):
        unit = ran.unit
        progress.ran(ran)
        steps[unit.where].append(Step(unit.contender, unit.case, unit.seed, ran.figures, 0, 0))
        left[unit.where] -= 1
        while waiting and not left[waiting[0][0]]:
            where, scenario, _ = waiting.pop(0)
            progress.end()
            yield where, gather(scenario, steps[where])
