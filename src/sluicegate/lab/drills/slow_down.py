"""Slow-down: an engine becomes slow though it has room enough, as a whole and then one shard of it.

Nothing is overloaded: less work is asked for than gets done, however slow. A rule that takes slow
for overloaded refuses here, and every refusal is harm. Callers of all classes have quotas of 1.5
times their need. Targets: every class is served, in both; no caller is penalized; and soon after
the end everything costs what it did before.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet, until_us
from sluicegate.lab.drills.drill import (
    LAYERS,
    MUSSEL,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import LoadRecord, slice_of
from sluicegate.lab.drills.shard import SHARDS, SLOW, SLOW_TIMES, shard_of
from sluicegate.lab.drills.slots import fill, keys, reads

US: Final = 1_000_000
HEALTHY_US: Final = 75 * US  # a healthy latency is known after a minute
CALM_US: Final = 15 * US  # between the two, and after them
RELAXED_US: Final = 3 * US  # after the end prices are what they were
WORK_MS: Final = 3
_NO_PRICES: Final = {"prices_milli": (1_000,), "penalized": ()}
TIMES: Final = 4  # as slow as before, the whole engine
KEYS: Final = 400
BIN_US: Final = 1_000_000
QUOTA_RU: Final = 400  # a second
WHOLE_MIN: Final = 0.99
SHARD_MIN: Final = 0.999
CALLERS: Final = {
    DrillCaller("bulk", "BULK"): 120,
    DrillCaller("best-effort", "BEST_EFFORT"): 120,
    DrillCaller("degraded", "DEGRADED"): 120,
    DrillCaller("critical", "CRITICAL"): 40,
}


def drill(setting: DrillSetting) -> DrillOutcome:
    """Healthy, slow as a whole, healthy, one shard slow, healthy."""
    outcome = DrillOutcome()
    control = setting.policy == MUSSEL
    slow_us = setting.us()
    ends = [HEALTHY_US, HEALTHY_US + slow_us, HEALTHY_US + slow_us + CALM_US]
    ends += [ends[2] + slow_us, ends[2] + slow_us + CALM_US]
    names = keys("drill", KEYS)
    healthy_names = [name for name in names if shard_of(name) != SLOW]
    slow_names = [name for name in names if shard_of(name) == SLOW]
    states: list[dict[str, Any]] = []
    with DrillFleet(tuple(CALLERS), {caller.name: QUOTA_RU for caller in CALLERS}) as fleet:
        plan = fleet.folder / "engine.json"
        plan.write_text("{}", "utf-8")
        dispatcher = fleet.dispatcher(
            f"faulty+memory:?shards={SHARDS}&slots=64&slots_by=shard&work_ms={WORK_MS}"
            f"&control={plan}",
            "--hot", "off",
            *policy_flags(setting.policy),
        )  # fmt: skip
        fill(dispatcher, names)
        load = DrillLoad(
            streams=tuple(
                reads(
                    caller,
                    dispatcher.port,
                    mine,
                    Poisson(per_s * len(mine) / KEYS),
                    name=f"{caller.name} {where}",
                    connections=20,
                )
                for caller, per_s in CALLERS.items()
                for where, mine in (("elsewhere", healthy_names), ("slow", slow_names))
            ),
            span_us=ends[-1],
            seed=setting.seed,
        )

        def make_slow(begin_us: int) -> None:
            slow = json.dumps({"work_ms": TIMES * WORK_MS})
            slow_shard = json.dumps({"slow_shard": SLOW, "slow_times": SLOW_TIMES})
            for at_us, text, what in (
                (ends[0], slow, f"the engine is {TIMES} times as slow"),
                (ends[1], "{}", "the engine is as before"),
                (ends[2], slow_shard, f"one shard of {SHARDS} is {SLOW_TIMES} times as slow"),
                (ends[3], "{}", "the engine is as before"),
            ):
                until_us(begin_us + at_us)
                states.append(dispatcher.state())  # as it ends
                setting.progress(f"slow-down: {what}")
                plan.write_text(text, "utf-8")
                if text == "{}":
                    until_us(begin_us + at_us + RELAXED_US)
                    states.append(dispatcher.state())

        setting.progress("slow-down: a healthy engine, for a minute and more")
        [record] = play([load], make_slow)
        outcome.figures |= dispatcher.refusals()
    outcome.void = record.void_reasons()
    _judge(outcome, record, ends, states, control=control)
    return outcome


def _judge(
    outcome: DrillOutcome,
    record: LoadRecord,
    ends: list[int],
    states: list[dict[str, Any]],
    *,
    control: bool,
) -> None:
    """Hold what was served, and what it cost, against the bars."""
    phases = list(pairwise(ends))
    served: dict[str, float] = {}
    for what, (begin_us, end_us), wheres, least in (
        ("the engine slow", phases[0], ("elsewhere", "slow"), WHOLE_MIN),
        ("one shard slow, of the others", phases[2], ("elsewhere",), SHARD_MIN),
    ):
        worst = 1.0
        for caller in CALLERS:
            streams = [f"{caller.name} {where}" for where in wheres]
            part = slice_of(record, *streams, begin_us=begin_us, end_us=end_us)
            served[f"{what}: {caller.name} served"] = part.success
            worst = min(worst, part.success)
        outcome.add_bar(
            f"{what}: served of the worst class",
            worst,
            at_least=least,
            unit="%",
            must_miss=control,
        )
    outcome.figures |= served
    # Asked before it began, as it ended and after it: twice.
    priced = [state["prices"] or _NO_PRICES for state in states]
    dearest = max(max(priced[at]["prices_milli"]) for at in (2, 5)) / 1_000
    penalized = max(len(one["penalized"]) for one in priced)
    raised = max(max(priced[at]["prices_milli"]) for at in (1, 4)) / 1_000
    outcome.figures["dearest price while it was slow"] = raised
    outcome.add_bar(
        f"dearest price {RELAXED_US // US} s after the end", dearest, at_most=1.0, must_miss=control
    )
    outcome.add_bar("callers penalized", penalized, at_most=0, must_miss=control)
    curves = {
        caller.name: slice_of(
            record, f"{caller.name} elsewhere", begin_us=0, end_us=ends[-1]
        ).shares(BIN_US)
        for caller in CALLERS
    }
    outcome.panels = [
        Panel("Served in time, on the nine healthy shards", "of what was asked", "s", curves)
    ]


DRILL: Final = Drill(
    name="slow-down",
    title=f"An engine {TIMES} times as slow, then one shard {SLOW_TIMES} times, with room to spare",
    why="Slow is not overloaded: nobody may be refused for it.",
    seconds=25.0,
    seconds_min=10.0,
    play=drill,
    policies=(LAYERS, MUSSEL),
)
