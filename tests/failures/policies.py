"""Policies: one rule of each kind under load, and what the guide promises of it.

The windows are a day, so that a whole limit is what a story can use up, and is used up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from sluicegate import Algorithm, Limit, Limiter, Rule
from sluicegate.limits.rule import Failure
from tests.failures.bounds import admitted_max, shared_max
from tests.failures.pressing import PAUSE_S, Press, clock_us

DAY_US = 86_400 * 1_000_000
PROCESSES = 3
TASKS = 6  # of each
SHARE = 0.5
KEYS = ("ann", "bob", "eve")

LIMITS = {
    "open": Limit(150, period_us=DAY_US, algorithm=Algorithm.GCRA),
    "closed": Limit(150, period_us=DAY_US, algorithm=Algorithm.SLIDING_LOG),
    "local": Limit(150, period_us=DAY_US, algorithm=Algorithm.FIXED_WINDOW),
    "leased": Limit(150, period_us=DAY_US, algorithm=Algorithm.TOKEN_BUCKET),
    "cells": Limit(150, period_us=DAY_US, algorithm=Algorithm.SLIDING_WINDOW),
    "wide": Limit(10_000_000, period_us=DAY_US),
}
RULES = {
    "open": Rule(LIMITS["open"], failure="open"),
    "closed": Rule(LIMITS["closed"], failure="closed"),
    "local": Rule(LIMITS["local"], failure="local", local_share=SHARE),
    "leased": Rule(LIMITS["leased"], failure="closed", lease="10%"),
    "cells": Rule(LIMITS["cells"], failure="local", local_share=SHARE),
    "wide": Rule(LIMITS["wide"]),
}
SCARCE = RULES.keys() - {"wide"}
LEASED = frozenset({"leased"})


@asynccontextmanager
async def asking(
    url: str,
    *,
    keys: Sequence[str] = KEYS,
    rules: Iterable[str] = SCARCE,
    tasks: int = TASKS,
    pause_s: float = PAUSE_S,
) -> AsyncIterator[Press]:
    """Limiters under load, each as a process of its own would have it."""
    limiters = [Limiter(rules=RULES, store_url=url) for _ in range(PROCESSES)]
    pairs = [(rule, key) for rule in sorted(rules) for key in keys]
    press = Press(limiters, pairs, wide="wide", pause_s=pause_s)
    try:
        async with press.pressing(tasks):
            yield press
    finally:
        for limiter in limiters:
            await limiter.aclose()


def check_bounds(press: Press, began_us: int, *, losses: int) -> None:
    """What the guide promises of each policy, of each key."""
    ended_us = clock_us()
    for rule, limit in LIMITS.items():
        for key, count in press.by_key(rule).items():
            most = admitted_max(limit, began_us, ended_us, losses=losses)
            assert count <= most, f"{rule} {key}: {count} admitted, at most {most}"
        degraded = press.by_key(rule, degraded=True)
        if RULES[rule].failure is Failure.CLOSED:
            assert not degraded, rule
        if RULES[rule].failure is Failure.LOCAL:
            most = shared_max(limit, SHARE, began_us, ended_us, processes=PROCESSES)
            assert max(degraded.values(), default=0) <= most, (rule, degraded, most)


def covers(press: Press, from_us: int) -> bool:
    """Whether every rule has been asked about often enough since, and without the server."""
    since = press.between(from_us, clock_us())
    return len(since) > 200 and RULES.keys() <= {one.rule for one in since if one.degraded}


def check_marks(press: Press, from_us: int, to_us: int) -> None:
    """While the server decided nothing, nothing was decided in its name but what was leased."""
    calls = press.between(from_us, to_us)
    for one in calls:
        if one.degraded:
            assert one.reason in {"", "store_unavailable", "rate_limited"}
        else:  # a refusal from before that still holds, or a unit debited before
            assert not one.allowed or one.rule in LEASED, one
    for rule in RULES:
        assert any(one.degraded for one in calls if one.rule == rule), rule
