"""The start of a history: it reads what the window can hold, and misses nothing by that."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import pytest

from sluicegate.apps.pubsub import history
from sluicegate.apps.pubsub.channel import ChannelKey
from sluicegate.apps.pubsub.fenced_log import FencedLog
from sluicegate.apps.pubsub.histories import tag_of_part
from sluicegate.apps.pubsub.history import MESSAGE_BYTES, ChannelHistory
from sluicegate.apps.pubsub.presence import (
    ENTER,
    LEAVE,
    UPDATE,
    Presence,
    PresenceBounds,
    PresenceEvent,
)
from sluicegate.wire.json_objects import encode_json
from tests.apps.pubsub.test_fenced_log import KIND, Producer, Topic

NEWS: Final = ChannelKey("ann", "news")
ROOM: Final = ChannelKey("ann", "room")
WINDOW: Final = 40  # messages, at most
FENCE: Final = 10  # events before them that are read for who counts
AGE_US: Final = 1_000_000


class Node:
    """One that is the home of the topic's only part from now on."""

    def __init__(self, topic: Topic, now_us: int = 0) -> None:
        self.topic = topic
        self.now_us = now_us
        self.presence = Presence(PresenceBounds(1_000, 1_000))
        self.producer = Producer(topic)
        self.charged = 0
        self.history = ChannelHistory(
            FencedLog(self.producer, "n1"),
            bytes_max=WINDOW * MESSAGE_BYTES,
            age_us_max=AGE_US,
            channels_max=10,
            bucket=lambda: None,
            tag=tag_of_part(0),
            presence=self.presence,
            usage=self,
        )

    def charge(self, account: str, cost: int, at_us: int) -> None:
        self.charged += cost

    def count_channels(self, account: str, change: int) -> None:
        pass

    async def start(self, counted: int = 1 << 62) -> int:
        """How many events it reads."""
        log = self.history._log
        assert isinstance(log, FencedLog)
        until = await asyncio.to_thread(log.claim, self.now_us)
        young = log.offset_since(self.now_us - AGE_US)
        self.history.counted = counted
        before = self.topic.reads
        await self.history.read(self.now_us, 0, until, end=until + 1, young=young)
        self.history.counted = 0
        read = self.topic.reads - before
        await self.state()
        return read

    async def state(self) -> None:
        self.history.state_members(self.now_us)
        while self.history._stating:
            await asyncio.sleep(0)

    async def publish(self, count: int, event: PresenceEvent | None = None) -> int:
        """The position of the last."""
        position = 0
        for number in range(count):
            channel = self.history.channel(NEWS if event is None else ROOM)
            made = self.history.append(channel, number, self.now_us, 2, event)
            position = (await made).position
            await self.state()
        return position

    def positions(self) -> list[int]:
        """What can be read again in the channel, oldest first."""
        channel = self.history.channels.get(NEWS)
        return [] if channel is None else [one.position for one in channel.messages]

    def members(self) -> dict[str, object]:
        return {name: json.loads(one.data) for name, one in self.presence.members(ROOM).items()}


@pytest.fixture(autouse=True)
def _short_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FENCE_EVENTS", FENCE)


def test_a_start_reads_what_the_window_holds_however_long_the_log_is() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        await old.publish(500)
        new = Node(topic)
        assert await new.start() <= WINDOW + FENCE
        assert len(new.positions()) > WINDOW // 3
        assert new.positions() == old.positions()[-len(new.positions()) :]
        channel = new.history.channel(NEWS)
        newest, oldest = new.history.newest, new.positions()[0]
        assert channel.gap_behind(oldest, newest) is None
        gap = channel.gap_behind(new.history.cut - 1, newest)
        assert gap is not None
        assert gap.before == oldest, "what was not read is told as any other gap"
        assert await new.publish(1) > newest

    asyncio.run(run())


def test_members_who_entered_long_before_are_known_and_those_who_left_are_not() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        for name in ("bea", "cai", "dee"):
            await old.publish(1, PresenceEvent(ENTER, name))
        await old.publish(200)
        await old.publish(1, PresenceEvent(LEAVE, "cai"))
        await old.publish(5, PresenceEvent(UPDATE, "dee"))
        for _ in range(3):  # and each of them goes by what the one before it stated
            new = Node(topic)
            assert await new.start() <= WINDOW + FENCE
            assert new.members() == {"bea": 0, "dee": 4}
            await new.publish(200)

    asyncio.run(run())


