"""Overhead: what all of it costs a request that nothing is wrong with.

Control that costs more than it saves is switched off, and rightly. The goal is that the whole
server chain, the shield that counts keys included, takes no more than 15 us of a request, 40 us of
one in a hundred, and leaves nothing behind however many have passed.

This one is measured by the clock on the wall, on the build that it runs on: the goal is for the
compiled one, and the figures are those of the machine.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.overhead import (
    Overhead,
    OverheadRun,
    candidate,
    plain_window,
    server_chain,
)
from sluicegate.lab.scenario import AS_BARS, Figures, PlotSpec, Scenario


def measure(rig: Overhead, run: OverheadRun) -> Figures:
    """Of the middle round."""
    return {
        "p50_us": float(median(run.p50_us)),
        "p99_us": float(median(run.p99_us)),
        "objects_per_million": run.objects * 1e6 / run.requests,
    }


SCENARIO: Final = Scenario(
    number=23,
    name="overhead",
    title="What the whole chain costs a request",
    why="Control that costs more than it saves is switched off.",
    rigs={"calm": Overhead()},
    candidates={
        "chain": candidate(server_chain),
        "plain-window": candidate(plain_window),
    },
    ours="chain",
    must_fail=("plain-window",),
    goals=(
        Goal(figure="p50_us", at_most=15),
        Goal(figure="p99_us", at_most=40),
        Goal(figure="objects_per_million", at_most=1_000),
    ),
    measure=measure,
    columns=("p50_us", "p99_us", "objects_per_million"),
    plots=(PlotSpec("A request through the chain", ("p50_us", "p99_us"), AS_BARS, "us"),),
    scale="100,000 requests one after the other; the long proof is of ten million.",
)
