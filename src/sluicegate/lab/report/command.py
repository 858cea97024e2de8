"""Report: plays scenarios and keeps what came of them; the verb `sluicegate lab report`.

Ours is played with every seed. Whoever must fail is played with the first, and that is enough when
it misses a goal there, because the worst of more seeds is no better; if it misses none, with the
others too. A few others contend with the first seed, for the pictures. What is played by the
clock on the wall, drills above all, is played by itself.

The law: this file plays and counts. `report_page` makes the page of it, `plots` the pictures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab import plots_style, scenarios
from sluicegate.lab.checks import Finding
from sluicegate.lab.jobs import Ran, Unit, play_all
from sluicegate.lab.plots import OTHERS_MAX
from sluicegate.lab.progress import Progress
from sluicegate.lab.scenario import (
    DRILL,
    KERNELS,
    TASKS,
    AnyScenario,
    Curves,
    Figures,
    Trial,
)
from sluicegate.lab.show import number
from sluicegate.system import now_us

MET: Final = 0
MISSED: Final = 1
NAMES_MAX: Final = 200
SIMULATED: Final = (KERNELS, TASKS)
_US: Final = 1e6


@final
@dataclass(slots=True)
class Played:
    """A scenario and what its runs left behind."""

    where: str
    scenario: AnyScenario
    figures: dict[str, dict[str, dict[int, Figures]]] = field(default_factory=dict)
    curves: dict[str, dict[str, Curves]] = field(default_factory=dict)
    wall_us: dict[str, int] = field(default_factory=dict)  # by contender
    runs: dict[str, int] = field(default_factory=dict)

    def take(self, ran: Ran) -> None:
        """Keep a run."""
        unit = ran.unit
        cases = self.figures.setdefault(unit.contender, {case: {} for case in self.scenario.rigs})
        cases[unit.case][unit.seed] = ran.figures
        if ran.curves:
            self.curves.setdefault(unit.contender, {})[unit.case] = ran.curves
        self.wall_us[unit.contender] = self.wall_us.get(unit.contender, 0) + ran.wall_us
        self.runs[unit.contender] = self.runs.get(unit.contender, 0) + 1

    def findings(self, contender: str) -> list[Finding]:
        """What its runs say to the goals, in the order of the cases."""
        seen = {
            case: dict(sorted(runs.items()))
            for case, runs in self.figures[contender].items()
            if runs
        }
        return Trial(self.scenario, {contender: seen}).findings(contender)

    def met(self, contender: str) -> bool:
        """Whether it meets every goal with the worst of its seeds."""
        return all(finding.met for finding in self.findings(contender))

    def fails_as_it_must(self, contender: str) -> bool:
        """Whether one who must fail does."""
        return not self.met(contender)

    def kept(self) -> bool:
        """Whether the claim holds: ours meets every goal, and who must fail fails."""
        failing = all(self.fails_as_it_must(name) for name in self.scenario.must_fail)
        return self.met(self.scenario.ours) and failing

    def drills(self) -> list[str]:
        """Those contenders that were played with real processes and sockets."""
        return [name for name in self.figures if self.mode(name) == DRILL]

    def mode(self, contender: str) -> str:
        """How it is played."""
        return self.scenario.contender(contender).mode

    def speed(self, contender: str) -> float | None:
        """Simulated seconds for each second of one core; None where nothing is simulated."""
        if self.mode(contender) not in SIMULATED or not self.wall_us.get(contender):
            return None
        simulated_us = 0
        for case, runs in self.figures[contender].items():
            span_us = getattr(self.scenario.rigs[case], "span_us", None)
            if not isinstance(span_us, int):
                return None
            simulated_us += span_us * len(runs)
        return simulated_us / self.wall_us[contender]


@final
@dataclass(frozen=True, slots=True)
class Report:
    """All that was played, with which seeds, and how long it took."""

    played: tuple[Played, ...]
    seeds: range
    jobs: int
    wall_s: float
    at_us: int

    def kept(self) -> bool:
        """Whether every claim holds, or says itself where and why it does not."""
        return all(played.kept() or played.scenario.limits for played in self.played)


def run(
    names: Sequence[str],
    seeds: range,
    out: str,
    write: Callable[[str], object],
    tell: Callable[[str], object],
    progress: Progress,
    *,
    jobs: int,
    drills: bool,
    everyone: bool = False,
) -> int:
    """The verb."""
    from sluicegate.lab.report.page import write_page  # noqa: PLC0415 - it draws

    plots_style.need()
    places = chosen(names)
    folder = folder_for(out)
    report = play(places, seeds, jobs, progress, drills=drills, everyone=everyone)
    progress.end()
    page = write_page(report, folder, tell)
    (folder / "report.json").write_text(json.dumps(as_json(report), indent=1), encoding="utf-8")
    for line in summary(report):
        write(f"{line}\n")
    write(f"report: {page}\n")
    return MET if report.kept() else MISSED


def chosen(names: Sequence[str]) -> list[str]:
    """The scenarios to play: those named, or all of ours."""
    if len(names) > NAMES_MAX:
        raise BadValue("NAME", len(names), f"give at most {NAMES_MAX} names")
    places = list(names)
    if not places or "all" in places:
        places = [*scenarios.TABLE, *(name for name in places if scenarios.is_file(name))]
    return list(dict.fromkeys(places))


def folder_for(out: str) -> Path:
    """The folder to write into; it is made if it is not there."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue("--out", out, f"give a folder that can be written ({error})") from error
    return folder


