"""Channels over the nodes of a cluster: each has its home, and is had from everywhere.

Nodes that are killed again and again are in `tests/prove/test_pubsub_kills.py`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.members import NOWHERE
from sluicegate.apps.pubsub.node_settings import NodeSettings
from sluicegate.apps.pubsub.nodes import HELD_BYTES_MAX, RETURN_S, Nodes
from sluicegate.apps.pubsub.reading_group import GROUP_MIN
from sluicegate.client.pubsub import PubSubClient, PubSubPage
from sluicegate.cluster.account_limiter import AccountLimiter
from sluicegate.cluster.node import ClusterNode
from sluicegate.contracts.errors import Refused, SluicegateError
from sluicegate.contracts.reasons import HOME_UNAVAILABLE, OVERLOADED
from sluicegate.stores.redis.settings import Endpoint, RedisSettings
from sluicegate.testing import HandClock, SeededChance
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.apps.pubsub.process import Subscriber
from tests.apps.pubsub.socket import talk
from tests.engines.child import PATIENCE_S, until

ANN = token_of("ann")
UNLIMITED = ("--account-rate", "0", "--channel-rate", "0", "--heartbeat-s", "0.5")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubCluster]:
    with PubSubCluster(tmp_path_factory.mktemp("nodes"), 3, *UNLIMITED) as running:
        yield running


def test_what_is_published_anywhere_reaches_subscribers_everywhere_in_one_order(
    cluster: PubSubCluster,
) -> None:
    for home in cluster.names:
        channel = cluster.channel_at(home, prefix="order")
        with ExitStack() as stack:
            readers = [
                stack.enter_context(Subscriber(node, channel, token=ANN))
                for node in cluster.nodes.values()
                for _ in range(2)
            ]
            positions = [
                cluster.nodes[name].accept(channel, f"{name}/{turn}", ANN)
                for turn in range(3)
                for name in cluster.names
            ]
            assert positions == sorted(set(positions))
            sent = [f"{name}/{turn}" for turn in range(3) for name in cluster.names]
            assert all(reader.take(9) == sent for reader in readers)
        for node in cluster.nodes.values():
            page = node.history(channel, token=ANN)
            assert [one["data"] for one in page["messages"]] == sent
            assert [one["position"] for one in page["messages"]] == positions


def test_a_node_reads_a_channel_once_however_many_read_it_there(cluster: PubSubCluster) -> None:
    channel = cluster.channel_at("n1", prefix="once")

    def feeds() -> int:
        count: int = cluster.state(cluster.nodes["n2"])["peers"]["n1"]["feeds"]
        return count

    until(lambda: feeds() == 0, "the feeds of other tests to end")
    with ExitStack() as stack:
        readers = [
            stack.enter_context(Subscriber(cluster.nodes["n2"], channel, token=ANN))
            for _ in range(20)
        ]
        cluster.nodes["n3"].accept(channel, "x", ANN)
        assert all(reader.take(1) == ["x"] for reader in readers)
        assert feeds() == 1
        sent = cluster.nodes["n1"].metric("sluicegate_pubsub_sent_total")
        cluster.nodes["n3"].accept(channel, "y", ANN)
        assert all(reader.take(1) == ["y"] for reader in readers)
        assert cluster.nodes["n1"].metric("sluicegate_pubsub_sent_total") == sent + 1
    until(lambda: feeds() == 0, "the feed to end")


def test_who_resumes_at_another_node_misses_nothing_and_gets_nothing_twice(
    cluster: PubSubCluster,
) -> None:
    channel = cluster.channel_at("n1", prefix="resume")
    positions = [cluster.nodes["n1"].accept(channel, n, ANN) for n in range(300)]
    for name in cluster.names:
        with (
            Subscriber(cluster.nodes[name], channel, token=ANN) as along,
            Subscriber(cluster.nodes[name], channel, after=positions[9], token=ANN) as behind,
            Subscriber(cluster.nodes[name], channel, after=0, token=ANN) as first,
        ):
            cluster.nodes["n2"].accept(channel, name, ANN)
            assert along.take(1) == [name]
            assert behind.take(290) == list(range(10, 300))
            assert first.take(300) == list(range(300))
            while (got := behind.take(1)[0]) != name:
                assert got in cluster.names
            while (got := first.take(1)[0]) != name:
                assert got in cluster.names


def test_a_position_of_another_nodes_history_is_a_gap(cluster: PubSubCluster) -> None:
    """So that after a change of members nobody goes on silently in a history that is not theirs."""
    of = {home: cluster.channel_at(home, prefix="foreign") for home in ("n1", "n2")}
    other = cluster.nodes["n2"].accept(of["n2"], 1, ANN)
    count = 0
    while cluster.nodes["n1"].accept(of["n1"], count, ANN) <= other:  # among what is there
        count += 1
    for name in cluster.names:
        with Subscriber(cluster.nodes[name], of["n1"], after=other, token=ANN) as reader:
            kind, gap = reader.next()
            assert (kind, gap["after"], gap["lost"]) == ("gap", other, None)
            assert reader.take(count + 1) == list(range(count + 1))

        async def read(at: str = name) -> PubSubPage:
            url = f"ws://127.0.0.1:{cluster.ports[at]}"
            async with PubSubClient(url, token=ANN) as client:
                return await client.read(of["n1"], after=other)

        page = asyncio.run(read())
        assert page.gap is not None
        assert (page.gap.after, page.gap.lost) == (other, None)
        assert [one.data for one in page.messages] == list(range(count + 1))[:64]


def test_a_page_is_as_long_from_every_node(cluster: PubSubCluster) -> None:
    """It ends after so many bytes, so that it can be received."""
    channel = cluster.channel_at("n1", prefix="long")
    for n in range(40):
        cluster.nodes["n1"].accept(channel, f"{n}:" + 60_000 * "x", ANN)

    async def read(at: str, after: int) -> PubSubPage:
        url = f"ws://127.0.0.1:{cluster.ports[at]}"
        async with PubSubClient(url, token=ANN, timeout_ms=30_000) as client:
            return await client.read(channel, after, 1_000)

    pages = [asyncio.run(read(name, 0)) for name in cluster.names]
    assert [len(page.messages) for page in pages] == [len(pages[0].messages)] * 3
    assert 10 < len(pages[0].messages) < 40
    rest = asyncio.run(read("n2", pages[1].messages[-1].position))
    assert rest.messages[0].position > pages[1].messages[-1].position


def test_one_who_resumes_in_a_quiet_channel_waits(cluster: PubSubCluster) -> None:
    """Without asking its home again and again: that was a node's whole processor."""
    quiet, busy = (cluster.channel_at("n1", prefix=prefix) for prefix in ("quiet", "busy"))
    n1, n2 = cluster.nodes["n1"], cluster.nodes["n2"]
    position = n1.accept(quiet, "before", ANN)
    n1.accept(busy, "x", ANN)
    with Subscriber(n2, quiet, after=position, token=ANN) as reader:
        n1.accept(quiet, "after", ANN)
        assert reader.take(1) == ["after"]


