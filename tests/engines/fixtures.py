"""The pytest plugin of the engines: a fixture each, their marker, and what follows a test.

A cluster starts when the first test asks for it and serves the whole session. Nothing about an
engine may be decided here: what it needs is in `catalogue.py`, how it starts in its own file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.engines.catalogue import ENGINES
from tests.engines.child import EngineFailedError
from tests.engines.cluster import Cluster
from tests.engines.need import engine
from tests.redis.builds import BUILDS, REDIS_7, Build, first_present

if TYPE_CHECKING:  # at run time only behind `engine`, which tells when the driver is missing
    from tests.engines.cassandra import CassandraCluster
    from tests.engines.kafka import KafkaCluster
    from tests.engines.redis import RedisCluster, RedisSentinel, RedisServer
    from tests.engines.s3proxy import S3Proxy

# Not those of Redis that one finds here: they belong to `make test`.
CLUSTERS = frozenset({"kafka", "kafka_trio", "cassandra", "redis_tls", "s3proxy"})
FIRST_REDIS = first_present()
EACH_REDIS = [
    pytest.param(build, id=build.name, marks=[] if build is FIRST_REDIS else [pytest.mark.engine])
    for build in BUILDS
]


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker."""
    engine("kafka", ENGINES["kafka"])
    from tests.engines.kafka import KafkaCluster

    with KafkaCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_trio() -> Iterator[KafkaCluster]:
    """Three brokers, three copies of everything, two of which must acknowledge."""
    engine("kafka", ENGINES["kafka"])
    from tests.engines.kafka import KafkaCluster

    with KafkaCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cassandra() -> Iterator[CassandraCluster]:
    """Three nodes, each of which has a third of the ring."""
    engine("cassandra", ENGINES["cassandra"])
    from tests.engines.cassandra import CassandraCluster

    with CassandraCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3proxy() -> Iterator[S3Proxy]:
    """One S3 server over files."""
    engine("s3proxy", ENGINES["s3proxy"])
    from tests.engines.s3proxy import S3Proxy

    with S3Proxy() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One server, the one that pip brings; each test finds it empty and as it started."""
    build = first_present()
    engine(build.name, ENGINES[build.name])
    from tests.engines.redis import RedisServer

    with RedisServer(build) as server:
        yield server


@pytest.fixture(scope="session", params=EACH_REDIS)
def redis_any(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """One server of each kind in turn: Redis 6.2, Redis 7 or newer, Valkey."""
    build: Build = request.param
    engine(build.name, ENGINES[build.name])
    from tests.engines.redis import RedisServer

    with RedisServer(build) as server:
        yield server


@pytest.fixture(scope="session")
def redis_tls() -> Iterator[RedisServer]:
    """One server that speaks TLS only, with a certificate of an authority of its own."""
    engine("redis-tls", ENGINES["redis-tls"])
    from tests.engines.redis import RedisServer

    with RedisServer(REDIS_7, tls=True) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three masters without replicas, by what pip brings."""
    build = first_present()
    engine(build.name, ENGINES[build.name])
    from tests.engines.redis import RedisCluster

    with RedisCluster(build=build) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=EACH_REDIS)
def redis_cluster_any(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """Three masters without replicas, of each kind in turn."""
    build: Build = request.param
    engine(build.name, ENGINES[build.name])
    from tests.engines.redis import RedisCluster

    with RedisCluster(build=build) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A master, its replica and three sentinels, by what pip brings."""
    build = first_present()
    engine(build.name, ENGINES[build.name])
    from tests.engines.redis import RedisSentinel

    with RedisSentinel(build) as group:
        yield group


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses a cluster, so that `-m "not engine"` cannot miss one."""
    for item in items:
        if isinstance(item, pytest.Function) and CLUSTERS.intersection(item.fixturenames):
            item.add_marker(pytest.mark.engine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a failed test the ends of its servers' logs, and keep the logs."""
    report = yield
    if report.failed:
        for cluster in _used(item):
            cluster.keep_logs = True
            report.sections.append((f"{cluster.engine} in {cluster.folder}", cluster.tails()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Bring back the members that a test ended; complain of those that ended by themselves."""
    complaints: list[str] = []
    for cluster in _used(item):
        complaints += [f"no test asked for this end:\n{crash}" for crash in cluster.crashes()]
        if nextitem is not None:
            try:
                cluster.heal()
            except EngineFailedError as error:
                complaints.append(str(error))
    yield  # the fixtures' own ends run in any case
    if complaints:
        raise EngineFailedError("\n".join(complaints))


def _used(item: pytest.Item) -> list[Cluster]:
    arguments = item.funcargs.values() if isinstance(item, pytest.Function) else ()
    return [argument for argument in arguments if isinstance(argument, Cluster)]
