"""Shard: one of ten shards of the engine is fifty times as slow as the others.

Requests for the slow one pile up. If all shards shared one pool, those who wait for the slow
one would fill it, and nobody else would be served; so each shard has its own part of it, and what
finds that part full is refused at once. The others must not notice.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import slice_of
from sluicegate.lab.drills.slots import NO_QUOTA, TIMEOUT_US, fill, keys, reads
from sluicegate.stores.engines.faulty.engine import shard_number

SHARDS: Final = 10
SLOW: Final = 3  # which of them
SLOW_TIMES: Final = 50
WORK_MS: Final = 10
PER_S: Final = 400.0  # over all shards
PLACES: Final = 16
SHARD_PLACES: Final = 4
KEYS: Final = 400
WARM_US: Final = 1_000_000
BIN_US: Final = 500_000
OTHERS_MIN: Final = 0.999
CALLER: Final = DrillCaller("reader")


# Each shard has slots of its own, more than are ever used: what is short is the pool.
ENGINE: Final = (
    f"faulty+memory:?shards={SHARDS}&slots={PLACES}&slots_by=shard&work_ms={WORK_MS}"
    f"&slow_shard={SLOW}&slow_times={SLOW_TIMES}"
)


def shard_of(name: str) -> int:
    """Which shard serves a row, by its partition."""
    return shard_number(name.partition(":")[2].encode(), SHARDS)


def drill(setting: DrillSetting) -> DrillOutcome:
    """All keys as often as each other; those of the slow shard apart."""
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    names = keys("drill", KEYS)
    apart: dict[bool, list[str]] = {True: [], False: []}
    for name in names:
        apart[shard_of(name) == SLOW].append(name)
    with DrillFleet((CALLER,)) as fleet:
        dispatcher = fleet.dispatcher(
            ENGINE,
            *NO_QUOTA,
            "--places", str(PLACES), "--shard-places", str(SHARD_PLACES),
            "--deadline-ms", str(TIMEOUT_US // 1_000), "--hot", "off",
            "--policy", setting.policy,
        )  # fmt: skip
        fill(dispatcher, names)
        streams = tuple(
            reads(
                CALLER,
                dispatcher.port,
                mine,
                Poisson(PER_S * len(mine) / KEYS),
                name="slow" if slow else "others",
                connections=150,
            )
            for slow, mine in apart.items()
        )
        setting.progress(f"shard: one of {SHARDS} is {SLOW_TIMES} times as slow")
        [record] = play(
            [DrillLoad(streams=streams, span_us=WARM_US + setting.us(), seed=setting.seed)]
        )
        refusals = dispatcher.refusals()
    outcome.void = record.void_reasons()
    span = {"begin_us": WARM_US, "end_us": WARM_US + setting.us()}
    others, slow = slice_of(record, "others", **span), slice_of(record, "slow", **span)
    outcome.figures = {
        "others asked a second": others.offered / setting.seconds,
        "others: p99, ms": others.p_us(0.99) / 1e3,
        "slow shard asked a second": slow.offered / setting.seconds,
        "slow shard served": slow.success,
        "generator busy": record.busy,
    }
    for who, part in (("others", others), ("slow shard", slow)):
        outcome.add_errors(f"{who}: ", part.errors())
    outcome.figures |= refusals
    outcome.add_bar(
        "reads of the other shards: served",
        others.success,
        at_least=OTHERS_MIN,
        unit="%",
        must_miss=control,
    )
    curves = {
        name: slice_of(record, name, begin_us=0, end_us=WARM_US + setting.us()).shares(BIN_US)
        for name in ("others", "slow")
    }
    outcome.panels = [
        Panel("Served in time", "of what was asked", "s", curves, bound=OTHERS_MIN),
    ]
    return outcome


DRILL: Final = Drill(
    name="shard",
    title="One of ten shards is fifty times as slow",
    why="Who waits for it holds its own part of the pool, and no more.",
    seconds=10.0,
    seconds_min=3.0,
    play=drill,
    policies=(LAYERS, NONE),
)
