"""Deadline chain: three services in a row, twice what they can do, and nobody works for the dead.

Each service does its part and asks the next; all are equally strong. Without control all of them
work on what nobody waits for. Looking whether a deadline has passed saves little: what is left of
it runs out one hop further on, and the work of the hops before is lost too. So is the work for whom
a later hop refuses for any other reason. The goal is to lose less than a hundredth of what the
services can do, and to answer in time with all the rest.

Refuse at the first hop, by what the whole way takes; behind it, finish what was begun.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.hops import (
    Hops,
    alike,
    candidate,
    expired_only,
    guarded,
    measure,
    nothing,
    without_deadline,
    without_queue,
)
from sluicegate.lab.scenario import AS_BARS, PlotSpec, Scenario

SCENARIO: Final = Scenario(
    number=19,
    name="deadline-chain",
    title="Three hops with a deadline, at twice the load",
    why="What is refused late has already cost something.",
    rigs={"500 ms": Hops(), "tight": Hops(timeout_us=120_000, span_us=6_000_000)},
    candidates={
        "chain": candidate(guarded),
        "alike": candidate(alike),
        "without-deadline": candidate(without_deadline),
        "without-queue": candidate(without_queue),
        "seed-expired": candidate(expired_only),
        "fifo": candidate(nothing),
    },
    ours="chain",
    must_fail=("fifo", "seed-expired", "without-queue"),
    goals=(
        Goal(figure="wasted", at_most=0.01, cases=("500 ms",)),
        Goal(figure="goodput", at_least=0.98, cases=("500 ms",)),
    ),
    measure=measure,
    columns=("goodput", "wasted", "p50_ms", "p99_ms"),
    plots=(
        PlotSpec("Useful and wasted work", ("goodput", "wasted"), AS_BARS, "of what is possible"),
    ),
    scale="half the workers of the other rigs",
    limits=(
        "'tight' grants 120 ms for work whose p99 is 84 ms without any waiting, and has no goal: "
        "there ours answers 0.92 in time and wastes 0.06, and nobody here does better"
    ),
)
