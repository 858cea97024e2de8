"""Shares: callers whose quota three dispatchers share, skewed, and then one dispatcher is killed.

Two callers send three times their quota. Nine tenths of the first one's requests reach the first
dispatcher, nine tenths of the second one's the last. A quota in equal parts would let the busy
dispatcher give out a third of it, and leave the rest unused. The dispatchers know each other only
through a Redis. Then the first one is killed; its callers turn to the second at once.

What is admitted is counted in request units, as the dispatchers report what a request was charged,
from `EPOCHS` epochs after the beginning, and again from `EPOCHS` after the kill.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Poisson, Steps
from sluicegate.lab.charts import Panel, Points
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillDispatcher, DrillFleet, until_us
from sluicegate.lab.drills.drill import Drill, DrillOutcome, DrillSetting
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad, LoadStream
from sluicegate.lab.drills.record import US, LoadRecord, RecordSlice, slice_of
from sluicegate.lab.drills.slots import fill, keys, reads

DISPATCHERS: Final = 3
QUOTA_RU: Final = 300  # a second, of each caller
OVER: Final = 3.0  # times it, in requests of one unit or more
SKEW: Final = (0.9, 0.05, 0.05)
EPOCH_US: Final = 1_000_000
EPOCHS: Final = 3
WITHIN: Final = 0.05
CALLERS: Final = (DrillCaller("first"), DrillCaller("second"))
ENGINE: Final = "memory:"


def streams(ports: tuple[int, ...], kill_us: int) -> tuple[LoadStream, ...]:
    """Each caller at each dispatcher, and those who turn from the first to the second."""
    found = []
    for caller, skew in zip(CALLERS, (SKEW, SKEW[::-1]), strict=True):
        for number, (port, share) in enumerate(zip(ports, skew, strict=True)):
            per_s = OVER * QUOTA_RU * share
            steady = Poisson(per_s)
            is_killed = number == 0
            found.append(
                _stream(
                    f"{caller.name}/{number + 1}",
                    port,
                    caller,
                    Steps(((0, per_s), (kill_us, 0.0))) if is_killed else steady,
                )
            )
            if is_killed:
                moved_arrivals = Steps(((0, 0.0), (kill_us, per_s)))
                found.append(_stream(f"{caller.name}/turned", ports[1], caller, moved_arrivals))
    return tuple(found)


def drill(setting: DrillSetting) -> DrillOutcome:
    """Half of the time with all, half without the first."""
    outcome = DrillOutcome()
    lead_us = EPOCHS * EPOCH_US
    kill_us = lead_us + setting.us()
    with DrillFleet(CALLERS) as fleet:
        store = fleet.redis()
        dispatchers = fleet.dispatchers(
            DISPATCHERS,
            ENGINE,
            "--store", store,
            "--epoch-ms", str(EPOCH_US // 1_000),
            "--quota-ru", str(QUOTA_RU),
            "--learn", "off",
            "--hot", "off",
        )  # fmt: skip
        for dispatcher in dispatchers:
            fill(dispatcher, keys("drill"))
        load = DrillLoad(
            streams=streams(tuple(one.port for one in dispatchers), kill_us),
            span_us=kill_us + lead_us + setting.us(),
            seed=setting.seed,
        )

        def kill(begin_us: int) -> None:
            until_us(begin_us + kill_us + _UNDER_WAY_US)
            setting.progress("shares: one of three is killed")
            dispatchers[0].process.kill()

        setting.progress("shares: three dispatchers, one Redis")
        before = charged_mru(dispatchers[1:])
        [record] = play([load], kill)
        after = charged_mru(dispatchers[1:])
    # What a read was charged, as the dispatchers that still run report it.
    read_ru = (after[0] - before[0]) / max(after[1] - before[1], 1) / 1_000
    outcome.void = record.void_reasons()
    outcome.figures["request units a read"] = read_ru
    outcome.figures["generator busy"] = record.busy
    for when, begin_us, end_us in (
        ("with all", lead_us, kill_us),
        ("one killed", kill_us + lead_us, load.span_us),
    ):
        for caller in CALLERS:
            part = _of(record, caller, begin_us, end_us)
            admitted = part.served * read_ru * US / (end_us - begin_us)
            outcome.figures[f"{when}: {caller.name} asked, a second"] = (
                part.offered * US / (end_us - begin_us)
            )
            outcome.figures[f"{when}: {caller.name} admitted, RU a second"] = admitted
            outcome.add_bar(
                f"{when}: {caller.name} admitted, away from its quota by",
                abs(admitted / QUOTA_RU - 1.0),
                at_most=WITHIN,
                unit="%",
            )
    curves = {caller.name: _curve(record, caller, load.span_us, read_ru) for caller in CALLERS}
    outcome.panels = [
        Panel("Admitted, of three times the quota", "RU a second", "s", curves, bound=QUOTA_RU)
    ]
    return outcome


def charged_mru(dispatchers: list[DrillDispatcher]) -> tuple[int, int]:
    """Thousandths of request units charged so far, and for how many requests."""
    states = [dispatcher.state()["request_units"] for dispatcher in dispatchers]
    return sum(one["charged_mru"] for one in states), sum(one["admitted"] for one in states)


_UNDER_WAY_US: Final = 50_000  # for what was sent just before it


def _stream(name: str, port: int, caller: DrillCaller, arrivals: Poisson | Steps) -> LoadStream:
    return reads(caller, port, keys("drill"), arrivals, name=name, connections=24)


def _of(record: LoadRecord, caller: DrillCaller, begin_us: int, end_us: int) -> RecordSlice:
    names = [name for name in record.streams if name.startswith(f"{caller.name}/")]
    return slice_of(record, *names, begin_us=begin_us, end_us=end_us)


def _curve(record: LoadRecord, caller: DrillCaller, span_us: int, read_ru: float) -> Points:
    good = _of(record, caller, 0, span_us).over_time(EPOCH_US)["good"]
    return [(x, y * read_ru) for x, y in good]


DRILL: Final = Drill(
    name="shares",
    title="A quota that three dispatchers share, and one is killed",
    why="Wherever a caller's requests arrive, it gets what it has, no less and no more.",
    seconds=8.0,
    seconds_min=3.0,
    play=drill,
)
