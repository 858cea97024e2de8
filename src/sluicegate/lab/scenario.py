"""Scenario: a claim about overload, as a value that can be read, copied and changed.

It holds the load and what serves it (the rigs, one for each case), the candidates, the goals, which
candidate is ours, and which must fail: a baseline, and ours with the policy taken out. A rig may be
any value, and so may the result of a run; the scenario measures figures in the result, and curves
for the plots. The scenarios themselves are in `scenarios`, one a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from traceback import walk_tb
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.lab.goals import Goal, GoalResult, judge_goals
from sluicegate.lab.virtual_loop import BrokenRun

Rig = TypeVar("Rig")
Result = TypeVar("Result")

Figures: TypeAlias = dict[str, float]
Curves: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]


class Candidate(NamedTuple, Generic[Rig, Result]):
    """One way to meet a scenario."""

    run: Callable[[Rig, int], Result]  # a rig and a seed


Maker = TypeVar("Maker")


def candidate_maker(
    run: Callable[[Rig, Maker, int], Result],
) -> Callable[[Maker], Candidate[Rig, Result]]:
    """Return what makes a candidate of what `run` takes beside a rig and a seed."""
    return lambda make: Candidate(lambda rig, seed: run(rig, make, seed))


class PlotSpec(NamedTuple):
    """A plot of the report over time: a panel for each case, a line for each candidate."""

    title: str
    curve: str
    y: str  # the label of the axis
    log_y: bool = False


# Most rigs are played with it.
PLACES: Final[Mapping[str, str]] = {
    "places as many as workers": "it is for whoever sets up a service to say, and only the "
    "dispatcher and `concurrency` find it; a third too few answer two thirds",
}


def no_curves(rig: object, result: object) -> Curves:
    """A scenario of which nothing is drawn over time."""
    return {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Generic[Rig, Result]):
    """A claim, and all it takes to test it."""

    number: int
    name: str
    title: str
    why: str
    rigs: Mapping[str, Rig]
    candidates: Mapping[str, Candidate[Rig, Result]]
    ours: str
    must_fail: tuple[str, ...]  # a baseline, and ours without its policy
    goals: tuple[Goal, ...]
    measure: Callable[[Rig, Result], Figures]
    columns: tuple[str, ...]  # the figures that tables show
    curves: Callable[[Rig, Result], Curves] = no_curves
    plots: tuple[PlotSpec, ...] = ()
    scale: str = ""  # how the rigs differ in size from what the claim is about
    limits: str = ""  # where a goal cannot be met: why, and what was measured
    own_settings: Mapping[str, str] = field(default_factory=dict)  # of ours, and why not as shipped

    def __post_init__(self) -> None:
        named = [("ours", self.ours), *(("must_fail", name) for name in self.must_fail)]
        for part, name in named:
            if name not in self.candidates:
                raise BadValue(part, name, f"give one of {', '.join(self.candidates)}")
        if not self.must_fail:
            raise BadValue("must_fail", self.must_fail, "name at least one who must fail")
        for goal in self.goals:
            for case in goal.cases:
                if case not in self.rigs:
                    raise BadValue("goal.cases", case, f"give one of {', '.join(self.rigs)}")

    def candidate(self, name: str) -> Candidate[Rig, Result]:
        """The candidate of that name."""
        found = self.candidates.get(name)
        if found is None:
            raise BadValue("candidate", name, f"give one of {', '.join(self.candidates)}")
        return found

    def run_once(self, candidate: str, case: str, seed: int) -> Figures:
        """One run, and its figures."""
        rig = self.rigs[case]
        return self.measure(rig, self.candidate(candidate).run(rig, seed))


AnyScenario: TypeAlias = "Scenario[Any, Any]"


class FailedRun(SluicegateError):  # noqa: N818 - it names the thing, as the others do
    """A run of a scenario stood still, went in circles or leaked; it says how to repeat it."""


class ScenarioResults(NamedTuple):
    """All runs of a scenario: figures by candidate, case and seed."""

    scenario: AnyScenario
    figures: Mapping[str, Mapping[str, Mapping[int, Figures]]]

    def judge(self, candidate: str) -> list[GoalResult]:
        """Compare the candidate's runs with the goals."""
        return judge_goals(self.scenario.goals, self.scenario.rigs, self.figures[candidate])

    def meets_goals(self, candidate: str) -> bool:
        """Whether it meets every goal in every case, with the worst seed."""
        return all(result.met for result in self.judge(candidate))

    def count_held(self, candidate: str, seeds: Iterable[int]) -> int:
        """How many of the seeds meet every goal in every case."""
        goals, rigs = self.scenario.goals, self.scenario.rigs
        cases = self.figures[candidate]
        alone = [{case: {seed: runs[seed]} for case, runs in cases.items()} for seed in seeds]
        return sum(all(one.met for one in judge_goals(goals, rigs, figures)) for figures in alone)


def run_trials(
    scenario: AnyScenario, candidates: Iterable[str], seeds: Iterable[int]
) -> ScenarioResults:
    """Run each candidate in each case with each seed, in this process."""
    figures: dict[str, dict[str, dict[int, Figures]]] = {name: {} for name in candidates}
    for name in figures:
        scenario.candidate(name)
    for seed in seeds:
        for case in scenario.rigs:
            for name, cases in figures.items():
                with repeatable(scenario, name, case, seed):
                    cases.setdefault(case, {})[seed] = scenario.run_once(name, case, seed)
    return ScenarioResults(scenario, figures)


def repeat_command(
    scenario: AnyScenario, candidate: str, case: str, seed: int, *, where: str = ""
) -> str:
    """Return the command that repeats one run; `where` is the scenario's own file, if any."""
    name = quote(where) if where.endswith(".py") else scenario.name
    return f"sluicegate lab run {name} --case {case} --as {candidate} --seed {seed} --runs 1"


@contextmanager
def repeatable(
    scenario: AnyScenario, candidate: str, case: str, seed: int, *, where: str = ""
) -> Iterator[None]:
    """Add the command that repeats the run to whatever error is raised inside.

    An error of a scenario of a user's own names its line.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        command = repeat_command(scenario, candidate, case, seed, where=where)
        if isinstance(error, BrokenRun):
            raise FailedRun(f"{error}; repeat it: {command}") from error
        if where.endswith(".py"):
            mistake = describe_mistake(error, Path(where).resolve())
            raise FailedRun(f"{mistake}; repeat it: {command}") from error
        error.add_note(f"repeat it: {command}")
        raise


def describe_mistake(error: BaseException, file: Path) -> str:
    """Where an error was raised in a user's own file, or in one beside it, and what it says."""
    said = str(error) if isinstance(error, SluicegateError) else f"{type(error).__name__}: {error}"
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        said = f"{type(error).__name__}: {error.msg}"
        places.append((error.filename, error.lineno))
    own = [(path, line) for path, line in places if Path(path).parent == file.parent]
    if not own:
        return f"{file.name}: {said}"
    path, line = own[-1]
    return f"{Path(path).name}, line {line}: {said}"
