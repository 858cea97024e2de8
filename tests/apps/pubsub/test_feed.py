"""What is read on a node that is not the channel's home, by a home that says what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, cast, final

import pytest

from sluicegate.apps.pubsub.channel import NOW, ChannelKey, Gap, Piece
from sluicegate.apps.pubsub.feed import Feed, FeedWindow, RemoteReading, message_of
from sluicegate.apps.pubsub.nodes import Peer
from sluicegate.client.pubsub import (
    LostContinuity,
    PubSubClient,
    PubSubMessage,
    PubSubPage,
    Received,
)
from sluicegate.contracts.errors import Unavailable

KEY = ChannelKey("ann", "news")


def message(position: int) -> PubSubMessage:
    return PubSubMessage(position, 1, "ann/news", position)


@final
class Home:
    """Has messages 1 to `newest`, those from `first` on; says them when `said` is called.

    Those from `last` on are of other channels.
    """

    def __init__(self, newest: int, first: int = 1, last: int | None = None) -> None:
        self.newest = newest
        self.last = last
        self.refusals = 0
        self.discarded = 0
        self.first = first
        self.pages = 0
        self.dead = False
        self.readers: int | None = None
        self.connected = False
        self.breaks = 0
        self.position = newest
        self._said: asyncio.Queue[Received | Unavailable] = asyncio.Queue()

    def say(self, *those: Received | Unavailable) -> None:
        for one in those:
            self._said.put_nowait(one)

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.newest += 1
            self.say(message(self.newest))

    # As a client and as its subscription.

    def subscribe(self, channel: str, after: int | None = None, *, presence: bool = False) -> Home:
        assert channel == "ann/news"
        assert presence, "a node tells its readers what members do too"
        return self

    def discard(self, subscription: object) -> None:
        self.discarded += 1

    def count_readers(self, subscription: object) -> None:
        assert subscription is self

    async def read(self, channel: str, after: int, count: int) -> PubSubPage:
        if self.dead:
            raise Unavailable("the home", "it is dead")
        self.pages += 1
        begin = max(after + 1, self.first)
        last = self.newest if self.last is None else self.last
        there = [message(at) for at in range(begin, min(begin + count, last + 1))]
        gap = LostContinuity(after, self.first, None) if after + 1 < self.first else None
        return PubSubPage(tuple(there), self.first - 1, self.newest, gap)

    async def __aenter__(self) -> Self:
        if self.dead:
            self.refusals += 1
            raise Unavailable("the home", "it is dead")
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        one = await self._said.get()
        if isinstance(one, Unavailable):
            raise one
        return one


async def take(reading: RemoteReading, count: int) -> list[int | Gap]:
    """So many pieces, each as soon as it is there."""
    found: list[int | Gap] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [_plain(one) for one in reading.take(10, 1 << 20)]
            await asyncio.sleep(0)
    return found


async def take_plain(reading: RemoteReading, count: int) -> list[int]:
    """So many messages, and no gap."""
    found = await take(reading, count)
    return [one for one in found if isinstance(one, int)]


def _plain(piece: Piece) -> int | Gap:
    return piece if isinstance(piece, Gap) else piece.position


async def feed_of(home: Home, *, bytes_max: int = 1 << 20) -> Feed:
    feed = Feed(KEY, cast("PubSubClient", home), FeedWindow(bytes_max), lambda _: None)
    if (begun := feed.begun) is not None:
        await begun
    return feed


def story(home: Home, tell: Callable[[Feed], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        feed = await feed_of(home, **more)
        try:
            await tell(feed)
        finally:
            await feed.close()

    asyncio.run(run())


def test_one_who_resumes_reads_pages_until_the_feed_has_what_follows() -> None:
    home = Home(200)

    async def tell(feed: Feed) -> None:
        reading = RemoteReading(feed, 50)
        assert await take(reading, 150) == list(range(51, 201))
        home.publish(5)
        assert await take(reading, 5) == list(range(201, 206))
        assert reading.take(10, 1 << 20) == []
        assert home.pages <= 4

    story(home, tell)


def test_one_who_resumes_in_a_quiet_channel_asks_the_home_once() -> None:
    """Other channels count in the same positions, so the feed begins behind the channel's last."""
    home = Home(200, last=50)

    async def tell(feed: Feed) -> None:
        reading = RemoteReading(feed, 50)
        for _ in range(100):
            assert not reading.take(10, 1 << 20)
            await asyncio.sleep(0)
        assert home.pages == 1
        home.last = None
        home.publish(1)
        assert await take(reading, 1) == [201]

    story(home, tell)


