"""Flood: hundreds of connections of the lowest class that never pause, beside a few that matter.

The engine is LMDB: it answers inside the loop, so no queue ever has anybody in it, and what stands
in line stands in sockets. Who serves sockets in the order in which they are readable has CRITICAL
wait behind all others. One flood has all the quota that it can use: nothing but the order at the
door is tried. Another has a quota that it is far over, and CRITICAL one of half as much again as it
needs.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.closed_loop import ClosedLoop, play_each
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    policy_flags,
)
from sluicegate.lab.drills.slots import NO_QUOTA, fill, gets, keys, quota_ru, reads

FLOOD: Final = DrillCaller("flood", "BULK")
BOUNDED: Final = DrillCaller("bounded", "BULK")
CRITICAL: Final = DrillCaller("critical", "CRITICAL")
BOUNDED_RU: Final = 100  # a second
READS_PER_S: Final = 100
CONNECTIONS: Final = 20
KEYS: Final = 2_000  # none is hot
WARM_US: Final = 1_000_000
# Connections of the flood, and how much longer CRITICAL's p99 may be than alone.
SIZES: Final = {300: 5.0, 1_000: 10.0}


def drill(setting: DrillSetting) -> DrillOutcome:
    """Alone, then beside each flood."""
    names = keys("drill", KEYS)
    quotas = {CRITICAL.name: quota_ru(READS_PER_S, work_ms=0.0), BOUNDED.name: BOUNDED_RU}
    with DrillFleet((FLOOD, BOUNDED, CRITICAL), quotas) as fleet:
        dispatcher = fleet.dispatcher(
            f"lmdb:{fleet.folder}/engine", "--hot", "off", *NO_QUOTA, *policy_flags(setting.policy)
        )
        fill(dispatcher, names)
        stream = reads(
            CRITICAL, dispatcher.port, names, Poisson(READS_PER_S), connections=CONNECTIONS
        )
        loops = {
            f"{size:,} connections{'' if who is FLOOD else ' over their quota'}": (
                ClosedLoop(
                    port=dispatcher.port,
                    commands=gets(names),
                    greeting=who.greeting,
                    connections=size,
                ),
                more_ms,
            )
            for who in (FLOOD, BOUNDED)
            for size, more_ms in SIZES.items()
        }
        return play_each(setting, stream, WARM_US, "CRITICAL", loops)


DRILL: Final = Drill(
    name="flood",
    title="Connections of the lowest class that never pause, on an engine that answers at once",
    why="What came in one turn of the loop is served by class, not by socket.",
    seconds=10.0,
    seconds_min=2.0,
    play=drill,
    policies=(LAYERS, NONE),
)
