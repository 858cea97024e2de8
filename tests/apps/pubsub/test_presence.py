"""Who is in a channel, at every node, while connections, nodes and homes come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.presence import (
    ENTER,
    LEAVE,
    Owner,
    Place,
    Presence,
    PresenceBounds,
    PresenceEvent,
)
from sluicegate.client.pubsub import LostContinuity, PubSubClient
from sluicegate.client.sync_pubsub import SyncPubSubClient
from sluicegate.contracts.errors import Refused
from tests.apps.pubsub.cluster import PubSubCluster, token_of
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import talk
from tests.engines.child import until

UNLIMITED = ("--account-rate", "0", "--channel-rate", "0")
ANN = token_of("ann")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubCluster]:
    with PubSubCluster(tmp_path_factory.mktemp("presence"), 3, *UNLIMITED) as running:
        yield running


def members(server: PubSubProcess, channel: str, token: str = "") -> dict[str, object]:
    status, page = server.ask(f"/v1/channels/{channel}/presence", token=token)
    assert status == 200
    return {one["member"]: one["data"] for one in page["members"]}


def client_of(cluster: PubSubCluster, name: str) -> PubSubClient:
    return PubSubClient(f"ws://127.0.0.1:{cluster.ports[name]}", token=ANN)


def test_who_enters_is_seen_from_every_node_and_gone_when_its_connection_is(
    cluster: PubSubCluster,
) -> None:
    channel = cluster.channel_at("n1")
    events = ExitStack()
    with events:
        readers = [
            events.enter_context(Subscriber(node, channel, token=ANN))
            for node in cluster.nodes.values()
        ]
        with talk(cluster.nodes["n2"], ANN) as away, talk(cluster.nodes["n1"], ANN) as home:
            first = away.ask("enter", channel=channel, member="mia", data={"at": "n2"})
            assert first["type"] == "entered"
            home.ask("enter", channel=channel, member="tom")
            away.ask("update", channel=channel, member="mia", data=2)
            for node in cluster.nodes.values():
                assert members(node, channel, ANN) == {"mia": 2, "tom": None}
            told = away.ask("members", channel=channel)["members"]
            assert [one["member"] for one in told] == ["mia", "tom"]
            assert home.ask("leave", channel=channel, member="tom")["type"] == "left"
            assert members(cluster.nodes["n3"], channel, ANN) == {"mia": 2}
            home.ask("leave", channel=channel, member="mia")  # it is not this one's
            assert members(cluster.nodes["n3"], channel, ANN) == {"mia": 2}
        seen = [[reader.next() for _ in range(5)] for reader in readers]
    assert seen[0] == seen[1] == seen[2]
    assert [(kind, one["presence"], one["member"]) for kind, one in seen[0]] == [
        ("presence", "enter", "mia"),
        ("presence", "enter", "tom"),
        ("presence", "update", "mia"),
        ("presence", "leave", "tom"),
        ("presence", "leave", "mia"),
    ]


def test_a_member_of_one_who_connects_again_stays_and_who_took_it_over_keeps_it(
    cluster: PubSubCluster,
) -> None:
    channel = cluster.channel_at("n1", prefix="again")
    node, other = cluster.nodes["n2"], cluster.nodes["n3"]
    with Subscriber(other, channel, token=ANN) as reader:
        with talk(node, ANN) as old:
            held = old.ask("enter", channel=channel, member="mia", data=1)["position"]
            with talk(other, ANN) as new:
                new.ask("enter", channel=channel, member="mia", data=2)
                old.ask("enter", channel=channel, member="mia", data=1, held=held)
                assert members(node, channel, ANN) == {"mia": 2}
                with talk(other, ANN) as newest:  # the same data: nobody hears of it
                    newest.ask("enter", channel=channel, member="mia", data=2)
                    new.connection.close()
                    other.accept(channel, "after", ANN)
        seen = [reader.next() for _ in range(4)]
    assert [one.get("presence", "message") for _, one in seen] == [
        "enter", "update", "message", "leave"
    ]  # fmt: skip


def test_members_outlive_their_home_and_go_with_a_node_that_does_not_come_back(
    tmp_path: Path,
) -> None:
    async def story(cluster: PubSubCluster) -> None:
        channel = cluster.channel_at("n1")
        async with AsyncExitStack() as stack:
            two, three = [
                await stack.enter_async_context(client_of(cluster, name)) for name in ("n2", "n3")
            ]
            with SyncPubSubClient(f"ws://127.0.0.1:{cluster.ports['n1']}", token=ANN) as one:
                await asyncio.to_thread(one.enter, channel, "one", 1)
                await two.enter(channel, "two", 2)
                await three.enter(channel, "three", 3)
                cluster.nodes["n1"].child.kill()
                await asyncio.to_thread(cluster.restart, "n1")
            await asyncio.sleep(0)

            def left(*names: str) -> bool:
                return set(members(cluster.nodes["n1"], channel, ANN)) == set(names)

            await asyncio.to_thread(until, lambda: left("two", "three"), "one to be gone")
            at = f"/v1/channels/{channel}/messages"
            known = lambda: cluster.nodes["n2"].ask(at, token=ANN)[0] == 200  # noqa: E731
            await asyncio.to_thread(until, known, "the other node to know that the home is back")
            reading = await stack.enter_async_context(two.subscribe(channel, 0, presence=True))
            cluster.nodes["n3"].child.kill()
            await asyncio.to_thread(until, lambda: left("two"), "three to be gone")
            seen: list[tuple[str | None, str | None]] = []
            while len(seen) < 5:
                received = await reading.next(10_000)
                assert not isinstance(received, LostContinuity)
                seen.append((received.presence, received.member))
            assert seen[:3] == [("enter", "one"), ("enter", "two"), ("enter", "three")]
            assert sorted(seen[3:]) == [("leave", "one"), ("leave", "three")]

    with PubSubCluster(tmp_path, 3, *UNLIMITED) as cluster:
        asyncio.run(story(cluster))


def test_over_http_a_member_is_there_for_a_while(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED) as server, Subscriber(server, "room") as reader:
        path = "/v1/channels/room/presence/mia"
        assert server.ask(path, {"data": 1, "for_s": 60}, method="PUT")[0] == 200
        assert server.ask(path, {"data": 1, "for_s": 1}, method="PUT")[0] == 200
        assert server.ask("/v1/channels/room/presence/tom", {}, method="PUT")[0] == 200
        assert members(server, "room") == {"mia": 1, "tom": None}
        assert server.ask("/v1/channels/room/presence/tom", {}, method="DELETE")[0] == 204
        seen = [reader.next()[1] for _ in range(4)]
        assert [(one["presence"], one["member"]) for one in seen] == [
            ("enter", "mia"), ("enter", "tom"), ("leave", "tom"), ("leave", "mia")
        ]  # fmt: skip
        assert members(server, "room") == {}
        for wrong in ({"for_s": 0}, {"for": 1}):
            assert server.ask(path, wrong, method="PUT")[0] == 400
        assert server.ask("/v1/channels/room/presence/-", {}, method="PUT")[0] == 400


def test_to_enter_and_update_is_charged_and_refused_like_a_publish_and_to_leave_is_charged(
    tmp_path: Path,
) -> None:
    flags = ("--account-rate", "0", "--channel-rate", "0", "--account-month", "4")  # ends at 10
    with PubSubProcess(tmp_path, *flags, "--hour-ratio", "0") as server:
        with Subscriber(server, "room"), talk(server) as socket:
            told = [socket.ask("enter", channel="room", member=name) for name in "abcdef"]
            assert [one["type"] for one in told] == ["entered"] * 5 + ["error"]
            assert told[-1]["problem"]["reason"] == "monthly_limit"
            assert socket.ask("leave", channel="room", member="a")["type"] == "left"
            assert "a" not in members(server, "room")
            _, usage = server.ask("/v1/usage")
            assert usage["month"]["used"] == 12
        until(
            lambda: members(server, "room") == {}, "all to leave, though nothing may be published"
        )


def test_members_are_bounded(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--presence-channel-max", "2", "--subscriptions-max", "3")
    with PubSubProcess(tmp_path, *flags) as server, talk(server) as socket:
        told = [socket.ask("enter", channel="room", member=name) for name in "abc"]
        assert told[2]["problem"]["reason"] == "presence_full"
        assert socket.ask("update", channel="room", member="a", data=1)["type"] == "entered"
        told = [socket.ask("enter", channel=f"room-{name}", member=name) for name in "ab"]
        assert told[1]["problem"]["reason"] == "subscriptions_full"


def test_what_the_history_says_is_who_is_there() -> None:
    presence, key = Presence(PresenceBounds(2, 3)), ChannelKey("ann", "room")
    for position, (action, member) in enumerate(
        [(ENTER, "a"), (ENTER, "b"), (LEAVE, "a"), (LEAVE, "nobody"), (ENTER, "b")]
    ):
        presence.apply(key, PresenceEvent(action, member), position, position)
    assert dict(presence.members(key)) == {"b": (b"4", 4)}
    assert len(presence) == 1
    assert list(presence.unowned()) == [Place(key, "b")]
    first, second = Owner(), Owner()
    presence.claim(Place(key, "b"), first)
    presence.claim(Place(key, "b"), second)
    assert presence.end(first) == []
    assert list(presence.unowned()) == []
    assert presence.end(second) == [Place(key, "b")]
    presence.disown(Place(key, "b"))
    presence.apply(ChannelKey("ann", "x"), PresenceEvent(ENTER, "c"), None, 5)
    presence.apply(ChannelKey("ann", "y"), PresenceEvent(ENTER, "d"), None, 6)
    with pytest.raises(Refused):
        presence.reserve(ChannelKey("ann", "z"), ENTER, "e", b"null")
