"""Presence is bounded in bytes: what members hold, what a reply has, what a connection owes."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.history import ChannelHistory
from sluicegate.apps.pubsub.presence import (
    ENTER,
    LEAVE,
    MEMBER_BYTES,
    UPDATE,
    Owner,
    Place,
    Presence,
    PresenceBounds,
    PresenceEvent,
)
from sluicegate.client.pubsub import PubSubClient
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from tests.apps.pubsub.cluster import PubSubCluster
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.socket import talk
from tests.apps.pubsub.test_presence import ANN, UNLIMITED, members
from tests.engines.child import until

ROOM = ChannelKey("ann", "room")
DATA_BYTES = 60_000
MEMBERS = 200
ASKS = 250  # 12 KB; the pages are more than the sockets' buffers hold
RSS_GROWTH_MAX = 48 << 20  # four replies with all members; all replies would be 3 GB


def enter(presence: Presence, member: str, data: object, position: int) -> None:
    text = presence.text_of(data)
    action = UPDATE if member in presence.members(ROOM) else ENTER
    event = presence.reserve(ROOM, action, member, text)
    presence.apply(ROOM, event, data, position)


def size_of(member: str, data: object) -> int:
    return len(member) + len(json.dumps(data)) + MEMBER_BYTES


def test_member_that_joins_updates_and_leaves_gives_bytes_back() -> None:
    presence = Presence()
    enter(presence, "mia", "x" * 100, 1)
    assert presence.bytes == presence.bytes_of["ann"] == size_of("mia", "x" * 100)
    enter(presence, "mia", "x", 2)
    assert presence.bytes == size_of("mia", "x")
    presence.apply(ROOM, PresenceEvent(LEAVE, "mia"), None, 3)
    assert (presence.bytes, presence.bytes_of, len(presence)) == (0, {}, 0)
    presence.apply(ROOM, PresenceEvent(LEAVE, "mia"), None, 4)
    assert (presence.bytes, len(presence)) == (0, 0)


def test_member_that_is_not_kept_gives_bytes_back() -> None:
    presence = Presence(PresenceBounds(presence_channel_max=1))
    event = presence.reserve(ROOM, ENTER, "mia", b"1")
    assert presence.bytes == size_of("mia", 1)
    with pytest.raises(Refused, match="--presence-channel-max 1: there would be 2 members"):
        presence.reserve(ROOM, ENTER, "tom", b"1")
    presence.release(ROOM, event)
    assert (presence.bytes, presence.bytes_of) == (0, {})
    enter(presence, "tom", 1, 1)


def test_channel_that_moves_gives_bytes_back() -> None:
    presence = Presence()
    enter(presence, "mia", 1, 1)
    enter(presence, "tom", 1, 2)
    entering = presence.reserve(ROOM, ENTER, "zoe", b"1")
    presence.forget(ROOM)
    presence.release(ROOM, entering)
    assert (presence.bytes, presence.bytes_of, len(presence)) == (0, {}, 0)


def test_member_held_for_another_home_gives_bytes_back() -> None:
    presence, place = Presence(), Place(ROOM, "mia")
    first, second = Owner(), Owner()
    presence.hold("ann", 50)
    presence.claim(place, first, 50)
    presence.hold("ann", 70)
    presence.claim(place, second, 70)
    assert presence.bytes_of == {"ann": 70}
    presence.disown(place)
    assert (presence.bytes, presence.bytes_of) == (0, {})


@pytest.mark.parametrize("bound", ["presence_account_bytes", "presence_bytes"])
def test_members_over_a_bound_in_bytes_are_rejected(bound: str) -> None:
    room = size_of("mia", 1)
    presence = Presence(PresenceBounds()._replace(**{bound: 2 * room}))
    enter(presence, "mia", 1, 1)
    enter(presence, "tom", 1, 2)
    flag = "--" + bound.replace("_", "-")
    with pytest.raises(Refused, match=f"{flag} {2 * room}: there would be .*; let members leave"):
        enter(presence, "zoe", 1, 3)
    other = ChannelKey("bob", "room")
    if bound == "presence_account_bytes":
        presence.reserve(other, ENTER, "zoe", b"1")
    else:
        with pytest.raises(Refused):
            presence.reserve(other, ENTER, "zoe", b"1")


def test_member_with_much_data_is_rejected() -> None:
    presence = Presence(PresenceBounds(presence_member_bytes=10))
    assert presence.text_of("x" * 8) == b'"xxxxxxxx"'
    with pytest.raises(BadValue, match=r"11 bytes.*at most 10 .*--presence-member-bytes"):
        presence.text_of("x" * 9)


@pytest.mark.parametrize("bytes_max", [1, 200, 1_000, 1 << 20])
def test_pages_have_each_member_once_by_name(bytes_max: int) -> None:
    presence = Presence()
    names = [f"m{number}" for number in range(50)]
    for position, name in enumerate(reversed(names)):
        enter(presence, name, position, position + 1)
    found: list[str] = []
    page = presence.page(ROOM, "", bytes_max)
    while page.next:
        assert page.next == list(page.members)[-1]
        found += page.members
        page = presence.page(ROOM, page.next, bytes_max)
    found += page.members
    assert found == sorted(names)
    assert presence.page(ROOM, "zzz", bytes_max) == ({}, "")


class FailingLog:
    """Accepts nothing."""

    def append(self, *_: object) -> Future[int]:
        failed: Future[int] = Future()
        failed.set_exception(Unavailable("the disk", "it is full"))
        return failed


def test_failed_write_gives_bytes_back() -> None:
    async def story() -> None:
        presence = Presence()
        log: Any = FailingLog()
        history = ChannelHistory(
            log,
            bytes_max=1 << 20,
            age_us_max=1 << 40,
            channels_max=10,
            bucket=lambda: None,
            presence=presence,
        )
        event = presence.reserve(ROOM, ENTER, "mia", b"1")
        with pytest.raises(Unavailable):
            await history.append(history.channel(ROOM), 1, 0, 1, event)
        assert (presence.bytes, presence.bytes_of) == (0, {})

    asyncio.run(story())


# Of a whole server.


def rss_of(server: PubSubProcess) -> int:
    text = Path(f"/proc/{server.child.pid}/status").read_text()
    line = next(one for one in text.splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def present_bytes(server: PubSubProcess, token: str = "") -> int:
    _, text = server.ask("/metrics", token=token)
    name = "sluicegate_pubsub_present_bytes "
    return next(int(one[len(name) :]) for one in text.splitlines() if one.startswith(name))


def test_unread_presence_replies_are_bounded_and_health_answers(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--presence-member-bytes", "65536", "--subscriptions-max", "1000")
    with PubSubProcess(tmp_path, *flags, "--received-bytes", str(1 << 30)) as server:
        with talk(server) as client:
            data = "x" * DATA_BYTES
            for number in range(MEMBERS):
                told = client.ask("enter", channel="room", member=f"m{number}", data=data)
                assert told["type"] == "entered", told
            before = rss_of(server)
            with talk(server, ping_interval=None) as reader:
                for number in range(ASKS):
                    reader.send("members", channel="room")
                    if number % 10 == 0:
                        assert server.ask("/healthz")[0] == 200
                assert client.ask("publish", channel="other", data=1)["type"] == "accepted"
                assert rss_of(server) - before < RSS_GROWTH_MAX
                told = [reader.next() for _ in range(ASKS)]
            assert {one["type"] for one in told} == {"members"}
            assert all(len(json.dumps(one)) < 3 * (64 << 10) for one in told)
        until(lambda: members(server, "room") == {}, "all to leave")
        assert present_bytes(server) == 0


def test_members_are_read_in_pages_from_every_node(tmp_path: Path) -> None:
    async def story(cluster: PubSubCluster) -> None:
        channel = cluster.channel_at("n1")
        names = sorted(f"m{number}" for number in range(30))
        node = cluster.nodes["n2"]
        async with PubSubClient(f"ws://127.0.0.1:{node.port}", token=ANN) as client:
            for name in names:
                await client.enter(channel, name, "x" * 500)
            page = await client.members_page(channel, bytes_max=5_000)
            assert page.next is not None
            assert 1 < len(page.members) < 10
            assert [one.member for one in await client.members(channel)] == names
            path, found = f"/v1/channels/{channel}/presence", list[str]()
            after: str | None = ""
            while after is not None:
                status, part = await asyncio.to_thread(
                    node.ask, f"{path}?bytes=5000&after={after}", token=ANN
                )
                assert status == 200
                found += [one["member"] for one in part["members"]]
                after = part["next"]
            assert found == names
        home = cluster.nodes["n1"]
        await asyncio.to_thread(until, lambda: not members(home, channel, ANN), "all to leave")

    with PubSubCluster(tmp_path, 2, *UNLIMITED) as cluster:
        asyncio.run(story(cluster))


def test_member_over_http_with_much_data_is_rejected(tmp_path: Path) -> None:
    flags = ("--presence-account-bytes", "4096")
    with PubSubProcess(tmp_path, *UNLIMITED, *flags) as server:
        path = "/v1/channels/room/presence/"
        status, told = server.ask(f"{path}a", {"data": "x" * 5_000}, method="PUT")
        assert (status, told["field"]) == (400, "data")
        for name in "abc":
            assert server.ask(f"{path}{name}", {"data": 1, "for_s": 1}, method="PUT")[0] == 200
        status, told = server.ask(f"{path}d", {"data": 1}, method="PUT")
        assert (status, told["reason"]) == (429, "presence_full")
        assert told["detail"].startswith("--presence-account-bytes 4096: there would be 4,1")
        until(lambda: present_bytes(server) == 0, "the members to expire")
        assert server.ask(f"{path}d", {"data": 1}, method="PUT")[0] == 200
