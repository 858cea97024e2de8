"""Gives these tests the engine fixtures: real servers, shared with all other folders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.redis.builds import BUILDS, first_present

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

FIXTURES = "tests.engines.fixtures"
# Imported here, the plugin's own table would keep its assertions from being explained.
FIRST_REDIS = first_present()
EACH_REDIS = [
    pytest.param(build, id=build.name, marks=[] if build is FIRST_REDIS else [pytest.mark.engine])
    for build in BUILDS
]


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


@pytest.fixture(scope="session", params=EACH_REDIS)
def redis_durable(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """One server of each kind that writes all it acknowledges to its disk first."""
    from tests.engines.catalogue import ENGINES
    from tests.engines.need import engine
    from tests.engines.redis import RedisServer

    engine(request.param.name, ENGINES[request.param.name])
    with RedisServer(request.param, durable=True) as server:
        yield server
