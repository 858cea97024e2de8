"""Estimates that wait for room, and estimates of several limits that are taken together."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate import BadValue, Claim, Limiter, Reservations, Rule
from sluicegate.testing import HandClock
from tests.engines.redis import RedisServer

REQUESTS = Rule("5/minute", algorithm="sliding_window")
TOKENS = Rule("1000/minute", algorithm="sliding_window")
RULES = {"requests": REQUESTS, "tokens": TOKENS}


def left(limiter: Limiter) -> tuple[int, int]:
    return limiter.peek("ann", 0, "requests").remaining, limiter.peek("ann", 0, "tokens").remaining


def together(limiter: Limiter, tokens: int) -> Reservations:
    return limiter.reserve_all(Claim("ann", "requests"), Claim("ann", "tokens", tokens))


@pytest.fixture(params=["memory", "redis"])
def limiter(request: pytest.FixtureRequest) -> Limiter:
    if request.param == "memory":
        return Limiter(rules=RULES)
    server: RedisServer = request.getfixturevalue("redis_server")
    return Limiter(rules=RULES, store_url=server.url, prefix=request.node.name)


def test_requests_and_tokens_are_taken_and_settled_together(limiter: Limiter) -> None:
    with limiter, together(limiter, 800) as both:
        assert both
        assert left(limiter) == (4, 200)
        assert both.settle(1, 120)
        assert not both.settle(1, 120)
        assert left(limiter) == (4, 880)


def test_either_all_are_taken_or_none(limiter: Limiter) -> None:
    with limiter:
        assert together(limiter, 800)
        refused = together(limiter, 800)
        assert not refused
        assert refused.decision.rule_id == "tokens"
        assert not refused.settle(1, 1)
        assert left(limiter) == (4, 200)


def test_what_fails_gives_all_of_them_back(limiter: Limiter) -> None:
    with limiter:
        with pytest.raises(RuntimeError), together(limiter, 800):
            raise RuntimeError
        assert left(limiter) == (5, 1_000)


def test_each_part_may_be_settled_by_itself(limiter: Limiter) -> None:
    with limiter:
        both = together(limiter, 800)
        requests, tokens = both.parts
        assert tokens.settle(100)
        assert both.settle(1, 500)  # what was open: the request
        assert not requests.settle(1)
        assert left(limiter) == (4, 900)


def test_a_task_reserves_and_settles_them_too(limiter: Limiter) -> None:
    async def story() -> None:
        async with limiter:
            claims = Claim("ann", "requests"), Claim("ann", "tokens", 700)
            async with await limiter.areserve_all(*claims) as both:
                assert await both.asettle(1, 300)
            with pytest.raises(RuntimeError):
                async with await limiter.areserve_all(*claims):
                    raise RuntimeError
            decision = await limiter.apeek("ann", 0, "tokens")
            assert decision.remaining == 700

    asyncio.run(story())


def test_a_settlement_names_a_cost_for_each_claim() -> None:
    with pytest.raises(BadValue, match="each of the 2 claims"):
        together(Limiter(rules=RULES), 5).settle(5)


def test_a_late_settlement_makes_no_room_that_was_not_used() -> None:
    clock = HandClock()
    limiter = Limiter(rules=RULES, clock=clock)
    both = together(limiter, 800)
    clock.advance(us=120_000_000)
    assert together(limiter, 900)
    both.settle(1, 0)
    assert left(limiter) == (4, 100)


# Waiting.


def test_an_estimate_waits_for_room() -> None:
    limiter = Limiter("10/minute", clock=HandClock())
    assert limiter.reserve("ann", 10)
    assert not limiter.reserve("ann", 5)
    assert not limiter.reserve("ann", 5, wait_s=29)
    waited = limiter.reserve("ann", 5, wait_s=30)
    assert waited
    assert waited.settle(2)
    assert limiter.peek("ann", 0).remaining == 3
    with pytest.raises(BadValue, match="wait_s"):
        limiter.reserve("ann", wait_s=-1)


def test_a_task_waits_for_its_estimate() -> None:
    async def story() -> None:
        limiter = Limiter("10/minute", clock=HandClock())
        assert await limiter.areserve("ann", 10, wait_s=0)
        assert not await limiter.areserve("ann", 5, wait_s=29)
        assert await (await limiter.areserve("ann", 5, wait_s=30)).asettle(5)

    asyncio.run(story())


def test_an_estimate_waits_for_a_store(redis_server: RedisServer) -> None:
    with Limiter("20/second", store_url=redis_server.patient_url, prefix="waits") as limiter:
        assert limiter.reserve("ann", 20)
        waited = limiter.reserve("ann", 4, wait_s=5)
        assert waited
        assert waited.settle(1)


# What a decision tells.


@pytest.mark.parametrize("refused", [False, True])
def test_a_decision_tells_its_limit(limiter: Limiter, refused: bool) -> None:
    with limiter:
        decision = limiter.take("ann", 9 if refused else 1, rule="requests")
    assert decision.allowed is not refused
    assert decision.limit == 5
    assert decision.with_rule("x").limit == 5
    assert decision.with_marks(shadow=True).limit == 5


def test_a_decision_is_told_as_json() -> None:
    limiter = Limiter("5/minute", clock=HandClock())
    assert limiter.take("ann", 9).to_json() == {
        "allowed": False,
        "rule": "5/minute",
        "reason": "cost_above_limit",
        "limit": 5,
        "remaining": 5,
        "retry_after_s": None,
        "reset_after_s": 0.0,
        "degraded": False,
        "shadow": False,
        "overridden": False,
        "cause": "",
    }


def test_async_reservations_are_entered_without_await() -> None:
    async def story() -> None:
        limiter = Limiter(rules=RULES)
        claims = Claim("ann", "requests"), Claim("ann", "tokens", 800)
        async with limiter.areserve_all(*claims) as both:
            assert both
            await both.asettle(1, 120)
        async with limiter.areserve("ann", 100, "tokens") as tokens:
            await tokens.asettle(0)
        assert left(limiter) == (4, 880)
        with pytest.raises(RuntimeError):
            async with limiter.areserve_all(*claims):
                raise RuntimeError
        assert left(limiter) == (4, 880), "a block that failed gives its estimates back"
        assert await limiter.areserve_all(*claims)

    asyncio.run(story())
