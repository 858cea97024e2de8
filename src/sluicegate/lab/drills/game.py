"""Game: callers that mix tiny reads with huge ones to get more than their quota.

A read is charged before anybody knows what it weighs. Whoever reads tiny rows and now and then a
huge one, half and half, or huge ones all at once after a while of tiny ones, tries to have its huge
ones charged as tiny. Each asks for several times its quota. Bar: in a minute nobody is served more
than 1.2 times its quota, by the formula. With `--policy costs-unlearned`, where a read of unknown
weight weighs nothing, the same must fail.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Arrivals, OnOff, Poisson
from sluicegate.lab.drills.charged import ChargedWork, streams_of, used_ru
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
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
from sluicegate.lab.drills.slots import engine, fill, gets

QUOTA_RU: Final = 400  # a second, for each
MINUTE_S: Final = 60
TIMES_MAX: Final = 1.2
TINY_BYTES: Final = 100
HUGE_BYTES: Final = 900_000
SLOTS: Final = 64
WORK_MS: Final = 2
BURST_US: Final = 100_000  # in every second
# Of one table, so that nothing but a caller's own reads tells them apart.
TINY: Final = [f"t:tiny{number}" for number in range(100)]
HUGE: Final = [f"t:huge{number}" for number in range(4)]


def _work(caller: str, name: str, arrivals: Arrivals) -> ChargedWork:
    tiny = name == "tiny"
    return ChargedWork(
        DrillCaller(caller),
        name,
        gets(TINY if tiny else HUGE),
        arrivals,
        1,
        TINY_BYTES if tiny else HUGE_BYTES,
        WORK_MS,
    )


WORKS: Final = (
    _work("97 to 3", "tiny", Poisson(300)),
    _work("97 to 3", "huge", Poisson(9)),
    _work("half and half", "tiny", Poisson(12)),
    _work("half and half", "huge", Poisson(12)),
    _work("bursts", "tiny", Poisson(200)),
    _work("bursts", "huge", OnOff(on_per_s=60, on_us=BURST_US, off_us=10 * BURST_US)),
)
CALLERS: Final = tuple({work.caller.name: work.caller for work in WORKS}.values())


def drill(setting: DrillSetting) -> DrillOutcome:
    """All of them at once, on an engine that has room for what they ask."""
    outcome = DrillOutcome()
    quotas = {caller.name: QUOTA_RU for caller in CALLERS}
    with DrillFleet(CALLERS, quotas) as fleet:
        dispatcher = fleet.dispatcher(
            engine(slots=SLOTS, work_ms=WORK_MS), "--hot", "off", *policy_flags(setting.policy)
        )
        fill(dispatcher, TINY, b"v" * TINY_BYTES)
        for name in HUGE:
            fill(dispatcher, [name], b"v" * HUGE_BYTES)
        load = DrillLoad(
            streams=streams_of(WORKS, dispatcher.port, 16),
            span_us=setting.us(),
            seed=setting.seed,
        )
        setting.progress("game: three callers ask for several times their quota")
        [record] = play([load])
        outcome.figures |= dispatcher.refusals()
    outcome.void = record.void_reasons()
    # In less than a minute they have what exceeds it in a minute all the same.
    for caller, ru in used_ru(WORKS, record, 0, setting.us()).items():
        times = 1 + (ru - QUOTA_RU * setting.seconds) / (QUOTA_RU * MINUTE_S)
        outcome.figures[f"{caller}: served, RU a second"] = ru / setting.seconds
        outcome.add_bar(
            f"{caller}: served in a minute, over its quota",
            times,
            at_most=TIMES_MAX,
            unit="x",
            must_miss=setting.policy != LAYERS,
        )
    return outcome


DRILL: Final = Drill(
    name="game",
    title="Callers that mix tiny reads with huge ones to get more than their quota",
    why="A quota is worth as much as the estimates that it is charged by.",
    seconds=60.0,
    seconds_min=10.0,
    play=drill,
    policies=(LAYERS, COSTS_UNLEARNED),
)