def test_any_json_arrives_as_it_was_sent_through_another_node(cluster: PubSubCluster) -> None:
    values: list[object] = [
        None, "a\nb\r\n\nc", "\u2028 é 😀" * 100, [], {"": {"id": "x"}}, 10**30, -0.5, "x" * 60_000,
        "é" * 9_000,
    ]  # fmt: skip
    channel = cluster.channel_at("n1", prefix="json")
    with Subscriber(cluster.nodes["n2"], channel, token=ANN) as reader:
        for value in values:
            cluster.nodes["n3"].accept(channel, value, ANN)
        assert reader.take(len(values)) == values


def test_what_a_limit_refuses_at_the_home_is_refused_in_the_same_words_everywhere(
    tmp_path: Path,
) -> None:
    flags = ("--account-rate", "10", "--channel-rate", "0")
    with PubSubCluster(tmp_path, 2, *flags) as small, ExitStack() as stack:
        channel = small.channel_at("n1")
        for _ in range(9):
            stack.enter_context(Subscriber(small.nodes["n2"], channel, token=ANN))

        def attempted() -> float:
            accounts = small.state(small.nodes["n1"])["accounts"]
            return float(sum(one["attempted"] for one in accounts if one["account"] == "ann"))

        def cost_of_one() -> float:
            before = attempted()
            small.nodes["n2"].publish(channel, "x", ANN)
            return attempted() - before

        until(lambda: cost_of_one() == 10, "the home to have heard of all nine")
        refused_before = small.nodes["n1"].metric("sluicegate_pubsub_refused_total")
        for _ in range(20):
            status, reply = small.nodes["n2"].publish(channel, "x", ANN)
            assert status in (200, 429)
            if status == 429:
                break
        assert reply["reason"] == "suppressed", "after 20 that cost ten each"
        assert reply["retry_after"] > 0
        refused = small.nodes["n1"].metric("sluicegate_pubsub_refused_total") - refused_before
        assert refused == 1
        # A name that cannot be used, through another node too.
        assert small.nodes["n2"].publish("-", 1, ANN)[0] == 400


