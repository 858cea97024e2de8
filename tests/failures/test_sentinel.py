"""A master that dies and is followed by its replica, under load; admissions counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.failures.policies import asking, check_bounds
from tests.failures.pressing import clock_us
from tests.stores.redis.live import PATIENCE_S, run, within

if TYPE_CHECKING:
    from tests.engines.redis import RedisSentinel


def test_a_failover_admits_at_most_one_limit_more(redis_sentinel: RedisSentinel) -> None:
    async def story() -> None:
        was = redis_sentinel.master
        began_us = clock_us()
        async with asking(redis_sentinel.url, tasks=2, pause_s=0.004) as press:
            await within(PATIENCE_S, lambda: press.count() > 900, "load")
            await asyncio.to_thread(redis_sentinel.kill, was)
            broken_us = clock_us()
            await asyncio.to_thread(redis_sentinel.await_promotion, was)
            promoted_us = clock_us()
            await within(PATIENCE_S, lambda: press.well_since(promoted_us), "recovery")
            await within(PATIENCE_S, lambda: press.spent, "the end of all limits")
        check_bounds(press, began_us, losses=1)
        assert any(one.degraded for one in press.between(broken_us, promoted_us))

    run(story())
