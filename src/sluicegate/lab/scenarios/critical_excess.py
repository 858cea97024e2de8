"""Critical excess: all that comes is CRITICAL, and it is more than can be served.

When a whole class has to be cut, somebody is not served. It must not be all of them, as in a queue
without control, nor the same users for hours. The goal is to keep the workers busy, and to treat
users alike.
"""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import figures
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import server_chain, without_queue
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.scenario import PLACES, Scenario
from sluicegate.lab.station_candidates import BASELINES, policy_candidate

WORKERS: Final = 16
USERS: Final = 200


def rig(load: float) -> Rig:
    """16 workers of 10 ms, 200 users who wait for half a second."""
    kind = WorkKind(
        name="critical",
        arrivals=Poisson(load * WORKERS * 100),
        criticality=Criticality.CRITICAL,
        callers=USERS,
    )
    return Rig(kinds=(kind,), workers=WORKERS, span_us=9_000_000, warm_us=1_000_000)


SCENARIO: Final = Scenario(
    number=7,
    name="critical-excess",
    title="More CRITICAL work than can be served",
    why="If not all can be served, the same ones should not go without for ever.",
    rigs={"2x": rig(2), "5x": rig(5)},
    candidates={
        **SHIPPED,
        "queue-alone": policy_candidate(server_chain),
        "without-queue": policy_candidate(without_queue),
        "fifo": BASELINES["fifo"],
    },
    ours="protect",
    must_fail=("fifo", "without-queue"),
    own_settings=PLACES,
    goals=(
        Goal(figure="goodput", at_least=0.97),
        Goal(figure="jain", at_least=0.95),
    ),
    measure=figures,
    columns=("goodput", "jain", "success.critical", "p99_ms", "refused_p99_ms"),
    scale="half the workers of the other rigs",
)
