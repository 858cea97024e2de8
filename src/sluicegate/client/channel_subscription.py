"""Channel subscription: one channel as a client receives it, over all its connections.

It knows behind which message to go on, and lets no more wait than may: then the channel is
unsubscribed, and subscribed to again from there when what waits is taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, Self, final

from sluicegate.client.pubsub_messages import LostContinuity, Received, message_of
from sluicegate.contracts.errors import SluicegateError, Unavailable


class SubscribingClient(Protocol):
    """Whose connection it is."""

    buffer_max: int

    async def add(self, subscription: ChannelSubscription) -> None:
        """Subscribe, and return when that is done."""

    async def remove(self, subscription: ChannelSubscription) -> None:
        """Unsubscribe."""

    def resubscribe(self, subscription: ChannelSubscription) -> None:
        """Ask for what comes behind the last that was received."""

    def unsubscribe(self, subscription: ChannelSubscription) -> None:
        """Ask for no more."""


@final
class ChannelSubscription:
    """What is received of one channel: enter it, then iterate, or call `next`.

    `position` is that of the last that was received, and where a later subscription can resume
    once all that was received is taken.
    """

    def __init__(
        self, client: SubscribingClient, channel: str, after: int | None, *, presence: bool = False
    ) -> None:
        self.channel = channel
        self.presence = presence
        self.position = after
        self.begun = asyncio.Event()
        self.failure: SluicegateError | None = None
        self.readers: int | None = None  # a node of a cluster reads for so many
        self.full = False  # as much waits as may; more is asked for when it is taken
        self._client = client
        self._received: deque[Received] = deque()
        self._some = asyncio.Event()
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._active = False  # what comes is of the last time that it was asked for

    async def __aenter__(self) -> Self:
        await self._client.add(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        return await self.next()

    async def next(self, timeout_ms: float | None = None) -> Received:
        """The next message or loss; `TimeoutError` if there is none in time."""
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1e3):
            while not self._received:
                if self.failure is not None:
                    raise self.failure
                if self.full:
                    self.full = False
                    self._client.resubscribe(self)
                self._some.clear()
                await self._some.wait()
        return self._received.popleft()

    # What the client calls.

    def expect(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        """What comes counts from this answer on."""
        self._active = False
        self._answer = answer
        answer.add_done_callback(self._fail_if_refused)

    def stop(self) -> None:
        """What comes counts no more."""
        self._active = False
        self._answer = None

    def take(self, message: Mapping[str, Any]) -> None:
        """Keep what came."""
        if not self._active:
            return
        if message["type"] == "gap":
            lost = LostContinuity(message["after"], message["before"], message["lost"])
            self.position = lost.before - 1
            self._received.append(lost)
        else:
            self.position = message["position"]
            if message["type"] == "presence" and not self.presence:
                return
            self._received.append(message_of(self.channel, message))
        self._some.set()
        if len(self._received) >= self._client.buffer_max:
            self.full = True
            self._client.unsubscribe(self)

    def fail(self, error: SluicegateError) -> None:
        """Raise this once all that was received is taken."""
        self.failure = error
        self._some.set()
        self.begun.set()

    def begin(self, answer: asyncio.Future[dict[str, Any]], message: Mapping[str, Any]) -> None:
        """What comes counts, if it was this that was asked for last."""
        if answer is not self._answer:
            return
        self._active = True
        if self.position is None:
            self.position = message["position"]
        self.begun.set()

    def _fail_if_refused(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        if answer is not self._answer or answer.cancelled():
            return
        error = answer.exception()
        # Without a connection it is asked for again when there is one.
        if isinstance(error, SluicegateError) and not isinstance(error, Unavailable):
            self.fail(error)
