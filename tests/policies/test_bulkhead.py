"""Bulkhead: compartments, the pool they share, and what becomes of them when shards change."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import BULKHEAD_FULL
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.bulkhead import Bulkhead, BulkheadPermit, BulkheadSettings
from sluicegate.policies.concurrency import AdaptiveSettings, Concurrency, ConcurrencySettings
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import Stack, StackPermit, at_once, waits
from sluicegate.testing import HandClock, SeededChance

OK, IGNORE, DROPPED = Outcome.SUCCESS, Outcome.IGNORE, Outcome.DROPPED
SECOND = 1_000_000


def bulkhead(**some: object) -> Bulkhead:
    return Bulkhead(BulkheadSettings(**some), SeededChance())  # type: ignore[arg-type]


def enter(hull: Bulkhead, shard: str, now_us: int = 0) -> BulkheadPermit:
    permit = hull.admit(Request("k", shard=shard), now_us)
    assert isinstance(permit, BulkheadPermit)
    return permit


def refused(hull: Bulkhead, shard: str) -> Decision:
    decision = hull.admit(Request("k", shard=shard), 0)
    assert isinstance(decision, Decision)
    assert decision.reason is BULKHEAD_FULL
    assert decision.rule_id == "bulkhead"
    assert decision.retry_after_us >= 1_000
    return decision


def test_a_full_part_refuses_and_the_others_go_on() -> None:
    hull = bulkhead(cap=2, pool=6)
    permits = [enter(hull, "slow") for _ in range(2)]
    refused(hull, "slow")
    enter(hull, "healthy")
    assert permits[0].end(OK, 8_000)
    enter(hull, "slow")
    assert hull.stats() == (3, 2, 1, 4, 1, 0)


def test_a_refusal_says_when_a_place_is_likely_free() -> None:
    hull = bulkhead(cap=2)
    enter(hull, "a").end(OK, 80_000)
    for _ in range(2):
        enter(hull, "a")
    # An empty compartment of a fixed cap is forgotten, and what it knew about time with it.
    assert refused(hull, "a").retry_after_us == 1_000
    hull = bulkhead(cap=2)
    first = enter(hull, "a")
    second = enter(hull, "a")
    first.end(OK, 80_000)
    enter(hull, "a")
    assert refused(hull, "a").retry_after_us == 5_000
    second.end(OK, 80_000)


def test_caps_that_add_up_to_more_than_the_pool_are_held_to_the_pool() -> None:
    hull = bulkhead(cap=3, pool=4)
    for shard in ["a", "a", "a", "b"]:
        enter(hull, shard)
    refused(hull, "b")
    refused(hull, "c")
    refused(hull, "a")
    stats = hull.stats()
    assert (stats.refused, stats.refused_pool) == (1, 2)
    assert stats.shards == 2, "a refusal leaves no empty compartment behind"


def healthy_success(settings: BulkheadSettings) -> float:
    """Of what nine healthy shards are asked, while the tenth is 50 times slower."""
    dice = random.Random(3)
    hull = Bulkhead(settings, SeededChance())
    running: list[tuple[int, BulkheadPermit]] = []
    calls = served = 0
    for now_us in range(0, 3 * SECOND, 300):
        while running and running[0][0] <= now_us:
            running.pop(0)[1].end(OK, now_us)
        shard = dice.randrange(10)
        permit = hull.admit(Request("k", shard=str(shard)), now_us)
        if isinstance(permit, BulkheadPermit):
            running.append((now_us + (1_500_000 if shard == 0 else 30_000), permit))
            running.sort(key=lambda one: one[0])
        if shard and now_us > SECOND:
            calls += 1
            served += isinstance(permit, BulkheadPermit)
    return served / calls


def test_one_slow_shard_takes_the_whole_of_a_shared_pool_and_not_of_a_divided_one() -> None:
    assert healthy_success(BulkheadSettings(cap=200, pool=200)) < 0.8
    assert healthy_success(BulkheadSettings(cap=40, pool=200)) > 0.999
    adaptive = AdaptiveSettings(algorithm="aimd", timeout_us=200_000, initial=20)
    assert healthy_success(BulkheadSettings(cap=40, pool=200, adaptive=adaptive)) > 0.999


def test_a_named_part_has_its_own_cap() -> None:
    hull = bulkhead(cap=1, caps={"big": 3})
    for _ in range(3):
        enter(hull, "big")
    refused(hull, "big")
    enter(hull, "small")
    refused(hull, "small")


def test_after_resharding_what_was_at_work_counts_where_it_was() -> None:
    hull = bulkhead(cap=1, caps={"old": 2, "both": 2})
    old = [enter(hull, "old") for _ in range(2)]
    both = enter(hull, "both")
    hull.reshard({"both": 1, "new": 2})
    refused(hull, "both")  # a lower cap holds at once, and sends nobody away
    refused(hull, "old")  # not named any more, it has the cap of all others
    for _ in range(2):
        enter(hull, "new")
    assert both.end(OK, 1)
    enter(hull, "both")
    assert old[0].end(OK, 1)
    assert hull.at_work("old") == 1
    hull.reshard({"old": 2})  # and back, while one is still in it
    enter(hull, "old")
    refused(hull, "old")
    assert old[1].end(OK, 1)
    assert hull.at_work("old") == 1


def test_a_late_end_after_resharding_frees_no_place_of_another() -> None:
    hull = bulkhead(cap=1)
    stale = enter(hull, "a")
    assert stale.end(IGNORE, 1)
    hull.reshard({"a": 1})
    fresh = enter(hull, "a")
    assert not stale.end(OK, 2)
    refused(hull, "a")
    assert fresh.end(OK, 3)
    assert hull.inflight == 0


def test_more_shards_than_may_be_tracked_share_one_compartment() -> None:
    hull = bulkhead(cap=2, shards_max=2)
    permits = [enter(hull, shard) for shard in ["a", "b", "c", "d"]]
    refused(hull, "e")
    enter(hull, "a")
    for permit in permits:
        permit.end(OK, 1)
    assert hull.inflight == 1
    assert hull.stats().shards == 1


def adaptive_hull(shards_max: int = 4) -> Bulkhead:
    adaptive = AdaptiveSettings(algorithm="aimd", initial=4, samples_min=2, window_us=1_000)
    return bulkhead(cap=8, adaptive=adaptive, shards_max=shards_max)


def lose(hull: Bulkhead, shard: str, times: int, outcome: Outcome = DROPPED) -> None:
    for step in range(times):
        enter(hull, shard, step * 2_000).end(outcome, step * 2_000 + 1_500)


def test_an_adaptive_part_shrinks_alone_and_keeps_what_it_learned_while_idle() -> None:
    hull = adaptive_hull()
    lose(hull, "bad", 10)
    enter(hull, "good").end(OK, 1_500)
    assert hull.limit("bad") == 1
    assert hull.limit("good") == 4
    assert hull.inflight == 0


def test_an_adaptive_part_never_outgrows_its_cap() -> None:
    hull = adaptive_hull()
    now_us = 0
    for _ in range(40):
        permits = [enter(hull, "a", now_us) for _ in range(hull.limit("a"))]
        now_us += 1_500
        for permit in permits:
            permit.end(OK, now_us)
    assert hull.limit("a") == 8


def test_the_part_idle_longest_is_forgotten_when_its_room_is_needed() -> None:
    hull = adaptive_hull(shards_max=2)
    lose(hull, "first", 10)
    lose(hull, "second", 10)
    lose(hull, "first", 1)
    enter(hull, "third").end(OK, 1_500)
    assert hull.limit("first") == 1
    assert hull.limit("second") == 4, "forgotten: it begins anew"
    assert hull.stats().shards == 2


def test_a_busy_part_is_never_forgotten() -> None:
    hull = adaptive_hull(shards_max=2)
    lose(hull, "busy", 10)
    permit = enter(hull, "busy")
    for shard in ["b", "c", "d"]:
        enter(hull, shard).end(OK, 1_500)
    refused(hull, "busy")
    assert permit.end(OK, 2_000)


def test_caches_cancelled_and_unwound_work_teach_nothing() -> None:
    hull = adaptive_hull()
    lose(hull, "a", 10, IGNORE)
    for step in range(10):
        request = Request("k", shard="a")
        permit = hull.admit(request, step * 2_000)
        assert isinstance(permit, BulkheadPermit)
        request.measured = Measured(from_cache=step % 2 == 0)
        permit.end(DROPPED, step * 2_000 + 1_500, spent=step % 2 == 0)
    assert hull.limit("a") == 4


def test_in_a_stack_a_full_part_gives_back_the_units_and_the_place_of_whom_it_refuses() -> None:
    units = RequestUnits(RequestUnitsSettings())
    queue = Queue(QueueSettings(places=3))
    gate = Concurrency(ConcurrencySettings(), SeededChance())
    hull = bulkhead(cap=1, pool=10)
    stack = Stack(
        at_once("request_units", units),
        waits("queue", queue),
        at_once("concurrency", gate),
        at_once("bulkhead", hull),
    )
    clock = HandClock()

    async def story() -> None:
        first = await stack.admit(Request("k", shard="slow"), clock)
        assert isinstance(first, StackPermit)
        charged_mru = units.stats().charged_mru
        for _ in range(5):
            decision = await stack.admit(Request("k", shard="slow"), clock)
            assert isinstance(decision, Decision)
            assert decision.reason is BULKHEAD_FULL
        stats = units.stats()
        assert (stats.under_way, queue.inflight, gate.inflight, hull.inflight) == (1, 1, 1, 1)
        assert stats.charged_mru - stats.refunded_mru == charged_mru
        other = await stack.admit(Request("k", shard="healthy"), clock)
        assert isinstance(other, StackPermit)
        clock.advance(ms=10)
        for permit in (first, other):
            assert permit.end(OK, clock.now_us())
            assert not permit.end(OK, clock.now_us())
        assert units.stats().under_way == queue.inflight == gate.inflight == hull.inflight == 0
        assert units.stats().learned == 2

    asyncio.run(story())


def test_the_part_for_all_is_not_forgotten_to_make_room_for_one_more() -> None:
    hull = bulkhead(shards_max=1, adaptive=AdaptiveSettings(algorithm="aimd", initial=2))
    enter(hull, "own")
    shared = enter(hull, "other")
    assert shared.end(OK, 1)
    enter(hull, "another")
    enter(hull, "yet another")
    assert hull.stats().shards == 2
    assert hull.at_work("") == 2


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=120), st.booleans())
def test_nothing_leaks_in_any_order_of_entering_ending_and_resharding(
    steps: list[tuple[int, int]], adaptive: bool
) -> None:
    hull = bulkhead(
        cap=2,
        pool=6,
        shards_max=3,
        adaptive=AdaptiveSettings(algorithm="aimd", initial=2) if adaptive else None,
    )
    permits: list[BulkheadPermit] = []
    for shard, choice in steps:
        if choice < 22:
            permit = hull.admit(Request("k", shard=str(shard)), choice)
            if isinstance(permit, BulkheadPermit):
                permits.append(permit)
        elif choice < 37 and permits:
            permit = permits.pop(choice % len(permits))
            assert permit.end(list(Outcome)[choice % 3], choice, spent=choice % 2 == 0)
            assert not permit.end(OK, choice)
        elif choice >= 37:
            hull.reshard({str(shard): 1 + choice % 3})
        assert hull.inflight == len(permits) <= 6
        assert sum(hull.at_work(str(n)) for n in range(5)) + hull.at_work("") == len(permits)
        assert hull.stats().shards <= 4
    for permit in permits:
        assert permit.end(OK, 50)
    assert hull.inflight == 0
    assert adaptive or hull.stats().shards == 0


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"cap": 0}, "bulkhead.cap"),
        ({"cap": 201}, "bulkhead.cap"),
        ({"pool": 0}, "bulkhead.pool"),
        ({"shards_max": 0}, "bulkhead.shards_max"),
        ({"caps": {"a": 201}}, "bulkhead.caps.a"),
        ({"caps": {"a": 1, "b": 1}, "shards_max": 1}, "bulkhead.caps"),
    ],
)
def test_a_bad_setting_is_named(some: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        bulkhead(**some)
    assert caught.value.field == field


def test_a_bad_resharding_changes_nothing() -> None:
    hull = bulkhead(caps={"a": 1})
    with pytest.raises(BadValue):
        hull.reshard({"a": 0})
    assert hull.limit("a") == 1
