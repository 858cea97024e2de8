"""Feed: the newest messages of a channel whose home is another node, for all who read it here.

One subscription to the home, however many read here. A reader is a place in what the feed holds.
One that wants what is not there, because it resumes from before or reads too slowly, catches up
by reading the home's history in pages, one at a time and only as fast as it takes them; then it
reads along again. What is lost is said by the home alone, so it is the same from every node.

While the home does not answer its readers are told so by a gap in which nothing is lost, once, and
go on behind what they had when it answers again.

Bounds: `bytes_max` over all feeds, the oldest message first; a page for each reader that catches
up; a feed that nobody reads ends after `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, final

from sluicegate.apps.pubsub.channel import (
    NOBODY,
    NOW,
    Channel,
    ChannelKey,
    Gap,
    Message,
    Piece,
    Subscription,
    Taker,
    Wake,
)
from sluicegate.apps.pubsub.history import make_message
from sluicegate.apps.pubsub.presence import PresenceEvent
from sluicegate.client.pubsub import PubSubClient, PubSubMessage, Received
from sluicegate.contracts.errors import Forbidden, SluicegateError, Unauthenticated, Unavailable

LINGER_S: Final = 0.5
COUNT_S: Final = 0.05  # between two words on how many read
RETRY_S: Final = 0.25
PAGE: Final = 64  # messages of history
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class FeedWindow:
    """What all feeds hold, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._held: deque[Channel] = deque()

    def add(self, channel: Channel, message: Message) -> None:
        """Hold one more, and let go of what is too much."""
        channel.append(message)
        self._held.append(channel)
        self.bytes += message.size
        while self.bytes > self._bytes_max:
            oldest = self._held.popleft()
            self.bytes -= oldest.messages[0].size
            oldest.remove_oldest()


@final
class Feed:
    """One channel; `channel` holds its newest messages, from when it has begun on."""

    def __init__(
        self,
        key: ChannelKey,
        client: PubSubClient,
        window: FeedWindow,
        end: Callable[[Feed], None],
    ) -> None:
        self.key = key
        self.name = name_of(key)
        self.client = client
        self.channel: Channel | None = None
        self.readings: set[RemoteReading] = set()
        self._away = False  # the home refused or did not answer, and its readers know
        self._newest = 0  # that was received
        self._window = window
        self._end = end
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begun.add_done_callback(_ignore)
        self._lingers: asyncio.TimerHandle | None = None
        self._counts: asyncio.TimerHandle | None = None
        self._subscription = client.subscribe(self.name, presence=True)
        self._subscription.readers = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def begun(self) -> Awaitable[None] | None:
        """None once it reads; fails if the home does not answer at first."""
        return None if self.channel is not None else asyncio.shield(self._begun)

    def add(self, reading: RemoteReading) -> None:
        """One more reads here."""
        self.readings.add(reading)
        if self._lingers is not None:
            self._lingers.cancel()
            self._lingers = None
        self._count()

    def remove(self, reading: RemoteReading) -> None:
        """One fewer does."""
        self.readings.discard(reading)
        self._count()
        if not self.readings and self._lingers is None:
            loop = asyncio.get_running_loop()
            self._lingers = loop.call_later(LINGER_S, self._end, self)

    def interrupt(self) -> None:
        """The home does not answer: say so to who reads."""
        for reading in list(self.readings):
            reading.interrupt()

    def stop(self) -> None:
        """Unsubscribe at once, so that the next feed of this channel can subscribe."""
        for timer in (self._lingers, self._counts):
            if timer is not None:
                timer.cancel()
        self.client.discard(self._subscription)

    async def close(self) -> None:
        """Read no more."""
        self.stop()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if not self._begun.done():
            self._begun.set_exception(Unavailable("this node", "it is going away"))

    # Inside.

    def _count(self) -> None:
        """Tell the home for how many this node reads, for a publish costs one for each."""
        if self._counts is None:
            self._counts = asyncio.get_running_loop().call_later(COUNT_S, self._tell_count)

    def _tell_count(self) -> None:
        self._counts = None
        if self._subscription.readers != len(self.readings):
            self._subscription.readers = len(self.readings)
            self.client.count_readers(self._subscription)

    async def _run(self) -> None:
        while True:
            try:
                self._subscription.readers = len(self.readings)
                async with self._subscription as received:
                    self._away = False
                    if self.channel is None:
                        self._newest = received.position or 0
                        self.channel = Channel(self.key, self._newest, None)
                        self._begun.set_result(None)
                    async for one in received:
                        self._take(one)
            except SluicegateError as error:
                if self.channel is None:
                    self._begun.set_exception(of_home("the channel's home", error))
                    self._end(self)
                    return
                _log.warning("%s is not read at the moment: %s", self.name, error)
                if not self._away:
                    self._away = True
                    self.interrupt()
                await asyncio.sleep(RETRY_S)
                self._subscription = self.client.subscribe(self.name, self._newest, presence=True)

    def _take(self, one: Received) -> None:
        channel = self.channel
        assert channel is not None
        if isinstance(one, PubSubMessage):
            self._newest = one.position
            self._window.add(channel, message_of(self.key, one))
            return
        self._newest = one.before - 1
        # What is held now does not lead to what comes: all catch up, and hear of it from the home.
        channel.cut = max(channel.cut, one.before - 1)
        for reading in list(self.readings):
            reading.catch_up()