def play(
    places: Iterable[str],
    seeds: range,
    count: int,
    progress: Progress,
    *,
    drills: bool = True,
    everyone: bool = False,
) -> Report:
    """Play it all; with `everyone` those too who are in no picture."""
    begun_us = now_us()
    found = [Played(where, scenarios.find(where)) for where in places]
    if not drills:
        found = [played for played in found if played.mode(played.scenario.ours) != DRILL]
    by_place = {played.where: played for played in found}
    first = list(_first(found, seeds, everyone=everyone))
    if not drills:
        first = [unit for unit in first if by_place[unit.where].mode(unit.contender) != DRILL]
    # What is played by the clock on the wall wants the machine for itself.
    alone = [unit for unit in first if by_place[unit.where].mode(unit.contender) not in SIMULATED]
    beside = [unit for unit in first if by_place[unit.where].mode(unit.contender) in SIMULATED]
    rounds: tuple[tuple[Callable[[], list[Unit]], int], ...] = (
        (lambda: beside, count),
        (lambda: alone, 1),
        (lambda: list(_again(found, seeds)), count),
    )
    for units_of, at_once in rounds:
        units = units_of()
        progress.expect(units, at_once)
        for ran in play_all(units, at_once):
            by_place[ran.unit.where].take(ran)
            progress.ran(ran)
    wall_s = (now_us() - begun_us) / _US
    return Report(tuple(found), seeds, count, wall_s, begun_us)


def summary(report: Report) -> Iterator[str]:
    """A line for each scenario, for the terminal."""
    for played in report.played:
        scenario = played.scenario
        findings = played.findings(scenario.ours)
        met = sum(finding.met for finding in findings)
        mark = "met   " if met == len(findings) else "MISSED"
        line = f"{mark} {scenario.number:>3}  {scenario.name}: {met} of {len(findings)} goals"
        for name in scenario.must_fail:
            if not played.fails_as_it_must(name):
                line += f"; {name} must fail and does not"
        yield line
        for finding in findings:
            if not finding.met:
                goal = finding.goal.words(scenario.rigs[finding.case])
                worst = f"{number(finding.worst)} with seed {finding.seed}"
                yield f"            {finding.case}: {goal}, and it is {worst}"


def as_json(report: Report) -> dict[str, Any]:
    """Every figure, for whoever wants to compute with them; what is infinite is null."""
    return {
        "version": 1,
        "seeds": list(report.seeds),
        "scenarios": [
            {
                "number": played.scenario.number,
                "name": played.scenario.name,
                "kept": played.kept(),
                "figures": {
                    who: {
                        case: {
                            str(seed): {name: _finite(value) for name, value in run.items()}
                            for seed, run in sorted(runs.items())
                        }
                        for case, runs in cases.items()
                    }
                    for who, cases in played.figures.items()
                },
            }
            for played in report.played
        ],
    }


def _first(found: Sequence[Played], seeds: range, *, everyone: bool) -> Iterator[Unit]:
    """Seed after seed, so that the first fifth shows how long the rest will take."""
    for seed in seeds:
        for played in found:
            scenario = played.scenario
            begins = seed == seeds[0]
            names = _who(scenario, everyone=everyone) if begins else [scenario.ours]
            for case in scenario.rigs:
                for name in names:
                    yield Unit(played.where, name, case, seed, begins)


def _who(scenario: AnyScenario, *, everyone: bool) -> list[str]:
    """Ours, who must fail, drills, and as many others as a picture has room for."""
    first = [scenario.ours, *scenario.must_fail]
    others = [name for name in scenario.contenders if name not in first]
    simulated = [name for name in others if scenario.contender(name).mode != DRILL]
    kept = {*first, *(simulated if everyone else simulated[:OTHERS_MAX])}
    drills = {name for name in others if scenario.contender(name).mode == DRILL}
    return [name for name in scenario.contenders if name in kept | drills]


def _again(found: Sequence[Played], seeds: range) -> Iterator[Unit]:
    """Who must fail and has not yet, with the other seeds."""
    for played in found:
        for name in played.scenario.must_fail:
            if played.figures.get(name) and played.met(name):
                for seed in seeds[1:]:
                    for case in played.scenario.rigs:
                        yield Unit(played.where, name, case, seed)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
