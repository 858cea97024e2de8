"""Starts Apache Cassandra as three nodes on 127.0.0.1, .2 and .3 that form one ring.

How Cassandra is set up and when a node is ready lives here, with the sessions that tests ask for.
What a test proves must not: that is `test_cassandra.py` and the adapters' tests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from cassandra import (  # type: ignore[import-untyped, unused-ignore]
    ConsistencyLevel,
    OperationTimedOut,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import (  # type: ignore[import-untyped, unused-ignore]
    EXEC_PROFILE_DEFAULT,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.cluster import Cluster as Driver
from cassandra.connection import (  # type: ignore[import-untyped, unused-ignore]
    ConnectionException,
)
from cassandra.policies import (  # type: ignore[import-untyped, unused-ignore]
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    TokenAwarePolicy,
    WhiteListRoundRobinPolicy,
)
from cassandra.protocol import ErrorMessage  # type: ignore[import-untyped, unused-ignore]
from cassandra.query import SimpleStatement  # type: ignore[import-untyped, unused-ignore]

from tests.engines.catalogue import CASSANDRA_HOSTS, CASSANDRA_JARS
from tests.engines.child import free_port
from tests.engines.cluster import Cluster
from tests.engines.need import java

ASK_S_MAX = 5.0
EVERY_COPY = SimpleStatement(
    "SELECT keyspace_name FROM system_distributed.view_build_status",
    consistency_level=ConsistencyLevel.ALL,  # of a keyspace with three copies from birth
)
REQUEST_S_MAX = 20.0
RECONNECT_S = 0.5
PROTOCOL = 5  # said, so that the driver does not try newer ones first and warn
DATACENTER = "datacenter1"  # what SimpleSnitch calls its only one

# The smallest start (-Xms64m) matters: Cassandra locks its heap into memory, all that it has.
JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-Xss256k",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
# What Cassandra's own list for Java 17 opens to it: without these it ends at its first reflection.
EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
)
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
)

LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <logger name="org.apache.cassandra.db" level="WARN"/>
  <logger name="org.apache.cassandra.io" level="WARN"/>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""

YAML = """\
cluster_name: sluicegate
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: {host}
rpc_address: {host}
storage_port: {storage_port}
native_transport_port: {port}

# All nodes are seeds with a place of their own in the ring: none waits for, or streams from,
# another, and the three can start at once.
num_tokens: 1
initial_token: {token}
auto_bootstrap: false
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{seeds}"

# As in production: the log is mapped memory, written to disk every 10 s. It outlives kill -9 of the
# process, not the loss of the machine.
commitlog_sync: periodic
commitlog_sync_period: 10s
commitlog_segment_size: 8MiB
commitlog_total_space: 64MiB

# Two busy cores must not look like a dead node. Reads keep their usual 5 s: half of it is how long
# the first quorum read waits for a killed node that the others do not yet hold for dead.
read_request_timeout: 5s
range_request_timeout: 10s
write_request_timeout: 10s
cas_contention_timeout: 10s
request_timeout: 15s

