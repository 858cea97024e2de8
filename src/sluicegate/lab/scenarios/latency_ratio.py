"""Latency ratio: four times slower for half an hour, and a whole day in which nothing is wrong.

The ratio of what work usually takes to what it takes now is the quickest sign of a sick backend. It
has two ways to fail. What is slow for long enough becomes what is usual, and the ratio heals while
the patient does not. And a day has slow hours, and hours with other work in them, which are not a
sickness. The goal is to stay below 0.6 as long as it lasts, to be clear ten seconds after, and not
one false alarm in the day.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluicegate.kernels.latency_ratio import MUSSEL_ENTER
from sluicegate.lab.baselines.pooled_ratio import PooledRatio
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.latencies import (
    LatencyRig,
    LatencyRun,
    PolicyStressReader,
    WorkClass,
    by_class,
    candidate,
    never_frozen,
    one_for_all,
    unwindowed_p2,
)
from sluicegate.lab.scenario import OVER_TIME, Curves, Figures, PlotSpec, Scenario
from sluicegate.policies.stress import StressSettings

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
NOTICED_S: Final = 10  # after that it should know
BELOW: Final = 0.6
USUAL: Final = WorkClass(name="get", per_s=((0, 75.0),))

STRESS: Final = LatencyRig(
    works=(USUAL,),
    sick_us=(15 * MINUTE, 45 * MINUTE),
    slower=4.0,
    span_us=48 * MINUTE,
)


def day(hours: int) -> LatencyRig:
    """A day in so many hours: load by 30% up and down, work by 30% slower at its height.

    From noon for a quarter of it there are 15 times as many scans, which take ten times as long.
    """
    noon, dusk = hours * HOUR // 2, hours * HOUR * 3 // 4
    scans = WorkClass(name="scan", per_s=((0, 2.0), (noon, 30.0), (dusk, 2.0)), median_us=50_000.0)
    return LatencyRig(
        works=(USUAL, scans), swing=0.3, burden=0.3, day_us=hours * HOUR, span_us=hours * HOUR
    )


def measure(rig: LatencyRig, run: LatencyRun) -> Figures:
    """In sickness: the highest ratio, and how soon it is clear; in health: false alarms."""
    begin_s, end_s = (us // SECOND for us in rig.sick_us)
    if begin_s == end_s:
        return {"trips": float(run.trips), "ratio_min": min(run.ratios)}
    sick = run.ratios[begin_s:end_s]
    after = run.stressed[end_s:]
    return {
        "seen_s": float(next((at for at, ratio in enumerate(sick) if ratio < BELOW), inf)),
        "ratio_max": max(sick[NOTICED_S:]),
        "clear_s": float(after.index(False)) if False in after else inf,
        "trips": float(run.trips - 1),
    }


def curves(rig: LatencyRig, run: LatencyRun) -> Curves:
    """The ratio over time, the lowest of each stretch."""
    step = max(len(run.ratios) // 400, 1)
    spans = range(0, len(run.ratios), step)
    return {"ratio": [(at / 60, min(run.ratios[at : at + step])) for at in spans]}


P2: Final = StressSettings(ratio="p2", ratio_enter=MUSSEL_ENTER, ratio_hard=MUSSEL_ENTER)

SCENARIO: Final = Scenario(
    number=21,
    name="latency-ratio",
    title="Half an hour of slow work, and a day without any",
    why="An alarm that gets used to the fire is none, nor is one that rings at noon.",
    rigs={"stress": STRESS, "day": day(8)},
    candidates={
        "stress": candidate(PolicyStressReader),
        "mussel-p2": candidate(lambda: PolicyStressReader(P2)),
        "p2-unwindowed": candidate(by_class(unwindowed_p2, MUSSEL_ENTER)),
        "pooled": candidate(by_class(PooledRatio)),
        "without-freezing": candidate(by_class(never_frozen)),
        "without-classes": candidate(one_for_all),
    },
    ours="stress",
    must_fail=("p2-unwindowed", "pooled", "without-freezing", "without-classes"),
    goals=(
        Goal(figure="ratio_max", at_most=BELOW, cases=("stress",)),
        Goal(figure="clear_s", at_most=10, cases=("stress",)),
        Goal(figure="trips", at_most=0),
    ),
    measure=measure,
    curves=curves,
    columns=("seen_s", "ratio_max", "clear_s", "trips"),
    plots=(PlotSpec("Latency ratio", ("ratio",), OVER_TIME, "ratio", "minutes"),),
    scale="The day passes in 8 hours, so all that drifts does so three times as fast; the proofs "
    "play one of 24.",
)
