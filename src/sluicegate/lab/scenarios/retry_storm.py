"""Retry storm: 70% of the capacity is lost for ten seconds, and callers try again.

Whoever retries at once turns a shortage into a flood, and with a queue that serves the dead the
flood does not end when the shortage does: every answer is late, so every call is made four times.
The goal is to be well again within a second of the repair with clients that keep a retry budget,
and within two with clients that do not care.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import curves, figures, recovery_s
from sluicegate.lab.retries import NAIVE, SMART, Retries
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.rigs.station import CAPACITY_PER_S, station
from sluicegate.lab.scenario import PLACES, Figures, PlotSpec, Scenario
from sluicegate.lab.speed_profile import SpeedProfile
from sluicegate.lab.station_candidates import ALL

LOAD: Final = 0.8
HURT_US: Final = 5_000_000
RESTORED_US: Final = 15_000_000


def rig(retries: Retries) -> Rig:
    """32 workers of 10 ms, of whose speed 0.3 is left for ten seconds."""
    course = SpeedProfile(((HURT_US, 0.3), (RESTORED_US, 1.0)))
    return station(Poisson(LOAD * CAPACITY_PER_S), span_s=22, speed_profile=course, retries=retries)


def measure(rig: Rig, ledger: RunLedger) -> Figures:
    """The usual, and how long it takes after the repair."""
    return figures(rig, ledger) | {"recovery_s": recovery_s(ledger, HURT_US, RESTORED_US)}


SCENARIO: Final = Scenario(
    number=4,
    name="retry-storm",
    title="A retry storm after a loss of 70% for ten seconds",
    why="A shortage that is over must be over for the callers too.",
    rigs={"budget": rig(SMART), "naive": rig(NAIVE)},
    candidates={"protect": SHIPPED["protect"], **ALL},
    ours="protect",
    must_fail=("fifo",),
    own_settings=PLACES,
    goals=(
        Goal(figure="recovery_s", at_most=1.0, cases=("budget",)),
        Goal(figure="amplification", at_most=1.15, cases=("budget",)),
        Goal(figure="recovery_s", at_most=2.0, cases=("naive",)),
    ),
    measure=measure,
    curves=curves,
    columns=("recovery_s", "amplification", "goodput", "p99_ms", "queue_peak"),
    plots=(PlotSpec("Answered in time", "good_per_s", "a second"),),
)
