"""Units that are taken now for an instant to come."""

from __future__ import annotations

import asyncio

import pytest

from sluicegate import BadValue, Limiter, Rule
from sluicegate.limits.glass.break_glass import ALL, Glass, GlassView, Opening
from sluicegate.testing import HandClock
from tests.engines.redis import RedisServer

SECOND = 1_000_000


def waits(limiter: Limiter, count: int, rule: str | Rule | None = None, cost: int = 1) -> list[int]:
    decisions = [limiter.book("ann", cost, rule) for _ in range(count)]
    assert all(decisions)
    return [one.retry_after_us for one in decisions if one is not None]


def test_booked_units_follow_each_other_at_the_rate() -> None:
    clock = HandClock()
    limiter = Limiter("2/second burst 3", clock=clock)
    assert waits(limiter, 6) == [0, 0, 0, SECOND // 2, SECOND, 3 * SECOND // 2]
    clock.advance(s=1)
    assert waits(limiter, 2, cost=2) == [3 * SECOND // 2, 5 * SECOND // 2]
    assert waits(limiter, 1)[0] == 3 * SECOND
    assert asyncio.run(limiter.abook("bob")) == limiter.book("eve")


def test_booked_units_of_two_limits_wait_for_the_later() -> None:
    limiter = Limiter(Rule(["10/second burst 1", "2/minute"]), clock=HandClock())
    assert waits(limiter, 4) == [0, SECOND // 10, 30 * SECOND, 60 * SECOND]


def test_booking_under_window_returns_none() -> None:
    limiter = Limiter("10/minute", algorithm="sliding_window", rules={"a": "1/s"})
    assert limiter.book("ann") is None
    with pytest.raises(BadValue, match="nosuch"):
        limiter.book("ann", 1, "nosuch")


def test_booking_under_shadow_rule_never_waits() -> None:
    limiter = Limiter(Rule("1/minute", mode="shadow"), clock=HandClock())
    assert waits(limiter, 3) == [0, 0, 0]


def test_booking_under_break_glass_never_waits() -> None:
    clock = HandClock()
    glass, now_us = Glass(), clock.now_us()
    limiter = Limiter(rules={"mail": "1/minute"}, clock=clock, glass=glass)
    assert waits(limiter, 2, "mail") == [0, 60 * SECOND]
    opening = Opening("1", "mail", ALL, now_us + 60 * SECOND, now_us, "ops", "a test")
    glass.show(GlassView(now_us, [opening]), now_us)
    assert waits(limiter, 2, "mail") == [0, 0]


def test_booking_follows_a_replaced_rule() -> None:
    limiter = Limiter(rules={"mail": "1/minute"}, clock=HandClock())
    assert waits(limiter, 2, "mail") == [0, 60 * SECOND]
    limiter.replace_rules({"mail": "1/second"})
    assert waits(limiter, 2, "mail") == [0, SECOND]


def test_two_processes_book_in_one_redis(redis_server: RedisServer) -> None:
    def limiter() -> Limiter:
        return Limiter("1/minute", store_url=redis_server.url, prefix="booking", lease="auto")

    with limiter() as one, limiter() as other:
        booked = [waits(limiter, 1)[0] for limiter in (one, other, one, other)]
    assert booked[0] == 0
    for count, wait_us in enumerate(booked[1:], 1):
        assert (60 * count - 30) * SECOND < wait_us <= 60 * count * SECOND
