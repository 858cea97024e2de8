"""Priority: what matters is served, however much there is of what does not.

A service that treats all alike loses nine of ten of its payments because a crawler is at the door.
Demand that can just be served comes in three classes (a tenth of it CRITICAL, three tenths
DEGRADED, six BEST_EFFORT), and BULK on top of it until the whole is two, five and ten times the
capacity. The goal is to lose none of the first and next to none of the second, and to keep all
workers busy with work that is answered in time: refusing too early is a loss as well.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import curves, figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import (
    server_chain,
    without_criticality,
    without_queue,
)
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.scenario import PLACES, PlotSpec, Scenario
from sluicegate.lab.station_candidates import BASELINES, policy_candidate

WORKERS: Final = 16
CAPACITY_PER_S: Final = WORKERS * 100
DEMAND: Final = ((Criticality.CRITICAL, 0.1), (Criticality.DEGRADED, 0.3))
LAST: Final = ((Criticality.BEST_EFFORT, 0.6),)
CALLERS: Final = 500


def rig(load: float) -> Rig:
    """16 workers of 10 ms, callers who wait for half a second."""
    shares = (*DEMAND, *LAST, (Criticality.BULK, load - 1))
    return Rig(
        kinds=tuple(
            WorkKind(
                name=criticality.name.lower().replace("_", "-"),
                arrivals=Poisson(share * CAPACITY_PER_S),
                criticality=criticality,
                callers=CALLERS,
            )
            for criticality, share in shares
        ),
        workers=WORKERS,
        span_us=5_000_000,
        warm_us=1_000_000,
    )


SCENARIO: Final = Scenario(
    number=6,
    name="priority",
    title="Four classes, and an excess of the lowest",
    why="What matters gets through, whatever else is asked.",
    rigs={"2x": rig(2), "5x": rig(5), "10x": rig(10)},
    candidates={
        **SHIPPED,
        "queue-alone": policy_candidate(server_chain),
        "without-queue": policy_candidate(without_queue),
        "without-criticality": policy_candidate(without_criticality),
        "folly": BASELINES["folly"],
        "fifo": BASELINES["fifo"],
    },
    ours="protect",
    must_fail=("fifo", "without-criticality", "without-queue"),
    own_settings=PLACES,
    goals=(
        Goal(figure="success.critical", at_least=0.999),
        Goal(figure="success.degraded", at_least=0.995),
        Goal(figure="goodput", at_least=0.97),
    ),
    measure=figures,
    curves=curves,
    columns=(
        "success.critical",
        "success.degraded",
        "success.best-effort",
        "goodput",
        "p99_ms",
        "refused_p99_ms",
    ),
    plots=(PlotSpec("Answered in time", "goodput", "of capacity"),),
    scale="half the workers of the other rigs, and half the load",
)
