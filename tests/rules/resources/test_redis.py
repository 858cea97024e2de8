"""Native rules on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import redis

from sluicegate.contracts.checks import CheckRequest, CheckResponse
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.resources.service import Checker
from sluicegate.system import now_us
from tests.rules.resources.stories import OpenGate, RecordingLedger, book_of, native, rule

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer


def serving(server: RedisServer, *rules: Mapping[str, object]) -> tuple[Checker, Limiter]:
    book, shared_limits = book_of(native(*rules))
    url = f"{server.url}?timeout_ms=5000"  # a busy machine may be slow
    limiter = Limiter(store_url=url, rules=shared_limits.rules)
    return Checker(
        limiter, OpenGate(), RecordingLedger(), book=book, lease_us_max=3_600_000_000
    ), limiter


async def admitted(checker: Checker, times: int, path: str) -> int:
    asks = [CheckRequest("ann", path) for _ in range(times)]
    soon = checker.check_each(asks, now_us())
    assert not isinstance(soon, Sequence)
    answers = await soon
    return sum(answer.decision.allowed for answer in answers)


def test_a_user_is_counted_under_the_keys_of_the_rules(redis_server: RedisServer) -> None:
    checker, limiter = serving(
        redis_server,
        rule("play", "/play", 5, window="1h", burst_capacity=1.2),
        rule("day", "/play", 9, window="1d"),
    )

    async def story() -> None:
        async with limiter:
            assert await admitted(checker, 10, "/play") == 6
            answer = checker.check(CheckRequest("ann", "/play"), now_us())
            assert not isinstance(answer, CheckResponse)
            assert (await answer).decision.rule_id == "play"
            assert await checker.reset(CheckRequest("ann", "/play")) == 2
            assert await admitted(checker, 10, "/play") == 6

    asyncio.run(story())
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        keys = sorted(key for key in client.scan_iter("rate_limit:*"))
    assert [key.split(":")[:3] for key in keys] == [
        ["rate_limit", "{ann}", "day"],
        ["rate_limit", "{ann}", "play"],
    ]


def test_a_lease_ends_with_the_servers_window_and_is_given_back_into_it(
    redis_server: RedisServer,
) -> None:
    hour_us = 3_600_000_000
    checker, limiter = serving(
        redis_server,
        rule("hour", "/w", 10, window="1h"),
        rule("day", "/w", 100, window="1d", algorithm="fixed_window"),
        rule("bucket", "/b", 100, window="1h", algorithm="gcra"),
    )

    async def story() -> None:
        async with limiter:
            with redis.Redis.from_url(redis_server.url) as client:
                second, us = client.time()
            left_us = hour_us - (int(second) * 1_000_000 + int(us)) % hour_us
            grant = await checker.lease(CheckRequest("ann", "/w"), 16, now_us())
            assert (grant.units, grant.check.decision.rule_id) == (8, "hour")
            assert 0 <= left_us - grant.valid_us < 10_000_000
            assert await admitted(checker, 5, "/w") == 2
            assert await checker.give_back(grant.lease_id, 5, now_us()) == 5
            assert await admitted(checker, 9, "/w") == 5
            block = await checker.lease(CheckRequest("ann", "/b"), 50, now_us())
            assert (block.units, block.valid_us) == (50, 1_000_000)
            assert block.check.decision.remaining == 49
            assert await checker.give_back(block.lease_id, 50, now_us()) == 50
            assert await admitted(checker, 120, "/b") == 99

    asyncio.run(story())