def test_a_home_that_is_killed_takes_its_channels_with_it_and_nothing_else(
    cluster: PubSubCluster,
) -> None:
    dead, alive = cluster.channel_at("n1", prefix="k"), cluster.channel_at("n2", prefix="k")
    n2, n3 = cluster.nodes["n2"], cluster.nodes["n3"]
    positions = [n3.accept(dead, n, ANN) for n in range(5)]
    with (
        Subscriber(n3, dead, token=ANN) as of_dead,
        Subscriber(n3, alive, token=ANN) as of_alive,
        Subscriber(n2, dead, token=ANN) as idle,
    ):
        n3.accept(dead, "last", ANN)
        assert of_dead.take(1) == idle.take(1) == ["last"]
        cluster.nodes["n1"].child.kill()
        kind, gap = of_dead.next()
        assert (kind, gap["lost"]) == ("gap", 0)
        assert idle.next()[0] == "gap"
        until(lambda: n3.publish(dead, "x", ANN)[1].get("reason") == "home_unavailable", "n1 away")
        began_s = time.monotonic()
        for n in range(20):
            status, reply = n3.publish(dead, "x", ANN)
            assert (status, reply["reason"]) == (503, "home_unavailable")
            assert reply["retry_after"] > 0
            n3.accept(alive, n, ANN)
        assert time.monotonic() - began_s < 10, "nobody waits for who is not there"
        assert of_alive.take(20) == list(range(20))
        with Subscriber(n3, dead, token=ANN) as refused:
            assert refused.status == 503
        cluster.restart("n1")
        until(lambda: n3.publish(dead, "again", ANN)[0] == 200, "n1 to be back")
        assert of_dead.take(1) == ["again"]
        assert idle.take(1) == ["again"]
        at = f"/v1/channels/{dead}/messages"
        until(lambda: n2.ask(at, token=ANN)[0] == 200, "the other node to know that n1 is back")
        page = n2.history(dead, after=positions[1], token=ANN)
        assert [one["data"] for one in page["messages"]] == [2, 3, 4, "last", "again"]


def test_restarted_home_fails_no_publish_at_another_node(cluster: PubSubCluster) -> None:
    """56 of 432 publishes were refused while one of three nodes was restarted."""
    channel, other = cluster.channel_at("n1", prefix="r"), cluster.channel_at("n1", prefix="o")
    failed: list[SluicegateError] = []

    async def publish(client: PubSubClient, number: int) -> None:
        try:
            await client.publish(channel, number, timeout_ms=1_000 * PATIENCE_S)
        except SluicegateError as error:
            failed.append(error)

    def restart() -> None:
        cluster.nodes["n1"].end()
        cluster.restart("n1")

    async def story() -> int:
        url = f"ws://127.0.0.1:{cluster.ports['n3']}"
        async with PubSubClient(url, token=ANN) as client, asyncio.TaskGroup() as group:
            await client.publish(channel, "first")  # it is connected
            restarted = group.create_task(asyncio.to_thread(restart))
            sent = 0
            while not restarted.done():
                group.create_task(publish(client, sent))
                sent += 1
                await asyncio.sleep(0.01)
            return sent

    until(lambda: cluster.nodes["n3"].publish(other, 0, ANN)[0] == 200, "n1 to be there")
    sent = asyncio.run(story())
    assert failed == []
    page = cluster.nodes["n1"].history(channel, token=ANN)
    assert [one["data"] for one in page["messages"]] == ["first", *range(sent)]


