"""Scenario: a claim about overload, as a value that one can read, copy and change.

It says what comes and what serves it (the rigs, one for each case), who contends, what counts as
good (the goals), which contender is ours, and which baseline must fail. The scenarios themselves
are in `scenarios`, one a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from headgate.contracts.errors import BadValue, HeadgateError
from headgate.lab import fast, full
from headgate.lab.checks import Finding, Goal, judge
from headgate.lab.fast import MakeLine
from headgate.lab.full import MakePolicy
from headgate.lab.ledger import Ledger
from headgate.lab.measures import Figures, figures
from headgate.lab.rig import Rig
from headgate.lab.virtual_loop import BrokenRun

Play: TypeAlias = Callable[[Rig, int], Ledger]
Measure: TypeAlias = Callable[[Rig, Ledger], Figures]


class Contender(NamedTuple):
    """One way to meet a scenario, and how it is played: with tasks, or with kernels only."""

    play: Play
    mode: str


def in_line(make_line: MakeLine) -> Contender:
    """A contender that is a line before the workers, in the kernel-only mode."""
    return Contender(lambda rig, seed: fast.play(rig, make_line, seed), "kernels")


def in_world(make_policy: MakePolicy) -> Contender:
    """A contender that is a policy, as it runs in production, on virtual time."""
    return Contender(lambda rig, seed: full.play(rig, make_policy, seed), "tasks")


def nothing_more(rig: Rig, ledger: Ledger) -> Figures:
    """No figures besides the usual."""
    return {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A claim, and all it takes to try it."""

    number: int
    name: str
    title: str
    why: str
    rigs: Mapping[str, Rig]
    contenders: Mapping[str, Contender]
    ours: str
    must_fail: str
    goals: tuple[Goal, ...]
    measure: Measure = nothing_more  # figures besides the usual
    shown: tuple[str, ...] = ("goodput", "p99_ms", "refused_p99_ms", "queue_peak")
    scale: str = ""  # how the rigs differ in size from what the claim is about

    def __post_init__(self) -> None:
        for field, name in (("ours", self.ours), ("must_fail", self.must_fail)):
            if name not in self.contenders:
                raise BadValue(field, name, f"give one of {', '.join(self.contenders)}")
        for goal in self.goals:
            for case in goal.cases:
                if case not in self.rigs:
                    raise BadValue("goal.cases", case, f"give one of {', '.join(self.rigs)}")

    def contender(self, name: str) -> Contender:
        """The contender of that name."""
        found = self.contenders.get(name)
        if found is None:
            raise BadValue("contender", name, f"give one of {', '.join(self.contenders)}")
        return found

    def once(self, contender: str, case: str, seed: int) -> Figures:
        """One run, and its figures."""
        rig = self.rigs[case]
        ledger = self.contender(contender).play(rig, seed)
        return figures(rig, ledger) | self.measure(rig, ledger)


class BrokenTrial(HeadgateError):  # noqa: N818 - it names the thing, as the others do
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

    scenario: Scenario
    seen: Mapping[str, Mapping[str, Mapping[int, Figures]]]

    def findings(self, contender: str) -> list[Finding]:
        """What its runs say to the goals."""
        return judge(self.scenario.goals, self.scenario.rigs, self.seen[contender])

    def met(self, contender: str) -> bool:
        """Whether it meets every goal in every case, with the worst seed."""
        return all(finding.met for finding in self.findings(contender))


def steps(scenario: Scenario, contenders: Iterable[str], seeds: Iterable[int]) -> Iterator[Step]:
    """Run after run, each as it ends."""
    names, kept = list(contenders), list(seeds)
    for name in names:
        scenario.contender(name)
    runs = len(names) * len(scenario.rigs) * len(kept)
    done = 0
    for seed in kept:
        for case in scenario.rigs:
            for name in names:
                found = _once(scenario, name, case, seed)
                done += 1
                yield Step(name, case, seed, found, done, runs)


def repeat_command(scenario: Scenario, contender: str, case: str, seed: int) -> str:
    """The command that repeats one run."""
    return f"headgate lab run {scenario.name} --case {case} --as {contender} --seed {seed} --runs 1"


def _once(scenario: Scenario, contender: str, case: str, seed: int) -> Figures:
    try:
        return scenario.once(contender, case, seed)
    except Exception as error:
        command = repeat_command(scenario, contender, case, seed)
        if isinstance(error, BrokenRun):
            raise BrokenTrial(f"{error}; repeat it: {command}") from error
        error.add_note(f"repeat it: {command}")
        raise


def gather(scenario: Scenario, ended: Iterable[Step]) -> Trial:
    """The trial that the steps make up."""
    seen: dict[str, dict[str, dict[int, Figures]]] = {}
    for step in ended:
        by_case = seen.setdefault(step.contender, {})
        by_case.setdefault(step.case, {})[step.seed] = step.figures
    return Trial(scenario, seen)
