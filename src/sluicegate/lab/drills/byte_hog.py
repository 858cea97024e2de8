"""Byte hog: callers whose requests weigh what nobody can know before, charged by the formula.

One reads small rows and one in a hundred of a megabyte; one asks for ranges of one row with a limit
of a thousand; one alternates between shapes. Their quotas are half as much again as they need, on
LMDB. Bars: each is charged within 15% of the formula and served; so it is in the first second after
a restart. With `--policy costs-unlearned` the same must fail.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Even, Poisson
from sluicegate.lab.drills.charged import ChargedWork, charged_ru, streams_of, used_ru
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet
from sluicegate.lab.drills.drill import (
    COSTS_UNLEARNED,
    LAYERS,
    Drill,
    DrillOutcome,
    DrillSetting,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import LoadRecord, slice_of
from sluicegate.lab.drills.slots import fill, gets
from sluicegate.wire.resp import command

US: Final = 1_000_000
NEAR: Final = 0.15
SERVED_MIN: Final = 0.99
NEED_TIMES: Final = 1.5  # its quota, over what a caller needs
SMALL_BYTES: Final = 100
MIDDLING_BYTES: Final = 50_000
LARGE_BYTES: Final = 1_000_000
ROWS: Final = 1_000
FIRST_US: Final = 1 * US  # after a restart

HOG: Final = DrillCaller("hog")
RANGER: Final = DrillCaller("ranger")
ALTERNATOR: Final = DrillCaller("alternator")
SMALL: Final = [f"t:small{number}" for number in range(100)]
MIDDLING: Final = [f"t:middling{number}" for number in range(10)]
LARGE: Final = [f"t:large{number}" for number in range(4)]
RANGES: Final = tuple(
    command("SG.RANGE", "ranges:p", f"{row:04}", f"{row + 1:04}", "LIMIT", ROWS)
    for row in range(0, ROWS - 1, 7)
)
_ROW_BYTES: Final = len("0000") + SMALL_BYTES
WORKS: Final = (
    ChargedWork(HOG, "small", gets(SMALL), Poisson(198), 1, SMALL_BYTES),
    ChargedWork(HOG, "large", gets(LARGE), Even(2), 1, LARGE_BYTES),
    ChargedWork(RANGER, "one row", RANGES, Poisson(100), 1, _ROW_BYTES),
    ChargedWork(ALTERNATOR, "small", gets(SMALL), Even(50), 1, SMALL_BYTES),
    ChargedWork(ALTERNATOR, "middling", gets(MIDDLING), Even(50), 1, MIDDLING_BYTES),
)
NEEDS_RU: Final = {HOG: 198 * 1.2 + 2 * 250, RANGER: 100 * 1.3, ALTERNATOR: 50 * 1.2 + 50 * 14}


def drill(setting: DrillSetting) -> DrillOutcome:
    """All at once, then the same for a moment after a restart."""
    outcome = DrillOutcome()
    quotas = {caller.name: int(NEED_TIMES * ru) for caller, ru in NEEDS_RU.items()}
    with DrillFleet(tuple(NEEDS_RU), quotas) as fleet:
        flags = ("--hot", "off", *policy_flags(setting.policy))
        lmdb = f"lmdb:{fleet.folder / 'kv'}"
        dispatcher = fleet.dispatcher(lmdb, *flags)
        _fill(dispatcher)
        setting.progress("byte-hog: three callers whose requests weigh what nobody knows")
        record = _play(outcome, dispatcher, setting, setting.us(), "")
        for caller in NEEDS_RU:
            streams = [work.stream for work in WORKS if work.caller == caller]
            part = slice_of(record, *streams, begin_us=0, end_us=setting.us())
            if setting.policy == LAYERS:
                share = part.served / max(1, part.offered)
                outcome.add_bar(f"{caller.name}: served", share, at_least=SERVED_MIN, unit="%")
        dispatcher.process.end()
        setting.progress("byte-hog: the dispatcher has been started again")
        _play(outcome, fleet.dispatcher(lmdb, *flags), setting, FIRST_US, ", after a restart")
    return outcome


def _play(
    outcome: DrillOutcome,
    dispatcher: DrillDispatcher,
    setting: DrillSetting,
    span_us: int,
    when: str,
) -> LoadRecord:
    """Play for so long, and hold what was charged against the formula."""
    load = DrillLoad(
        streams=streams_of(WORKS, dispatcher.port, 8), span_us=span_us, seed=setting.seed
    )
    before = charged_ru(dispatcher)
    [record] = play([load])
    after = charged_ru(dispatcher)
    outcome.void += record.void_reasons()
    worst = 1.0
    for caller, ru in used_ru(WORKS, record, 0, span_us).items():
        times = (after.get(caller, 0.0) - before.get(caller, 0.0)) / max(ru, 1e-9)
        outcome.figures[f"{caller}: charged over the formula{when}"] = times
        worst = max(worst, times, 1 / max(times, 1e-9))
    outcome.add_bar(
        f"charged, over the formula or under, the farthest{when}",
        worst,
        at_most=1 + NEAR,
        unit="x",
        must_miss=setting.policy != LAYERS,
    )
    return record


def _fill(dispatcher: DrillDispatcher) -> None:
    fill(dispatcher, SMALL, b"v" * SMALL_BYTES)
    fill(dispatcher, MIDDLING, b"v" * MIDDLING_BYTES)
    for name in LARGE:
        fill(dispatcher, [name], b"v" * LARGE_BYTES)
    fill(dispatcher, [f"ranges:p:{row:04}" for row in range(ROWS)], b"v" * SMALL_BYTES)


DRILL: Final = Drill(
    name="byte-hog",
    title="Reads of a megabyte among small ones, ranges of one row, shapes that alternate",
    why="What is charged must be what it costs, also where nobody can know before what it weighs.",
    seconds=30.0,
    seconds_min=4.0,
    play=drill,
    policies=(LAYERS, COSTS_UNLEARNED),
)
