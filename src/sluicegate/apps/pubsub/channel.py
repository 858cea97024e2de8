"""Channel: the messages of one channel that can be read again, and those who read along.

A subscriber has no queue: it is a place in the channel's messages, and takes what comes after it
when its connection has room. So what a slow one costs does not grow. When the history lets go of
what it had not read, it gets a `Gap` in place of that, then what is left.

Positions rise from message to message over all channels of a service, from 1 on, and survive a
restart. Nothing here does I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.kernels.token_bucket import TokenBucket

NOW: Final = -1  # subscribe to what comes from now on


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


class Gap(NamedTuple):
    """Lost continuity: messages after `after` and before `before` cannot be read any more.

    `lost` is how many, None where nobody can tell.
    """

    after: int
    before: int
    lost: int | None


Piece: TypeAlias = "Message | Gap"


@final
class Channel:
    """One channel. `cut` is the last position that it may have had and has no more."""

    __slots__ = ("bucket", "cut", "key", "messages", "pending", "removed", "subscribers")

    def __init__(self, key: ChannelKey, cut: int, bucket: TokenBucket | None) -> None:
        self.key = key
        self.cut = cut
        self.bucket = bucket
        self.messages: deque[Message] = deque()
        self.removed = 0  # from the front of `messages`, ever
        self.pending = 0  # published, and not durable yet
        self.subscribers: set[Subscription] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing would be missed if it were forgotten."""
        return not (self.messages or self.subscribers or self.pending)

    def append(self, message: Message) -> None:
        """Add a message, and wake who waits for one."""
        self.messages.append(message)
        for subscriber in self.subscribers:
            subscriber.wake.set()

    def remove_oldest(self) -> None:
        """Let go of the first message."""
        self.cut = self.messages.popleft().position
        self.removed += 1

    def after(self, position: int, count: int) -> Sequence[Message]:
        """At most `count` messages after a position, oldest first."""
        begin = self._index_after(position)
        end = min(begin + count, len(self.messages))
        return [self.messages[at] for at in range(begin, end)]

    def subscribe(self, after: int, newest: int) -> Subscription:
        """Read along from behind `after`; `newest` is the last position there is in any channel."""
        gap: Gap | None = None
        if after == NOW:
            index, position = len(self.messages), newest
        elif after > newest or after < self.cut:
            # From before the window; or from another life of this history, so nothing of it counts.
            before = self.messages[0].position if self.messages else newest + 1
            index, position = 0, min(after, before - 1)
            gap = Gap(after, before, None)
        else:
            index, position = self._index_after(after), after
        subscription = Subscription(self, self.removed + index, position, gap)
        self.subscribers.add(subscription)
        return subscription

    def _index_after(self, position: int) -> int:
        messages = self.messages
        if not messages or messages[-1].position <= position:  # most ask for the newest
            return len(messages)
        return bisect_right(messages, position, key=_position_of)


class Wake(Protocol):
    """Is set when there is something to take, and cleared when it is taken: an event, say."""

    def set(self) -> None:
        """There is something."""

    def clear(self) -> None:
        """It is being taken."""


@final
class _Nobody:
    """Is not waiting."""

    def set(self) -> None:
        pass

    def clear(self) -> None:
        pass


_NOBODY: Final = _Nobody()


def _position_of(message: Message) -> int:
    return message.position


@final
class Subscription:
    """Where one subscriber is in a channel."""

    __slots__ = ("_gap", "_next", "channel", "position", "wake")

    def __init__(self, channel: Channel, next_number: int, position: int, gap: Gap | None) -> None:
        self.channel = channel
        self.wake: Wake = _NOBODY
        self._next = next_number  # counted over all that the channel ever had
        self.position = position  # of the last that was taken
        self._gap = gap

    def take(self, count: int, bytes_max: int) -> Sequence[Piece]:
        """What comes next, and before it what was lost.

        At most `count` messages, and none after those that reach `bytes_max`.
        """
        self.wake.clear()
        channel = self.channel
        pieces: list[Piece] = []
        if self._gap is not None:
            pieces.append(self._gap)
            self._gap = None
        lost = channel.removed - self._next
        if lost > 0:
            pieces.append(Gap(self.position, channel.cut + 1, lost))
            self._next, self.position = channel.removed, channel.cut
        # By index: a deque is quick near its ends, and most take from the newest.
        messages = channel.messages
        at, size, newest = self._next - channel.removed, 0, len(messages)
        end = min(at + count, newest)
        while at < end and size < bytes_max:
            message = messages[at]
            pieces.append(message)
            self.position = message.position
            size += message.size
            at += 1
        self._next = at + channel.removed
        if at < newest:
            self.wake.set()
        return pieces

    def close(self) -> None:
        """Read no more."""
        self.channel.subscribers.discard(self)
