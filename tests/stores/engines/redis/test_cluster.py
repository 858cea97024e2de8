"""A real Redis Cluster of three masters as an engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sluicegate.apps.kv.tables.catalogue import Catalogue
from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_PLACE, CATALOGUE_SPACE
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import Write
from sluicegate.stores.engines.redis.engine import RedisEngine, open_redis
from sluicegate.stores.engines.redis.keys import keys_of
from sluicegate.stores.redis.slots import slot_of
from sluicegate.system import SystemClock
from sluicegate.testing.engines import SharedEngineSuite
from sluicegate.testing.engines.trial import walk_all

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster

pytestmark = pytest.mark.engine


class TestRedisCluster(SharedEngineSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, redis_cluster: RedisCluster) -> None:
        self.url = redis_cluster.url

    def open_engine(self) -> RedisEngine:
        # Not how soon is asked: a machine may take seconds to have memory for the largest values.
        return open_redis(f"{self.url}?timeout_ms=10000")


def master_of(cluster: RedisCluster, partition: bytes) -> int:
    return cluster.owner(slot_of(keys_of("sgkv", "t", partition).values))


def test_partitions_lie_on_all_masters(redis_cluster: RedisCluster) -> None:
    masters = [master_of(redis_cluster, b"%d" % number) for number in range(300)]
    assert all(masters.count(number) > 50 for number in (1, 2, 3))


def test_a_killed_master_costs_its_own_partitions_alone(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        engine = open_redis(f"{redis_cluster.url}?timeout_ms=10000")
        loop = asyncio.get_running_loop()
        partitions = [b"%d" % number for number in range(300)]
        try:
            await engine.load("t", [(partition, b"", b"v") for partition in partitions])
            masters = {partition: master_of(redis_cluster, partition) for partition in partitions}
            await asyncio.to_thread(redis_cluster.kill, 2)

            async def ask(partition: bytes) -> tuple[bytes, bool, float]:
                began = loop.time()
                try:
                    await engine.write([Change("t", partition, b"more", b"v")])
                    assert await engine.read("t", [(partition, b"")]) == [b"v"]
                except Unavailable:
                    return partition, False, loop.time() - began
                return partition, True, loop.time() - began

            for _ in range(3):
                for partition, answered, took_s in await asyncio.gather(*map(ask, partitions)):
                    assert answered is (masters[partition] != 2)
                    assert took_s < 5, "nobody waits for the time-out"
            with pytest.raises(Unavailable):
                await engine.walk("t", None, 1_000)
        finally:
            await engine.close()

    asyncio.run(story())


def test_killed_master_of_catalogue_costs_its_own_rows_alone(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        engine = open_redis(f"{redis_cluster.url}?timeout_ms=10000")
        clock, settings = SystemClock(), TableSettings()
        catalogue = Catalogue(engine, clock, settings)
        tables = Tables(engine, catalogue, clock, settings)
        partitions = [b"%d" % number for number in range(60)]
        following = asyncio.ensure_future(catalogue.follow())
        try:
            await tables.write("t", [Write(b"p", b"", b"v")], clock.now_us())
            keys = keys_of("sgkv", CATALOGUE_SPACE, CATALOGUE_PLACE[0])
            lost = redis_cluster.owner(slot_of(keys.values))
            masters = {
                one: redis_cluster.owner(slot_of(keys_of("sgkv", "t/t", one).values))
                for one in partitions
            }
            await asyncio.to_thread(redis_cluster.kill, lost)
            # Until no view from before the kill is fresh, and no request still waits for one.
            until_us = catalogue.fresh_until_us + settings.look_wait_us
            while clock.now_us() < until_us:
                await asyncio.sleep(0.1)
            written = 0
            for partition in partitions:
                if masters[partition] == lost:
                    continue
                await tables.write("t", [Write(partition, b"", b"v")], clock.now_us())
                assert await tables.remove("t", [(partition, b"")], clock.now_us()) == 1
                written += 1
            assert written > 10
            with pytest.raises(Unavailable):
                await catalogue.create_table("another")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await engine.close()

    asyncio.run(story())


def test_full_coverage_is_warned_of_once(
    redis_cluster: RedisCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        engine = open_redis(redis_cluster.url)
        try:
            await engine.load("t", [(b"%d" % number, b"", b"v") for number in range(300)])
        finally:
            await engine.close()

    def warnings() -> list[str]:
        return [one for one in caplog.messages if "cluster-require-full-coverage" in one]

    asyncio.run(story())
    assert not warnings()
    for number in (1, 2, 3):
        redis_cluster.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes", number=number)
    try:
        asyncio.run(story())
    finally:
        for number in (1, 2, 3):
            redis_cluster.ask("CONFIG", "SET", "cluster-require-full-coverage", "no", number=number)
    assert len(warnings()) == 1


def test_a_slot_that_moves_takes_its_partitions_along(redis_cluster: RedisCluster) -> None:
    async def story() -> None:
        engine = open_redis(redis_cluster.url)
        try:
            await engine.write([Change("t", b"p", b"%d" % n, b"v") for n in range(5)])
            slot = slot_of(keys_of("sgkv", "t", b"p").values)
            to = redis_cluster.owner(slot) % 3 + 1
            await asyncio.to_thread(redis_cluster.move_slot, slot, to)
            assert await engine.swap(Change("t", b"p", b"4", None), b"v")
            assert len(await walk_all(engine, "t", 2)) == 4
        finally:
            await engine.close()

    asyncio.run(story())


def test_waiting_for_a_replica_holds_a_write_until_it_has_it() -> None:
    from tests.redis.builds import first_present
    from tests.redis.cluster import RedisCluster

    async def story(url: str) -> None:
        engine = open_redis(f"{url}?wait=1&wait_ms=900")
        greedy = open_redis(f"{url}?wait=2&wait_ms=20")
        try:
            for number in range(50):
                await engine.write([Change("t", b"%d" % number, b"", b"v")])
            with pytest.raises(Unavailable, match="1 of 2 replicas"):
                await greedy.write([Change("t", b"p", b"", b"v")])
            assert "1 of its replicas" in engine.durability
        finally:
            await engine.close()
            await greedy.close()

    with RedisCluster(1, first_present()) as cluster:
        asyncio.run(story(cluster.url))
