"""A million messages over three nodes that are killed under them: accepted is delivered, or told.

A slice in CI is 30,000 messages; SLUICEGATE_PROVE_MESSAGES is another number. Each channel's
messages are counted at a node that is not killed.

A node that comes back reads all that there is in its parts, some 20 us of CPU time a message: on a
machine that others keep busy that is minutes, for a million.
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
from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import PATIENCE_S
from tests.prove.seeds import seeds, whole

if TYPE_CHECKING:
    from tests.engines.kafka import KafkaCluster

MESSAGES = "SLUICEGATE_PROVE_MESSAGES"
MILLION = 1_000_000
IN_CI = 30_000
READ_S = 2e-4  # of a message, at the start of a node that has a tenth of a core
FLAGS = ("--account-rate", "0", "--channel-rate", "0", "--history-bytes", str(1 << 32))


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=1, part=1))
def test_accepted_is_delivered_or_told_though_nodes_are_killed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(tmp_path, monkeypatch)


@pytest.mark.prove
@pytest.mark.engine
def test_the_same_with_the_history_in_kafka(
    kafka_trio: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_kafka(kafka_trio):
        prove(tmp_path, monkeypatch)


def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = int(os.environ.get(MESSAGES, MILLION if whole() else IN_CI))
    kills = max(4, messages // 25_000)
    monkeypatch.setattr(PubSubProcess, "ready_s_max", PATIENCE_S + messages * READ_S)
    began_s = time.monotonic()
    with PubSubCluster(tmp_path, 3, *FLAGS) as cluster:
        run = asyncio.run(publish_under_kills(cluster, messages=messages, kills=kills))
    missing = check_delivered(run)
    accepted = sum(map(len, run.accepted.values()))
    sys.stdout.write(  # shown by `pytest -s`
        f"{accepted:,} accepted, {accepted - missing:,} delivered, {missing:,} in gaps; "
        f"{run.in_doubt:,} without an answer; {kills} kills, {time.monotonic() - began_s:,.0f} s\n"
    )
    assert accepted + run.in_doubt == messages
    assert run.in_doubt < messages // 10
