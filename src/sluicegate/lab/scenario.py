"""Scenario: a claim about overload, as a value that one can read, copy and change.

It says what comes and what serves it (the rigs, one for each case), who contends, what counts as
good (the goals), which contender is ours, and who must fail: a baseline, and ours with the policy
taken out. A rig may be any value, and what a run leaves behind too; the scenario measures figures
in the second, and curves for the pictures. The scenarios themselves are in `scenarios`, one a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.lab.checks import Finding, Goal, judge
from sluicegate.lab.virtual_loop import BrokenRun

Rig = TypeVar("Rig")
Result = TypeVar("Result")

Figures: TypeAlias = dict[str, float]
Curves: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]

KERNELS: Final = "kernels"  # no task a request
TASKS: Final = "tasks"  # production policies as they are, on virtual time
DRILL: Final = "drill"  # real processes and sockets on loopback
WALL: Final = "wall"  # production policies by the clock on the wall; no two runs are the same


class Contender(NamedTuple, Generic[Rig, Result]):
    """One way to meet a scenario, and how it is played."""

    play: Callable[[Rig, int], Result]  # a rig and a seed
    mode: str


Maker = TypeVar("Maker")


def contender_maker(
    play: Callable[[Rig, Maker, int], Result], mode: str = TASKS
) -> Callable[[Maker], Contender[Rig, Result]]:
    """Return what makes a contender of what `play` takes beside a rig and a seed."""
    return lambda make: Contender(lambda rig, seed: play(rig, make, seed), mode)


class Picture(NamedTuple):
    """What the report draws of a scenario, a line (or a bar) for each contender.

    Over cases `names` are figures, over time they are curves; as bars each figure has its group.
    """

    title: str
    names: tuple[str, ...]
    over: str  # OVER_CASES, OVER_TIME or AS_BARS
    y: str  # what the axis says
    x: str = ""
    log_y: bool = False


OVER_CASES: Final = "cases"
OVER_TIME: Final = "time"
AS_BARS: Final = "bars"


def no_curves(rig: object, result: object) -> Curves:
    """A scenario of which nothing is drawn over time."""
    return {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Generic[Rig, Result]):
    """A claim, and all it takes to try it."""

    number: int
    name: str
    title: str
    why: str
    rigs: Mapping[str, Rig]
    contenders: Mapping[str, Contender[Rig, Result]]
    ours: str
    must_fail: tuple[str, ...]  # a baseline, and ours without its policy
    goals: tuple[Goal, ...]
    measure: Callable[[Rig, Result], Figures]
    shown: tuple[str, ...]
    curves: Callable[[Rig, Result], Curves] = no_curves
    pictures: tuple[Picture, ...] = ()
    scale: str = ""  # how the rigs differ in size from what the claim is about
    limits: str = ""  # where a goal cannot be met: why, and what was measured

    def __post_init__(self) -> None:
        named = [("ours", self.ours), *(("must_fail", name) for name in self.must_fail)]
        for field, name in named:
            if name not in self.contenders:
                raise BadValue(field, name, f"give one of {', '.join(self.contenders)}")
        if not self.must_fail:
            raise BadValue("must_fail", self.must_fail, "name at least one who must fail")
        for goal in self.goals:
            for case in goal.cases:
                if case not in self.rigs:
                    raise BadValue("goal.cases", case, f"give one of {', '.join(self.rigs)}")

    def contender(self, name: str) -> Contender[Rig, Result]:
        """The contender of that name."""
        found = self.contenders.get(name)
        if found is None:
            raise BadValue("contender", name, f"give one of {', '.join(self.contenders)}")
        return found

    def once(self, contender: str, case: str, seed: int) -> Figures:
        """One run, and its figures."""
        rig = self.rigs[case]
        return self.measure(rig, self.contender(contender).play(rig, seed))

    def drawn(self, contender: str, case: str, seed: int) -> Curves:
        """One run, and its curves."""
        rig = self.rigs[case]
        return self.curves(rig, self.contender(contender).play(rig, seed))


AnyScenario: TypeAlias = "Scenario[Any, Any]"


class BrokenTrial(SluicegateError):  # noqa: N818 - it names the thing, as the others do
    """A run of a trial stood still, went in circles or leaked; it says how to repeat it."""


class Step(NamedTuple):
    """One run of a trial that has ended; `done` of `runs` have."""

    contender: str
    case: str
    seed: int
    figures: Figures
    done: int
    runs: int


class Trial(NamedTuple):
    """All runs of a scenario: figures by contender, case and seed."""

    scenario: AnyScenario
    seen: Mapping[str, Mapping[str, Mapping[int, Figures]]]

    def findings(self, contender: str) -> list[Finding]:
        """What its runs say to the goals."""
        return judge(self.scenario.goals, self.scenario.rigs, self.seen[contender])

    def met(self, contender: str) -> bool:
        """Whether it meets every goal in every case, with the worst seed."""
        return all(finding.met for finding in self.findings(contender))


def steps(scenario: AnyScenario, contenders: Iterable[str], seeds: Iterable[int]) -> Iterator[Step]:
    """Run after run, each as it ends."""
    names, kept = list(contenders), list(seeds)
    for name in names:
        scenario.contender(name)
    runs = len(names) * len(scenario.rigs) * len(kept)
    done = 0
    for seed in kept:
        for case in scenario.rigs:
            for name in names:
                with repeatable(scenario, name, case, seed):
                    found = scenario.once(name, case, seed)
                done += 1
                yield Step(name, case, seed, found, done, runs)


def repeat_command(
    scenario: AnyScenario, contender: str, case: str, seed: int, *, where: str = ""
) -> str:
    """The command that repeats one run; `where` is the scenario's own file, if it has one."""
    name = quote(where) if where.endswith(".py") else scenario.name
    return f"sluicegate lab run {name} --case {case} --as {contender} --seed {seed} --runs 1"


@contextmanager
def repeatable(
    scenario: AnyScenario, contender: str, case: str, seed: int, *, where: str = ""
) -> Iterator[None]:
    """Whatever goes wrong inside says how to repeat it."""
    try:
        yield
    except Exception as error:
        command = repeat_command(scenario, contender, case, seed, where=where)
        if isinstance(error, BrokenRun):
            raise BrokenTrial(f"{error}; repeat it: {command}") from error
        error.add_note(f"repeat it: {command}")
        raise


def gather(scenario: AnyScenario, ended: Iterable[Step]) -> Trial:
    """The trial that the steps make up, in the same order however they came."""
    seen: dict[str, dict[str, dict[int, Figures]]] = {}
    order = {case: at for at, case in enumerate(scenario.rigs)}
    for step in sorted(ended, key=lambda step: (order[step.case], step.seed)):
        by_case = seen.setdefault(step.contender, {})
        by_case.setdefault(step.case, {})[step.seed] = step.figures
    return Trial(scenario, seen)
