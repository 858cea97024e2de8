"""Channel: the messages of one channel that can be read again, and those who read along.

A subscriber has no queue: it is a place in the channel's messages, and takes what comes after it
when its connection has room. So what a slow one costs does not grow. When the history lets go of
what it had not read, it gets a `Gap` in place of that, then what is left.

Positions rise from message to message over all channels of a service, from 1 on, and survive a
restart. Nothing here does I/O.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, final

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
        return list(islice(self.messages, begin, begin + count))

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
        # Most ask for the newest.
        index = len(self.messages)
        for message in reversed(self.messages):
            if message.position <= position:
                break
            index -= 1
        return index


@final
class Subscription:
    """Where one subscriber is in a channel."""

    __slots__ = ("_gap", "_next", "_position", "channel", "wake")

    def __init__(self, channel: Channel, next_number: int, position: int, gap: Gap | None) -> None:
        self.channel = channel
        self.wake = asyncio.Event()
        self._next = next_number  # counted over all that the channel ever had
        self._position = position
        self._gap = gap

    def take(self, count: int) -> Sequence[Piece]:
        """What comes next, at most `count` messages, and before them what was lost."""
        self.wake.clear()
        channel = self.channel
        pieces: list[Piece] = []
        if self._gap is not None:
            pieces.append(self._gap)
            self._gap = None
        lost = channel.removed - self._next
        if lost > 0:
            pieces.append(Gap(self._position, channel.cut + 1, lost))
            self._next, self._position = channel.removed, channel.cut
        begin = self._next - channel.removed
        messages = list(islice(channel.messages, begin, begin + count))
        if messages:
            self._next += len(messages)
            self._position = messages[-1].position
            pieces += messages
        if begin + len(messages) < len(channel.messages):
            self.wake.set()
        return pieces

    def close(self) -> None:
        """Read no more."""
        self.channel.subscribers.discard(self)
