"""Whatever a caller sends as its name is a key: an error would let it pass wherever errors do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sluicegate import Claim, Limit, Limiter, Permits
from sluicegate.client.pair import check_command, pair_of
from sluicegate.telemetry.decision_metrics import DecisionMetrics
from sluicegate.wire.text import text_of

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

LONG = "x" * 5_000
KEYS = [
    LONG,
    LONG + "y",
    "y" + LONG,
    "x" * 4_096,
    "x" * 4_097,
    "\U0001f6b0" * 5_000,
    "\ud800",
    "\udfff",
    "\x00",
    "a\x00b",
    "a\r\nb",
    "\udc80" * 5_000,
    "\\xff",
    "",
]
SHOWN = [ascii(key)[:12] + f"[{len(key)}]" for key in KEYS]


@pytest.fixture(params=["memory", "redis"])
def limiter(request: pytest.FixtureRequest) -> Iterator[Limiter]:
    url = "memory:"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        url = f"{server.url}?timeout_ms=5000"  # a busy machine may be slow
    with Limiter("1/h", store_url=url, failure="closed", require_store=True) as made:
        yield made


def test_no_two_keys_are_one_and_each_is_limited(limiter: Limiter) -> None:
    assert [limiter.take(key).allowed for key in KEYS] == [True] * len(KEYS)
    refused = [limiter.take(key).reason for key in KEYS]
    assert [reason and reason.name for reason in refused] == ["rate_limited"] * len(KEYS)


@pytest.mark.parametrize("key", KEYS, ids=SHOWN)
def test_every_way_to_ask_means_the_same_key(limiter: Limiter, key: str) -> None:
    asks: list[Callable[[], object]] = [
        lambda: limiter.peek(key),
        lambda: limiter.wait(key, timeout_s=0),
        lambda: limiter.judge(Claim(key)).decision,
        lambda: limiter.take_all(Claim(key)),
        lambda: limiter.reserve(key).decision,
        lambda: limiter.reserve_all(Claim(key)).decision,
    ]

    async def aasks() -> list[bool]:
        decisions = [
            await limiter.atake(key),
            await limiter.apeek(key),
            await limiter.await_(key, timeout_s=0),
            await limiter.atake_all(Claim(key)),
            (await limiter.areserve(key)).decision,
        ]
        await limiter.areset(key)
        decisions.append(await limiter.apeek(key))
        await limiter.acharge(key)
        await limiter.arefund(key)
        decisions.append(await limiter.apeek(key))
        await limiter.aclose()
        return [decision.allowed for decision in decisions]

    limiter.reset(key)
    assert limiter.take(key)
    assert not any(ask() for ask in asks)
    limiter.refund(key)
    assert limiter.peek(key)
    limiter.charge(key)
    assert not limiter.peek(key)
    limiter.reset(key)
    limiter.reserve(key).cancel()
    assert limiter.take(key)
    assert asyncio.run(aasks()) == [False] * 5 + [True, True]


@pytest.mark.parametrize("key", KEYS, ids=SHOWN)
def test_what_looks_on_can_hold_any_key(key: str) -> None:
    seen = DecisionMetrics()
    limiter = Limiter("1/h", observer=seen)
    assert limiter.take(key)
    assert not limiter.take(key)


def test_permits_are_held_for_any_key() -> None:
    permits = Permits(1)
    held = [permits.acquire(key) for key in KEYS]
    assert [permit.decision.allowed for permit in held] == [True] * len(KEYS)
    assert not any(permits.peek(key).allowed for key in KEYS)
    for permit in held:
        permit.release()
    assert all(permits.peek(key).allowed for key in KEYS)


def test_a_store_that_is_not_there_is_the_failure_policys_for_any_key() -> None:
    limiter = Limiter(
        Limit(1, period_us=3_600_000_000), store_url="redis://127.0.0.1:9", failure="local"
    )
    for key in KEYS:
        assert limiter.take(key).allowed
        assert not limiter.take(key).allowed
    limiter.close()


def test_the_client_asks_for_any_user_and_resource() -> None:
    commands = [check_command("SG.CHECK", pair_of(key, "/", None, {}), 1) for key in KEYS]
    assert len({*commands}) == len(KEYS)
    assert max(map(len, commands)) < 5 * 4_097
    assert len({check_command("SG.CHECK", pair_of("a", key, None, {}), 1) for key in KEYS}) == len(
        KEYS
    )
    named = {check_command("SG.CHECK", pair_of("a", "/", None, {"x": key}), 1) for key in KEYS}
    assert len(named) == len(KEYS)
    # The service makes text of these bytes, whatever they are.
    assert text_of("\ud800".encode("utf-8", "surrogatepass")) == r"\xed\xa0\x80"
