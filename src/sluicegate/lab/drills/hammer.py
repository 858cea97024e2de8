"""Hammer: a caller with next to no quota that never pauses, beside one within its own.

It is refused, and asks again at once, on connections with many requests under way: for a hot key,
for keys that are not, for scans. A refusal costs the dispatcher nearly as much as a read, so what a
quota keeps from its neighbours is not much, unless who is refused so often is heard less often.
The victim has half as much again as it needs.
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
from sluicegate.lab.drills.slots import fill, gets, keys, reads
from sluicegate.wire.resp import command

HAMMER: Final = DrillCaller("hammer")
VICTIM: Final = DrillCaller("victim")
READS_PER_S: Final = 100
VICTIM_RU: Final = 200  # a second; a read is 1.1 or so
HAMMER_RU: Final = 1
CONNECTIONS: Final = 20
DEPTH: Final = 64
KEYS: Final = 2_000
WARM_US: Final = 1_500_000
MORE_MS: Final = 5.0
SERVED_MIN: Final = 0.999


def drill(setting: DrillSetting) -> DrillOutcome:
    """The victim alone, then beside each kind of request."""
    names = keys("drill", KEYS)
    kinds = {
        "a hot key": gets(["drill:k0"]),
        "cold keys": gets(names),
        "scans": (command("SG.RANGE", "drill:k0", "LIMIT", 1_000),),
    }
    with DrillFleet((HAMMER, VICTIM), {HAMMER.name: HAMMER_RU, VICTIM.name: VICTIM_RU}) as fleet:
        dispatcher = fleet.dispatcher(f"lmdb:{fleet.folder}/engine", *policy_flags(setting.policy))
        fill(dispatcher, names)
        stream = reads(
            VICTIM, dispatcher.port, names, Poisson(READS_PER_S), connections=CONNECTIONS
        )
        loops = {
            kind: (
                ClosedLoop(
                    port=dispatcher.port,
                    commands=commands,
                    greeting=HAMMER.greeting,
                    connections=CONNECTIONS,
                    depth=DEPTH,
                ),
                MORE_MS,
            )
            for kind, commands in kinds.items()
        }
        return play_each(setting, stream, WARM_US, "the victim", loops, SERVED_MIN)


DRILL: Final = Drill(
    name="hammer",
    title="A caller with a unit a second that never pauses, beside one within its quota",
    why="Who is refused again and again is heard less often, and nobody waits for its refusals.",
    seconds=8.0,
    seconds_min=2.0,
    play=drill,
    policies=(LAYERS, NONE),
)
