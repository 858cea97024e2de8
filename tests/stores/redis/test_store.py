"""The Redis store through the contract of a store, beside the memory store, on real servers."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge
from sluicegate.stores.redis.slots import slot_of
from sluicegate.stores.redis.store import RedisStore
from sluicegate.testing import START_US, SeededChance
from tests.engines.child import PATIENCE_S
from tests.stores.redis.live import run
from tests.stores.redis.storing import MINUTE, SECOND, Pair, at, limit_of, stored

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

# One of each kind of script: the paced are one, and `test_counting.py` tells them apart.
KINDS = [one for one in Algorithm if one is not Algorithm.TOKEN_BUCKET]
every_kind = pytest.mark.parametrize("algorithm", KINDS)


def charge(algorithm: Algorithm, key: str = "ann", cost: int = 1, count: int = 10) -> Charge:
    return Charge(f"{algorithm.value}-{count}", limit_of(algorithm, count), key, cost)


@every_kind
def test_a_story_is_told_as_memory_tells_it(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            pair = Pair(store)
            one, ten = charge(algorithm), charge(algorithm, cost=10)
            assert await pair.take(one)
            assert await pair.take(one, keep=False)
            assert not await pair.take(ten)
            assert not await pair.take(one._replace(cost=11))
            assert await pair.take(one._replace(cost=9))
            assert not await pair.take(one)
            taken_us = pair.clock.now_us()
            await pair.settle(one._replace(cost=-4))
            assert await pair.take_some(one, 8, 4, 2) == 4
            assert await pair.take_some(one, 8, 4, 2) == 0
            pair.advance(s=61)
            await pair.settle(one._replace(cost=-10), taken_us=taken_us)
            await pair.take(one)
            await pair.settle(one._replace(cost=5))
            await pair.take(ten)
            await pair.take(one._replace(cost=6), count_refused=True)
            await pair.take(one)
            await pair.reset(one)
            assert await pair.take(ten)
            pair.advance(s=200)
            assert await pair.take(ten)

    run(story())


@every_kind
def test_all_or_nothing_of_what_is_asked_together(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            pair = Pair(store)
            wide, narrow = charge(algorithm, count=10), charge(algorithm, count=3)
            assert await pair.take(wide, narrow)
            assert await pair.take(wide, narrow, wide)  # twice: one charge of both
            assert await pair.take(wide, narrow)
            assert not await pair.take(wide, narrow)
            assert await pair.take(wide._replace(cost=6))  # what was refused took nothing
            assert not await pair.take(wide)
            # Of other kinds, and other keys, together; none of them looks at another's state.
            others = [charge(other, key="bob") for other in Algorithm]
            assert await pair.take(*others)
            assert not await pair.take(*others, narrow)
            assert not await pair.take(*others, narrow, count_refused=True)
            pair.advance(s=7)
            assert await pair.take(*others)
            assert (await store.take([])).allowed

    run(story())


def contents(server: RedisServer) -> dict[str, object]:
    """Every key's value, whatever its type."""
    rows: dict[str, object] = {}
    for key in server.ask("KEYS", "*"):
        is_list = server.ask("TYPE", key) == "list"
        rows[key] = server.ask("LRANGE", key, 0, -1) if is_list else server.ask("GET", key)
    return rows