def test_publishes_wait_for_home_for_a_bounded_time(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--leave-s", "0")
    with PubSubCluster(tmp_path, 2, *flags) as pair, ThreadPoolExecutor() as pool:
        channel, n2 = pair.channel_at("n1"), pair.nodes["n2"]
        until(lambda: n2.publish(channel, 0, ANN)[0] == 200, "n1 to be there")
        pair.nodes["n1"].end()
        began_s = time.monotonic()
        waiting = [pool.submit(n2.publish, channel, number, ANN) for number in range(2)]
        until(lambda: pair.state(n2)["peers"]["n1"]["held"] == 2, "that two wait")
        assert [one.result()[1]["reason"] for one in waiting] == ["home_unavailable"] * 2
        assert time.monotonic() - began_s < RETURN_S + PATIENCE_S
        began_s = time.monotonic()
        assert n2.publish(channel, 3, ANN)[1]["reason"] == "home_unavailable"
        assert time.monotonic() - began_s < RETURN_S / 2, "a home that stays away is not waited for"


def test_publishes_that_wait_for_home_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        nodes = nodes_with_home_away()
        key = ChannelKey("ann", "c")
        waiting = [
            asyncio.ensure_future(nodes.publish("n2", key, number, passed=False))
            for number in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await nodes.publish("n2", key, 2, passed=False)
        assert refused.value.decision.reason is OVERLOADED
        for one in waiting:
            assert not one.done()
            one.cancel()
        await nodes.close()

    monkeypatch.setattr("sluicegate.apps.pubsub.nodes.FORWARDS_MAX", 2)
    asyncio.run(story())


def nodes_with_home_away() -> Nodes:
    """Node n1, which knows of an n2 that has said goodbye."""
    limiter = AccountLimiter("n1", 1, lambda _: None, SeededChance(1), 0)
    alone = ClusterNode(limiter, {}, RedisSettings(), HandClock(), SeededChance(1))
    members = {"n1": NOWHERE, "n2": Endpoint("127.0.0.1", 1)}
    nodes = Nodes(NodeSettings(node="n1"), alone, members)
    nodes.peer("n2").client.left_s = asyncio.get_running_loop().time()
    return nodes


def test_bytes_that_wait_for_homes_are_bounded() -> None:
    async def story() -> None:
        nodes = nodes_with_home_away()
        key, half = ChannelKey("ann", "c"), "x" * (HELD_BYTES_MAX // 2)
        async with asyncio.TaskGroup() as group:
            one = group.create_task(nodes.publish("n2", key, half, passed=False))
            await asyncio.sleep(0)
            with pytest.raises(Refused) as refused:
                await nodes.publish("n2", key, half, passed=False)
            assert refused.value.decision.reason is HOME_UNAVAILABLE
            one.cancel()
        two = asyncio.ensure_future(nodes.publish("n2", key, half, passed=False))
        await asyncio.sleep(0)
        assert not two.done()
        two.cancel()
        await nodes.close()

    asyncio.run(story())


def test_many_sockets_at_another_node_are_told_of_a_home_that_dies_and_go_on_when_it_is_back(
    cluster: PubSubCluster,
) -> None:
    channel = cluster.channel_at("n1", prefix="many")
    n2 = cluster.nodes["n2"]
    with ExitStack() as stack:
        readers = [stack.enter_context(talk(n2, ANN)) for _ in range(2 * GROUP_MIN)]
        for one in readers:
            one.ask("subscribe", channel=channel)
        for number in range(10):
            n2.accept(channel, number, ANN)
        assert all(one.take(10) == list(range(10)) for one in readers)
        cluster.nodes["n1"].child.kill()
        for one in readers:
            told = one.next()
            assert (told["type"], told["lost"]) == ("gap", 0)
        cluster.restart("n1")
        until(lambda: n2.publish(channel, "again", ANN)[0] == 200, "n1 to be back")
        for number in range(10):
            n2.accept(channel, number, ANN)
        assert all(one.take(11) == ["again", *range(10)] for one in readers)


def test_a_home_that_hangs_slows_nothing_that_is_at_home_elsewhere(cluster: PubSubCluster) -> None:
    stuck, alive = cluster.channel_at("n1", prefix="s"), cluster.channel_at("n2", prefix="s")
    n3 = cluster.nodes["n3"]
    until(lambda: n3.publish(stuck, 0, ANN)[0] == 200, "n1 to be there")
    n3.accept(alive, 0, ANN)
    cluster.nodes["n1"].signal(signal.SIGSTOP)
    try:
        status, _ = n3.publish(stuck, 1, ANN)
        assert status == 503
        took_s: list[float] = []
        for n in range(50):
            began_s = time.monotonic()
            n3.accept(alive, n, ANN)
            took_s.append(time.monotonic() - began_s)
        assert median(took_s) < 1.0
        assert n3.publish(stuck, 1, ANN)[1]["reason"] == "home_unavailable"
        assert n3.metric("sluicegate_pubsub_refused_total", reason="home_unavailable") > 0
    finally:
        cluster.nodes["n1"].signal(signal.SIGCONT)
    until(lambda: n3.publish(stuck, 2, ANN)[0] == 200, "n1 to go on")


def test_a_channel_that_moves_with_the_members_leaves_its_history_behind_and_says_so(
    tmp_path: Path,
) -> None:
    with PubSubCluster(tmp_path, 2, *UNLIMITED) as cluster:
        stays, moves = cluster.channel_at("n1"), cluster.channel_at("n2")
        positions = {
            channel: [cluster.nodes["n1"].accept(channel, n, ANN) for n in range(3)]
            for channel in (stays, moves)
        }
        for name in cluster.names:
            cluster.nodes[name].end()
        cluster.members = cluster.members.partition(",")[0]
        cluster.restart("n1")
        node = cluster.nodes["n1"]
        with Subscriber(node, moves, after=0, token=ANN) as reader:
            assert reader.next()[0] == "gap"
            node.accept(moves, "new", ANN)
            assert reader.take(1) == ["new"]
        page = node.history(moves, token=ANN)
        assert [one["data"] for one in page["messages"]] == ["new"]
        assert page["cut"] > 0
        with Subscriber(node, moves, after=positions[moves][1], token=ANN) as reader:
            assert reader.next()[0] == "gap"
        # The control: what stays where it was notices nothing.
        with Subscriber(node, stays, after=0, token=ANN) as reader:
            assert reader.take(3) == [0, 1, 2]
        assert node.history(stays, token=ANN)["cut"] == 0
