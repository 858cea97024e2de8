"""Processes of `sluicegate pubsub` whose log is in Kafka: a topic for each folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tests.apps.pubsub.cluster import PARTS
from tests.apps.pubsub.process import PubSubProcess

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster


@contextmanager
def on_kafka(kafka: KafkaCluster) -> Iterator[None]:
    """All that are started meanwhile."""
    topics: dict[Path, str] = {}
    lock = Lock()

    def log_flags(folder: Path) -> tuple[str, ...]:
        with lock:  # nodes are started at once
            if folder not in topics:
                topics[folder] = kafka.create_topic("pubsub", partitions=PARTS)
        url = f"kafka://{kafka.bootstrap}/{topics[folder]}"
        return ("--event-log", url, "--event-log-parts", str(PARTS))

    before = PubSubProcess.log_flags
    PubSubProcess.log_flags = log_flags
    try:
        yield
    finally:
        PubSubProcess.log_flags = before
