"""Hot keys that change: a new set of fifty every five seconds, among keys that never come again.

What is hot must be known before it hurts, and the memory for that must not grow with the keys: a
counter for each key is filled by whoever sends fresh ones without end. The goals: all fifty of a
new set are known within 300 ms, also while a fifth of all reads, or half of them, is for fresh
keys; of the hundred most frequent keys of a stream by Zipf's law 98 are named, and as many of a set
of a hundred that changes; and all of it, cache included, takes 4 MiB at most.

The rig: one node's reads, of which a part is for a set of keys that changes every few seconds.

No task and no store: a counter takes in each read, and says whether the key is hot. Others read by
Zipf's law, or cycle through keys that never come again, as long as keys may be.
"""

from __future__ import annotations

import gc
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import accumulate
from math import inf
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.key_counters import ExactCounts, LruCounts
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import (
    KERNELS,
    OVER_CASES,
    OVER_TIME,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)
from sluicegate.policies.cache.hot_key import COLD, MISS, HotKey, HotKeySettings
from sluicegate.testing import START_US

PHASE_US: Final = 1_000_000
WINDOW_US: Final = HotKeySettings().window_us  # the truth is halved as the product's counters are
LEAST: Final = 24  # reads a second that the other counters call hot
COUNT_MIN: Final = 0.1
LOOK_US: Final = 470_000  # at other parts of the window each time
FRESH_KEY_LENGTH: Final = 512
FETCH_US: Final = 5_000
VALUE_BYTES: Final = 200
MIB: Final = 1 << 20
RANKED: Final = 100
_SHARED: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Shares are of all reads; what is left is for `other_keys`, by Zipf's law with `skew`.

    Where `ranked`, a counter only counts, and is asked for the first hundred at the end.
    """

    per_s: float = 20_000.0
    hot_keys: int = 50
    hot_share: float = 0.8
    cycled_share: float = 0.0
    set_us: int = 5_000_000
    sets: int = 4
    other_keys: int = 100_000
    skew: float = 0.99
    ranked: bool = False


class _KeyCounter(Protocol):
    """Says of each read whether its key is hot, and names the keys read most of late."""

    def notice(self, key: str, now_us: int) -> bool: ...

    def top(self, k: int) -> list[str]: ...


MakeKeyCounter: TypeAlias = Callable[[Churn, RandomSource], _KeyCounter]


@final
class HotKeyCounter:
    """The policy as a node uses it: what is hot is fetched once, and kept.

    Where reads are only ranked they are strong ones, which are counted and not answered.
    """

    __slots__ = ("_draw", "_ranked", "hot")

    def __init__(self, rig: Churn, settings: HotKeySettings, random_source: RandomSource) -> None:
        self.hot: HotKey[str] = HotKey(settings)
        self._draw = random_source.of("watcher").draw
        self._ranked = rig.ranked

    def notice(self, key: str, now_us: int) -> bool:
        """Look the key up, fill what is missing, and return whether it is hot."""
        state, _ = self.hot.look(key, now_us, self._draw(), strong=self._ranked)
        if state == MISS:
            fill = self.hot.begin(key, now_us - FETCH_US)
            fill.put(f"value of {key}", VALUE_BYTES, now_us=now_us, draw=self._draw())
        return state != COLD

    def top(self, k: int) -> list[str]:
        """Return the keys that have been read most of late."""
        return [key for key, _ in self.hot.top(k)]


class ChurnRun(NamedTuple):
    """What one run measured."""

    noticed_us: list[list[float]]  # of each set, how long it took to notice each of its keys
    bytes_held: int  # the most at any of the looks
    recall: float  # of the true first hundred of late, those that the counter names
    others: int  # keys that were never in a set and were said to be hot


def play(rig: Churn, make_counter: MakeKeyCounter, seed: int) -> ChurnRun:
    """Play one run."""
    random_source = RandomSource(seed)
    counter = make_counter(rig, random_source)
    sets: list[list[float]] = [[inf] * rig.hot_keys for _ in range(rig.sets)]
    truth: dict[str, float] = {}
    window = 0
    others: set[str] = set()
    bytes_held = 0
    # At another part of the counter's window with each seed.
    phase_us = START_US + int(random_source.of("phase").draw() * PHASE_US)
    look_us = LOOK_US
    for at_us, key, place in _reads(rig, random_source):
        if at_us >= look_us:
            bytes_held = max(bytes_held, deep_bytes(counter))
            look_us += LOOK_US
        now_us = phase_us + at_us
        if now_us // WINDOW_US != window:
            window = now_us // WINDOW_US
            truth = {known: count / 2 for known, count in truth.items() if count >= COUNT_MIN}
        truth[key] = truth.get(key, 0.0) + 1
        if counter.notice(key, now_us):
            if place < 0:
                others.add(key)
            else:
                begun = at_us // rig.set_us
                sets[begun][place] = min(sets[begun][place], at_us - begun * rig.set_us)
    return ChurnRun(sets, bytes_held, _recall(truth, counter.top(RANKED)), len(others))


def _reads(rig: Churn, random_source: RandomSource) -> Iterator[tuple[int, str, int]]:
    """Yield instants, keys, and their places in the set of the time, -1 if they are in none."""
    draw, other = random_source.of("keys").draw, random_source.of("others").draw
    weights = list(accumulate((rank + 1) ** -rig.skew for rank in range(rig.other_keys)))
    span_us = rig.set_us * rig.sets
    fresh = 0
    for at_us in Poisson(rig.per_s).instants_us(random_source.of("arrivals")):
        if at_us >= span_us:
            return
        wish = draw()
        if wish < rig.hot_share:
            place = int(wish / rig.hot_share * rig.hot_keys)
            yield at_us, f"set{at_us // rig.set_us}/{place}", place
        elif wish < rig.hot_share + rig.cycled_share:
            fresh += 1
            yield at_us, f"{fresh:x<{FRESH_KEY_LENGTH}}", -1
        else:
            yield at_us, f"other{bisect_left(weights, other() * weights[-1])}", -1


def _recall(truth: dict[str, float], top_keys: list[str]) -> float:
    """Return the share named right; a key as frequent as the hundredth is right too."""
    least = nlargest(RANKED, truth.values())[-1]
    return sum(truth.get(key, 0.0) >= least for key in top_keys) / RANKED


def deep_bytes(root: object) -> int:
    """Return what an object and all that it holds take, each object once."""
    counted: set[int] = set()
    found = 0
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in counted or isinstance(one, _SHARED):
            continue
        counted.add(id(one))
        found += sys.getsizeof(one)
        waiting.extend(gc.get_referents(one))
        if isinstance(one, dict):
            waiting.extend(one)  # the collector passes over keys that are strings
    return found


def measure(rig: Churn, ended: ChurnRun) -> Figures:
    """How soon, how well, and in how much memory."""
    noticed = [us for keys in ended.noticed_us for us in keys]
    return {
        "detect_ms": max(noticed) / 1e3 if noticed else 0.0,
        "recall_100": ended.recall,
        "memory_mb": ended.bytes_held / MIB,
        "others_hot": float(ended.others),
    }


def curves(rig: Churn, ended: ChurnRun) -> Curves:
    """Of all sets together, the share of the keys that are known so many milliseconds after."""
    noticed = sorted(us for keys in ended.noticed_us for us in keys)
    return {
        "known": [(us / 1e3, (at + 1) / len(noticed)) for at, us in enumerate(noticed) if us < inf]
    }


candidate: Final = candidate_maker(play, KERNELS)


DEFAULTS: Final = HotKeySettings()
ZIPF: Final = Churn(hot_keys=0, hot_share=0.0, sets=2, ranked=True)
CHURNS: Final = ("churn", "cycling", "half-cycling")
RANKINGS: Final = ("zipf-0.8", "zipf-1.0", "zipf-1.2", "sets")


def counting(settings: HotKeySettings) -> MakeKeyCounter:
    """Return a maker of the policy with these settings."""
    return lambda rig, random_source: HotKeyCounter(rig, settings, random_source)


hot_key: Final = counting(DEFAULTS)
# Two counters for each key that is wanted.
few_counters: Final = counting(HotKeySettings(counters=200))
# Counts are never halved; two reads make a key hot.
without_ageing: Final = counting(HotKeySettings(window_us=3_600_000_000, saved_min=0.0005))


def exact(rig: Churn, random_source: RandomSource) -> ExactCounts:
    """Return exact counts."""
    return ExactCounts(least=LEAST)


def lru(rig: Churn, random_source: RandomSource) -> LruCounts:
    """Return as many counters as the product has."""
    return LruCounts(capacity=DEFAULTS.counters, least=LEAST)


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
        "sets": Churn(hot_keys=100, hot_share=0.9, sets=3, per_s=5_000.0, ranked=True),
    },
    candidates={
        "hot-key": candidate(hot_key),
        "few-counters": candidate(few_counters),
        "without-ageing": candidate(without_ageing),
        "exact": candidate(exact),
        "lru": candidate(lru),
    },
    ours="hot-key",
    must_fail=("exact", "lru", "few-counters", "without-ageing"),
    goals=(
        Goal(figure="detect_ms", at_most=300.0, cases=CHURNS),
        Goal(figure="recall_100", at_least=0.98, cases=RANKINGS),
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