@final
class RemoteReading:
    """Where one who reads here is in a channel whose home is another node."""

    __slots__ = (
        "_closed", "_feed", "_gap", "_page", "_place", "_taker", "_task", "position", "wake",
    )  # fmt: skip

    def __init__(self, feed: Feed, after: int) -> None:
        self.wake: Wake = NOBODY
        self.position = after
        self._feed = feed
        self._gap: Gap | None = None
        self._page: deque[Piece] = deque()
        self._place: Subscription | None = None
        self._taker: Taker | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        feed.add(self)
        if feed.channel is not None:
            self._begin()

    @property
    def key(self) -> ChannelKey:
        """The channel."""
        return self._feed.key

    @property
    def begun(self) -> Awaitable[None] | None:
        """None once the feed reads."""
        if self._closed:
            return None
        begun = self._feed.begun
        if begun is None and self._place is None and self._task is None:
            self._begin()
        return begun

    def take(self, count: int, bytes_max: int) -> Sequence[Piece]:
        """What comes next, and before it what was lost."""
        if self._gap is not None:
            gap, self._gap = self._gap, None
            self.wake.set()
            return (gap,)
        if self._page:
            return self._take_page(count, bytes_max)
        return () if self._place is None else self._take_place(count, bytes_max)

    @property
    def place(self) -> Subscription | None:
        """In the feed, if the feed is as far as this."""
        place = self._place
        if place is None or self._gap is not None or self._page:
            return None
        return None if place.position < self.position else place

    def hand_over(self, taker: Taker) -> None:
        """Have something else take for it."""
        assert self._place is not None
        self._taker = taker
        self._place.hand_over(taker)

    def take_alone(self) -> None:
        """Have nothing else take for it."""
        if self._taker is not None:
            self._taker.remove(self)

    def read_on(self, next_number: int, position: int) -> None:
        """Take by itself again, from there on."""
        self._taker = None
        self.position = max(self.position, position)
        if self._place is not None:
            self._place.read_on(next_number, position)

    def interrupt(self) -> None:
        """The home does not answer; nothing is lost by that."""
        self.take_alone()
        if self.position != NOW:
            self._gap = Gap(self.position, self.position + 1, 0)
            self.wake.set()

    def catch_up(self) -> None:
        """Read the home's history from here on, until the feed has what follows."""
        if self.position == NOW:  # it has not begun, and will with what the feed has then
            return
        self.take_alone()
        if self._place is not None:
            self._place.close()
            self._place = None
        if not self._closed and (self._task is None or self._task.done()) and not self._page:
            self._task = asyncio.get_running_loop().create_task(self._read_page())

    def close(self) -> None:
        """Read no more."""
        self.take_alone()
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        if self._place is not None:
            self._place.close()
            self._place = None
        self._page.clear()
        self._feed.remove(self)

    # Inside.

    def _begin(self) -> None:
        channel = self._feed.channel
        assert channel is not None
        if self.position == NOW:
            newest = channel.messages[-1].position if channel.messages else channel.cut
            self._place = channel.subscribe(NOW, newest)
            self.position = newest
            self._place.wake = _Forward(self)
        else:
            self._read_along()

    def _read_along(self) -> None:
        """Take a place in the feed, if it has what comes behind the position; else catch up."""
        channel = self._feed.channel
        assert channel is not None
        newest = channel.messages[-1].position if channel.messages else channel.cut
        if channel.cut <= self.position <= newest:
            self._place = channel.subscribe(self.position, newest)
            self._place.wake = _Forward(self)
            self.wake.set()
        else:
            self.catch_up()

    def _take_place(self, count: int, bytes_max: int) -> Sequence[Piece]:
        assert self._place is not None
        pieces = self._place.take(count, bytes_max)
        if pieces and isinstance(pieces[0], Gap):  # the feed has let go of what comes next
            self.catch_up()
            return ()
        # The feed may lag behind what was read in pages.
        new = [one for one in pieces if isinstance(one, Message) and one.position > self.position]
        if new:
            self.position = new[-1].position
        return new

    def _take_page(self, count: int, bytes_max: int) -> Sequence[Piece]:
        pieces: list[Piece] = []
        size = 0
        while self._page and len(pieces) < count and size < bytes_max:
            piece = self._page.popleft()
            pieces.append(piece)
            if isinstance(piece, Message):
                size += piece.size
                self.position = piece.position
            else:
                self.position = piece.before - 1
        if self._page:
            self.wake.set()
        else:
            self._read_along()
        return pieces

    async def _read_page(self) -> None:
        feed = self._feed
        while True:
            try:
                page = await feed.client.read(feed.name, self.position, PAGE)
                break
            except SluicegateError as error:
                _log.debug("%s cannot be read: %s", feed.name, error)
                await asyncio.sleep(RETRY_S)
        self._task = None
        if page.gap is not None:
            self._page.append(Gap(*page.gap))
        self._page.extend(message_of(feed.key, one) for one in page.messages)
        if self._page:
            self.wake.set()
        else:
            # All that there is was taken: what comes next comes from the feed, though it may lag.
            # Other channels count in the same positions, so the feed may begin far behind ours.
            self.position = max(self.position, page.newest)
            self._wait_for_feed()

    def _wait_for_feed(self) -> None:
        channel = self._feed.channel
        assert channel is not None
        if self.position < channel.cut:
            self.catch_up()
            return
        newest = max(channel.messages[-1].position if channel.messages else 0, self.position)
        self._place = channel.subscribe(self.position, newest)
        self._place.wake = _Forward(self)
        self.wake.set()


@final
class _Forward:
    """Wakes who reads."""

    __slots__ = ("_reading",)

    def __init__(self, reading: RemoteReading) -> None:
        self._reading = reading

    def set(self) -> None:
        self._reading.wake.set()

    def move(self) -> None:
        pass


def of_home(home: str, error: SluicegateError) -> SluicegateError:
    """What a home said to this node, for who asked it: that it does not know us is our affair."""
    if isinstance(error, Unauthenticated | Forbidden):
        return Unavailable(home, f"it refuses this node: {error}")
    return Unavailable(home, error.detail) if isinstance(error, Unavailable) else error


def name_of(key: ChannelKey) -> str:
    """What nodes call a channel among themselves."""
    return f"{key.account}/{key.name}"


def message_of(key: ChannelKey, one: PubSubMessage) -> Message:
    """One that another node sent, as readers here get it."""
    event = None if one.presence is None else PresenceEvent(one.presence, one.member or "")
    return make_message(key, one.position, one.at_us, one.data, event)


def _ignore(done: asyncio.Future[None]) -> None:
    with suppress(asyncio.CancelledError):
        done.exception()
