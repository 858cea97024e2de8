"""A scenario of your own for the lab: what a queue saves when twice the load comes.

    sluicegate lab run examples/own_scenario.py
    sluicegate lab compare examples/own_scenario.py --with fifo

A claim is worth something if it can fail. So the plain line (`fifo`), which serves whoever has
waited longest, is compared with it on the same arrivals: it does as much work, and every answer
comes too late.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import figures
from sluicegate.lab.rigs.station import station
from sluicegate.lab.scenario import Scenario
from sluicegate.lab.station_candidates import BASELINES, OURS

WORKERS: Final = 4  # of 10 ms each: 400 answers a second

SCENARIO: Final = Scenario(
    number=900,
    name="own",
    title="Four workers at twice what they can do",
    why="Whoever is answered must be answered in time.",
    rigs={"2x": station(Poisson(2 * WORKERS * 100), workers=WORKERS)},
    candidates={"queue": OURS["queue"], "fifo": BASELINES["fifo"]},
    ours="queue",
    must_fail=("fifo",),
    goals=(Goal(figure="goodput", at_least=0.9), Goal(figure="p99_ms", at_most=150)),
    measure=figures,
    columns=("goodput", "p50_ms", "p99_ms"),
)
