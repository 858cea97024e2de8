"""Queues: what each discipline holds in memory, and how long it leaves the refused in the dark.

Any order that does not serve the dead keeps goodput up. They differ in what they hold meanwhile,
and in when they tell those whom they will not serve. A queue holds no more than its length, and
tells whom it refuses before its deadline.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import curves, figures
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.rigs.station import CAPACITY_PER_S, TIMEOUT_US, station
from sluicegate.lab.scenario import OVER_CASES, PLACES, PlotSpec, Scenario
from sluicegate.lab.station_candidates import ALL, SETTLED
from sluicegate.policies.admission.settings import GateSettings


def rig(load: float) -> Rig:
    """32 workers of 10 ms, callers who wait for half a second; refusals cost nothing."""
    return station(Poisson(load * CAPACITY_PER_S))


SCENARIO: Final = Scenario(
    number=2,
    name="queues",
    title="Queue disciplines: goodput, memory, and how soon a refusal is told",
    why="A refusal that comes late is as bad as an answer that does.",
    rigs={"2x": rig(2), "5x": rig(5), "10x": rig(10)},
    candidates={**SHIPPED, **ALL, **SETTLED},
    ours="protect",
    must_fail=("lifo", "fifo-pool"),
    own_settings=PLACES,
    goals=(
        Goal(figure="goodput", at_least=0.98),
        # One more: a unit that made room still has to tell its caller.
        Goal(figure="queue_peak", at_most=GateSettings().length_max + 1),
        Goal(figure="refused_p99_ms", at_most=TIMEOUT_US / 1e3),
    ),
    measure=figures,
    columns=("goodput", "p99_ms", "refused_p99_ms", "queue_peak"),
    curves=curves,
    plots=(
        PlotSpec(
            "How soon a refusal is told",
            ("refused_p99_ms",),
            over=OVER_CASES,
            y="ms, p99 until a refusal is told",
            x="offered load, of what can be done",
            log_y=True,
        ),
        PlotSpec(
            "What is held in memory",
            ("queue_peak",),
            over=OVER_CASES,
            y="units held at once, the dead among them",
            x="offered load, of what can be done",
            log_y=True,
        ),
    ),
)
