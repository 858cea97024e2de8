"""Channel: the messages of one channel that can be read again, and those who read along.

A subscriber has no queue: it is a place in the channel's messages, and takes what comes after it
when its connection has room. So what a slow one costs does not grow. When the history lets go of
what it had not read, it gets a `Gap` in place of that, then what is left. Those that have taken
what there is may be one reader (`reading_group.py`), and are not woken meanwhile.

Positions rise from message to message over all channels of a service, and survive a restart.
Those of two nodes never agree: a node of a cluster counts in steps of `STRIDE`, from a tag of its
own, so that a position of another node's history is recognized. Nothing here does I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.kernels.hash_ring import digest
from sluicegate.kernels.token_bucket import TokenBucket

STRIDE: Final = 4_096
NOW: Final = -1  # subscribe to what comes from now on


def tag_of(node: str) -> int:
    """What a node's positions leave over when divided by `STRIDE`.

    It is odd: the position before a message's, where one stands who lost all before it, has the
    same bits but the last.
    """
    return digest(node) % (STRIDE // 2) * 2 + 1


class ChannelKey(NamedTuple):
    """A channel belongs to an account."""

    account: str
    name: str


class Message(NamedTuple):
    """One that was accepted. `text` is what readers get: JSON on one line."""

    position: int
    at_us: int
    channel: ChannelKey
    text: bytes
    size: int  # that it counts for in the bounds of the history
    presence: bool = False  # of members, and not published


class Gap(NamedTuple):
    """Lost continuity: messages after `after` and before `before` cannot be read any more.

    `lost` is how many, None where nobody can tell.
    """

    after: int
    before: int
    lost: int | None


Piece: TypeAlias = "Message | Gap"


class ChannelShare(NamedTuple):
    """What one channel may have of its account's limit, and the limit that it was made for."""

    per_s: int
    burst: int
    bucket: TokenBucket


@final
class Channel:
    """One channel. `cut` is the last position that it may have had and has no more."""

    __slots__ = (
        "bucket", "cut", "key", "messages", "pending", "readers", "removed", "share", "subscribers",
    )  # fmt: skip

    def __init__(self, key: ChannelKey, cut: int, bucket: TokenBucket | None) -> None:
        self.key = key
        self.cut = cut
        self.bucket = bucket
        self.share: ChannelShare | None = None
        self.messages: deque[Message] = deque()
        self.removed = 0  # from the front of `messages`, ever
        self.pending = 0  # published, and not durable yet
        self.subscribers: dict[Subscription, None] = {}  # in the order in which they are woken
        self.readers = 0  # for whom they read; a node does so for several

    @property
    def idle(self) -> bool:
        """Whether nothing would be missed if it were forgotten."""
        return not (self.messages or self.subscribers or self.pending)

    def append(self, message: Message) -> None:
        """Add a message, and wake who waits for one."""
        self.messages.append(message)
        for subscriber in self.subscribers:
            subscriber.wake.set()

    def interrupt(self) -> None:
        """Say to who reads that what comes next is not known here; nothing is lost by that."""
        for subscriber in self.subscribers:
            subscriber.interrupt()

    def remove_oldest(self) -> None:
        """Let go of the first message."""
        self.cut = self.messages.popleft().position
        self.removed += 1

    def read(self, index: int, count: int, bytes_max: int) -> Sequence[Message]:
        """At most `count` messages from a place on, and none after those that reach `bytes_max`."""
        found: list[Message] = []
        size = 0
        while len(found) < count and size < bytes_max and index < len(self.messages):
            found.append(self.messages[index])
            size += found[-1].size
            index += 1
        return found

    def gap_behind(self, after: int, newest: int, *, foreign: bool = False) -> Gap | None:
        """What is lost to one who knows all up to `after`.

        From before the window; or from another history, so nothing of it counts: a later life of
        this one than this is, or that of another node (`foreign`).
        """
        if not foreign and self.cut <= after <= newest:
            return None
        index = self.index_behind(after, newest, foreign=foreign)
        messages = self.messages
        return Gap(after, messages[index].position if index < len(messages) else newest + 1, None)

    def index_behind(self, after: int, newest: int, *, foreign: bool = False) -> int:
        """Where one reads on who knows all up to `after`."""
        return 0 if foreign or after > newest else self._index_after(after)

    def subscribe(self, after: int, newest: int, *, foreign: bool = False) -> Subscription:
        """Read along from behind `after`; `newest` is the last position there is in any channel."""
        gap: Gap | None = None
        if after == NOW:
            index, position = len(self.messages), newest
        else:
            gap = self.gap_behind(after, newest, foreign=foreign)
            index = self.index_behind(after, newest, foreign=foreign)
            position = after if gap is None else min(after, gap.before - 1)
        subscription = Subscription(self, self.removed + index, position, gap)
        self.subscribers[subscription] = None
        self.readers += 1
        return subscription

    def wake_first(self, subscription: Subscription) -> None:
        """Wake it before all others, who so find it as far as they are."""
        self.subscribers = {subscription: None} | self.subscribers

    def _index_after(self, position: int) -> int:
        messages = self.messages
        if not messages or messages[-1].position <= position:  # most ask for the newest
            return len(messages)
        return bisect_right(messages, position, key=_position_of)


