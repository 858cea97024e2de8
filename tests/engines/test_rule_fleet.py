"""A fleet follows a rulebook whose changes are announced by a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.rounds import Bars
from benchmarks.rule_fleet import run

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster


@pytest.mark.engine
def test_every_node_has_a_change_within_a_second_of_its_publication(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    bars, topic = Bars(), kafka.create_topic("rules")
    run("Kafka", f"kafka://{kafka.bootstrap}/{topic}", tmp_path, 5, 5, bars)
    assert bars.missed == []