@every_kind
def test_a_look_writes_nothing_and_leaves_what_is_there_alone(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            other = charge(Algorithm.GCRA, key="bob")
            one = charge(algorithm)
            assert (await store.take([one], keep=False)).allowed
            assert (await store.take([one, other], keep=False)).allowed
            assert (await store.take([one._replace(cost=0)])).allowed
            assert not (await store.take([one._replace(cost=11)])).allowed
            assert redis_server.ask("KEYS", "*") == []
            await store.take([one])
            before = contents(redis_server)
            (decision,) = (await store.take([one], keep=False)).decisions
            assert decision.remaining == 8
            await store.take([one, other], keep=False)
            assert contents(redis_server) == before

    run(story())


STATES: dict[Algorithm, tuple[str, str]] = {
    Algorithm.GCRA: ("60s", f"{START_US + 18 * SECOND}+0/10"),
    Algorithm.FIXED_WINDOW: ("60s", f"{START_US // MINUTE}:3"),
    Algorithm.SLIDING_WINDOW: (
        "60s",
        f"{START_US // (6 * SECOND)}x10:0,0,0,0,0,0,0,0,0,0,3",
    ),
    Algorithm.SLIDING_LOG: ("60s", f"{START_US}:3:3"),
}


@every_kind
def test_what_lies_in_the_server_can_be_read_by_a_person(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url, prefix="api") as store:
            at(store, START_US)
            await store.take([charge(algorithm, cost=1)])
            await store.take([charge(algorithm, cost=2)])
            window, state = STATES[algorithm]
            (key,) = redis_server.ask("KEYS", "*")
            assert key == f"api:{{ann}}:{algorithm.value}-10:{window}"
            kind = redis_server.ask("TYPE", key)
            read = ("LINDEX", key, 0) if kind == "list" else ("GET", key)
            assert redis_server.ask(*read) == state
            seventh = Charge("seven", Limit(7, period_us=MINUTE), "ann", 1)
            if algorithm is Algorithm.GCRA:
                await store.take([seventh])
                text = redis_server.ask("GET", "api:{ann}:seven:60s")
                assert text == f"{START_US + 8_571_428}+04/7"

    run(story())


@every_kind
def test_every_key_is_forgotten_by_the_server_in_its_time(
    redis_server: RedisServer, algorithm: Algorithm
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            began_s = time.monotonic()
            alone, grouped = charge(algorithm, cost=5), charge(algorithm, key="bob", cost=5)
            some, settled = charge(algorithm, key="eve"), charge(algorithm, key="sam", cost=5)
            await store.take([alone])
            await store.take([grouped, charge(Algorithm.GCRA, key="zoe", cost=5)])
            await store.take_some(some, [5])
            await store.settle([settled])
            broken = Charge("seven", Limit(7, period_us=MINUTE), "tom", 3)
            await store.take([broken])
            windows = algorithm in (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW)
            least_s = {Algorithm.SLIDING_LOG: 60}.get(algorithm, 120 if windows else 30)
            keys = redis_server.ask("KEYS", "*")
            assert len(keys) == 6
            for key in keys:
                ours = algorithm.value in key and "zoe" not in key
                expected_s = least_s if ours else 25 if "seven" in key else 30
                ttl_s = redis_server.ask("PTTL", key) / 1_000
                spent_s = time.monotonic() - began_s
                assert expected_s - 5 - spent_s < ttl_s < expected_s + 5, key

    run(story())


def time_us(server: RedisServer) -> int:
    seconds, micros = server.ask("TIME")
    return int(seconds) * SECOND + int(micros)


def test_instants_are_the_servers_and_never_the_callers(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            before_us = time_us(redis_server)
            ruling = await store.take([charge(Algorithm.GCRA)])
            grant = await store.take_some(charge(Algorithm.GCRA), [1])
            assert before_us <= ruling.at_us <= grant.at_us <= time_us(redis_server)
            await store.settle([charge(Algorithm.GCRA, cost=-2)], ruling.at_us)
            (decision,) = (await store.take([charge(Algorithm.GCRA)])).decisions
            assert decision.remaining == 9

    run(story())


def test_fixed_windows_are_forgotten_by_reset_this_one_and_the_next(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            one = charge(Algorithm.FIXED_WINDOW, cost=10)
            for now_us in (START_US, START_US + MINUTE):
                at(store, now_us)
                assert (await store.take([one])).allowed
            at(store, START_US)
            await store.reset([one, charge(Algorithm.GCRA)])
            assert redis_server.ask("KEYS", "*") == []

    run(story())


def test_scripts_come_back_after_a_flush_and_nothing_is_counted_twice(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            limit = Limit(1_000_000, period_us=1_000 * MINUTE, algorithm=Algorithm.FIXED_WINDOW)
            at(store, START_US)
            for turn in range(30):
                if turn % 5 == 0:
                    redis_server.ask("SCRIPT", "FLUSH")
                asks = [store.take([Charge("r", limit, f"k{n % 7}", 1)]) for n in range(70)]
                assert all(ruling.allowed for ruling in await asyncio.gather(*asks))
            counts = [redis_server.ask("GET", key) for key in redis_server.ask("KEYS", "*")]
            assert [count.partition(":")[2] for count in counts] == ["300"] * 7

    run(story())


def test_values_that_cannot_be_used_are_named(redis_server: RedisServer) -> None:
    async def story() -> None:
        for options, what in (
            ({"prefix": "a{b"}, "prefix"),
            ({"batch_max": 0}, "batch_max"),
            ({"batch_max": 5_000}, "batch_max"),
            ({"batch_us_max": -1}, "batch_us_max"),
        ):
            with pytest.raises(BadValue, match=what):
                RedisStore(redis_server.url, SeededChance(1), **options)
        async with stored(redis_server.url) as store:
            one = charge(Algorithm.GCRA)
            for wrong in ([one._replace(cost=-1)], [one, one._replace(key="bob", cost=-1)]):
                with pytest.raises(BadValue, match="settle"):
                    await store.take(wrong)
            with pytest.raises(BadValue, match="settle"):
                await store.take_some(one, [-1])
            with pytest.raises(BadValue, match="ladder"):
                await store.take_some(one, [])

    run(story())


def test_a_closed_store_is_unavailable_and_so_is_one_without_a_server(
    redis_server: RedisServer,
) -> None:
    async def asks(store: RedisStore) -> None:
        one, two = charge(Algorithm.GCRA), charge(Algorithm.SLIDING_LOG)
        for ask in (
            lambda: store.take([one]),
            lambda: store.take([one, two]),
            lambda: store.take_some(one, [1]),
            lambda: store.settle([one]),
            lambda: store.reset([one]),
        ):
            with pytest.raises(Unavailable):
                await ask()

    async def story() -> None:
        async with stored(redis_server.url) as store:
            pass
        await asks(store)
        nowhere = RedisStore("redis://127.0.0.1:1", SeededChance(1))
        await asks(nowhere)
        await nowhere.close()

    run(story())


def test_what_is_under_way_when_a_store_is_closed_fails(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            asks = [
                asyncio.ensure_future(store.take([charge(Algorithm.GCRA, key=f"{n}")]))
                for n in range(10)
            ]
            await asyncio.sleep(0)
        errors = await asyncio.gather(*asks, return_exceptions=True)
        assert {type(one) for one in errors} == {Unavailable}

    run(story())


def greedy(url: str, asks: int) -> int:
    """Another process that asks for two limits at once, as often as it can."""

    async def story() -> int:
        async with stored(url) as store:
            wide = Charge("wide", limit_of(Algorithm.SLIDING_WINDOW, 300, 1_000 * MINUTE), "ann", 1)
            narrow = Charge("narrow", limit_of(Algorithm.GCRA, 200, 1_000 * MINUTE), "ann", 1)
            rulings = await asyncio.gather(
                *(store.take([wide, narrow] if n % 2 else [narrow, wide]) for n in range(asks))
            )
            return sum(ruling.allowed for ruling in rulings)

    return asyncio.run(story())


def test_several_processes_together_never_take_more_than_the_limit(
    redis_server: RedisServer,
) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        jobs = [(redis_server.url, 150)] * 3
        admitted = pool.starmap(greedy, jobs)
    # The narrow one gains a unit every five minutes.
    assert sum(admitted) == 200


def test_on_a_cluster_every_entity_is_together_and_each_decided_as_in_memory(
    redis_cluster: RedisCluster,
) -> None:
    async def story() -> None:
        async with stored(redis_cluster.url) as store:
            pair = Pair(store)
            everyone = [f"user {n}" for n in range(60)]
            for _ in range(12):
                await asyncio.gather(
                    *(pair.take(charge(one, key=who)) for who in everyone for one in Algorithm)
                )
                pair.advance(s=1)
            # Several limits of one entity share its slot, and are taken in one script.
            for who in everyone[:10]:
                await pair.take(*(charge(one, key=who) for one in Algorithm))
            charges = [charge(one, key=who, cost=-2) for one in Algorithm for who in everyone[:9]]
            await pair.settle(*charges)
            await pair.reset(*charges[:20])
            await asyncio.gather(*(pair.take(one._replace(cost=1)) for one in charges))
            assert slot_of("rate_limit:{}:a:1s") != slot_of("rate_limit:{}:b:1s")
            await pair.take(*(charge(one, key="") for one in Algorithm))

    run(story())


def test_on_a_cluster_what_spans_slots_is_reserved_and_given_back(
    redis_cluster: RedisCluster,
) -> None:
    async def story() -> None:
        async with stored(redis_cluster.url) as store:
            pair = Pair(store)
            wide = charge(Algorithm.GCRA, key="ann", count=10)
            narrow = charge(Algorithm.SLIDING_WINDOW, key="bob", count=2)
            third = charge(Algorithm.FIXED_WINDOW, key="eve", count=10)
            assert await pair.take(wide, narrow, third)
            assert await pair.take(wide, narrow, third, keep=False)
            assert await pair.take(third, narrow, wide)
            for _ in range(20):
                ruling = await store.take([wide, narrow, third])
                assert [one.allowed for one in ruling.decisions] == [True, False, True]
            fresh = charge(Algorithm.FIXED_WINDOW, key="zoe", count=10)
            assert not (await store.take([narrow, fresh])).allowed
            assert await store._client.call("KEYS", "*zoe*", key=str(fresh.key)) == []
            # Given back without waiting: ask until it has arrived.
            await asyncio.sleep(0.05)
            assert (await store.take([wide])).decisions[0].remaining == 7
            assert (await store.take([third])).decisions[0].remaining == 7
            # Refused and charged all the same: everyone keeps what they can hold.
            await store.take([wide, narrow, third], count_refused=True)
            await asyncio.sleep(0.05)
            assert (await store.take([wide], keep=False)).decisions[0].remaining == 5
            assert (await store.take([third], keep=False)).decisions[0].remaining == 5

    run(story())


def test_a_dead_master_gives_back_what_the_others_had_reserved(
    redis_cluster: RedisCluster,
) -> None:
    def of_node(number: int) -> Callable[[str], bool]:
        return lambda key: (number - 1) * 5_461 <= slot_of(f"{{{key}}}") < number * 5_461

    names = [f"u{n}" for n in range(50)]
    here, there = next(filter(of_node(1), names)), next(filter(of_node(3), names))

    async def story() -> None:
        async with stored(redis_cluster.url, timeout_us=200_000) as store:
            at(store, START_US)
            one, other = charge(Algorithm.GCRA, key=here), charge(Algorithm.GCRA, key=there)
            assert (await store.take([one, other])).allowed
            await asyncio.to_thread(redis_cluster.kill, 3)
            with pytest.raises(Unavailable):
                await store.take([one, other])
            await asyncio.sleep(0.05)
            assert (await store.take([one])).decisions[0].remaining == 8

    run(story())


def test_a_server_that_dies_is_unavailable_and_is_used_again_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with stored(redis_server.url) as store:
            one = charge(Algorithm.GCRA)
            assert (await store.take([one])).allowed
            await asyncio.to_thread(redis_server.kill)
            errors = await asyncio.gather(
                *(store.take([one]) for _ in range(20)), return_exceptions=True
            )
            assert {type(answer) for answer in errors} == {Unavailable}
            await asyncio.to_thread(redis_server.restart, empty=True)
            time = asyncio.get_running_loop().time
            began = time()
            while True:
                try:
                    ruling = await store.take([one])
                    break
                except Unavailable:
                    assert time() - began < PATIENCE_S
                    await asyncio.sleep(0.01)
            assert ruling.allowed
            assert store.stats().calls_in_flight == 0

    run(story())


def test_a_paused_server_costs_its_time_out_and_then_nothing(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with stored(redis_server.url, timeout_us=20_000) as store:
            one = charge(Algorithm.GCRA, count=1_000)
            time = asyncio.get_running_loop().time
            redis_server.pause()
            held_back = 0
            while not held_back:
                results = await asyncio.gather(store.take([one]), return_exceptions=True)
                held_back = "held back" in str(results[0])
            redis_server.resume()
            began, well = time(), 0
            # Half-open, a few calls are let in, and those decide.
            while well < 50:
                assert time() - began < PATIENCE_S
                results = await asyncio.gather(store.take([one]), return_exceptions=True)
                well = 0 if isinstance(results[0], BaseException) else well + 1
                await asyncio.sleep(0.001)

    run(story())