def test_a_log_whose_end_states_no_members_is_read_whole_and_charged_once() -> None:
    async def run() -> None:
        topic = Topic()
        for number in range(100):
            fields = {"account": "ann", "name": "news", "data": number, "cost": 2}
            if number == 3:
                fields |= {"name": "room", "presence": ENTER, "member": "bea"}
            topic.keep("presence/1" if number == 3 else KIND, encode_json(fields), 0)
        node = Node(topic)
        counted = node.history._position_of(49)
        assert await node.start(counted) > 100
        assert node.members() == {"bea": 3}
        assert node.charged == 50 * 2
        assert len(node.positions()) == len(node.history) > WINDOW // 2
        assert await Node(topic).start() <= WINDOW + FENCE, "it has stated them"

    asyncio.run(run())


def test_what_was_not_charged_before_a_kill_is_read_too() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        counted = await old.publish(100)
        await old.publish(300)
        new = Node(topic)
        await new.start(counted)
        assert new.charged == 300 * 2

    asyncio.run(run())


def test_what_one_wrote_that_was_no_home_any_more_is_not_read_though_the_claim_is_far() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        claim = old.history.newest // old.history._stride
        await old.publish(30)
        new = Node(topic)
        await new.start()
        await new.publish(60)
        stale = {"account": "ann", "name": "news", "data": "stale", "claim": claim + 1}
        offsets = [topic.keep(KIND, encode_json(stale), 0) for _ in range(FENCE // 2)]
        await new.publish(WINDOW - 8)
        last = Node(topic)
        assert await last.start() <= WINDOW + FENCE
        lost = {last.history._position_of(offset) for offset in offsets}
        assert not lost & set(last.positions())
        assert offsets[-1] > topic.events[-1].offset - WINDOW, "or nothing was tried"

    asyncio.run(run())


def test_what_is_too_old_is_not_read() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        await old.publish(30)
        new = Node(topic, now_us=2 * AGE_US)
        assert await new.start() <= FENCE + 2
        assert new.positions() == []
        assert new.history.cut >= old.positions()[-1]

    asyncio.run(run())


def test_what_the_log_itself_has_let_go_of_is_told_as_a_gap() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        positions = [await old.publish(1) for _ in range(10)]
        topic.oldest = 6
        new = Node(topic)
        await new.start()
        assert new.positions() == [one for one in positions if one > new.history.cut]
        channel, newest = new.history.channel(NEWS), new.history.newest
        assert channel.gap_behind(positions[0], newest) is not None
        assert channel.gap_behind(new.positions()[0], newest) is None

    asyncio.run(run())


def test_what_a_member_did_while_it_was_stated_is_newer() -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        await old.publish(1, PresenceEvent(ENTER, "bea"))
        before = [[*ROOM, "bea", "old", old.presence.members(ROOM)["bea"].position]]
        await old.publish(1, PresenceEvent(UPDATE, "bea"))
        fields = {"chunk": 0, "chunks": 1, "members": before, "claim": 1}
        topic.keep(history.MEMBERS_KIND, encode_json(fields), 0)
        new = Node(topic)
        await new.start()
        assert new.members() == {"bea": 0}

    asyncio.run(run())


@pytest.mark.parametrize("chunks", [[0], [1], [0, 0], [1, 0]])
def test_half_a_statement_of_members_is_none(chunks: list[int]) -> None:
    async def run() -> None:
        topic = Topic()
        for number in range(100):
            body = encode_json({"account": "ann", "name": "news", "data": number})
            topic.keep(KIND, body, 0)
        for chunk in chunks:
            fields = {"chunk": chunk, "chunks": 2, "members": []}
            topic.keep(history.MEMBERS_KIND, encode_json(fields), 0)
        assert await Node(topic).start() > 100
        assert await Node(topic).start() <= WINDOW + FENCE

    asyncio.run(run())


def test_members_are_stated_in_events_that_a_log_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        topic = Topic()
        old = Node(topic)
        await old.start()
        for number in range(30):
            await old.publish(1, PresenceEvent(ENTER, f"m{number}"))
        await old.publish(60)
        events = [one for one in topic.events if one.kind == history.MEMBERS_KIND]
        assert max(len(one.body) for one in events) < 300
        new = Node(topic)
        await new.start()
        assert len(new.members()) == 30

    monkeypatch.setattr(history, "STATED_BYTES_MAX", 100)
    monkeypatch.setattr(history, "MESSAGE_BYTES", MESSAGE_BYTES // 4)
    asyncio.run(run())
