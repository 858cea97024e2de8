"""What accounts use up and hold, with real processes that are killed."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from sluicegate.kernels.hash_ring import Rendezvous
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import talk
from tests.engines.child import PATIENCE_S, until

UNLIMITED = ("--account-rate", "0", "--channel-rate", "0")
MONTH = ("--account-month", "40", "--hour-ratio", "0")  # restricted at 100
ANN = token_of("ann")


def used(server: PubSubProcess, token: str = "") -> int:
    status, page = server.ask("/v1/usage", token=token)
    assert status == 200
    return int(page["month"]["used"])


def uses(server: PubSubProcess, messages: int) -> bool:
    return used(server, ANN) == messages


def test_an_account_is_warned_then_restricted_and_a_kill_changes_neither(tmp_path: Path) -> None:
    flags = (*UNLIMITED, *MONTH)
    with PubSubProcess(tmp_path, *flags) as server, Subscriber(server, "news"):
        replies = [server.publish("news", n) for n in range(60)]  # each costs two
        accepted = [reply for status, reply in replies if status == 200]
        assert len(accepted) == 50
        assert ["warnings" in one for one in accepted] == [n >= 15 for n in range(50)]
        assert accepted[-1]["warnings"] == [
            {"limit": "month", "used": 100, "nominal": 40, "restricted_at": 100}
        ]
        assert {reply["reason"] for status, reply in replies if status != 200} == {"monthly_limit"}
        assert used(server) == 100
        (shown,) = server.ask("/v1/state")[1]["cluster"]["accounts"]
        assert shown["usage"]["month"]["used"] == 100
        assert shown["warnings"] == accepted[-1]["warnings"]
        with talk(server) as socket:
            told = socket.ask("publish", channel="news", data=1)
            assert told["problem"]["reason"] == "monthly_limit"
            assert told["problem"]["retry_after"] > 1
        server.child.kill()
    for how in (signal.SIGTERM, signal.SIGKILL):
        with PubSubProcess(tmp_path, *flags) as server:
            assert used(server) == 100
            assert server.publish("news", 1)[1]["reason"] == "monthly_limit"
            server.signal(how)
            server.child.wait(PATIENCE_S)
    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        for n in range(7):  # nobody reads now: one each
            server.accept("news", n)
        server.child.kill()
    with PubSubProcess(tmp_path, *flags) as server:
        assert used(server) == 107


def test_all_nodes_go_by_one_sum_also_when_a_master_is_killed(tmp_path: Path) -> None:
    flags = ("--account-rate", "0", "--channel-rate", "0", "--usage-s", "0.05", *MONTH)
    with PubSubCluster(tmp_path, 3, *flags) as cluster:
        master = Rendezvous(dict.fromkeys(cluster.names, 1.0)).owner("ann")
        channels = {name: cluster.channel_at(name) for name in cluster.names}
        for name, channel in channels.items():
            for n in range(20):
                cluster.nodes[name].accept(channel, n, ANN)
        for node in cluster.nodes.values():
            until(partial(uses, node, 60), "the sum to be known everywhere")
        cluster.nodes[master].child.kill()
        others = [name for name in cluster.names if name != master]
        for n in range(20):
            cluster.nodes[others[0]].accept(channels[others[0]], n, ANN)
        until(lambda: used(cluster.nodes[others[1]], ANN) == 80, "the new master to go on")
        cluster.restart(master)
        for n in range(20):
            cluster.nodes[master].accept(channels[master], n, ANN)
        for name, channel in channels.items():
            node = cluster.nodes[name]
            until(partial(uses, node, 100), "the sum to be known everywhere")
            assert node.publish(channel, 1, ANN)[1]["reason"] == "monthly_limit"
            assert used(node, ANN) == 100
            assert node.publish(channel, 1, token_of("bob"))[0] == 200


def test_usage_is_the_same_at_nodes_that_only_pass_on(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--account-month", "720", "--hour-ratio", "10")  # 10 an hour, ends at 25
    with PubSubCluster(tmp_path, 3, *flags, "--usage-s", "60") as cluster:
        channel = cluster.channel_at("n1")
        others = [cluster.nodes[name] for name in ("n2", "n3")]
        master = Rendezvous(dict.fromkeys(cluster.names, 1.0)).owner("ann")
        replies = [others[0].publish(channel, n, ANN) for n in range(30)]
        reasons = [reply["reason"] for status, reply in replies if status != 200]
        assert reasons == ["hourly_limit"] * 5
        home = cluster.nodes["n1"]
        assert used(home, ANN) == 25  # it tells the master, and reports once a minute else
        assert master in cluster.names
        for node in others:
            _, page = node.ask("/v1/usage", token=ANN)
            assert page["hour"] == {"used": 25, "nominal": 10, "restricted_at": 25}


def test_node_that_passes_on_warns_too(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--account-month", "72000", "--usage-s", "0.05", "--hour-ratio", "1")
    with PubSubCluster(tmp_path, 2, *flags) as cluster:
        node, channel = cluster.nodes["n2"], cluster.channel_at("n1")

        def warned() -> bool:
            return "warnings" in node.publish(channel, 1, ANN)[1]

        for n in range(90):  # of 100 an hour
            cluster.nodes["n1"].accept(channel, n, ANN)
        until(warned, "the warning at the node that passes on")


def test_connections_of_an_account_are_bounded_over_all_nodes(tmp_path: Path) -> None:
    flags = ("--account-connections", "3", "--usage-s", "0.05")
    with PubSubCluster(tmp_path, 2, *flags) as cluster, ExitStack() as stack:
        one, two = cluster.nodes.values()
        stack.enter_context(talk(one, ANN))
        stack.enter_context(Subscriber(one, "news", token=ANN))
        reader = stack.enter_context(Subscriber(two, "news", token=ANN))
        for node in cluster.nodes.values():

            def full(node: PubSubProcess = node) -> bool:
                _, page = node.ask("/v1/usage", token=ANN)
                return bool(page["connections"] == {"now": 3, "limit": 3})

            until(full, "the connections to be known everywhere")
            with pytest.raises(InvalidStatus, match="429"), talk(node, ANN):
                pass
            with Subscriber(node, "news", token=ANN) as refused:
                assert refused.status == 429
            with talk(node, token_of("bob")) as socket:
                assert socket.ask("publish", channel="news", data=1)["type"] == "accepted"
            assert node.publish("news", 1, ANN)[0] == 200  # to publish needs none of them
        reader.__exit__()

        def free() -> bool:
            with Subscriber(one, "news", token=ANN) as again:
                return again.status == 200

        until(free, "a connection that ended to be free for another")


def test_a_reader_that_leaves_just_as_a_message_comes_is_counted_no_longer(tmp_path: Path) -> None:
    ended = threading.Event()
    with PubSubProcess(tmp_path, *UNLIMITED, "--account-connections", "1000") as server:

        def publish() -> None:
            while not ended.is_set():
                server.accept("news", 1)

        with ThreadPoolExecutor(1) as pool:
            publishing = pool.submit(publish)
            try:
                for reader in [Subscriber(server, "news") for _ in range(60)]:
                    ended.wait(0.003)  # for some messages to come
                    reader.__exit__()
            finally:
                ended.set()
            publishing.result()

        def none_left() -> bool:
            return bool(server.ask("/v1/usage")[1]["connections"]["now"] == 0)

        until(none_left, "no connection to be counted")


def test_channels_with_messages_are_bounded_and_readers_are_not(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--account-channels", "2", "--channels-max", "3")
    with PubSubProcess(tmp_path, *flags) as server, ExitStack() as stack:
        for n in range(5):
            stack.enter_context(Subscriber(server, f"read-{n}"))
        server.accept("read-0", 1)
        server.accept("one", 1)
        status, reply = server.publish("two", 1)
        assert (status, reply["reason"], reply["rule"]) == (429, "channels_full", "usage")
        server.accept("one", 2)
        assert server.metric("sluicegate_pubsub_channels_written") == 2
