"""A real master, its replica and three sentinels: the client follows the master."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.sentinel import SentinelClient
from tests.stores.redis.live import ADD, PATIENCE_S, Load, opened, run, within

if TYPE_CHECKING:
    from tests.engines.redis import RedisSentinel


def test_the_master_is_found_though_the_first_sentinel_is_gone(
    redis_sentinel: RedisSentinel,
) -> None:
    async def story() -> None:
        url = redis_sentinel.url.replace("redis+sentinel://", "redis+sentinel://127.0.0.1:1,")
        async with opened(url) as client:
            assert isinstance(client, SentinelClient)
            assert await client.run_script(ADD, ["count"], [3]) == 3
            assert (await client.call("ROLE"))[0] == b"master"

    run(story())


def test_a_name_that_no_sentinel_knows_is_told(redis_sentinel: RedisSentinel) -> None:
    async def story() -> None:
        url = redis_sentinel.url.rpartition("/")[0] + "/other"
        with pytest.raises(Unavailable, match="knows no master 'other'"):
            async with opened(url):
                pass

    run(story())


def test_a_killed_master_is_followed_by_its_replica_under_load(
    redis_sentinel: RedisSentinel,
) -> None:
    async def story() -> None:
        was = redis_sentinel.master
        async with opened(redis_sentinel.url, timeout_us=500_000) as client:
            load = Load(client, ["count"])
            async with load.pressing(tasks_a_key=16):
                # All is well: nobody looks for a master any more.
                await load.reach(500, ["count"])
                await asyncio.to_thread(redis_sentinel.kill, was)
                await asyncio.to_thread(redis_sentinel.await_promotion, was)
                await load.reach(1, ["count"])
            role = await client.call("ROLE")
            assert role[0] == b"master"

    run(story())


def test_an_ordered_failover_is_followed_too(redis_sentinel: RedisSentinel) -> None:
    async def story() -> None:
        async with opened(redis_sentinel.url, refresh_us=200_000) as client:
            load = Load(client, ["count"], pause_s=0.005)
            async with load.pressing(tasks_a_key=4):
                now = await asyncio.to_thread(redis_sentinel.failover)
                port = redis_sentinel.ports[now]
                assert isinstance(client, SentinelClient)
                await within(
                    PATIENCE_S,
                    lambda: client._node is not None and client._node.endpoint.port == port,
                    "the new master",
                )
                await load.reach(1, ["count"])

    run(story())
