"""A real cluster: slots that move, masters that die, and the others that must not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.stores.redis.cluster import ClusterClient
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.slots import slot_of
from tests.stores.redis.live import ADD, ECHO, PATIENCE_S, Load, opened, run, within

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster

FIRST, SECOND, THIRD = 1, 2, 3
TIMEOUT_US = 10_000_000
SUM = Script("return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])", name="sum")


@asynccontextmanager
async def clustered(cluster: RedisCluster, **settings: Any) -> AsyncIterator[ClusterClient]:
    async with opened(cluster.url, **settings) as client:
        assert isinstance(client, ClusterClient)
        yield client


def test_each_key_goes_straight_to_its_master(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        async with clustered(redis_cluster) as client:
            keys = [f"key:{n}" for n in range(1_000)]
            calls = [client.run_script(ADD, [key], [n]) for n, key in enumerate(keys)]
            assert await asyncio.gather(*calls) == [*range(1_000)]
            # No node had to send any of them on: the map was right.
            for number in (FIRST, SECOND, THIRD):
                info = await asyncio.to_thread(
                    redis_cluster.ask, "INFO", "errorstats", number=number
                )
                assert "errorstat_MOVED" not in info

    for number in (FIRST, SECOND, THIRD):
        redis_cluster.ask("CONFIG", "RESETSTAT", number=number)
    run(story())


def test_keys_of_one_tag_are_taken_together_and_others_refused(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        async with clustered(redis_cluster) as client:
            assert await client.run_script(SUM, ["rate:{ann}:a", "rate:{ann}:b"]) == 2
            with pytest.raises(BadValue, match="hash tag"):
                client.run_script(SUM, ["ann", "bob"])
            assert await client.call("SET", "plain", "1", key="plain") == b"OK"
            assert await client.call("PING") == b"PONG"

    run(story())


def test_calls_before_the_map_is_known_wait_for_it(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        from sluicegate.stores.redis.client import open_client
        from sluicegate.testing import SeededChance

        client = open_client(redis_cluster.url + "?timeout_ms=5000", SeededChance(2))
        calls = [client.run_script(ECHO, [f"key:{n}"], [n]) for n in range(300)]
        assert await asyncio.gather(*calls) == [b"%d" % n for n in range(300)]
        await client.close()

    run(story())


def test_a_slot_that_moves_under_load_loses_no_call(redis_cluster: RedisCluster) -> None:
    key = redis_cluster.key_of(FIRST)
    slot = slot_of(key)
    keys = [f"{{{key}}}:{n}" for n in range(4)]

    async def story() -> None:
        async with clustered(redis_cluster) as client:
            load = Load(client, keys)
            async with load.pressing(tasks_a_key=8):
                for to in (SECOND, THIRD, FIRST):
                    await asyncio.sleep(0.1)
                    await asyncio.to_thread(redis_cluster.move_slot, slot, to)
                await asyncio.sleep(0.1)
            for one in keys:
                assert load.failed[one] == []
                assert int(await client.call("GET", one, key=one)) == len(load.done[one]) > 100

    run(story())


def test_while_a_slot_moves_its_absent_keys_are_asked_for_where_they_go(
    redis_cluster: RedisCluster,
) -> None:
    key = redis_cluster.key_of(FIRST)
    slot = slot_of(key)

    async def story() -> None:
        async with clustered(redis_cluster) as client:
            with redis_cluster.moving(slot, SECOND):
                for turn in range(1, 20):
                    assert await client.run_script(ADD, [key], [1]) == turn
                # The map still says FIRST, rightly: ASK is for this once.
                assert redis_cluster.owner(slot, FIRST) == FIRST
            assert await client.run_script(ADD, [key], [1]) == 20

    run(story())


def test_a_dead_master_costs_its_own_keys_little_and_the_others_nothing(
    redis_cluster: RedisCluster,
) -> None:
    dead, *living = (redis_cluster.key_of(number) for number in (FIRST, SECOND, THIRD))

    async def story() -> None:
        async with clustered(redis_cluster, timeout_us=TIMEOUT_US) as client:
            load = Load(client, [dead, *living], pause_s=0.005)
            async with load.pressing(tasks_a_key=8):
                await load.reach(200, [dead, *living])
                await asyncio.to_thread(redis_cluster.kill, FIRST)
                killed = asyncio.get_running_loop().time()
                await load.reach(500, living)
                await within(PATIENCE_S, lambda: len(load.failed[dead]) > 300, "failures")
                await asyncio.to_thread(redis_cluster.restart, FIRST)
                await load.reach(1, [dead])
            assert [load.failed[key] for key in living] == [[], []]
            # Nobody waits for a time-out: what was under way failed with its connection.
            took = [took for at, took, _ in load.failed[dead] if at > killed]
            assert max(took) < TIMEOUT_US / 2e6

    run(story())


def test_a_paused_master_does_not_hold_up_the_others(redis_cluster: RedisCluster) -> None:
    stuck, *living = (redis_cluster.key_of(number) for number in (FIRST, SECOND, THIRD))

    async def story() -> None:
        async with clustered(redis_cluster, timeout_us=TIMEOUT_US) as client:
            load = Load(client, [stuck, *living], pause_s=0.005)
            async with load.pressing(tasks_a_key=8):
                await load.reach(50, [stuck, *living])
                redis_cluster.pause(FIRST)
                # Who waited for it could not have so many before it runs into its time-out.
                await load.reach(500, living)
                assert load.failed[stuck] == []
                redis_cluster.resume(FIRST)
                await load.reach(1, [stuck])
            assert [load.failed[key] for key in living] == [[], []]

    run(story())


def test_a_replica_that_takes_over_is_found_though_no_other_key_is_asked_for(
    redis_cluster: RedisCluster,
) -> None:
    from tests.engines.redis import RedisCluster

    async def story(cluster: RedisCluster) -> None:
        key = cluster.key_of(FIRST)
        async with clustered(cluster) as client:
            load = Load(client, [key], pause_s=0.005)
            async with load.pressing(tasks_a_key=4):
                await load.reach(200, [key])  # all is well: nobody looks at the map any more
                await asyncio.to_thread(cluster.kill, FIRST)
                await asyncio.to_thread(cluster.await_takeover, FIRST)
                await load.reach(1, [key])

    with RedisCluster(replicas=1, build=redis_cluster.build) as cluster:
        run(story(cluster))


def test_a_cluster_that_is_not_there_says_so_and_later_at_once() -> None:
    async def story() -> None:
        with pytest.raises(Unavailable, match="cannot connect"):
            async with opened("redis+cluster://127.0.0.1:1,127.0.0.1:2"):
                pass

    run(story())


def test_a_single_server_is_no_cluster_and_a_clusters_node_no_single_server(
    redis_server: Any, redis_cluster: RedisCluster
) -> None:
    async def story() -> None:
        with pytest.raises(Unavailable, match="cluster support disabled"):
            async with opened(redis_server.url.replace("redis://", "redis+cluster://")[:-2]):
                pass
        host, port = redis_cluster.nodes[0]
        async with opened(f"redis://{host}:{port}") as client:
            with pytest.raises(Unavailable, match=r"say redis\+cluster://"):
                await client.call("GET", redis_cluster.key_of(SECOND))

    run(story())
