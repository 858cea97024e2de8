"""A dispatcher on a Redis Cluster that loses one of three masters, then all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate.apps.kv.tables.catalogue_copies import CATALOGUE_PLACE, CATALOGUE_SPACE
from sluicegate.stores.engines.redis.keys import keys_of
from sluicegate.stores.redis.slots import slot_of
from tests.apps.kv.process import KvProcess
from tests.engines.child import until

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster

pytestmark = pytest.mark.engine
FAILING_S = 1.5  # a dispatcher whose engine fails that long reports it
ROUND_S = 0.1  # between rounds of forty writes: unpaced, a quick machine spends the caller's units


def test_lost_master_leaves_readiness_and_other_writes(
    redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    lost = redis_cluster.owner(slot_of(keys_of("sgkv", CATALOGUE_SPACE, CATALOGUE_PLACE[0]).values))
    names = [f"k{number}" for number in range(60)]
    owners = {
        f"t:{name}": redis_cluster.owner(slot_of(keys_of("sgkv", "t/t", name.encode()).values))
        for name in names
    }
    living = [name for name, owner in owners.items() if owner != lost]
    dead = next(name for name, owner in owners.items() if owner == lost)
    flags = ("--engine", f"{redis_cluster.url}?timeout_ms=10000")
    with KvProcess(tmp_path, *flags) as first:
        client = first.redis()
        for name in owners:
            client.set(name, "v")
        redis_cluster.kill(lost)
        began_s = time.monotonic()
        with pytest.raises(redis.ResponseError):
            client.set(dead, "v")
        while time.monotonic() < began_s + FAILING_S:
            for name in living:
                assert client.set(name, "v")
            assert first.ask("/readyz")[0] == 200
            with pytest.raises(redis.ResponseError):
                client.set(dead, "v")
            time.sleep(ROUND_S)
        with KvProcess(tmp_path, *flags) as second:  # one that starts meanwhile
            assert second.redis().get(living[0]) == b"v"
        for number in redis_cluster.alive:
            redis_cluster.kill(number)

        def not_ready() -> bool:
            with pytest.raises(redis.ResponseError):
                client.set(living[0], "v")
            return first.ask("/readyz")[0] == 503

        until(not_ready, "a dispatcher without any master reports it", 30)
