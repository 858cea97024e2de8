"""Gives these tests the engine fixtures: real servers, shared with all other folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

FIXTURES = "tests.engines.fixtures"


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(FIXTURES):
        config.pluginmanager.import_plugin(FIXTURES)


@pytest.fixture
def redis_server(redis_any: RedisServer) -> RedisServer:
    """Here every test of one server is run on each kind of server."""
    return redis_any


@pytest.fixture
def redis_cluster(redis_cluster_any: RedisCluster) -> RedisCluster:
    """Likewise."""
    return redis_cluster_any
