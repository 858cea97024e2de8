"""Loopback: one station twice, simulated and with real processes and sockets.

A simulation that agrees with nothing real is a story. Here the same rig is played in a world, and
as a drill: callers in one process, the policy and its workers in another, TCP between them, real
time. The goals are the simulation's; beside them stands what the drill has to say. It has more to
carry (an event loop, a scheduler, whatever else the machine does), so expect it a little worse, and
look closer where it is much worse. It is a small rig, for one process answers it.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.station import play as play_drill
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import curves, figures
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.station import station
from sluicegate.lab.scenario import AS_BARS, DRILL, OVER_TIME, PLACES, Candidate, PlotSpec, Scenario
from sluicegate.lab.station_candidates import BASELINES, OURS, StationCandidate

WORKERS: Final = 8


def rig(load: float) -> Rig:
    """8 workers of 10 ms, callers who wait for half a second."""
    return station(Poisson(load * WORKERS * 100), workers=WORKERS)


def drill(policy: str) -> StationCandidate:
    """The same in processes of its own, in real time."""
    return Candidate(lambda rig, seed: play_drill(rig, policy, seed), DRILL)


SCENARIO: Final = Scenario(
    number=26,
    name="loopback",
    title="The same station, simulated and drilled",
    why="What holds on virtual time must hold on a socket.",
    rigs={"calm": rig(0.6), "2x": rig(2)},
    candidates={
        "queue": OURS["queue"],
        "queue-drill": drill("queue"),
        "fifo-pool": BASELINES["fifo-pool"],
        "fifo-pool-drill": drill("fifo-pool"),
    },
    ours="queue",
    must_fail=("fifo-pool",),
    own_settings=PLACES,
    goals=(
        Goal(figure="success.get", at_least=0.999, cases=("calm",)),
        Goal(figure="goodput", at_least=0.98, cases=("2x",)),
        Goal(figure="p99_ms", at_most=80),
    ),
    measure=figures,
    columns=("goodput", "p50_ms", "p99_ms", "refused_p99_ms", "queue_peak"),
    curves=curves,
    plots=(
        PlotSpec("Answered in time", ("goodput",), AS_BARS, "of what can be done"),
        PlotSpec("Over time", ("good_per_s",), OVER_TIME, "answers a second", "s"),
    ),
    scale="A quarter of the workers of `overload`, and of its callers.",
)