class Wake(Protocol):
    """Is set when there is something to take: an event, say, that is cleared before it is taken."""

    def set(self) -> None:
        """There is something."""

    def move(self) -> None:
        """The channel's home is another one now: what comes next is there."""


class Taker(Protocol):
    """What takes for several readings."""

    def remove(self, reading: ChannelReading) -> None:
        """Have it take by itself again, from where it is."""


class ChannelReading(Protocol):
    """Where one who reads along is in a channel, wherever the channel is.

    While something takes for it, its own position is behind.
    """

    wake: Wake

    @property
    def place(self) -> Subscription | None:
        """Where it reads along here; None if what comes next comes from elsewhere."""
        ...

    def hand_over(self, taker: Taker) -> None:
        """Have something else take for it."""

    def take_alone(self) -> None:
        """Have nothing else take for it."""

    def read_on(self, next_number: int, position: int) -> None:
        """Take by itself again, from there on."""

    @property
    def key(self) -> ChannelKey:
        """The channel."""
        ...

    @property
    def position(self) -> int:
        """That of the last that was taken."""
        ...

    @property
    def begun(self) -> Awaitable[None] | None:
        """Is awaited until it has begun; None if it has."""
        ...

    def take(self, count: int, bytes_max: int) -> Sequence[Piece]:
        """What comes next, and before it what was lost."""
        ...

    def interrupt(self) -> None:
        """Say that what comes next is not known for now; nothing is lost by that."""

    def close(self) -> None:
        """Read no more."""


@final
class _Nobody:
    """Is not waiting."""

    def set(self) -> None:
        pass

    def move(self) -> None:
        pass


NOBODY: Final = _Nobody()


def _position_of(message: Message) -> int:
    return message.position


@final
class Subscription:
    """Where one subscriber is in a channel."""

    __slots__ = (
        "_gap", "_open", "_taker", "channel", "next_number", "position", "readers", "wake",
    )  # fmt: skip

    def __init__(self, channel: Channel, next_number: int, position: int, gap: Gap | None) -> None:
        self.channel = channel
        self.readers = 1
        self._open = True
        self.wake: Wake = NOBODY
        self._taker: Taker | None = None
        self.next_number = next_number  # counted over all that the channel ever had
        self.position = position  # of the last that was taken
        self._gap = gap

    @property
    def key(self) -> ChannelKey:
        """The channel."""
        return self.channel.key

    @property
    def begun(self) -> None:
        """It has."""
        return

    @property
    def place(self) -> Subscription:
        """This is it."""
        return self

    @property
    def caught_up(self) -> bool:
        """Whether it has taken all that there is."""
        channel = self.channel
        return self.next_number == channel.removed + len(channel.messages) and self._gap is None

    def hand_over(self, taker: Taker) -> None:
        """Be woken no more, until `read_on`."""
        self._taker = taker
        self.channel.subscribers.pop(self, None)

    def take_alone(self) -> None:
        """Have nothing else take for it."""
        if self._taker is not None:
            self._taker.remove(self)

    def read_on(self, next_number: int, position: int) -> None:
        """Take by itself again, from there on."""
        self._taker = None
        self.next_number, self.position = next_number, max(self.position, position)
        if self._open:
            self.channel.subscribers[self] = None
            if not self.caught_up:
                self.wake.set()

    def interrupt(self) -> None:
        """Have a gap in which nothing is lost so far, before what comes next."""
        if self._gap is None:
            self._gap = Gap(self.position, self.position + 1, 0)
        self.wake.set()

    def count_readers(self, count: int) -> None:
        """Say for how many it reads."""
        if self._open:
            self.channel.readers += count - self.readers
            self.readers = count

    def take(self, count: int, bytes_max: int) -> Sequence[Piece]:
        """What comes next, and before it what was lost.

        At most `count` messages, and none after those that reach `bytes_max`.
        """
        channel = self.channel
        pieces: list[Piece] = []
        if self._gap is not None:
            pieces.append(self._gap)
            self._gap = None
        lost = channel.removed - self.next_number
        if lost > 0:
            pieces.append(Gap(self.position, channel.cut + 1, lost))
            self.next_number, self.position = channel.removed, channel.cut
        # By index: a deque is quick near its ends, and most take from the newest.
        messages = channel.messages
        at, size, end = self.next_number - channel.removed, 0, len(messages)
        end = min(at + count, end)
        while at < end and size < bytes_max:
            message = messages[at]
            pieces.append(message)
            self.position = message.position
            size += message.size
            at += 1
        self.next_number = at + channel.removed
        if at < len(messages):
            self.wake.set()
        return pieces

    def close(self) -> None:
        """Read no more."""
        self.count_readers(0)
        self._open = False
        self.take_alone()
        self.channel.subscribers.pop(self, None)
