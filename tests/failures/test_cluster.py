"""A cluster under load: slots that move and masters that die; admissions and throughput."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sluicegate import Algorithm, Limit, Limiter
from tests.failures.policies import (
    LEASED,
    LIMITS,
    RULES,
    SCARCE,
    asking,
    check_bounds,
)
from tests.failures.pressing import Press, clock_us
from tests.redis.cluster import slot_of
from tests.stores.redis.live import PATIENCE_S, run, within

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster

FIRST, SECOND, THIRD = 1, 2, 3
TIMEOUT_US = 10_000_000
PATIENT = f"?timeout_ms={TIMEOUT_US // 1_000}"


def test_a_slot_that_moves_under_load_takes_its_counts_along(redis_cluster: RedisCluster) -> None:
    key = redis_cluster.key_of(FIRST)
    slot = slot_of(key)
    rules = SCARCE

    def move_slowly(to: int) -> None:
        with redis_cluster.moving(slot, to):
            # Half-way: what is not at its source yet, or any more, is asked for at its target.
            for _ in range(5):
                redis_cluster.ask("PING")

    async def story() -> None:
        began_us = clock_us()
        async with asking(
            redis_cluster.url + PATIENT, keys=[key], rules=rules, tasks=2, pause_s=0.004
        ) as press:
            for to in (SECOND, THIRD, FIRST):
                await asyncio.sleep(0.1)
                await asyncio.to_thread(move_slowly, to)
            assert not press.spent
            await within(PATIENCE_S, lambda: press.spent, "the end of all limits")
        assert not any(one.degraded for one in press.record)
        check_bounds(press, began_us, losses=0)
        for rule in rules - LEASED:
            assert press.by_key(rule) == {key: LIMITS[rule].count}

    run(story())


def test_a_fixed_window_takes_its_count_along_too(redis_cluster: RedisCluster) -> None:
    key = redis_cluster.key_of(FIRST)
    rule = Limit(20, period_us=86_400_000_000, algorithm=Algorithm.FIXED_WINDOW)

    async def story() -> None:
        async with Limiter(rule, store_url=redis_cluster.url + PATIENT) as limiter:
            admitted = [(await limiter.atake(key)).allowed for _ in range(10)]
            with redis_cluster.moving(slot_of(key), SECOND):
                admitted += [(await limiter.atake(key)).allowed for _ in range(20)]
                # Two keys of one name would keep the slot from ever arriving.
                redis_cluster.ask("FLUSHALL", number=FIRST)
            assert sum(admitted) == 20

    run(story())


def test_a_dead_masters_keys_are_decided_by_their_policies_and_the_others_by_their_masters(
    redis_cluster: RedisCluster,
) -> None:
    dead, *living = (redis_cluster.key_of(number) for number in (FIRST, SECOND, THIRD))

    async def story() -> None:
        began_us = clock_us()
        async with asking(redis_cluster.url, keys=[dead, *living]) as press:
            await within(PATIENCE_S, lambda: press.count() > 900, "load")
            await asyncio.to_thread(redis_cluster.kill, FIRST)
            broken_us = clock_us()
            await asyncio.sleep(1.0)
            mending_us = clock_us()
            await asyncio.to_thread(redis_cluster.restart, FIRST)
            await within(PATIENCE_S, lambda: press.spent, "the end of all limits")
        check_bounds(press, began_us, losses=1)  # it had no disk
        for key in living:
            for rule in SCARCE:
                admitted = press.by_key(rule)[key]
                assert admitted <= LIMITS[rule].count + 1, "the living have lost nothing"
        outage = press.between(broken_us, mending_us)
        assert all(
            one.degraded or not one.allowed or one.rule in LEASED
            for one in outage
            if one.key == dead
        )

    run(story())


def test_the_other_masters_keys_keep_their_throughput(redis_cluster: RedisCluster) -> None:
    dead, *living = (redis_cluster.key_of(number) for number in (FIRST, SECOND, THIRD))

    async def story() -> None:
        limiters = [Limiter(rules=RULES, store_url=redis_cluster.url + PATIENT)]
        # Each task asks for all keys in turn: who waited for the dead would ask the others less.
        press = Press(
            limiters, [("wide", key) for key in (dead, *living)], wide="wide", pause_s=0.005
        )

        def served(key: str, since_us: int) -> int:
            decisions = [one for one in press.of(key) if one.began_us > since_us]
            return sum(not one.degraded for one in decisions)

        async with press.pressing(24):
            await within(
                PATIENCE_S, lambda: all(served(key, 0) > 200 for key in (dead, *living)), "load"
            )
            await asyncio.to_thread(redis_cluster.kill, FIRST)
            broken_us = clock_us()
            await within(
                PATIENCE_S, lambda: all(served(key, broken_us) > 500 for key in living), "load"
            )
            mending_us = clock_us()
            await asyncio.to_thread(redis_cluster.restart, FIRST)
            back_us = clock_us()
            await within(PATIENCE_S, lambda: served(dead, back_us) > 0, "recovery")
        await limiters[0].aclose()
        meanwhile = press.between(broken_us, mending_us)
        assert not any(one.degraded for one in meanwhile if one.key in living)
        of_dead = [one for one in meanwhile if one.key == dead]
        assert len(of_dead) > 300
        assert all(one.degraded and one.allowed for one in of_dead)
        # Nobody waits for a time-out: what was under way failed with its connection.
        assert max(one.ended_us - one.began_us for one in of_dead) < TIMEOUT_US / 2

    run(story())


def test_a_replica_that_takes_over_may_have_missed_a_little_and_never_more_than_a_limit(
    redis_cluster: RedisCluster,
) -> None:
    from tests.engines.redis import RedisCluster

    async def story(cluster: RedisCluster) -> None:
        key = cluster.key_of(FIRST)
        began_us = clock_us()
        async with asking(cluster.url, keys=[key], tasks=2, pause_s=0.004) as press:
            await within(PATIENCE_S, lambda: press.count() > 300, "load")
            await asyncio.to_thread(cluster.kill, FIRST)
            broken_us = clock_us()
            await asyncio.to_thread(cluster.await_takeover, FIRST)
            taken_over_us = clock_us()
            await within(PATIENCE_S, lambda: press.well_since(taken_over_us), "recovery")
            await within(PATIENCE_S, lambda: press.spent, "the end of all limits")
        check_bounds(press, began_us, losses=1)
        assert any(one.degraded for one in press.between(broken_us, taken_over_us))

    with RedisCluster(replicas=1, build=redis_cluster.build) as cluster:
        run(story(cluster))
