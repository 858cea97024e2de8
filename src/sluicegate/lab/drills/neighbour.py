"""Neighbour: a caller scans at ten times its quota beside others who read single rows.

The readers send well below what the engine can do, alone first, then beside the scans. A scan
takes the engine many times as long as a read, and is one request like any other: who counts
requests lets through what ruins the others. So with `--policy generation-one`, whose quota is a
number of requests, the same drill must fail; that it does is what there is to see.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.charts import Panel
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet
from sluicegate.lab.drills.drill import (
    GENERATION_ONE,
    LAYERS,
    Drill,
    DrillOutcome,
    DrillSetting,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import LoadRecord, slice_of
from sluicegate.lab.drills.slots import (
    CAPACITY_PER_S,
    FLAGS,
    TIMEOUT_US,
    engine,
    fill,
    keys,
    quota_ru,
    reads,
)
from sluicegate.wire.resp import command

READERS: Final = DrillCaller("reader")
SCANNER: Final = DrillCaller("scanner")
READS_PER_S: Final = 0.4 * CAPACITY_PER_S
ROWS: Final = 200  # of a partition that is scanned
PARTITIONS: Final = 20
ROW_US: Final = 500  # that a row of a scan takes a slot, beside the work of any operation
SCANNER_RU: Final = 200  # a second
OVER: Final = 10  # times its quota
# A scan of so many rows, by the weights a dispatcher begins with: 1, and 0.1 a row and a ms.
SCAN_RU: Final = 1 + 0.1 * ROWS + 0.1 * (ROWS * ROW_US / 1_000)
WARM_US: Final = 1_500_000
QUOTAS: Final = {READERS.name: quota_ru(READS_PER_S), SCANNER.name: SCANNER_RU}

VICTIMS_MIN: Final = 0.999
P99_TIMES: Final = 1.5
P99_MORE_MS: Final = 2.0


def streams(port: int, *, scans: bool) -> tuple[LoadStream, ...]:
    """The readers, and beside them the scanner."""
    readers = reads(READERS, port, keys("small"), Poisson(READS_PER_S), connections=150)
    if not scans:
        return (readers,)
    scanner = LoadStream(
        name=SCANNER.name,
        ports=(port,),
        commands=tuple(
            command("SG.RANGE", f"large:p{number}", "LIMIT", ROWS) for number in range(PARTITIONS)
        ),
        arrivals=Poisson(OVER * SCANNER_RU / SCAN_RU),
        timeout_us=10 * TIMEOUT_US,
        greeting=SCANNER.greeting,
        connections=150,
    )
    return readers, scanner


def rows_commands() -> list[bytes]:
    """Puts of all that is scanned."""
    pairs = [
        (f"large:p{partition}:r{row:04}", b"v" * 100)
        for partition in range(PARTITIONS)
        for row in range(ROWS)
    ]
    return [
        command("MSET", *(word for pair in pairs[begin : begin + ROWS] for word in pair))
        for begin in range(0, len(pairs), ROWS)
    ]


def drill(setting: DrillSetting) -> DrillOutcome:
    """Alone, then beside the scans."""
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    with DrillFleet((READERS, SCANNER), QUOTAS) as fleet:
        dispatcher = fleet.dispatcher(
            engine(row_us=ROW_US),
            *FLAGS,
            "--policy", setting.policy,
        )  # fmt: skip
        fill(dispatcher, keys("small"))
        dispatcher.execute(rows_commands())
        setting.progress("neighbour: the readers alone")
        alone = _record(dispatcher, setting, scans=False)
        setting.progress("neighbour: the readers beside the scans")
        beside = _record(dispatcher, setting, scans=True)
        refusals = dispatcher.refusals()
    outcome.void = [*alone.void_reasons(), *beside.void_reasons()]
    span = {"begin_us": WARM_US, "end_us": WARM_US + setting.us()}
    before = slice_of(alone, READERS.name, **span)
    after = slice_of(beside, READERS.name, **span)
    scans = slice_of(beside, SCANNER.name, **span)
    p99_ms, alone_ms = after.p_us(0.99) / 1e3, before.p_us(0.99) / 1e3
    seconds = setting.seconds
    outcome.figures = {
        "reads asked a second": after.offered / seconds,
        "scans asked a second": scans.offered / seconds,
        "scans served a second": scans.served / seconds,
        "reads alone: served": before.success,
        "reads alone: p50, ms": before.p_us(0.5) / 1e3,
        "reads alone: p99, ms": alone_ms,
        "reads beside: p50, ms": after.p_us(0.5) / 1e3,
        "reads beside: p99, ms": p99_ms,
        "generator busy": beside.busy,
    }
    for who, part in (("reads", after), ("scans", scans)):
        outcome.add_errors(f"{who}: ", part.errors())
    outcome.figures |= refusals
    outcome.add_bar(
        "reads beside the scans: served",
        after.success,
        at_least=VICTIMS_MIN,
        unit="%",
        must_miss=control,
    )
    outcome.add_bar(
        "their p99",
        p99_ms,
        at_most=max(P99_TIMES * alone_ms, alone_ms + P99_MORE_MS),
        unit="ms",
        must_miss=control,
    )
    beside_curve, alone_curve = (
        slice_of(record, READERS.name, begin_us=0, end_us=WARM_US + setting.us()).times_ms(BIN_US)
        for record in (beside, alone)
    )
    served = slice_of(beside, READERS.name, begin_us=0, end_us=WARM_US + setting.us())
    name = "beside the scans"
    outcome.panels = [
        Panel(
            "p99 of the reads", "ms", "s", {name: beside_curve, "alone": alone_curve},
            bound=outcome.bars[1].bound, log_y=True,
        ),
        Panel(
            "Reads", "a second", "s",
            {"served in time": served.over_time(BIN_US)["good"],
             "offered": served.over_time(BIN_US)["offered"]},
        ),
    ]  # fmt: skip
    return outcome


def _record(dispatcher: DrillDispatcher, setting: DrillSetting, *, scans: bool) -> LoadRecord:
    load = DrillLoad(
        streams=streams(dispatcher.port, scans=scans),
        span_us=WARM_US + setting.us(),
        seed=setting.seed,
    )
    [record] = play([load])
    return record


BIN_US: Final = 500_000

DRILL: Final = Drill(
    name="neighbour",
    title="Scans at ten times their quota beside reads of single rows",
    why="What a request takes is charged to who asked for it; nobody else pays.",
    seconds=10.0,
    seconds_min=3.0,
    play=drill,
    policies=(LAYERS, GENERATION_ONE),
)
