"""Hot keys that change: a new set of fifty every five seconds, among keys that never come again.

What is hot must be known before it hurts, and the memory for that must not grow with the keys: a
counter for each key is filled by whoever sends fresh ones without end. The goals: all fifty of a
new set are known within 300 ms, also while a fifth of all reads, or half of them, is for fresh
keys; of the hundred most frequent keys of a stream by Zipf's law 98 are named; and all of it, cache
included, takes 4 MiB at most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sluicegate.lab.baselines.key_counters import ExactCounts, LruCounts
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.churn import (
    Churn,
    HotKeyCounter,
    MakeKeyCounter,
    candidate,
    curves,
    measure,
)
from sluicegate.lab.scenario import OVER_CASES, OVER_TIME, PlotSpec, Scenario
from sluicegate.policies.hot_key import HotKeySettings

DEFAULTS: Final = HotKeySettings()
ZIPF: Final = Churn(hot_keys=0, hot_share=0.0, sets=2, ranked=True)
CHURNS: Final = ("churn", "cycling", "half-cycling")
SKEWS: Final = ("zipf-0.8", "zipf-1.0", "zipf-1.2")


def counting(settings: HotKeySettings) -> MakeKeyCounter:
    """Return a maker of the policy with these settings."""
    return lambda rig, random_source: HotKeyCounter(rig, settings, random_source)


hot_key: Final = counting(DEFAULTS)
# What is hot has a hundredth of all reads, and a hundred a second at least.
one_percent: Final = counting(HotKeySettings(hot_min=100, hot_permille=10))
# Two counters for each key that is wanted.
few_counters: Final = counting(HotKeySettings(counters=200))
# All reads count, however long ago.
without_ageing: Final = counting(HotKeySettings(window_us=3_600_000_000))


def exact(rig: Churn, random_source: RandomSource) -> ExactCounts:
    """Return exact counts with the product's threshold."""
    return ExactCounts(least=DEFAULTS.hot_min)


def lru(rig: Churn, random_source: RandomSource) -> LruCounts:
    """Return as many counters as the product has."""
    return LruCounts(capacity=DEFAULTS.counters, least=DEFAULTS.hot_min)


SCENARIO: Final = Scenario(
    number=11,
    name="hot-key-churn",
    title="Fifty new hot keys every five seconds, and keys without end",
    why="What is noticed late has hurt already, and a counter for each key is a way to be filled.",
    rigs={
        "churn": Churn(),
        "cycling": Churn(cycled_share=0.2),
        "half-cycling": Churn(hot_share=0.5, cycled_share=0.5),
        "zipf-0.8": replace(ZIPF, skew=0.8),
        "zipf-1.0": replace(ZIPF, skew=1.0),
        "zipf-1.2": replace(ZIPF, skew=1.2),
    },
    candidates={
        "hot-key": candidate(hot_key),
        "one-percent": candidate(one_percent),
        "few-counters": candidate(few_counters),
        "without-ageing": candidate(without_ageing),
        "exact": candidate(exact),
        "lru": candidate(lru),
    },
    ours="hot-key",
    must_fail=("exact", "lru", "few-counters", "without-ageing"),
    goals=(
        Goal(figure="detect_ms", at_most=300.0, cases=CHURNS),
        Goal(figure="recall_100", at_least=0.98, cases=SKEWS),
        Goal(figure="memory_mb", at_most=4.0),
    ),
    measure=measure,
    curves=curves,
    columns=("detect_ms", "recall_100", "memory_mb", "others_hot"),
    plots=(
        PlotSpec(
            "How soon the keys of a new set are known",
            ("known",),
            OVER_TIME,
            "share of the keys",
            "milliseconds",
        ),
        PlotSpec("Memory, cache included", ("memory_mb",), OVER_CASES, "MiB", log_y=True),
    ),
)
