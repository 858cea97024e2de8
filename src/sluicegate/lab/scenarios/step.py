"""Step: from 0.8 of the capacity to 1.4 at once; how soon is it calm again?

Control that needs minutes to find the new state answers nothing in time until then. The goal: every
second answers at least 0.95 of the capacity in time.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluicegate.lab.arrivals import Steps
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import curves, figures, least_goodput, settled_s
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.rigs.station import CAPACITY_PER_S, station
from sluicegate.lab.scenario import OVER_TIME, PLACES, Curves, Figures, PlotSpec, Scenario
from sluicegate.lab.station_candidates import ALL

STEP_US: Final = 3_000_000

RIG: Final = station(Steps(((0, 0.8 * CAPACITY_PER_S), (STEP_US, 1.4 * CAPACITY_PER_S))), span_s=10)


def measure(rig: Rig, ledger: RunLedger) -> Figures:
    """The usual, and what happens from the step on."""
    return figures(rig, ledger) | {
        "settled_s": settled_s(ledger, STEP_US),
        "least_goodput": least_goodput(rig, ledger, STEP_US),
    }


def curves_of_answers(rig: Rig, ledger: RunLedger) -> Curves:
    """The usual; where nobody was answered, there is no p99."""
    usual = curves(rig, ledger)
    return {**usual, "p99_ms": [(at_s, ms or inf) for at_s, ms in usual["p99_ms"]]}


SCENARIO: Final = Scenario(
    number=3,
    name="step",
    title="A step from 0.8 to 1.4 of the capacity",
    why="Control that takes longer than the surge is no control.",
    rigs={"step": RIG},
    candidates={**SHIPPED, **ALL},
    ours="protect",
    must_fail=("fifo", "fifo-pool"),
    own_settings=PLACES,
    goals=(Goal(figure="least_goodput", at_least=0.95),),
    measure=measure,
    curves=curves_of_answers,
    columns=("settled_s", "least_goodput", "p99_ms", "queue_peak"),
    plots=(
        PlotSpec(
            "Answers in time, before the step (at 3 s) and after",
            ("goodput",),
            over=OVER_TIME,
            y="answered in time, of what can be done",
            x="seconds",
        ),
        PlotSpec(
            "How long they take",
            ("p99_ms",),
            over=OVER_TIME,
            y="ms, p99 of each tenth of a second",
            x="seconds",
        ),
    ),
)
