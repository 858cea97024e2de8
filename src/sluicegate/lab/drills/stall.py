"""Stall: the engine stands still for a moment, again and again; how long do its callers feel it?

Callers name a deadline of 100 ms, of 500 ms, or none, and ask 20 to 600 times a second; quotas,
places and all else are as they come. The defence may not outlast the trouble: within a second of
the end of each stall 95% of what is asked is served in time, and stays so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet, until_us
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Curve,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import slice_of
from sluicegate.lab.drills.recovery import BIN_US, recovery_s, set_stalled
from sluicegate.lab.drills.slots import engine, fill, keys, quota_ru, reads
from sluicegate.wire.resp import command

US: Final = 1_000_000
STALLS_US: Final = (300_000, 2 * US, 5 * US)
DEADLINES_MS: Final = (100, 500, None)
PATIENCE_US: Final = 1 * US  # of callers that name no deadline
RATES: Final = (20, 200, 600)  # a second
CALM_US: Final = 3 * US
WELL_S_MAX: Final = 1.0
CALLER: Final = DrillCaller("reader")


class _Stalls(NamedTuple):
    """When each begins and ends, in a load of this length."""

    spells: tuple[tuple[int, int], ...]
    span_us: int


def _stalls(rest_us: int) -> _Stalls:
    spells, at_us = [], CALM_US
    for stall_us in STALLS_US:
        spells.append((at_us, at_us + stall_us))
        at_us += stall_us + rest_us
    return _Stalls(tuple(spells), at_us)


def drill(setting: DrillSetting) -> DrillOutcome:
    """Each deadline at each rate on a dispatcher of its own, which has all stalls in turn."""
    outcome = DrillOutcome()
    panels: dict[str, Curve] = {}
    control = setting.policy != LAYERS
    worst_s = 0.0
    for per_s in RATES:
        for deadline_ms in DEADLINES_MS:
            patience = f"{deadline_ms} ms" if deadline_ms else "no deadline"
            name = f"{per_s}/s, {patience}"
            setting.progress(f"stall: {name}")
            took, curve = _play(outcome, setting, name, per_s, deadline_ms)
            panels[name] = curve
            worst_s = max(worst_s, *took)
    outcome.add_bar(
        "well again after the end of a stall, the worst",
        worst_s,
        at_most=WELL_S_MAX,
        unit="s",
        must_miss=control,
    )
    outcome.panels = [Panel("Served in time", "of what was asked", "s", panels)]
    return outcome


def _play(
    outcome: DrillOutcome, setting: DrillSetting, name: str, per_s: int, deadline_ms: int | None
) -> tuple[list[float], Curve]:
    stalls = _stalls(setting.us())
    with DrillFleet((CALLER,), {CALLER.name: quota_ru(per_s)}) as fleet:
        plan = fleet.folder / "stall"
        set_stalled(plan, stalled=False)
        dispatcher = fleet.dispatcher(
            engine(control=plan), "--hot", "off", *policy_flags(setting.policy)
        )
        fill(dispatcher, keys("drill"))
        stream = reads(
            CALLER,
            dispatcher.port,
            keys("drill"),
            Poisson(per_s),
            connections=400,
            depth=64,
            timeout_us=deadline_ms * 1_000 if deadline_ms else PATIENCE_US,
        )
        if deadline_ms:
            greeting = (*stream.greeting, command("SG.DEADLINE", deadline_ms))
            stream = replace(stream, greeting=greeting)

        def stall(begin_us: int) -> None:
            for stall_us, end_us in stalls.spells:
                until_us(begin_us + stall_us)
                set_stalled(plan, stalled=True)
                until_us(begin_us + end_us)
                set_stalled(plan, stalled=False)

        load = DrillLoad(streams=(stream,), span_us=stalls.span_us, seed=setting.seed)
        [record] = play([load], stall)
    outcome.void += [f"{name}: {reason}" for reason in record.void_reasons()]
    took = []
    for (stall_us, end_us), until in zip(
        stalls.spells, (*(begin for begin, _ in stalls.spells[1:]), stalls.span_us), strict=True
    ):
        found = slice_of(record, begin_us=0, end_us=until - BIN_US).over_time(BIN_US)
        took.append(recovery_s(found["good"], found["offered"], end_us / US))
        outcome.figures[f"{name}: {(end_us - stall_us) / US:g} s, well again after, s"] = took[-1]
    whole = slice_of(record, begin_us=0, end_us=stalls.span_us)
    outcome.add_errors(f"{name}: ", whole.errors())
    return took, whole.shares(BIN_US)


DRILL: Final = Drill(
    name="stall",
    title="The engine stands still for 0.3, 2 and 5 s",
    why="What refuses because of a stall is over a second after it.",
    seconds=4.0,
    seconds_min=3.0,
    play=drill,
    policies=(LAYERS, NONE),
)
