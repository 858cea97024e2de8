"""Shard: one of ten shards of the engine is fifty times as slow as the others.

Requests for the slow one pile up. If all shards shared one pool, those who wait for the slow
one would fill it, and nobody else would be served; so each shard has its own part of it, and what
finds that part full is refused at once. The others must not notice.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import slice_of
from sluicegate.lab.drills.slots import fill, keys, quota_ru, reads
from sluicegate.stores.engines.faulty.engine import shard_number

SHARDS: Final = 10
SLOW: Final = 3  # which of them
SLOW_TIMES: Final = 50
WORK_MS: Final = 10
SLOTS: Final = 64  # of each shard: more than are ever used; what is short is the pool
KEYS: Final = 400
PATIENCE_US: Final = 2_000_000  # four times what a read of the slow shard takes
WARM_US: Final = 1_000_000
BIN_US: Final = 500_000
OTHERS_MIN: Final = 0.999
CRITICAL_MIN: Final = 0.95
CALLERS: Final = {
    DrillCaller("bulk", "BULK"): 480,
    DrillCaller("best-effort", "BEST_EFFORT"): 480,
    DrillCaller("degraded", "DEGRADED"): 480,
    DrillCaller("critical", "CRITICAL"): 160,
}  # a second, over all shards
ENGINE: Final = (
    f"faulty+memory:?shards={SHARDS}&slots={SLOTS}&slots_by=shard&work_ms={WORK_MS}"
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
    quotas = {caller.name: quota_ru(per_s) for caller, per_s in CALLERS.items()}
    with DrillFleet(tuple(CALLERS), quotas) as fleet:
        dispatcher = fleet.dispatcher(ENGINE, "--hot", "off", "--policy", setting.policy)
        fill(dispatcher, names)
        streams = tuple(
            reads(
                caller,
                dispatcher.port,
                mine,
                Poisson(per_s * len(mine) / KEYS),
                name=f"{caller.name} {'slow' if slow else 'others'}",
                connections=120,
                timeout_us=PATIENCE_US,
            )
            for caller, per_s in CALLERS.items()
            for slow, mine in apart.items()
        )
        setting.progress(f"shard: one of {SHARDS} is {SLOW_TIMES} times as slow")
        [record] = play(
            [DrillLoad(streams=streams, span_us=WARM_US + setting.us(), seed=setting.seed)]
        )
        refusals = dispatcher.refusals()
    outcome.void = record.void_reasons()
    span = {"begin_us": WARM_US, "end_us": WARM_US + setting.us()}
    slow_of = {caller.name: f"{caller.name} slow" for caller in CALLERS}
    others_of = {caller.name: f"{caller.name} others" for caller in CALLERS}
    others, slow = (slice_of(record, *names.values(), **span) for names in (others_of, slow_of))
    served = {name: slice_of(record, one, **span).success for name, one in others_of.items()}
    outcome.figures = {f"others: {name} served": share for name, share in served.items()}
    outcome.figures |= {
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
        "reads of the other shards: served of the worst class",
        min(served.values()),
        at_least=OTHERS_MIN,
        unit="%",
        must_miss=control,
    )
    critical = slice_of(record, slow_of["critical"], **span).success
    if not control:
        outcome.add_bar(
            "CRITICAL reads of the slow shard: served", critical, at_least=CRITICAL_MIN, unit="%"
        )
    curves = {
        where: slice_of(record, *names.values(), begin_us=0, end_us=span["end_us"]).shares(BIN_US)
        for where, names in (("others", others_of), ("slow", slow_of))
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
