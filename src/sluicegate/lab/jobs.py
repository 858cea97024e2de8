"""Jobs: runs of scenarios in several processes, each run a value that names what is to be played.

A scenario holds functions, which do not travel between processes; its place does: the name of one
of ours, or the path of a file. A child looks it up once. Runs come back as they end, and say how
long they took. With one job all of it happens in this process.

The law: children never outlive us. Whoever stops taking runs (an error, Ctrl-C) ends them at once,
and a child whose parent has died ends itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from traceback import format_exc
from typing import Final, NamedTuple

from sluicegate.command_line.process_pool import children
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.lab.scenario import (
    AnyScenario,
    BrokenTrial,
    Curves,
    Figures,
    repeat_command,
    repeatable,
)
from sluicegate.lab.tune.defaults import Change, changed
from sluicegate.system import now_us

JOBS_MAX: Final = 256
POINTS_MAX: Final = 500  # of a curve
_AHEAD: Final = 2  # runs a child that are set, so that none waits for us


class Unit(NamedTuple):
    """One run to be played: whose, and whether curves are wanted of it."""

    where: str  # the scenario's name, number or file
    contender: str
    case: str
    seed: int
    drawn: bool = False
    changes: tuple[Change, ...] = ()  # of the settings' defaults


class Ran(NamedTuple):
    """A run that was played, and how long it took by the clock on the wall."""

    unit: Unit
    figures: Figures
    curves: Curves
    wall_us: int


class _Failed(NamedTuple):
    """A run that was not: an error may not travel, its words do."""

    sentence: str
    trace: str


def parse_jobs(jobs: str) -> int:
    """How many processes; `auto` is as many as there are cores."""
    if jobs == "auto":
        return min(os.cpu_count() or 1, JOBS_MAX)
    if not jobs.isdecimal() or not 1 <= int(jobs) <= JOBS_MAX:
        raise BadValue("--jobs", jobs, f"give a whole number from 1 to {JOBS_MAX}, or auto")
    return int(jobs)


def play(unit: Unit) -> Ran:
    """One run, here and now."""
    scenario = _found(unit.where)
    begun_us = now_us()
    with repeatable(scenario, unit.contender, unit.case, unit.seed, where=unit.where):
        rig = scenario.rigs[unit.case]
        with changed(unit.changes):
            result = scenario.contender(unit.contender).play(rig, unit.seed)
        measured = scenario.measure(rig, result)
        curves = scenario.curves(rig, result) if unit.drawn else {}
    taken = {name: thinned(points) for name, points in curves.items()}
    return Ran(unit, measured, taken, now_us() - begun_us)


def play_all(units: Iterable[Unit], jobs: int) -> Iterator[Ran]:
    """All of them, each as it ends."""
    if jobs == 1:
        yield from map(play, units)
        return
    left = iter(units)
    with children(jobs) as pool:
        under_way: dict[Future[Ran | _Failed], Unit] = {}
        while True:
            for unit in left:
                under_way[pool.submit(_play_there, unit)] = unit
                if len(under_way) >= _AHEAD * jobs:
                    break
            if not under_way:
                return
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                yield _taken(future, under_way.pop(future))


def thinned(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS_MAX` of them, evenly, the last included."""
    kept = list(points)
    if len(kept) <= POINTS_MAX:
        return kept
    last = len(kept) - 1
    return [kept[at * last // (POINTS_MAX - 1)] for at in range(POINTS_MAX)]


def _found(where: str) -> AnyScenario:
    from sluicegate.lab.scenarios import find  # noqa: PLC0415 - the scenarios come with it

    return find(where)


def _taken(future: Future[Ran | _Failed], unit: Unit) -> Ran:
    try:
        ran = future.result()
    except BrokenProcessPool as error:
        what = f"the process that played {unit.contender} in {unit.where} ({unit.case})"
        seen = "it has died; with --jobs 1 it is played in this process"
        raise Unavailable(what, seen) from error
    if isinstance(ran, _Failed):
        broken = BrokenTrial(ran.sentence)
        broken.add_note(ran.trace)
        raise broken
    return ran


def _play_there(unit: Unit) -> Ran | _Failed:
    """In a child."""
    try:
        return play(unit)
    except BrokenTrial as error:
        return _Failed(str(error), format_exc())
    except Exception as error:
        scenario = _found(unit.where)
        command = repeat_command(scenario, unit.contender, unit.case, unit.seed, where=unit.where)
        sentence = f"{type(error).__name__}: {error}; repeat it: {command}"
        return _Failed(sentence, format_exc())
