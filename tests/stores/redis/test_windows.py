"""layout=windows: a key for each window, as the design of the service writes it down."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, SharedKey
from sluicegate.stores.redis.counters import CellsCounter, WindowsCounter, counter_for
from sluicegate.stores.redis.settings import WINDOWS, parse_url
from sluicegate.stores.redis.store import BATCH_MAX_WINDOWS, RedisStore
from sluicegate.testing import SeededChance
from tests.stores.redis.live import run
from tests.stores.redis.storing import MINUTE, SECOND, Pair, at, stored

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer


def of_windows(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}layout=windows"


def pair_of(count: int = 10, period_us: int = MINUTE) -> Limit:
    return Limit(count, period_us=period_us, cells=1, algorithm=Algorithm.SLIDING_WINDOW)


def test_the_url_says_the_layout_and_anything_else_is_an_error() -> None:
    assert parse_url("redis://localhost").layout == "cells"
    assert parse_url("redis://localhost?layout=windows").layout == WINDOWS
    with pytest.raises(BadValue, match=r"redis.layout: 'minutes' cannot be used; give cells or"):
        parse_url("redis://localhost?layout=minutes")


def test_it_is_about_sliding_windows_of_two_counters_alone() -> None:
    assert isinstance(counter_for("p", "r", pair_of(), 99, WINDOWS), WindowsCounter)
    assert isinstance(counter_for("p", "r", pair_of(), 99), CellsCounter)
    ten_cells = Limit(10, period_us=MINUTE, algorithm=Algorithm.SLIDING_WINDOW)
    assert isinstance(counter_for("p", "r", ten_cells, 99, WINDOWS), CellsCounter)
    for algorithm in set(Algorithm) - {Algorithm.SLIDING_WINDOW}:
        other = counter_for("p", "r", Limit(10, period_us=MINUTE, algorithm=algorithm), 99, WINDOWS)
        assert not isinstance(other, WindowsCounter)


def test_a_window_that_is_not_whole_seconds_is_named() -> None:
    with pytest.raises(BadValue, match="whole seconds"):
        counter_for("p", "r", pair_of(5, 1_500_000), 99, WINDOWS)
    counter_for("p", "r", pair_of(5, 1_500_000), 99)


def test_a_key_leaves_room_for_its_second() -> None:
    counter = counter_for("p", "r", pair_of(), 30, WINDOWS)
    assert counter.key("a" * 11) == b"p:{" + b"a" * 11 + b"}:r:"
    with pytest.raises(BadValue, match="key_bytes_max"):
        counter.key("a" * 12)  # not even its digest


def test_keys_values_and_times_to_live_are_those_of_the_design(redis_server: RedisServer) -> None:
    # rate_limit:{user_id}:{rule_id}:{current_minute_timestamp}, a counter, window_seconds * 2.
    async def story() -> None:
        async with stored(of_windows(redis_server.url)) as store:
            call = store._client.call
            limit, charge = pair_of(5_000), Charge("playback", pair_of(5_000), "ann", 3)
            while True:
                started = int((await call("TIME"))[0])
                await store.take([charge])
                await store.take([charge._replace(cost=4)])
                ended = int((await call("TIME"))[0])
                if started // 60 == ended // 60:
                    break
                await store.reset([charge])  # a minute has just begun: once more
            minute = started // 60 * 60
            key = f"rate_limit:{{ann}}:playback:{minute}"
            assert await call("KEYS", "*") == [key.encode()]
            assert await call("GET", key) == b"7"
            assert await call("TYPE", key) in {b"string", "string"}
            assert 118 <= await call("TTL", key) <= 120
            # The minute before weighs by what is left of it.
            await call("SET", f"rate_limit:{{bob}}:playback:{minute - 60}", 4_000, "EX", 120)
            ruling = await store.take([Charge("playback", limit, "bob")])
            left_us = MINUTE - ruling.at_us % MINUTE
            if ruling.at_us // MINUTE * 60 == minute:
                used = 1 + 4_000 * left_us / MINUTE
                assert ruling.decisions[0].remaining == int(5_000 - used)

    run(story())


def test_a_shared_limit_names_its_rule_in_the_key(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(of_windows(redis_server.url)) as store:
            at(store, 1_700_000_050 * SECOND)
            await store.take([Charge("~10 per 60s", pair_of(), SharedKey("ann", "playback"))])
            (key,) = await store._client.call("KEYS", "*")
            assert key == b"rate_limit:{ann}:playback:1700000040"

    run(story())


LIMITS = [pair_of(10), pair_of(7, SECOND), pair_of(1), pair_of(2**40, 3_600 * SECOND)]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_it_decides_as_memory_does(redis_server: RedisServer, limit: Limit) -> None:
    async def story() -> None:
        rng = random.Random(limit.count)
        count, period_us = limit.count, limit.period_us
        costs = [0, 1, 1, 1, 2, count // 3, count, count + 1, 2**60]
        async with stored(of_windows(redis_server.url)) as store:
            pair = Pair(store)
            rule_id, allowed = "login", 0
            taken_us = pair.clock.now_us()
            for _ in range(60):
                pair.advance(us=rng.choice([0, 1, period_us // 7, period_us, 3 * period_us]))
                charges = [Charge(rule_id, limit, f"k{n}", rng.choice(costs)) for n in range(12)]
                charges += charges[:3]
                how = {"keep": rng.random() < 0.9, "count_refused": rng.random() < 0.2}
                answers = await asyncio.gather(*(pair.take(charge, **how) for charge in charges))
                allowed += sum(answers)
                if rng.random() < 0.4:
                    corrections = [-1, 1, -count, count, rng.randrange(-count, count + 1)]
                    await pair.settle(
                        *(one._replace(cost=rng.choice(corrections)) for one in charges[:6]),
                        taken_us=rng.choice([None, taken_us, pair.clock.now_us()]),
                    )
                if rng.random() < 0.3:
                    ladder = sorted({rng.randrange(2 * count + 1) for _ in range(4)}, reverse=True)
                    await pair.take_some(charges[5], *ladder)
                if rng.random() < 0.3:
                    await pair.take(*charges[:4], keep=rng.random() < 0.8)
                if rng.random() < 0.1:
                    await pair.reset(charges[0], charges[1])
                if rng.random() < 0.3:
                    taken_us = pair.clock.now_us()
            assert 50 < allowed < 850

    run(story())


def test_a_clock_that_goes_back_a_window_stays_at_the_beginning_of_the_later_one(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(of_windows(redis_server.url)) as store:
            start = 1_700_000_040 * SECOND
            charge = Charge("login", pair_of(), "ann", 4)
            at(store, start + 1)
            assert (await store.take([charge])).allowed
            at(store, start + MINUTE)
            assert (await store.take([charge])).allowed
            at(store, start + MINUTE - 1)
            assert not (await store.take([charge])).allowed  # 4 and 4 still count whole
            assert (await store.take([charge._replace(cost=2)])).allowed
            keys = sorted(await store._client.call("KEYS", "*"))
            assert [await store._client.call("GET", key) for key in keys] == [b"4", b"6"]

    run(story())


def test_what_another_program_wrote_counts_for_nothing_and_is_written_over(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(of_windows(redis_server.url)) as store:
            at(store, 1_700_000_050 * SECOND)
            key = "rate_limit:{ann}:login:1700000040"
            for words in (["SET", "x"], ["SET", "-5"], ["SET", "1.5"], ["RPUSH", "1"]):
                await store._client.call("DEL", key)
                await store._client.call(words[0], key, words[1])
                ruling = await store.take([Charge("login", pair_of(), "ann")])
                assert ruling.decisions[0].remaining == 9
                assert await store._client.call("GET", key) == b"1"

    run(story())


def test_a_reset_forgets_every_window_that_may_count_and_no_other_key(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(of_windows(redis_server.url)) as store:
            start = 1_700_000_040 * SECOND
            pair, bucket = (
                Charge("login", pair_of(), "ann"),
                Charge("b", Limit(5, period_us=MINUTE), "ann"),
            )
            for instant in (start, start + MINUTE, start + 2 * MINUTE):
                at(store, instant)
                await store.take([pair])
            await store.take([bucket, pair._replace(key="bob")])
            at(store, start + MINUTE)
            await store.reset([pair, bucket])
            assert await store._client.call("KEYS", "*") == [b"rate_limit:{bob}:login:1700000160"]

    run(story())


def test_on_a_cluster_both_windows_share_a_slot(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        async with stored(of_windows(redis_cluster.url)) as store:
            charges = [Charge("login", pair_of(3), f"user {n}") for n in range(30)]
            for _ in range(4):
                rulings = [await store.take([charge]) for charge in charges]
            assert not any(ruling.allowed for ruling in rulings)
            await store.settle([charge._replace(cost=-1) for charge in charges])
            assert (await store.take(charges)).allowed
            await store.reset(charges)
            assert (await store.take_some(charges[0], [3])).units == 3

    run(story())


def test_so_many_keys_as_one_script_cannot_read_are_refused(redis_server: RedisServer) -> None:
    async def story() -> None:
        url = of_windows(redis_server.url)
        with pytest.raises(BadValue, match="batch_max"):
            RedisStore(url, SeededChance(1), batch_max=BATCH_MAX_WINDOWS + 1)
        async with stored(url, batch_max=BATCH_MAX_WINDOWS) as store:
            charges = [Charge("login", pair_of(), f"{n}") for n in range(BATCH_MAX_WINDOWS)]
            rulings = await asyncio.gather(*(store.take([charge]) for charge in charges))
            assert all(ruling.allowed for ruling in rulings)
            assert store.stats().calls == 1

    run(story())
