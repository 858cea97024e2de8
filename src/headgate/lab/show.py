"""Show: what `headgate lab` prints, made of trials. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final, TypeAlias

from headgate.contracts.errors import BadValue
from headgate.lab.checks import Finding
from headgate.lab.scenario import AnyScenario, Step, Trial, gather, repeat_command, steps
from headgate.lab.scenarios import TABLE, find

Write: TypeAlias = Callable[[str], object]
Progress: TypeAlias = Callable[[int, int, str], None]

MET: Final = 0
MISSED: Final = 1


def listed(write: Write) -> int:
    """Every scenario: number, name, title, cases, contenders, goals."""
    for scenario in TABLE.values():
        write(f"{scenario.number:>2}  {scenario.name}: {scenario.title}\n")
        write(f"      {scenario.why}\n")
        write(f"      cases {', '.join(scenario.rigs)}; ours is {scenario.ours}\n")
        others = [name for name in scenario.contenders if name != scenario.ours]
        write(f"      others {', '.join(others)}; {' and '.join(scenario.must_fail)} must fail\n")
    return MET


def one(
    name: str,
    seeds: Sequence[int],
    write: Write,
    progress: Progress,
    *,
    contender: str | None = None,
    case: str | None = None,
) -> int:
    """One contender against the goals."""
    scenario = _only(find(name), case)
    who = contender or scenario.ours
    trial = gather(scenario, _watched(steps(scenario, [who], seeds), progress))
    findings = trial.findings(who)
    write(f"{scenario.title}: {who}, seeds {seeds[0]} to {seeds[-1]}, the worst of them\n")
    write(f"  played with {scenario.contender(who).mode}\n")
    if scenario.scale:
        write(f"scale: {scenario.scale}\n")
    write_findings(findings, trial, write)
    missed = [finding for finding in findings if not finding.met]
    for finding in missed:
        write(f"repeat: {repeat_command(scenario, who, finding.case, finding.seed)}\n")
    return MISSED if missed else MET


def several(
    name: str, others: Sequence[str], seeds: Sequence[int], write: Write, progress: Progress
) -> int:
    """Ours and others on the same seeds; the worst seed of each figure."""
    scenario = find(name)
    names = list(dict.fromkeys([scenario.ours, *others]))
    trial = gather(scenario, _watched(steps(scenario, names, seeds), progress))
    write(f"{scenario.title}; seeds {seeds[0]} to {seeds[-1]}, the mean of them\n")
    for case in scenario.rigs:
        write(f"\n{case}\n")
        write_table(trial, names, case, write)
    write("\n")
    for who in names:
        write(f"{who} {'meets every goal' if trial.met(who) else 'misses a goal'}\n")
    return MET if trial.met(scenario.ours) else MISSED


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
    if value == inf:
        return "never"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 4):.4g}"


def _only(scenario: AnyScenario, case: str | None) -> AnyScenario:
    if case is None:
        return scenario
    if case not in scenario.rigs:
        raise BadValue("--case", case, f"give one of {', '.join(scenario.rigs)}")
    goals = tuple(goal for goal in scenario.goals if not goal.cases or case in goal.cases)
    kept = tuple(replace(goal, cases=()) for goal in goals)
    return replace(scenario, rigs={case: scenario.rigs[case]}, goals=kept)


def _watched(ended: Iterator[Step], progress: Progress) -> Iterator[Step]:
    for step in ended:
        progress(step.done, step.runs, f"{step.contender} {step.case} seed {step.seed}")
        yield step
