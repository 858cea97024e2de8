"""A million messages over three nodes that are killed under them: accepted is delivered, or told.

A slice in CI is 30,000 messages; SLUICEGATE_PROVE_MESSAGES is another number. Each channel's
messages are counted at a node that is not killed.

The history of a node holds half of what its log has in the end: a node that comes back reads the
end of its log, and who reads too slowly is told of a gap.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.pubsub.cluster import PubSubCluster
from tests.apps.pubsub.kills import check_delivered, publish_under_kills
from tests.apps.pubsub.on_kafka import on_kafka
from tests.prove.seeds import seeds, whole

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster

MESSAGES = "SLUICEGATE_PROVE_MESSAGES"
MILLION = 1_000_000
IN_CI = 30_000
FLAGS = ("--account-rate", "0", "--channel-rate", "0", "--history-bytes")
HISTORY_BYTES = 128  # for each message of the run


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1, part=1))
def test_accepted_is_delivered_or_told_though_nodes_are_killed(tmp_path: Path, seed: int) -> None:
    prove(tmp_path)


@pytest.mark.prove
@pytest.mark.engine
def test_the_same_with_the_history_in_kafka(kafka_trio: KafkaCluster, tmp_path: Path) -> None:
    with on_kafka(kafka_trio):
        prove(tmp_path)


def prove(tmp_path: Path) -> None:
    messages = int(os.environ.get(MESSAGES, MILLION if whole() else IN_CI))
    kills = max(4, messages // 25_000)
    began_s = time.monotonic()
    with PubSubCluster(tmp_path, 3, *FLAGS, str(messages * HISTORY_BYTES)) as cluster:
        run = asyncio.run(publish_under_kills(cluster, messages=messages, kills=kills))
    missing = check_delivered(run)
    accepted = sum(map(len, run.accepted.values()))
    sys.stdout.write(  # shown by `pytest -s`
        f"{accepted:,} accepted, {accepted - missing:,} delivered, {missing:,} in gaps; "
        f"{run.in_doubt:,} without an answer; {kills} kills, {time.monotonic() - began_s:,.0f} s\n"
    )
    assert accepted + run.in_doubt == messages
    assert run.in_doubt < messages // 10