def test_a_loss_before_a_reader_has_begun_is_not_in_its_way() -> None:
    async def run() -> None:
        home = Home(10)
        feed = Feed(KEY, cast("PubSubClient", home), FeedWindow(1 << 20), lambda _: None)
        reading = RemoteReading(feed, NOW)
        home.say(LostContinuity(10, 12, None))
        for _ in range(10):
            await asyncio.sleep(0)
        assert reading.begun is None
        home.newest = 12
        home.publish(1)
        assert await take(reading, 1) == [13]
        assert home.pages == 0
        await feed.close()

    asyncio.run(run())


def test_a_home_that_refuses_again_and_again_is_one_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluicegate.apps.pubsub.feed.RETRY_S", 0)
    home = Home(10)

    async def tell(feed: Feed) -> None:
        reading = RemoteReading(feed, 10)
        found: list[Piece] = []
        for _ in range(2):
            home.dead, before = True, home.refusals
            home.say(Unavailable("the home", "it refuses"))
            async with asyncio.timeout(60):
                while home.refusals < before + 5:
                    found += reading.take(10, 1 << 20)
                    await asyncio.sleep(0)
            home.dead = False
            home.publish(1)
            found += [message_of(KEY, message(one)) for one in await take_plain(reading, 1)]
        assert [_plain(one) for one in found] == [Gap(10, 11, 0), 11, Gap(11, 12, 0), 12]

    story(home, tell)


def test_what_was_read_in_pages_comes_no_second_time_from_a_feed_that_lags() -> None:
    home = Home(10)

    async def tell(feed: Feed) -> None:
        reading = RemoteReading(feed, 8)
        home.newest = 14  # the home has them, and has not said so
        assert await take(reading, 6) == [9, 10, 11, 12, 13, 14]
        await asyncio.sleep(0.01)
        home.say(*(message(at) for at in range(11, 16)))
        assert await take(reading, 1) == [15]

    story(home, tell)


def test_one_who_reads_slower_than_the_feed_lets_go_goes_back_to_the_home_and_misses_nothing() -> (
    None
):
    home = Home(10)

    async def tell(feed: Feed) -> None:
        slow, quick = RemoteReading(feed, NOW), RemoteReading(feed, NOW)
        for reading in (slow, quick):
            assert reading.begun is None
        for _ in range(30):
            home.publish(10)
            await take(quick, 10)
        assert len(cast("Any", feed.channel).messages) < 100
        assert await take(slow, 300) == list(range(11, 311))

    story(home, tell, bytes_max=20_000)


def test_only_what_the_home_has_lost_is_lost() -> None:
    home = Home(10)

    async def tell(feed: Feed) -> None:
        reading = RemoteReading(feed, 10)
        home.newest, home.first = 400, 301  # while the connection was broken
        home.say(LostContinuity(10, 301, None))
        home.say(*(message(at) for at in range(301, 401)))
        assert await take(reading, 101) == [Gap(10, 301, None), *range(301, 401)]
        home.publish(1)
        assert await take(reading, 1) == [401]

    story(home, tell)


def test_who_reads_is_told_that_the_home_does_not_answer_and_goes_on_when_it_does() -> None:
    home = Home(10)

    async def tell(feed: Feed) -> None:
        reading, late = RemoteReading(feed, NOW), RemoteReading(feed, 3)
        assert reading.begun is None
        home.dead = True
        feed.interrupt()
        assert await take(reading, 1) == [Gap(10, 11, 0)]
        home.dead = False
        home.publish(2)
        assert await take(reading, 2) == [11, 12]
        got = await take(late, 10)
        assert [one for one in got if not isinstance(one, Gap)] == list(range(4, 13))

    story(home, tell)


def test_a_home_that_does_not_answer_at_first_is_an_error_of_who_asks() -> None:
    async def tell() -> None:
        home = Home(1)
        home.dead = True
        ended: list[Feed] = []
        feed = Feed(KEY, cast("PubSubClient", home), FeedWindow(1_000), ended.append)
        reading = RemoteReading(feed, NOW)
        begun = reading.begun
        assert begun is not None
        try:
            await begun
        except Unavailable:
            pass
        else:
            raise AssertionError
        assert ended == [feed]
        reading.close()
        await feed.close()

    asyncio.run(tell())


def test_a_home_that_comes_and_is_lost_between_two_looks_is_told_once() -> None:
    home = Home(10)

    async def tell(feed: Feed) -> None:
        peer = Peer(cast("PubSubClient", home))
        peer.feeds[KEY] = feed
        reading = RemoteReading(feed, 10)
        peer.look(live=True)
        home.breaks += 1
        peer.look(live=True)
        peer.look(live=True)
        assert list(reading.take(10, 1 << 20)) == [Gap(10, 11, 0)]
        assert not reading.take(10, 1 << 20)
        home.connected = True
        home.breaks += 1  # and it is back by the next look: there is nothing to tell
        peer.look(live=True)
        assert not reading.take(10, 1 << 20)
        peer.look(live=False)
        assert list(reading.take(10, 1 << 20)) == [Gap(10, 11, 0)]

    story(home, tell)
