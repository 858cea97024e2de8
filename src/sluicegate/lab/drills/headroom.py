"""Headroom: half, four fifths and nearly all of what the engine can do, as on any day.

Nothing is overloaded, so whatever the layers do here is harm: who is refused needed no refusal, and
who waits longer than in front of a plain pool waits for nothing. The same loads, one after the
other, are played on a plain pool too. Bars: each class is served, and half of all reads take hardly
longer than they do there. Arrivals are memoryless, quotas half as much again as each caller needs
at the highest load. The first load lasts until a dispatcher knows how long its engine usually
takes.

Last, a dispatcher begins at the highest load, with no costs kept from before: it must not take the
line in its engine for what reads usually cost, and refuse for their quotas whoever stands in it.
"""

from __future__ import annotations

from typing import Final

from sluicegate.lab.arrivals import Steps
from sluicegate.lab.drills.dispatcher import DrillCaller, DrillFleet
from sluicegate.lab.drills.drill import (
    HALF_SLOTS,
    LAYERS,
    NONE,
    Drill,
    DrillOutcome,
    DrillSetting,
    Panel,
    policy_flags,
)
from sluicegate.lab.drills.generator import play
from sluicegate.lab.drills.load import DrillLoad
from sluicegate.lab.drills.record import LoadRecord, slice_of
from sluicegate.lab.drills.slots import CAPACITY_PER_S, FLAGS, engine, fill, keys, quota_ru, reads

LOADS: Final = (0.5, 0.8, 0.95)  # of the capacity
KNOWN_US: Final = 35_000_000
WARM_US: Final = 1_000_000  # of each load, that does not count
SERVED_MIN: Final = 0.99
LATER_MS_MAX: Final = 2.0  # than in front of a plain pool, at the median
CALLERS: Final = {
    DrillCaller("checkout", "CRITICAL"): 0.1,
    DrillCaller("search", "DEGRADED"): 0.3,
    DrillCaller("feed", "BEST_EFFORT"): 0.3,
    DrillCaller("export", "BULK"): 0.3,
}  # of the load


def drill(setting: DrillSetting) -> DrillOutcome:
    """The loads on a plain pool, and on what is tried."""
    outcome = DrillOutcome()
    control = setting.policy != LAYERS
    plain, tried = (_play(setting, outcome, policy) for policy in (NONE, setting.policy))
    curves: dict[str, list[tuple[float, float]]] = {NONE: [], setting.policy: []}
    for load, begin_us, end_us in _phases(setting):
        what = f"{load:.0%} of the capacity"
        span = {"begin_us": begin_us + WARM_US, "end_us": end_us}
        for policy, record in ((NONE, plain), (setting.policy, tried)):
            part = slice_of(record, **span)
            curves[policy].append((load, part.p_us(0.5) / 1e3))
            outcome.figures[f"{what}: {policy}: served"] = part.success
            outcome.figures[f"{what}: {policy}: p50, ms"] = part.p_us(0.5) / 1e3
            outcome.figures[f"{what}: {policy}: p99, ms"] = part.p_us(0.99) / 1e3
        outcome.add_bar(
            f"{what}: served of the worst class",
            min(slice_of(tried, one.name, **span).success for one in CALLERS),
            at_least=SERVED_MIN,
            unit="%",
            must_miss=control,
        )
        if not control:
            outcome.add_bar(
                f"{what}: median, above that of a plain pool",
                curves[setting.policy][-1][1] - curves[NONE][-1][1],
                at_most=LATER_MS_MAX,
                unit="ms",
            )
    cold = _play_cold(setting, outcome)
    outcome.add_bar(
        f"begun at {LOADS[-1]:.0%}, nothing learned: served of the worst class",
        min(slice_of(cold, one.name, begin_us=0, end_us=setting.us()).success for one in CALLERS),
        at_least=SERVED_MIN,
        unit="%",
        must_miss=control,
    )
    outcome.panels = [Panel("Median of what was served", "ms", "of the capacity", curves)]
    return outcome


def _phases(setting: DrillSetting) -> list[tuple[float, int, int]]:
    """Each load, with its beginning and its end."""
    ends_us = [KNOWN_US + setting.us() * number for number in range(len(LOADS))]
    return list(zip(LOADS, [0, *ends_us], ends_us, strict=False))


def _play(setting: DrillSetting, outcome: DrillOutcome, policy: str) -> LoadRecord:
    """All loads on one dispatcher."""
    phases = _phases(setting)
    setting.progress(f"headroom: {policy}, for {phases[-1][-1] / 1e6:.0f} s")
    return _play_steps(
        setting,
        outcome,
        policy,
        [(at_us, load) for load, at_us, _ in phases],
        phases[-1][-1],
    )


def _play_cold(setting: DrillSetting, outcome: DrillOutcome) -> LoadRecord:
    """The highest load, from a dispatcher's first second on."""
    setting.progress(f"headroom: begun at {LOADS[-1]:.0%} of the capacity")
    return _play_steps(setting, outcome, setting.policy, [(0, LOADS[-1])], setting.us())


def _play_steps(
    setting: DrillSetting,
    outcome: DrillOutcome,
    policy: str,
    steps: list[tuple[int, float]],
    span_us: int,
) -> LoadRecord:
    """These parts of the capacity, each from an instant on, on a dispatcher of its own."""
    quotas = {
        caller.name: quota_ru(share * LOADS[-1] * CAPACITY_PER_S)
        for caller, share in CALLERS.items()
    }
    with DrillFleet(tuple(CALLERS), quotas) as fleet:
        dispatcher = fleet.dispatcher(engine(), *FLAGS, *policy_flags(policy))
        fill(dispatcher, keys("drill"))
        streams = tuple(
            reads(
                caller,
                dispatcher.port,
                keys("drill"),
                Steps(tuple((at_us, share * load * CAPACITY_PER_S) for at_us, load in steps)),
                connections=60,
            )
            for caller, share in CALLERS.items()
        )
        [record] = play([DrillLoad(streams=streams, span_us=span_us, seed=setting.seed)])
        refusals = dispatcher.refusals()
    outcome.void += [f"{policy}: {reason}" for reason in record.void_reasons()]
    outcome.add_errors(f"{policy}: ", refusals)
    return record


DRILL: Final = Drill(
    name="headroom",
    title="Half, four fifths and nearly all of what the engine can do",
    why="What is not overloaded must not notice that anything stands in front of it.",
    seconds=10.0,
    seconds_min=3.0,
    play=drill,
    policies=(LAYERS, HALF_SLOTS),
)
