"""Flood: hundreds of connections of the lowest class that never pause, beside a few that matter.

The engine is LMDB: it answers inside the loop, so no queue ever has anybody in it, and what stands
in line stands in sockets. Who serves sockets in the order in which they are readable has CRITICAL
wait behind all others. The flood has all the quota that it can use: nothing but the order at the
door is tried.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.closed_loop import ClosedLoop, play_beside
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
    note_latency,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import slice_of
from sluicegate.lab.drills.slots import NO_QUOTA, fill, gets, keys, reads

FLOOD: Final = DrillCaller("flood", "BULK")
CRITICAL: Final = DrillCaller("critical", "CRITICAL")
READS_PER_S: Final = 100
CONNECTIONS: Final = 20
KEYS: Final = 2_000  # none is hot
WARM_US: Final = 1_000_000
BIN_US: Final = 500_000
# Connections of the flood, and how much longer CRITICAL's p99 may be than alone.
SIZES: Final = {300: 5.0, 1_000: 10.0}


def drill(setting: DrillSetting) -> DrillOutcome:
    """Alone, then beside each flood."""
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    curves: dict[str, list[tuple[float, float]]] = {}
    span = {"begin_us": WARM_US, "end_us": WARM_US + setting.us()}
    with DrillFleet((FLOOD, CRITICAL)) as fleet:
        dispatcher = fleet.dispatcher(
            f"lmdb:{fleet.folder}/engine", "--hot", "off", *NO_QUOTA, *policy_flags(setting.policy)
        )
        names = keys("drill", KEYS)
        fill(dispatcher, names)
        load = _critical(dispatcher, setting)
        setting.progress("flood: CRITICAL alone")
        [alone] = play([load])
        alone_ms = note_latency(outcome, alone, span, "alone")
        curves["alone"] = slice_of(alone, **span).times_ms(BIN_US)
        for size, more_ms in SIZES.items():
            what = f"beside {size:,} connections"
            setting.progress(f"flood: CRITICAL {what}")
            loop = ClosedLoop(
                port=dispatcher.port,
                commands=gets(names),
                greeting=FLOOD.greeting,
                connections=size,
            )
            beside, flood = play_beside(load, loop)
            p99_ms = note_latency(outcome, beside, span, what)
            outcome.figures[f"{what}: flood served a second"] = flood.served_per_s
            outcome.figures[f"{what}: flood refused a second"] = flood.refused_per_s
            outcome.add_bar(
                f"CRITICAL's p99 {what}",
                p99_ms,
                at_most=alone_ms + more_ms,
                unit="ms",
                must_miss=control,
            )
            curves[what] = slice_of(beside, **span).times_ms(BIN_US)
    outcome.panels = [Panel("p99 of CRITICAL", "ms", "s", curves, log_y=True)]
    return outcome


def _critical(dispatcher: DrillDispatcher, setting: DrillSetting) -> DrillLoad:
    stream = reads(
        CRITICAL,
        dispatcher.port,
        keys("drill", KEYS),
        Poisson(READS_PER_S),
        connections=CONNECTIONS,
    )
    return DrillLoad(streams=(stream,), span_us=WARM_US + setting.us(), seed=setting.seed)


DRILL: Final = Drill(
    name="flood",
    title="Connections of the lowest class that never pause, on an engine that answers at once",
    why="What came in one turn of the loop is served by class, not by socket.",
    seconds=10.0,
    seconds_min=2.0,
    play=drill,
    policies=(LAYERS, NONE),
)