memtable_heap_space: 48MiB
memtable_offheap_space: 32MiB
key_cache_size: 4MiB
file_cache_size: 32MiB
networking_cache_size: 16MiB
concurrent_reads: 8
concurrent_writes: 8
concurrent_counter_writes: 4
concurrent_compactors: 1
"""


class CassandraCluster(Cluster):
    """Three nodes of one datacenter, on one port at three loopback addresses."""

    engine = "cassandra"
    member = "node"

    # What the driver raises for a write of which it cannot say that it was applied. It may have
    # been. A bare ErrorMessage is server error 0x1700, CAS_WRITE_UNKNOWN, to cassandra-driver 3.30.
    not_acknowledged: ClassVar[tuple[type[Exception], ...]] = (
        ConnectionException,
        ErrorMessage,
        NoHostAvailable,
        OperationTimedOut,
        Unavailable,
        WriteFailure,
        WriteTimeout,
    )

    def __init__(self, nodes: int = len(CASSANDRA_HOSTS)) -> None:
        super().__init__(size=nodes)
        self.port = 0
        self._storage_port = 0

    @property
    def contact_points(self) -> list[str]:
        """Every node's address, also of one that is down just now."""
        return list(CASSANDRA_HOSTS[: len(self.numbers)])

    # For tests.

    @contextmanager
    def session(
        self,
        *,
        consistency: str = "QUORUM",
        node: int | None = None,
        keyspace: str | None = None,
    ) -> Iterator[Any]:
        """A driver's session, by any node or by this one alone."""
        hosts = self.contact_points if node is None else [self._host(node)]
        if node is None:
            balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(DATACENTER))
        else:
            balancing = WhiteListRoundRobinPolicy(hosts)
        profile = ExecutionProfile(
            load_balancing_policy=balancing,
            consistency_level=ConsistencyLevel.name_to_value[consistency],
            request_timeout=REQUEST_S_MAX,
        )
        driver = Driver(
            hosts,
            port=self.port,
            protocol_version=PROTOCOL,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(RECONNECT_S, max_attempts=None),
            connect_timeout=ASK_S_MAX,
        )
        try:
            yield driver.connect(keyspace)
        finally:
            driver.shutdown()

    def create_keyspace(self, name: str) -> str:
        """A keyspace with a copy on each node."""
        with self.session() as session:
            session.execute(
                f"CREATE KEYSPACE {name} WITH replication = "
                f"{{'class': 'NetworkTopologyStrategy', '{DATACENTER}': {len(self.numbers)}}}"
            )
        return name

    # What `Cluster` asks for.

    def _prepare(self) -> None:
        self.port, self._storage_port = (free_port(*self.contact_points) for _ in range(2))
        (self.folder / "logback.xml").write_text(LOGBACK)
        seeds = ",".join(f"{host}:{self._storage_port}" for host in self.contact_points)
        for number in self.numbers:
            self._settings(number).write_text(
                YAML.format(
                    host=self._host(number),
                    port=self.port,
                    storage_port=self._storage_port,
                    token=-(2**63) + 2**64 // len(self.numbers) * (number - 1),
                    seeds=seeds,
                )
            )

    def _command(self, number: int) -> list[str]:
        exports = [f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTS]
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENS]
        return [
            java() or "java",
            *JVM,
            f"-javaagent:{CASSANDRA_JARS.jar('jamm')}",  # weighs what memtables hold
            *exports,
            *opens,
            f"-Djava.io.tmpdir={self.scratch}",
            f"-Dlogback.configurationFile={self.folder / 'logback.xml'}",
            f"-Dcassandra.config={self._settings(number).as_uri()}",
            f"-Dcassandra.storagedir={self._data(number)}",
            f"-Dcassandra.logdir={self._data(number)}",
            "-Dcassandra-foreground=yes",
            # Readiness is asked for, so a node need not wait for gossip to be quiet.
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-cp",
            CASSANDRA_JARS.class_path,
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _answers(self, number: int) -> bool:
        # A bare knock first: a driver's session is dear, and logs what it cannot reach.
        socket.create_connection((self._host(number), self.port), timeout=ASK_S_MAX).close()
        others = {self._host(n) for n in self.numbers if n != number}
        with self.session(node=number) as session:
            local = session.execute("SELECT schema_version FROM system.local").one()
            peers = session.execute("SELECT peer, schema_version FROM system.peers_v2").all()
            members = [
                peer for peer in peers if peer.peer in {self._host(n) for n in self._members}
            ]
            agreed = {local.schema_version, *(peer.schema_version for peer in members)}
            if {peer.peer for peer in peers} != others or len(agreed) != 1:
                return False
            # That it has heard of the others is not enough: a read that each copy must answer.
            if len(self._members) == len(self.numbers):
                session.execute(EVERY_COPY)
            return True

    def _host(self, number: int) -> str:
        return CASSANDRA_HOSTS[number - 1]

    def _settings(self, number: int) -> Path:
        return self.folder / f"{self.member}-{number}.yaml"
