"""A refusal costs less than what it refuses: it is made where the publish comes in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluicegate.apps.pubsub import session
from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.nodes import COST_S, COSTS_MAX, ChannelCosts
from sluicegate.doors.http import identity
from sluicegate.doors.http.message import json_bytes
from sluicegate.wire.json_objects import parse_json
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.apps.pubsub.refused import COST, RefusedAccount
from tests.apps.pubsub.socket import talk
from tests.engines.child import until

ANN = token_of("ann")
ATTEMPTS = 500


@pytest.mark.parametrize("home", ["", "n1"], ids=["at home", "elsewhere"])
def test_refused_publish_starts_no_task_and_writes_no_json(
    monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    parsed = written = 0
    parse, write = parse_json, json_bytes

    def count_parse(*words: object) -> object:
        nonlocal parsed
        parsed += 1
        return parse(*words)  # type: ignore[arg-type]

    def count_write(value: object) -> bytes:
        nonlocal written
        written += 1
        return write(value)

    async def story() -> None:
        refused = RefusedAccount(home)
        before, tasks = refused.attempted(), len(asyncio.all_tasks())
        monkeypatch.setattr(session, "parse_json", count_parse)
        monkeypatch.setattr(identity, "json_bytes", count_write)
        for number in range(ATTEMPTS):
            refused.session.receive(refused.publish_text(number))
        started = len(asyncio.all_tasks()) - tasks
        await asyncio.sleep(0)
        assert started == refused.let_in < ATTEMPTS // 50
        assert refused.socket.refused == ATTEMPTS - refused.let_in
        cost = COST if home else 1
        assert refused.attempted() - before == ATTEMPTS * cost
        assert parsed == ATTEMPTS
        assert written <= 1

    asyncio.run(story())


def test_cost_of_channel_is_believed_for_a_while() -> None:
    costs, key = ChannelCosts(), ChannelKey("ann", "news")
    assert costs.find(key, 0.0) == 0
    costs.note(key, 5, 10.0)
    assert costs.find(key, 10.0 + COST_S / 2) == 5
    assert costs.find(key, 10.0 + COST_S) == 0
    for number in range(COSTS_MAX):
        costs.note(ChannelKey("ann", str(number)), 1, 10.0)
    assert costs.find(key, 10.0) == 0
    assert costs.find(ChannelKey("ann", "0"), 10.0) == 1


def test_node_refuses_by_itself_and_all_attempts_are_counted(tmp_path: Path) -> None:
    flags = ("--account-rate", "50", "--channel-rate", "0")
    with PubSubCluster(tmp_path, 2, *flags) as cluster:
        node, channel = cluster.nodes["n2"], cluster.channel_at("n1")

        def attempted() -> int:
            nodes = cluster.nodes.values()
            accounts = [one for node in nodes for one in cluster.state(node)["accounts"]]
            return int(sum(one["attempted"] for one in accounts if one["account"] == "ann"))

        with talk(node, ANN) as client:
            counted = unclear = 0  # a busy machine may answer that the home is not there

            def burst(count: int) -> list[str]:
                nonlocal counted, unclear
                for number in range(count):
                    client.send("publish", channel=channel, data=number)
                told = [client.next() for _ in range(count)]
                reasons = [one.get("problem", {}).get("reason", one["type"]) for one in told]
                sure = sum(reason in ("accepted", "suppressed") for reason in reasons)
                counted, unclear = counted + sure, unclear + count - sure
                return reasons

            def refuses_alone() -> bool:
                before = node.metric("sluicegate_pubsub_forwarded_total")
                told = burst(300)
                passed_on = node.metric("sluicegate_pubsub_forwarded_total") - before
                return passed_on == told.count("accepted") < 150

            until(refuses_alone, "the node to refuse by itself")
            assert counted <= attempted() <= counted + unclear


def test_only_nodes_say_that_a_publish_has_passed(tmp_path: Path) -> None:
    with PubSubCluster(tmp_path, 2) as cluster, talk(cluster.nodes["n1"], ANN) as client:
        told = client.ask("publish", channel="news", data=1, passed=True)
        assert (told["problem"]["status"], told["problem"]["field"]) == (400, "passed")
