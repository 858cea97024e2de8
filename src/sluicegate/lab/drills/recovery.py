"""Recovery: the engine stalls for a while, and is well again; when are its callers?

Callers send three quarters of the capacity and wait for half a second, so the requests of the stall
are useless at its end. A pool that serves them in order is late for all later requests until it has
caught up. The layers drop them.

The drill plays twice on the same draws: with the layers and as many slots as the engine has, and
without (a queue in front of a bounded pool, and no deadlines). The engine has recovered when every
half second from then on serves at least 95% of its requests. With a limit that has to be found this
takes 0.7 to 1.1 s, as the engine first finishes the requests that were sent into the stall.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.charts import Panel, Points
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet, until_us
from sluicegate.lab.drills.drill import (
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import LoadRecord, slice_of
from sluicegate.lab.drills.slots import (
    CAPACITY_PER_S,
    FLAGS,
    engine,
    fill,
    keys,
    quota_ru,
    reads,
)

LOAD: Final = 0.75  # of the capacity
CALM_US: Final = 2_000_000
STALL_SHARE: Final = 0.2  # of the time a drill has
BIN_US: Final = 100_000
WINDOW: Final = 5  # bins
RECOVERED: Final = 0.95
TIMES_MIN: Final = 4.0
WELL_S_MAX: Final = 1.0
SLOTS: Final = ("--slots", "8")
CALLER: Final = DrillCaller("reader")


def recovery_s(good: Points, offered: Points, end_s: float) -> float:
    """From the end of the stall to when it is well, and stays so; infinite if it never is.

    Well is a window in which 95% of what was asked was served in time.
    """
    rows = [
        (x, one, other) for (x, one), (_, other) in zip(good, offered, strict=True) if x >= end_s
    ]
    recovered = inf
    for at in range(len(rows) - WINDOW, -1, -1):
        window = rows[at : at + WINDOW]
        served = sum(row[1] for row in window)
        if served < RECOVERED * sum(row[2] for row in window):
            break
        recovered = max(window[0][0] - end_s - BIN_US / 2e6, 0.0)
    return recovered


def set_stalled(control: Path, *, stalled: bool) -> None:
    """Have it stall, or go on: within a tenth of a second."""
    beside = control.with_suffix(".new")
    beside.write_text(json.dumps({"stalled": "on" if stalled else "off"}), "utf-8")
    beside.replace(control)


class _RecoveryRun(NamedTuple):
    """Play one run."""

    record: LoadRecord
    span_us: int
    end_us: int  # of the stall
    refusals: dict[str, int]


def run_load(setting: DrillSetting, policy: str, calm_us: int = CALM_US) -> _RecoveryRun:
    """Play one run."""
    stall_us = setting.us(STALL_SHARE)
    quotas = {CALLER.name: quota_ru(LOAD * CAPACITY_PER_S)}
    with DrillFleet((CALLER,), quotas) as fleet:
        control = fleet.folder / "stall"
        flags = ("--deadline-ms", "0", "--hot", "off") if policy == NONE else (*FLAGS, *SLOTS)
        dispatcher = fleet.dispatcher(engine(control=control), *flags, *policy_flags(policy))
        fill(dispatcher, keys("drill"))
        arrivals = Poisson(LOAD * CAPACITY_PER_S)
        names = keys("drill")
        stream = reads(CALLER, dispatcher.port, names, arrivals, connections=400, depth=64)
        load = DrillLoad(
            streams=(stream,),
            span_us=calm_us + setting.us(),
            seed=setting.seed,
        )

        def stall(begin_us: int) -> None:
            until_us(begin_us + calm_us)
            set_stalled(control, stalled=True)
            until_us(begin_us + calm_us + stall_us)
            set_stalled(control, stalled=False)

        setting.progress(f"recovery: the engine stalls for {stall_us / 1e6:g} s, {policy}")
        [record] = play([load], stall)
        return _RecoveryRun(record, load.span_us, calm_us + stall_us, dispatcher.refusals())


def drill(setting: DrillSetting) -> DrillOutcome:
    """With the layers, and without any."""
    calm_us = CALM_US
    arms = [(LAYERS, "layers"), (NONE, "without")]
    outcome = DrillOutcome()
    took: dict[str, float] = {}
    curves: dict[str, Points] = {}
    offered: Points = ()
    for policy, name in arms:
        record, span_us, end_us, refusals = run_load(setting, policy, calm_us)
        outcome.void += [f"{name}: {reason}" for reason in record.void_reasons()]
        whole_run = slice_of(record, begin_us=0, end_us=span_us)
        found = whole_run.over_time(BIN_US)
        curves[name], offered = found["good"], found["offered"]
        took[name] = recovery_s(found["good"], found["offered"], end_us / 1e6)
        outcome.figures[f"{name}: well again after, s"] = took[name]
        before = slice_of(record, begin_us=calm_us - CALM_US // 2, end_us=calm_us)
        outcome.figures[f"{name}: served in time before"] = before.success
        outcome.figures[f"{name}: generator busy"] = record.busy
        outcome.add_errors(f"{name}: ", whole_run.errors())
        outcome.add_errors(f"{name}: ", refusals)
    left_s = setting.seconds * (1 - STALL_SHARE)
    without = took["without"]
    if without == inf:
        outcome.notes.append(f"without layers it was not well within {left_s:.1f} s: counted so")
        without = left_s
    outcome.figures["stall, s"] = setting.seconds * STALL_SHARE
    shortest_s = BIN_US / 1e6
    times = {name: without / max(min(took[name], left_s), shortest_s) for _, name in arms}
    outcome.add_bar(
        "well again after the end of the stall", took["layers"], at_most=WELL_S_MAX, unit="s"
    )
    outcome.add_bar("times as fast as without the layers", times["layers"], at_least=TIMES_MIN)
    outcome.panels = [
        Panel(
            "Served in time", "a second", "s",
            {**curves, "offered": offered},
            controls=("without",),
        )
    ]  # fmt: skip
    return outcome


DRILL: Final = Drill(
    name="recovery",
    title="The engine stalls, and is well again",
    why="What nobody waits for any more is dropped, so whoever comes next is served.",
    seconds=20.0,
    seconds_min=5.0,
    play=drill,
)
