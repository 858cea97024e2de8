"""Jobs: runs of scenarios in several processes.

A scenario holds functions, which do not travel between processes; a run names it instead: by the
name of one of ours, or the path of a file. A child looks it up once. Results come back as runs end,
and say how long they took. With one job everything runs in this process.

Children never outlive us: whoever stops taking results (an error, Ctrl-C) ends them at once, and a
child whose parent has died ends itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from traceback import format_exc
from typing import Final, NamedTuple

from sluicegate.command_line.process_pool import process_pool
from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.progress import RunKind, RunProgress
from sluicegate.lab.scenario import (
    AnyScenario,
    Curves,
    FailedRun,
    Figures,
    ScenarioResults,
    repeat_command,
    repeatable,
)
from sluicegate.system import now_us

POINTS_MAX: Final = 500  # of a curve
_AHEAD: Final = 2  # runs a child that are submitted, so that none waits for us


class RunSpec(NamedTuple):
    """One run: whose, and whether its curves are wanted."""

    where: str  # the scenario's name, number or file
    candidate: str
    case: str
    seed: int
    with_curves: bool = False

    @property
    def kind(self) -> RunKind:
        """Runs of one kind take about as long."""
        return (self.where, self.candidate, self.case)


class RunResult(NamedTuple):
    """A run that has ended, and how long it took by the clock on the wall."""

    spec: RunSpec
    figures: Figures
    curves: Curves
    wall_us: int


class _Failure(NamedTuple):
    """Why a run failed; errors may not travel between processes, their text does."""

    sentence: str
    trace: str


def run_one(spec: RunSpec) -> RunResult:
    """Run it in this process."""
    scenario = _find(spec.where)
    begun_us = now_us()
    with repeatable(scenario, spec.candidate, spec.case, spec.seed, where=spec.where):
        rig = scenario.rigs[spec.case]
        result = scenario.candidate(spec.candidate).run(rig, spec.seed)
        figures = scenario.measure(rig, result)
        curves = scenario.curves(rig, result) if spec.with_curves else {}
    thin = {name: thin_out(points) for name, points in curves.items()}
    return RunResult(spec, figures, thin, now_us() - begun_us)


def run_all(specs: Iterable[RunSpec], jobs: int) -> Iterator[RunResult]:
    """Run all of them, and yield each result as its run ends."""
    if jobs == 1:
        yield from map(run_one, specs)
        return
    left = iter(specs)
    with process_pool(jobs) as pool:
        under_way: dict[Future[RunResult | _Failure], RunSpec] = {}
        while True:
            for spec in left:
                under_way[pool.submit(_run_in_child, spec)] = spec
                if len(under_way) >= _AHEAD * jobs:
                    break
            if not under_way:
                return
            ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in ended:
                yield _result_of(future, under_way.pop(future))


def run_groups(
    groups: Sequence[Sequence[RunSpec]], progress: RunProgress, jobs: int
) -> Iterator[list[RunResult]]:
    """Run all groups, and yield the results of each once all its runs have ended, in order."""
    progress.expect([spec.kind for spec in chain(*groups)], jobs)
    group_of = {spec: at for at, group in enumerate(groups) for spec in group}
    results: list[list[RunResult]] = [[] for _ in groups]
    at = 0
    try:
        for result in run_all(chain(*groups), jobs):
            progress.record(result.spec.kind, result.wall_us)
            results[group_of[result.spec]].append(result)
            while at < len(groups) and len(results[at]) == len(groups[at]):
                progress.end()
                yield results[at]
                at += 1
    finally:
        progress.end()


def collect_results(scenario: AnyScenario, results: Iterable[RunResult]) -> ScenarioResults:
    """Gather the results of one scenario, in the same order however they came."""
    figures: dict[str, dict[str, dict[int, Figures]]] = {}
    order = {case: at for at, case in enumerate(scenario.rigs)}
    for result in sorted(results, key=lambda one: (order[one.spec.case], one.spec.seed)):
        by_case = figures.setdefault(result.spec.candidate, {})
        by_case.setdefault(result.spec.case, {})[result.spec.seed] = result.figures
    return ScenarioResults(scenario, figures)


def thin_out(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS_MAX` of the points, evenly, the last included."""
    every = list(points)
    if len(every) <= POINTS_MAX:
        return every
    last = len(every) - 1
    return [every[at * last // (POINTS_MAX - 1)] for at in range(POINTS_MAX)]


def _find(where: str) -> AnyScenario:
    from sluicegate.lab.scenarios import find  # noqa: PLC0415 - the scenarios come with it

    return find(where)


def _result_of(future: Future[RunResult | _Failure], spec: RunSpec) -> RunResult:
    try:
        result = future.result()
    except BrokenProcessPool as error:
        what = f"the process that ran {spec.candidate} in {spec.where} ({spec.case})"
        reason = "it has died; with --jobs 1 it runs in this process"
        raise Unavailable(what, reason) from error
    if isinstance(result, _Failure):
        failed = FailedRun(result.sentence)
        failed.add_note(result.trace)
        raise failed
    return result


def _run_in_child(spec: RunSpec) -> RunResult | _Failure:
    try:
        return run_one(spec)
    except FailedRun as error:
        return _Failure(str(error), format_exc())
    except Exception as error:
        scenario = _find(spec.where)
        command = repeat_command(scenario, spec.candidate, spec.case, spec.seed, where=spec.where)
        sentence = f"{type(error).__name__}: {error}; repeat it: {command}"
        return _Failure(sentence, format_exc())
