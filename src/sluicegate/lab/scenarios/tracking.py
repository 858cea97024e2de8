"""Tracking: half of the workers go and come back, ten times; does the limit follow?

Nobody tells a limit how many workers there are. If it stays where it was, what is too much waits
and everybody's latency grows; if it falls too far, workers idle; and many a limit that follows once
drifts a little higher each time. The best limit is the number of workers (Little's law). The goal
is to be within a quarter of it from ten seconds after each change on, but for 3% of that time, with
a p99 at most a fifth above that of a call that never waits, and to stand after ten cycles where it
stood after the first.

Why not always: a quarter of 16 workers is 4. A window is the mean of some 320 exponential times and
5.6% off by chance, and who looks 2,000 times sees three and four such errors in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.concurrency_limits import aimd, fitted_aimd, gradient2, vegas
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.gates import GateRig, GateRun, MakeGate, candidate, curves, measure
from sluicegate.lab.scenario import OVER_TIME, Candidate, PlotSpec, Scenario
from sluicegate.policies.concurrency import AdaptiveSettings, Concurrency, ConcurrencySettings

SECOND: Final = 1_000_000
SERVICE_S: Final = 0.02
WORKERS: Final = 32
LOAD: Final = 1.5
PHASE_US: Final = 20 * SECOND
CYCLES: Final = 10


def cycles(count: int) -> GateRig:
    """So many times all workers, and half of them."""
    changes = [
        (turn * PHASE_US, WORKERS if turn % 2 == 0 else WORKERS // 2) for turn in range(2 * count)
    ]
    return GateRig(
        arrivals=Poisson(LOAD * WORKERS / SERVICE_S),
        workers=tuple(changes),
        span_us=2 * count * PHASE_US,
    )


def production(algorithm: str | None = None) -> MakeGate:
    """The production policy, with its defaults or with the number of that name."""
    adaptive = AdaptiveSettings() if algorithm is None else AdaptiveSettings(algorithm=algorithm)

    def make(rig: GateRig, random_source: RandomSource) -> Concurrency:
        return Concurrency(ConcurrencySettings(adaptive=adaptive), random_source.of("gate"))

    return make


CANDIDATES: Final[Mapping[str, Candidate[GateRig, GateRun]]] = {
    "concurrency": candidate(production()),
    "concurrency-gradient2": candidate(production("gradient2")),
    "vegas": candidate(vegas),
    "gradient2": candidate(gradient2),
    "aimd": candidate(aimd),
    "fitted-aimd": candidate(fitted_aimd),
    "without-tracking": candidate(production("fixed")),
}

SCENARIO: Final = Scenario(
    number=20,
    name="tracking",
    title="Capacity halved and restored, ten times: the limit follows",
    why="A limit that does not follow is too high when it matters and too low when it does not.",
    rigs={"cycles": cycles(CYCLES)},
    candidates=CANDIDATES,
    ours="concurrency",
    must_fail=("gradient2", "without-tracking"),
    goals=(
        Goal(figure="astray", at_most=0.03),
        Goal(figure="p99_growth", at_most=0.20),
        Goal(figure="drift", at_most=0.10),
    ),
    measure=measure,
    curves=curves,
    columns=("astray", "off_max", "p99_growth", "drift", "goodput"),
    plots=(PlotSpec("The limit", ("limit", "workers"), OVER_TIME, "at work", "seconds"),),
    scale="32 and 16 workers of 20 ms, 1.5 times what all of them can do, 20 s each.",
)
