"""CL.THROTTLE in Redis: the kernel's answers on every server, in shared round trips."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.kernels.cell_throttle import quota, seconds, step
from sluicegate.stores.memory.throttle import MemoryThrottle
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.throttle import RedisThrottle
from sluicegate.testing import HandClock, SeededChance
from tests.stores.redis.live import PATIENT_US, run

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

SECOND = 1_000_000
RATES = [
    (0, 1, 1),
    (4, 3, 1),
    (20, 7, 60),
    (2, 10**6, 1),
    (-1, 1, 1),
    (30, 10**9, 1),
    (3, 1, 10**8),
]
QUANTITIES = [0, 1, 1, 1, 1, 2, 5, 40, -1, -3]


def five(answer: ThrottleResponse) -> tuple[bool, int, int, int, int]:
    return (
        answer.limited,
        answer.limit,
        answer.remaining,
        answer.retry_after_s,
        answer.reset_after_s,
    )


@asynccontextmanager
async def throttled(url: str, **options: Any) -> AsyncIterator[RedisThrottle]:
    throttle = RedisThrottle(
        replace(parse_url(url), timeout_us=PATIENT_US), SeededChance(1), **options
    )
    try:
        await throttle.connect()
        yield throttle
    finally:
        await throttle.close()


def test_redis_memory_and_the_kernel_say_the_same(redis_server: RedisServer) -> None:
    async def story() -> None:
        clock, rng = HandClock(1_700_000_000_123_457), random.Random(11)
        near, tats = MemoryThrottle(clock.now_us), dict.fromkeys(map(str, range(8)), 0)
        limited = 0
        async with throttled(redis_server.url) as far:
            for _ in range(150):
                clock.advance(us=rng.choice([0, 1, 999, 1_000, SECOND // 3, SECOND, 7 * SECOND]))
                if rng.random() < 0.05:
                    clock.go_back(us=rng.randrange(3 * SECOND))
                far.now = clock.now_us()
                asks = [
                    ThrottleRequest(rng.choice([*tats]), *rng.choice(RATES), rng.choice(QUANTITIES))
                    for _ in range(20)
                ]
                answers = await asyncio.gather(*map(far.throttle, asks))
                for ask, answer in zip(asks, answers, strict=True):
                    rate = ask.max_burst, ask.count, ask.period_s, ask.cost
                    tats[ask.key], on_error, left, retry, reset = step(
                        tats[ask.key], clock.now_us() * 1_000, *quota(*rate)
                    )
                    expected = on_error, ask.max_burst + 1, left, seconds(retry), seconds(reset)
                    assert five(answer) == expected, rate
                    assert five(near.throttle(ask)) == expected
                    limited += on_error
        assert 500 < limited < 2_800

    run(story())


def test_a_key_holds_nanoseconds_and_expires_when_the_schedule_has_caught_up(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            began_ns = time.monotonic_ns()
            assert five(await far.throttle(ThrottleRequest("ann", 15, 30, 60, 3))) == (
                False, 16, 13, -1, 6
            )  # fmt: skip
            assert [*await far._client.call("KEYS", "*")] == [b"rate_limit:throttle:{ann}"]
            seconds_now, us = await far._client.call("TIME")
            now_ns = int(seconds_now) * 10**9 + int(us) * 1_000
            ahead_ns = int(await far._client.call("GET", "rate_limit:throttle:{ann}")) - now_ns
            ttl_ms = await far._client.call("PTTL", "rate_limit:throttle:{ann}")
            spent_ns = time.monotonic_ns() - began_ns
            assert 6 * 10**9 - spent_ns <= ahead_ns <= 6 * 10**9
            assert abs(ttl_ms - ahead_ns / 10**6) < 500 + spent_ns / 10**6
            # A whole bucket is no key.
            await far.throttle(ThrottleRequest("ann", 15, 30, 60, -9))
            assert await far._client.call("EXISTS", "rate_limit:throttle:{ann}") == 0

    run(story())


def test_looks_and_limited_asks_write_nothing(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            assert (await far.throttle(ThrottleRequest("ann", 4, 1, 1, 0))).remaining == 5
            assert (await far.throttle(ThrottleRequest("ann", 4, 1, 1, 9))).retry_after_s == -1
            assert await far._client.call("DBSIZE") == 0
            await far.throttle(ThrottleRequest("ann", 4, 1, 1))
            await far.reset("ann")
            assert await far._client.call("DBSIZE") == 0

    run(story())


def test_what_another_program_wrote_counts_for_nothing(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            for words in (["SET", "x"], ["SET", "9" * 30], ["SET", "-5"], ["RPUSH", "1"]):
                key = "rate_limit:throttle:{ann}"
                await far._client.call("DEL", key)
                await far._client.call(words[0], key, words[1])
                assert (await far.throttle(ThrottleRequest("ann", 4, 1, 1))).remaining == 4

    run(story())


def test_asks_of_one_turn_share_a_call(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url, asks_max=10) as far:
            sent: list[int] = []
            send = far._client.run_script

            def counted(script: Any, keys: Any, args: Any) -> Any:
                sent.append(len(args) // 5)
                return send(script, keys, args)

            object.__setattr__(far, "_client", Watched(far._client, counted))
            asks = [ThrottleRequest(f"k{n % 7}", 2, 1, 60) for n in range(25)]
            answers = await asyncio.gather(*map(far.throttle, asks))
            assert sent == [10, 10, 5]
            assert sum(not answer.limited for answer in answers) == 21

    run(story())


class Watched:
    """A client whose scripts are seen."""

    def __init__(self, client: Any, run_script: Any) -> None:
        self._client = client
        self.run_script = run_script

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_any_key_is_a_key_of_its_own(redis_server: RedisServer) -> None:
    async def story() -> None:
        names = ["", "%", "%25", "}", "%7D", "{", "{}", "a}b", "a%7Db", "\n", "ü", "\ufffd\xff"]
        names += ["a" * 9_000, "a" * 8_999 + "b"]
        async with throttled(redis_server.url) as far:
            answers = await asyncio.gather(
                *(far.throttle(ThrottleRequest(name, 0, 1, 60)) for name in names)
            )
            assert not any(answer.limited for answer in answers)
            assert await far._client.call("DBSIZE") == len(names)

    run(story())


def test_what_cannot_be_asked_is_named_at_once(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            with pytest.raises(BadValue, match="Zero rates"):
                far.throttle(ThrottleRequest("ann", 1, 0, 1))
            with pytest.raises(BadValue, match="too large"):
                far.throttle(ThrottleRequest("ann", 1 << 62, 1, 60))
        with pytest.raises(BadValue, match="asks_max"):
            RedisThrottle(redis_server.url, SeededChance(1), asks_max=0)
        with pytest.raises(BadValue, match="prefix"):
            RedisThrottle(redis_server.url, SeededChance(1), prefix="{")

    run(story())


def test_a_server_that_is_gone_is_unavailable(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            call = far.throttle(ThrottleRequest("ann", 1, 1, 1))
        with pytest.raises(Unavailable):
            await call
        with pytest.raises(Unavailable, match="closed"):
            far.throttle(ThrottleRequest("ann", 1, 1, 1))
        unreachable = RedisThrottle("redis://127.0.0.1:1", SeededChance(1))
        with pytest.raises(Unavailable):
            await unreachable.throttle(ThrottleRequest("ann", 1, 1, 1))
        with pytest.raises(Unavailable):
            await unreachable.reset("ann")
        await unreachable.close()

    run(story())


def test_a_waiter_who_has_gone_is_not_counted(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with throttled(redis_server.url) as far:
            far.throttle(ThrottleRequest("ann", 1, 1, 60)).cancel()
            assert (await far.throttle(ThrottleRequest("ann", 1, 1, 60))).remaining == 1

    run(story())


def test_a_cluster_is_asked_slot_by_slot(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        async with throttled(redis_cluster.url) as far:
            asks = [ThrottleRequest(f"k{n % 20}", 2, 1, 60) for n in range(100)]
            answers = await asyncio.gather(*map(far.throttle, asks))
            assert sum(not answer.limited for answer in answers) == 60
            await far.reset("k1")
            assert not (await far.throttle(asks[1])).limited

    run(story())
