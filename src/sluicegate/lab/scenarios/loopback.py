"""Loopback: one station twice, simulated and with real processes and sockets.

A simulation that agrees with nothing real is a story. Here the same rig, seed and draws are played
in a world, and as a drill: callers in one process, the policy and its workers in another, TCP
between them, real time. Ours is the drill, and beside the claims of the simulation it has to be
within three points of it (`apart`: of what can be done, and of what was asked). It is a small rig,
for one process answers it.

A drill whose callers were late to send has measured the machine: that is `late_ms`, and where it is
missed the run is void.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.station import play as play_drill
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import curves, figures
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.station import station
from sluicegate.lab.scenario import (
    AS_BARS,
    DRILL,
    OVER_TIME,
    PLACES,
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)
from sluicegate.lab.station_candidates import BASELINES, OURS, StationCandidate

WORKERS: Final = 8
LATE_MS_MAX: Final = 5  # of the latest hundredth; what is later is void


def rig(load: float) -> Rig:
    """8 workers of 10 ms, callers who wait for half a second."""
    return station(Poisson(load * WORKERS * 100), workers=WORKERS)


class LoopbackRun(NamedTuple):
    """What a run did, how late it sent, and the simulation that it is held against."""

    ledger: RunLedger
    late_us: int
    simulated: RunLedger


LoopbackCandidate: TypeAlias = "Candidate[Rig, LoopbackRun]"


def drill(policy: str, simulation: StationCandidate) -> LoopbackCandidate:
    """The same in processes of its own, in real time."""

    def run(rig: Rig, seed: int) -> LoopbackRun:
        ledger, late_us = play_drill(rig, policy, seed)
        return LoopbackRun(ledger, late_us, simulation.run(rig, seed))

    return Candidate(run, DRILL)


def simulated(simulation: StationCandidate) -> LoopbackCandidate:
    """The same on virtual time."""

    def run(rig: Rig, seed: int) -> LoopbackRun:
        ledger = simulation.run(rig, seed)
        return LoopbackRun(ledger, 0, ledger)

    return Candidate(run, simulation.mode)


def measure(rig: Rig, ended: LoopbackRun) -> Figures:
    """The usual, and how many points it is off the simulation."""
    found, expected = figures(rig, ended.ledger), figures(rig, ended.simulated)
    off = (abs(found[name] - expected[name]) for name in ("goodput", "success.get"))
    return {**found, "apart": 100 * max(off), "late_ms": ended.late_us / 1e3}


def curves_of(rig: Rig, ended: LoopbackRun) -> Curves:
    """Return what was answered over time."""
    return curves(rig, ended.ledger)


SCENARIO: Final = Scenario(
    number=26,
    name="loopback",
    title="The same station, simulated and drilled",
    why="What holds on virtual time must hold on a socket.",
    rigs={"calm": rig(0.6), "2x": rig(2)},
    candidates={
        "queue-drill": drill("queue", OURS["queue"]),
        "queue": simulated(OURS["queue"]),
        "fifo-pool-drill": drill("fifo-pool", BASELINES["fifo-pool"]),
        "fifo-pool": simulated(BASELINES["fifo-pool"]),
    },
    ours="queue-drill",
    must_fail=("fifo-pool",),
    own_settings=PLACES,
    goals=(
        Goal(figure="success.get", at_least=0.999, cases=("calm",)),
        Goal(figure="goodput", at_least=0.95, cases=("2x",)),  # three points less than `overload`'s
        Goal(figure="p99_ms", at_most=80),
        Goal(figure="apart", at_most=3),
        Goal(figure="late_ms", at_most=LATE_MS_MAX),
    ),
    measure=measure,
    columns=("apart", "late_ms", "goodput", "p50_ms", "p99_ms", "refused_p99_ms", "queue_peak"),
    curves=curves_of,
    plots=(
        PlotSpec("Answered in time", ("goodput",), AS_BARS, "of what can be done"),
        PlotSpec("Over time", ("good_per_s",), OVER_TIME, "answers a second", "s"),
    ),
    scale="A quarter of the workers of `overload`, and of its callers.",
)
