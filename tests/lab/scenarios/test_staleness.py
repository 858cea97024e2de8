"""Staleness: thousands of small races, and a few nodes that write the same keys."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS
from sluicegate.lab.baselines.caches import TtlCache
from sluicegate.lab.scenarios.staleness import (
    DEFAULTS,
    SCENARIO,
    MakeReadPath,
    NodesRig,
    RaceRig,
    measure,
    shield,
    ttl_cache,
    without_epochs,
    without_parting,
)
from sluicegate.testing import HandClock

RACES = RaceRig(episodes=2_000)
FEW = RaceRig(episodes=400)
NODES = NodesRig(ttl_us=DEFAULTS.ttl_us, reads_per_s=200.0, span_us=8_000_000)


@pytest.mark.prove
def test_no_read_is_older_than_its_own_nodes_write_in_thousands_of_races() -> None:
    run = RACES.play(shield, 7)
    assert (run.stale_own, run.stale_cached) == (0, 0)
    assert run.reads > 4 * RACES.episodes


@pytest.mark.parametrize("make_front", [without_epochs, without_parting, ttl_cache])
def test_what_leaves_out_an_epoch_is_caught_in_a_few_hundred(make_front: MakeReadPath) -> None:
    run = FEW.play(make_front, 7)
    assert run.stale_own > 0
    # A fetch that is joined too late is told once, and kept no longer.
    assert (run.stale_cached > 0) == (make_front is not without_parting)


def test_the_plain_cache_forgets_what_is_written_and_what_is_old() -> None:
    async def get(key: str) -> int:
        return 7

    async def story() -> None:
        clock = HandClock()
        cache = TtlCache(clock, get, ttl_us=100)
        assert await cache.fetch(Request("k"), cache.look("k")) == 7
        assert cache.look("k") == (FRESH, 7)
        cache.invalidate("k")
        assert cache.look("k") == (MISS, None)
        await cache.fetch(Request("k"), (MISS, None))
        clock.advance(us=100)
        assert cache.look("k") == (MISS, None)

    asyncio.run(story())


def test_other_nodes_are_behind_by_the_time_to_live_and_a_fetch_at_most() -> None:
    run = NODES.play(shield, 1)
    figures = measure(NODES, run)
    assert figures["stale_own"] == figures["others_beyond_ms"] == 0
    assert 1_000 < figures["others_ms"] <= (DEFAULTS.ttl_us + run.fetch_us_max) / 1e3
    assert figures["served"] > 0.9


def test_a_cache_that_keeps_for_longer_than_is_promised_is_found_out() -> None:
    promised = NodesRig(ttl_us=1_000_000, reads_per_s=200.0, span_us=8_000_000)
    assert measure(promised, promised.play(shield, 1))["others_beyond_ms"] > 0


def test_a_run_is_a_function_of_its_seed() -> None:
    assert FEW.play(shield, 3) == FEW.play(shield, 3) != FEW.play(shield, 4)


def test_the_scenario_names_who_must_fail() -> None:
    assert set(SCENARIO.must_fail) < set(SCENARIO.candidates)
