"""YCSB's mixes on real clusters: a few hundred operations each, every value checked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.ycsb.run import MIXES, YcsbResult, YcsbRun, YcsbSettings
from sluicegate.lab.ycsb.targets import EngineTarget
from sluicegate.stores.open_engine import open_engine

if TYPE_CHECKING:
    from tests.engines.cassandra import CassandraCluster
    from tests.engines.redis import RedisCluster

# acsylla 1.2 leaves its loop's two pairs of sockets to the garbage collector.
pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
FEW = YcsbSettings(rows=400, ops=300, tasks=12, value_bytes=200)


def outcome_of(url: str, mix: str) -> YcsbResult:
    async def story() -> YcsbResult:
        target = EngineTarget(open_engine(url), f"ycsb.{mix.lower()}")
        try:
            return await YcsbRun(target, MIXES[mix], FEW, RandomSource(7).of).run()
        finally:
            await target.close()

    return asyncio.run(story())


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_is_right_on_cassandra(cassandra: CassandraCluster, mix: str) -> None:
    hosts = ",".join(cassandra.contact_points)
    result = outcome_of(f"cassandra://{hosts}:{cassandra.port}/kv?timeout_ms=15000", mix)
    assert result.right, result.shown
    assert result.ops == FEW.ops, result.shown


@pytest.mark.parametrize("mix", MIXES)
def test_a_mix_is_right_on_a_redis_cluster(redis_cluster: RedisCluster, mix: str) -> None:
    result = outcome_of(redis_cluster.url, mix)
    assert result.right, result.shown
    assert result.ops == FEW.ops, result.shown
