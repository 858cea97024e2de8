"""Starts Apache Kafka in KRaft mode: one broker, or three that elect and replicate.

How Kafka is set up and when a broker is ready lives here, with the few things that every Kafka test
asks of a cluster. What a test proves must not: that is `test_kafka.py` and the adapters' tests.
"""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined, unused-ignore]
    AdminClient,
    NewTopic,
    PartitionMetadata,
)

from tests.engines.catalogue import KAFKA_JARS
from tests.engines.child import Child, EngineFailedError, free_port, until
from tests.engines.cluster import Cluster
from tests.engines.need import java

HOST = "127.0.0.1"
FORMAT_S_MAX = 60
ASK_S_MAX = 5.0
READ_S_MAX = 60.0
QUIET = {"log_level": 0}  # a refused connection is expected of a broker that is down

# Small and quick to start: the first compiler is enough for a server that lives a minute, and one
# collector thread is what two cores can spare.
JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+PerfDisableSharedMem",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
)

LOG4J = """\
<Configuration>
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="state.change.logger" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""

PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
log.dirs={data}

# A test names its topics; a misspelt one must fail.
auto.create.topics.enable=false
default.replication.factor={copies}
min.insync.replicas={copies_min}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=3
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={copies_min}
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={copies_min}
share.coordinator.state.topic.num.partitions=3

# A dead broker is known as such in seconds, and a group does not wait for further members.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0

# The default buffer of the cleaner alone is half of our heap.
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=2
background.threads=2
"""


class KafkaCluster(Cluster):
    """One or three brokers, each also a controller, on loopback."""

    engine = "kafka"
    member = "broker"

    def __init__(self, brokers: Literal[1, 3] = 1) -> None:
        super().__init__(size=brokers)
        self._ports: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`: every broker, also one that is down just now."""
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    # For tests.

    def producer(self, settings: Mapping[str, Any] | None = None) -> Producer:
        """A producer to all brokers."""
        return Producer({"bootstrap.servers": self.bootstrap, **(settings or {})})

    def consumer(self, settings: Mapping[str, Any] | None = None) -> Consumer:
        """A consumer from the beginning; of a group of its own unless told otherwise."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"group-{uuid.uuid4()}",
                "auto.offset.reset": "earliest",
                **(settings or {}),
            }
        )

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """A topic with a copy on each broker, under a name that no earlier test has used."""
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        wish = NewTopic(unique, num_partitions=partitions, replication_factor=len(self.numbers))
        self._asker.create_topics([wish])[unique].result(READ_S_MAX)
        until(
            lambda: len(self.in_sync(unique)) == partitions,
            f"waiting for leaders of topic {unique}",
            self.ready_s_max,
        )
        return unique

    def leaders(self, topic: str) -> dict[int, int]:
        """Which broker leads each partition."""
        return {number: p.leader for number, p in self._partitions(topic).items()}

    def in_sync(self, topic: str) -> dict[int, tuple[int, ...]]:
        """Which brokers have all of each partition, for those partitions that have a leader."""
        return {
            number: tuple(sorted(p.isrs))
            for number, p in self._partitions(topic).items()
            if p.leader in self.numbers
        }

    def await_in_sync(self, topic: str) -> None:
        """Return when every broker has all of the topic."""
        everyone = tuple(self.numbers)
        until(
            lambda: set(self.in_sync(topic).values()) == {everyone},
            f"waiting for all brokers to be in sync on {topic}",
            self.ready_s_max,
        )

    def read_back(self, topic: str, at_least: int) -> list[Message]:
        """All messages of a topic: until that many have come, and then to the end.

        The number is asked for because a new leader may not yet show the last acknowledged
        messages: how far the others are, it learns only with their next fetch.
        """
        partitions = set(self._partitions(topic))
        at_end: set[int | None] = set()
        read: list[Message] = []
        with self.consumer({"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])

            def take() -> bool:
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        read.append(message)
                        at_end.discard(message.partition())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
                return len(read) >= at_least and at_end >= partitions

            until(take, f"reading {at_least} messages of {topic}", READ_S_MAX)
        return read

    # What `Cluster` asks for.

    def _prepare(self) -> None:
        ports = [free_port(HOST) for _ in range(2 * len(self.numbers))]
        self._ports = dict(zip(self.numbers, ports, strict=False))
        controllers = dict(zip(self.numbers, ports[len(self.numbers) :], strict=True))
        (self.folder / "log4j2.xml").write_text(LOG4J)
        for number in self.numbers:
            self._settings(number).write_text(
                PROPERTIES.format(
                    number=number,
                    host=HOST,
                    port=self._ports[number],
                    controller_port=controllers[number],
                    voters=",".join(f"{n}@{HOST}:{port}" for n, port in controllers.items()),
                    data=self._data(number),
                    copies=len(self.numbers),
                    copies_min=min(2, len(self.numbers)),
                )
            )
        self._format_all()

    def _format_all(self) -> None:
        """Write the cluster's identity on each broker's disk; Kafka starts on no other."""
        # Kafka's own ids never begin with a dash, which its tools would take for an option.
        identity = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        tools = [
            Child(
                f"format-{number}",
                self._java(
                    "kafka.tools.StorageTool",
                    "format",
                    f"--cluster-id={identity}",
                    f"--config={self._settings(number)}",
                ),
                self.folder / f"format-{number}.log",
            )
            for number in self.numbers
        ]
        try:
            for tool in tools:
                if tool.wait(FORMAT_S_MAX) != 0:
                    raise EngineFailedError(f"Kafka cannot format its disk\n{tool.tail()}")
        finally:
            for tool in tools:
                tool.kill()

    def _command(self, number: int) -> list[str]:
        return self._java("kafka.Kafka", str(self._settings(number)))

    def _answers(self, number: int) -> bool:
        port = self._ports[number]
        socket.create_connection((HOST, port), timeout=ASK_S_MAX).close()
        # A new client each time: one that knows the other brokers might ask one of those.
        client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", **QUIET})
        return set(client.list_topics(timeout=ASK_S_MAX).brokers) >= self._members

    @cached_property
    def _asker(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def _partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        metadata = self._asker.list_topics(topic, timeout=ASK_S_MAX)
        partitions: dict[int, PartitionMetadata] = metadata.topics[topic].partitions
        return partitions

    def _settings(self, number: int) -> Path:
        return self.folder / f"{self.member}-{number}.properties"

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return [
            java() or "java",
            *JVM,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            f"-Djava.io.tmpdir={self.scratch}",
            "-cp",
            KAFKA_JARS.class_path,
            main_class,
            *arguments,
        ]
