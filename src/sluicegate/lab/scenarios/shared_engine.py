"""Shared engine: several dispatchers without a store before one engine, whose slots are known.

The default, and Mussel's prices with its CoDel pool. For twenty seconds a caller of the lowest
class asks through one dispatcher for twice what the engine can do; the others ask for half of it,
through all.

Each dispatcher takes its part of the slots, so requests wait in the dispatchers, where CRITICAL
goes first, and not in the engine, where all requests wait equally long. They have no
store here: if each has to find its limit from its own requests, eight serve less than a tenth.

Counted from eight seconds on.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Steps
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.dispatcher import US, KvCaller, KvRig, KvRun, play
from sluicegate.lab.scenario import (
    Candidate,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
)

CAPACITY_PER_S: Final = 250
SLOTS: Final = 8
WORK_US: Final = SLOTS * US // CAPACITY_PER_S
QUOTA_TIMES: Final = 1.5  # of what a caller asks for at most
SHARES: Final = (0.15, 0.2, 0.15, 0.1)  # of the capacity, by class, in calm
BEGIN_US: Final = 66 * US  # a latency ratio needs a minute to know what is usual
END_US: Final = BEGIN_US + 20 * US
COUNTED_US: Final = BEGIN_US + 8 * US
SPAN_US: Final = END_US + 6 * US


def rig(dispatchers: int, times: float, deadline_us: int) -> KvRig:
    """Callers of each class; the lowest asks for `times` what there is, through one dispatcher."""
    read_ru = 1.125 + 0.1 * WORK_US / 1_000
    callers = []
    for member, share in zip(Criticality, SHARES, strict=True):
        calm = share * CAPACITY_PER_S
        floods = member is Criticality.BULK
        most = times * CAPACITY_PER_S if floods else calm
        callers.append(
            KvCaller(
                name=member.name,
                arrivals=Steps(((0, calm), (BEGIN_US, most), (END_US, calm))),
                criticality=member,
                deadline_us=deadline_us,
                quota_ru=ceil(QUOTA_TIMES * most * read_ru),
                dispatcher=0 if floods else None,
            )
        )
    return KvRig(
        callers=tuple(callers),
        span_us=SPAN_US,
        dispatchers=dispatchers,
        slots=SLOTS,
        work_us=WORK_US,
    )


def candidate(policy: str) -> Candidate[KvRig, KvRun]:
    """A dispatcher with this policy."""

    def run(rig: KvRig, seed: int) -> KvRun:
        settings = KvSettings(policy=policy, slots=max(1, rig.slots // rig.dispatchers))
        return play(replace(rig, settings=settings), seed)

    return Candidate(run)


def measure(rig: KvRig, run: KvRun) -> Figures:
    """What was served of each class meanwhile, and where prices stand at the end."""
    served = {
        f"served.{caller.name}": run.served(COUNTED_US, END_US, number)
        for number, caller in enumerate(rig.callers)
    }
    dearest = {"dearest": max(look.dearest_milli for look in run.looks) / 1e3}
    return served | dearest | {"left": run.looks[-1].dearest_milli / 1e3}


def curves(rig: KvRig, run: KvRun) -> Curves:
    """What was served of CRITICAL in each second, and the dearest price."""
    seconds = range(BEGIN_US // US - 4, SPAN_US // US)
    shares = [(float(at), run.served(at * US, (at + 1) * US, 0)) for at in seconds]
    prices = [(look.at_us / US, look.dearest_milli / 1e3) for look in run.looks]
    return {"critical": shares, "price": [one for one in prices if one[0] >= seconds[0]]}


SCENARIO: Final = Scenario(
    number=28,
    name="shared-engine",
    title="Several dispatchers before one engine: the layers, and Mussel",
    why="Requests wait where CRITICAL can go first: in the dispatchers, and not in the engine.",
    rigs={
        "four": rig(4, 2.0, 200_000),
        "eight": rig(8, 1.5, 200_000),
        "alone": rig(1, 1.5, 200_000),
    },
    candidates={name: candidate(name) for name in ("layers", "mussel")},
    ours="layers",
    own_settings={
        "GateSettings.slots the part of each dispatcher": "a fleet needs them",
    },
    must_fail=("mussel",),
    goals=(
        Goal(figure="served.CRITICAL", at_least=0.7, cases=("four", "eight")),
        Goal(figure="served.DEGRADED", at_least=0.7, cases=("four", "eight")),
        Goal(figure="served.CRITICAL", at_least=0.95, cases=("alone",)),
        Goal(figure="served.DEGRADED", at_least=0.95, cases=("alone",)),
    ),
    measure=measure,
    columns=("served.CRITICAL", "served.DEGRADED", "served.BEST_EFFORT", "served.BULK", "dearest"),
    curves=curves,
    plots=(
        PlotSpec("CRITICAL, second by second", "critical", "served"),
        PlotSpec("The highest price", "price", "times"),
    ),
    scale="250 reads a second; a minute of calm, then twenty seconds.",
    limits="A price is at most 4, so a caller of twice the capacity and a quota of half as much "
    "again may still ask for three quarters of it.",
)
