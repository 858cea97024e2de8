"""Overload: twice, five and ten times what can be served, one class, callers who do not slow down.

A service that does nothing about it answers nobody: everyone waits, and everyone's answer comes too
late. The goal is to go on answering as many as at full load. Refusing costs 1% of the work, so of
m times the load (1 - 0.01 m) / 0.99 of the capacity is the most that anyone can answer.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import curves, figures
from sluicegate.lab.rig import Rig
from sluicegate.lab.rigs.shipped import SHIPPED
from sluicegate.lab.rigs.station import CAPACITY_PER_S, station
from sluicegate.lab.scenario import PLACES, Figures, PlotSpec, Scenario
from sluicegate.lab.station_candidates import ALL

LOADS: Final = (2, 5, 10)
REFUSAL_COST: Final = 0.01


def rig(load: float) -> Rig:
    """32 workers of 10 ms, callers who wait for half a second."""
    return station(Poisson(load * CAPACITY_PER_S), refusal_cost=REFUSAL_COST)


def measure(rig: Rig, ledger: RunLedger) -> Figures:
    """The usual, and the goodput that nobody can pass at what was offered."""
    load = sum(ledger.offered_at) * 1e6 / ledger.span_us / rig.capacity_per_s
    return figures(rig, ledger) | {"ceiling": rig.ceiling(load)}


RIGS: Final = {f"{load}x": rig(load) for load in LOADS}

SCENARIO: Final = Scenario(
    number=1,
    name="overload",
    title="Overload of 2, 5 and 10 times, one class",
    why="A service keeps answering what it can, whatever is asked of it.",
    rigs=RIGS,
    candidates={**SHIPPED, **ALL},
    ours="protect",
    must_fail=("fifo",),
    own_settings=PLACES,
    goals=(
        *(
            Goal(figure="goodput", at_least=0.98 * RIGS[f"{load}x"].ceiling(load), cases=(case,))
            for load, case in zip(LOADS, RIGS, strict=True)
        ),
        Goal(figure="p99_ms", at_most=60),
    ),
    measure=measure,
    limits="`dispatcher` has a p99 of 61 ms at twice the load and 63 at five times (seed 0).",
    columns=("goodput", "p99_ms", "ceiling", "refused_p99_ms", "queue_peak"),
    curves=curves,
    plots=(PlotSpec("Answered in time", "goodput", "of capacity"),),
)
