"""Nodes of `sluicegate pubsub`: what they say of accounts, and who may report.

That a limit holds over five of them is in `tests/prove/test_pubsub_accounts.py`.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.pubsub import top
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.client.pubsub import PubSubClient
from sluicegate.contracts.errors import BadValue, Forbidden, Unavailable
from sluicegate.contracts.suppression import AccountCount, SuppressReport
from sluicegate.contracts.usage import PeriodCount, UsageCount, UsageReport
from sluicegate.kernels.hash_ring import Rendezvous
from sluicegate.policies.quota.periods import month_of
from sluicegate.service.settings import settings_from
from sluicegate.wire.node_messages import encode_report, encode_usage
from sluicegate.wire.resp import command
from tests.apps.pubsub.cluster import PubSubCluster, token_of, write_access
from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import PATIENCE_S, until

L = 100
FLAGS = ("--account-rate", str(L), "--channel-rate", "0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubCluster]:
    with PubSubCluster(tmp_path_factory.mktemp("cluster"), 3, *FLAGS, strangers=("n9",)) as running:
        yield running


def test_top_adds_up_what_an_account_does_at_all_nodes(cluster: PubSubCluster) -> None:
    def live() -> list[int]:
        for node in cluster.nodes.values():
            node.publish("top", 1, token_of("bob"))
        return [len(cluster.state(node)["live"]) for node in cluster.nodes.values()]

    until(lambda: live() == [3] * 3, "all nodes to hear each other")
    parser = ArgumentParser()
    top.add_arguments(parser)
    urls = ",".join(node.url for node in cluster.nodes.values())
    flags = ["--at", urls, "--at", "http://127.0.0.1:1", "--token", token_of("bob"), "--once"]

    def publish(_: float) -> None:
        for node in cluster.nodes.values():
            node.accept("top", 1, token_of("bob"))

    def bob_now() -> dict[str, Any] | None:
        values = io.StringIO()
        assert top.run(parser.parse_args([*flags, "--json"]), values, publish) == 0
        found = [one for one in json.loads(values.getvalue())["accounts"] if one["masters"]]
        return next((one for one in found if one["account"] == "bob"), None)

    shown = io.StringIO()
    bob = until(bob_now, "the master of bob to be heard")
    assert top.run(parser.parse_args(flags), shown, publish) == 0
    assert "3 of 4 nodes" in shown.getvalue()
    assert "http://127.0.0.1:1 does not answer" in shown.getvalue()
    assert bob["attempted"] == bob["admitted"] > 0
    assert bob["limit"] == L
    assert bob["masters"] == [Rendezvous(dict.fromkeys(cluster.names, 1.0)).owner("bob")]
    assert 0 <= bob["age_us"] < 60_000_000
    with pytest.raises(Unavailable, match="grant audit"):
        top.run(
            parser.parse_args(["--at", urls, "--token", token_of("n1"), "--once"]), shown, publish
        )


def test_nobody_forges_a_report(cluster: PubSubCluster) -> None:
    """Not an account, nor a node in another's name, nor a stranger; and no account is refused."""
    node = cluster.nodes["n1"]
    before = node.ask("/v1/usage", token=token_of("bob"))[1]["month"]["used"]
    flood = encode_report(
        SuppressReport("n2", 1 << 52, (AccountCount("bob", 1 << 40, 1 << 40, 0.0),))
    )
    month = PeriodCount(month_of(time.time_ns() // 1_000), 1 << 40, 0, 1 << 40)
    used = encode_usage(UsageReport("n2", 1 << 52, (UsageCount("bob", month, month, 99, 99),)))
    for forged in (flood, used):
        for token, reply in (("n3", b"-NOPERM"), ("ann", b"-NOPERM"), ("nobody", b"-WRONGPASS")):
            assert _say(node, command("AUTH", token_of(token)) + forged).startswith(reply)
        assert _say(node, forged).startswith(b"-NOAUTH")
    assert node.metric("sluicegate_pubsub_reports_forged_total") == 2
    assert node.ask("/v1/usage", token=token_of("bob"))[1]["month"]["used"] == before < 1_000
    left = encode_report(SuppressReport("n9", 1 << 52, ()))
    assert _say(node, command("AUTH", token_of("n9")) + left).startswith(b"-NOPERM")
    assert node.publish("c", 1, token_of("bob"))[0] == 200


def test_who_is_no_member_speaks_for_no_account(cluster: PubSubCluster) -> None:
    """Though it is granted `report`: a node that has left, say."""
    home = cluster.home_of("c", "bob")

    async def publish(name: str) -> int:
        url = f"ws://127.0.0.1:{cluster.ports[home]}"
        async with PubSubClient(url, token=token_of(name)) as client:
            return await client.publish("bob/c", 1)

    with pytest.raises(Forbidden, match="n9"):
        asyncio.run(publish("n9"))
    member = next(name for name in cluster.names if name != home)
    assert asyncio.run(publish(member)) > 0  # the control


def test_a_node_is_told_what_it_needs_to_be_one(tmp_path: Path) -> None:
    members = "a=127.0.0.1:7001,b=127.0.0.1:7002"
    access = write_access(tmp_path / "access.toml", ["a"], [])
    cases = {
        "--members": ("--node", "a"),
        "name this node": ("--node", "c", "--members", members),
        "--access": ("--node", "a", "--members", members),
        "--node-token": ("--node", "a", "--members", members, "--access", access),
        "NAME=HOST:PORT": ("--node", "a", "--members", "a"),
        "name each node once": ("--node", "a", "--members", "a=x:1,a=y:1"),
    }
    for expected, flags in cases.items():
        with pytest.raises(BadValue, match=expected):
            settings_from(PubSubSettings, *flags)


def _say(node: PubSubProcess, what: bytes) -> bytes:
    """The last of the replies."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S) as line:
        line.sendall(what + command("QUIT"))
        replies = line.makefile("rb").read().split(b"\r\n")
    errors = [reply for reply in replies if reply.startswith(b"-")]
    return errors[0] if errors else b"".join(replies)
