"""Hot range: everybody reads the same few ranges, into two dispatchers on one engine.

A hot range is to be scanned about once in its ttl by each dispatcher, however many callers read it.
The engine of each does `CAPACITY_PER_S` scans a second. The load is half of that, and callers have
half as much again of quota as the ranges would cost them if each were scanned.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet, until_us
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import slice_of
from sluicegate.lab.drills.slots import TIMEOUT_US, fill
from sluicegate.wire.resp import command

DISPATCHERS: Final = 2
RANGES: Final = 5
ROWS: Final = 20  # of each range
TTL_MS: Final = 3_000
CALLER: Final = DrillCaller("reader")
RATE_PER_S: Final = 1_000.0
SLOTS: Final = 4
WORK_MS: Final = 4
CAPACITY_PER_S: Final = SLOTS * 1_000 // WORK_MS
SETTLED_US: Final = 2_000_000  # from the first read, before scans are counted
SCAN_RU_MAX: Final = 6  # of twenty rows, at any latency that this machine has
BIN_US: Final = 500_000

SCANS_TIMES: Final = 1.3
SERVED_MIN: Final = 0.999


def drill(setting: DrillSetting) -> DrillOutcome:
    """Read the ranges, and count what the engine was asked for."""
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    quota_ru = int(1.5 * SCAN_RU_MAX * RATE_PER_S / DISPATCHERS)
    with DrillFleet((CALLER,), {CALLER.name: quota_ru}) as fleet:
        dispatchers = fleet.dispatchers(
            DISPATCHERS,
            f"faulty+lmdb:{fleet.folder / 'lmdb'}?slots={SLOTS}&work_ms={WORK_MS}",
            "--slots", str(SLOTS),
            "--hot-ttl-ms", str(TTL_MS),
            *policy_flags(setting.policy),
        )  # fmt: skip
        _fill(dispatchers[0])
        span_us = SETTLED_US + setting.us()
        ranges = [command("SG.RANGE", f"drill:p{n}", "LIMIT", str(ROWS)) for n in range(RANGES)]
        # One for each, so that no dispatcher is sent so little that a range is cold there.
        streams = tuple(
            LoadStream(
                name=f"to {port}",
                ports=(port,),
                commands=tuple(ranges),
                arrivals=Poisson(RATE_PER_S / DISPATCHERS),
                timeout_us=TIMEOUT_US,
                greeting=CALLER.greeting,
                connections=24,
                depth=64,
            )
            for port in (dispatcher.port for dispatcher in dispatchers)
        )
        scans: list[int] = []

        def count(begin_us: int) -> None:
            for at_us in (SETTLED_US, span_us):
                until_us(begin_us + at_us)
                scans.append(sum(map(_scans, dispatchers)))

        setting.progress(f"hot-range: {RATE_PER_S:,.0f} a second of {RANGES} ranges")
        [record] = play([DrillLoad(streams=streams, span_us=span_us, seed=setting.seed)], count)
    outcome.void = record.void_reasons()
    received = slice_of(record, begin_us=SETTLED_US, end_us=span_us)
    scanned = scans[1] - scans[0]
    allowed = DISPATCHERS * RANGES * setting.us() / 1e3 / TTL_MS
    outcome.figures = {
        "ranges read": received.offered,
        "ranges scanned": scanned,
        "quota of the caller, RU/s": quota_ru,
        "reads p50, ms": received.p_us(0.5) / 1e3,
        "reads p99, ms": received.p_us(0.99) / 1e3,
        "generator busy": record.busy,
    }
    outcome.add_errors("reads: ", received.errors())
    outcome.add_bar(
        "scans, of dispatchers x ranges / ttl",
        scanned / allowed,
        at_most=SCANS_TIMES,
        must_miss=control,
    )
    outcome.add_bar("served", received.success, at_least=SERVED_MIN, unit="%")
    whole = slice_of(record, begin_us=0, end_us=span_us)
    outcome.panels = [Panel("p99 of range reads", "ms", "s", {"ranges": whole.times_ms(BIN_US)})]
    return outcome


def _fill(dispatcher: DrillDispatcher) -> None:
    for number in range(RANGES):
        fill(dispatcher, [f"drill:p{number}:{row:03}" for row in range(ROWS)])


def _scans(dispatcher: DrillDispatcher) -> int:
    """How many scans its engine has done."""
    return int(dispatcher.state()["board"]["engine"].get("scan", {}).get("worked", 0))


DRILL: Final = Drill(
    name="hot-range",
    title="Everybody reads the same five ranges",
    why="A hot range is scanned once in its ttl by each dispatcher.",
    seconds=15.0,
    seconds_min=6.0,
    play=drill,
    policies=(LAYERS, NONE),
)
