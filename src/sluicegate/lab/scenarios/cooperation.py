"""Cooperation: refusing is work too, and callers can spare the server most of it.

A refusal costs a twentieth of a unit of work: reading, parsing, answering. At ten times the load a
server that refuses all there is to refuse spends half of itself on it, and nothing it can do by
itself helps: (1 - 0.05 * 10) / 0.95 = 0.53 of its capacity is the most it can answer. Callers who
hold back what would be refused give the other half back. The goal is 0.95 of the capacity, and
hardly more than one refusal for each answer.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.queues import no_control
from sluicegate.lab.goals import Goal
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.cooperation import (
    client_throttle,
    curves,
    kernel_candidate,
    measure,
    policy_candidate,
    sre_throttle,
)
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.scenario import AS_BARS, OVER_TIME, PlotSpec, Scenario

WORKERS: Final = 16
LOAD: Final = 10
CALLERS: Final = 50

RIG: Final = Rig(
    kinds=(WorkKind(name="get", arrivals=Poisson(LOAD * WORKERS * 100), callers=CALLERS),),
    workers=WORKERS,
    refusal_cost=0.05,
    span_us=14_000_000,
    warm_us=4_000_000,
)

SCENARIO: Final = Scenario(
    number=9,
    name="cooperation",
    title="Ten times the load where refusing is dear, with and without callers' help",
    why="A server must not spend itself on saying no.",
    rigs={"10x": RIG},
    candidates={
        "cooperating": policy_candidate(server_chain, client_throttle),
        "without-throttle": policy_candidate(server_chain, None),
        "sre-throttle": policy_candidate(server_chain, sre_throttle),
        "fifo": kernel_candidate(no_control),
    },
    ours="cooperating",
    must_fail=("fifo", "without-throttle"),
    goals=(
        Goal(figure="goodput", at_least=0.95),
        Goal(figure="rejects_per_accept", at_most=1.2),
    ),
    measure=measure,
    curves=curves,
    columns=("goodput", "rejects_per_accept", "held_back", "p99_ms", "jain"),
    plots=(
        PlotSpec("Answered in time", ("goodput",), OVER_TIME, "of capacity", "seconds"),
        PlotSpec("Refused for each answer", ("rejects_per_accept",), AS_BARS, "refusals"),
    ),
    scale="half the workers of the other rigs; 50 callers, each with a throttle of its own",
)
