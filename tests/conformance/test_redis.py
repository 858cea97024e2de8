"""The Redis store on real servers: one of each kind, and a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uvloop

from sluicegate.contracts.store import Store
from sluicegate.stores.redis.settings import RedisSettings, parse_url
from sluicegate.stores.redis.store import RedisStore
from sluicegate.stores.redis.threads import RedisThreads
from sluicegate.system import SystemClock
from sluicegate.testing import SeededChance
from sluicegate.testing.stores import SharedStoreSuite
from sluicegate.testing.stores.crowds import Crowds, Shared

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

# A busy machine may be slow, and these tests are not about being slow.
PATIENT_US = 5_000_000


def opened(where: RedisSettings) -> RedisStore:
    return RedisStore(replace(where, timeout_us=PATIENT_US), SeededChance(1))


class RedisSuite(SharedStoreSuite):
    where: RedisSettings

    def open_store(self) -> Store:
        return opened(self.where)


class TestOneServer(RedisSuite):
    @pytest.fixture(autouse=True)
    def place(self, redis_any: RedisServer) -> None:
        self.where = parse_url(redis_any.url)


class TestThreads(RedisSuite):
    """What a thread asks, step by step."""

    @pytest.fixture(autouse=True)
    def place(self, redis_any: RedisServer) -> None:
        self.where = parse_url(redis_any.url)

    def open_store(self) -> Store:
        where = replace(self.where, timeout_us=PATIENT_US)
        return RedisThreads(where, SeededChance(1), SystemClock().now_us)


class TestCrowdsOnUvloop(Crowds, Shared):
    """The loop matters where much is under way at once."""

    @pytest.fixture(autouse=True)
    def place(self, redis_server: RedisServer) -> None:
        self.where = parse_url(redis_server.url)

    def open_store(self) -> Store:
        return opened(self.where)

    def loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


class TestCluster(RedisSuite):
    one_instant = False

    @pytest.fixture(autouse=True)
    def place(self, redis_cluster: RedisCluster) -> None:
        self.where = parse_url(redis_cluster.url)
