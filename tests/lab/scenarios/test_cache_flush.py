"""Cache flush: cold for no longer than it must be, scaled down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluicegate.lab.baselines.caches import PlainLookAside
from sluicegate.lab.retries import NAIVE, SMART, Retries
from sluicegate.lab.scenarios.cache_flush import (
    GuardedPath,
    LookAside,
    LookAsideRun,
    MakeFetchPath,
    curves,
    measure,
    play,
    without_queue,
)

SECOND = 1_000_000
SMALL = LookAside(
    retries=SMART,
    per_s=1_000.0,
    keys=1_000,
    ttl_us=15 * SECOND,
    workers=4,
    flush_us=2 * SECOND,
    span_us=12 * SECOND,
)


def look_aside(world, rig, fetch, fill):  # type: ignore[no-untyped-def]
    return PlainLookAside(fetch, fill)


@pytest.mark.prove
@pytest.mark.parametrize("retries", [SMART, NAIVE])
def test_the_cache_is_back_in_less_than_twice_the_least_time(retries: Retries) -> None:
    rig = replace(SMALL, retries=retries)
    figures = measure(rig, play(rig, GuardedPath, 1))
    assert figures["refill"] <= 2
    assert figures["hits_at_end"] > 0.9 * figures["steady_hits"]


@pytest.mark.prove
@pytest.mark.parametrize("make_path", [look_aside, without_queue])
def test_without_a_queue_it_never_comes_back_and_the_store_works_for_nobody(
    make_path: MakeFetchPath,
) -> None:
    rig = replace(SMALL, span_us=7 * SECOND)
    figures = measure(rig, play(rig, make_path, 1))
    assert figures["hits_at_end"] < 0.7 * figures["steady_hits"]
    assert figures["wasted_fetches"] > 0.5


def test_the_least_time_is_that_of_the_keys_most_wanted_at_full_speed() -> None:
    rig = replace(SMALL, keys=4, workers=1, service_us=500_000.0)
    # By Zipf's law 12, 6, 4 and 3 of 25.
    assert rig.refill_s(0.48) == 0.5
    assert rig.refill_s(0.71) == 1.0
    assert rig.refill_s(0.75) == 1.5
    assert rig.refill_s(1.0) == 2.0


def test_it_is_recovered_when_the_ratio_was_high_for_a_second() -> None:
    rig = replace(SMALL, flush_us=SECOND, span_us=4 * SECOND)
    calls = [10] * 17
    hits = [9] * 4 + [0, 0, 0, 9, 0, 9, 9, 9, 9] + [9] * 4
    figures = measure(rig, LookAsideRun(calls, hits, [1] * 17, [1] * 17))
    assert figures["steady_hits"] == 0.9
    assert figures["recovered_s"] == 2.25
    assert figures["wasted_fetches"] == 0


def test_the_cache_is_warm_from_the_first_instant() -> None:
    tiny = replace(SMALL, span_us=3 * SECOND)
    drawn = curves(tiny, play(tiny, GuardedPath, 1))
    ratios = [ratio for _, ratio in drawn["hit_ratio"][:8]]
    assert min(ratios) > 0.85
    assert drawn["hit_ratio"][8][1] < 0.6


def test_a_run_is_a_function_of_its_seed() -> None:
    tiny = replace(SMALL, span_us=3 * SECOND)
    assert play(tiny, GuardedPath, 1) == play(tiny, GuardedPath, 1) != play(tiny, GuardedPath, 2)
