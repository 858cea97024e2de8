"""Sync pub/sub client: the same client for threads, in one background loop for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, final

from sluicegate.client.pubsub import (
    MEMBERS_BYTES,
    ChannelSubscription,
    PubSubClient,
    PubSubMember,
    PubSubMembersPage,
    PubSubPage,
    Received,
)
from sluicegate.stores.thread_bridge import ThreadBridge

_SLICE_MS = 10_000  # of a wait for a message; a thread that waits looks up so often


@final
class SyncPubSubClient:
    """A `PubSubClient` that blocks the thread which asks; its settings are the same."""

    def __init__(self, url: str = "ws://127.0.0.1:7090", **settings: Any) -> None:
        open_client: Callable[[], PubSubClient] = lambda: PubSubClient(url, **settings)  # noqa: E731
        open_client()  # settings that cannot be used are told here, not at the first call
        self._bridge: ThreadBridge[PubSubClient] = ThreadBridge(open_client)

    def publish(self, channel: str, data: Any, *, timeout_ms: float | None = None) -> int:
        """Return the message's position when it is durable; as `PubSubClient.publish`."""
        return self._bridge.run(lambda client: client.publish(channel, data, timeout_ms=timeout_ms))

    def read(self, channel: str, after: int = 0, count: int = 64) -> PubSubPage:
        """Messages that were accepted before; as `PubSubClient.read`."""
        return self._bridge.run(lambda client: client.read(channel, after, count))

    @property
    def warnings(self) -> Sequence[Mapping[str, Any]]:
        """What the account has nearly used up, as the last publish that was accepted said it."""
        return self._bridge.run(_warnings_of)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._bridge.run(_is_connected)

    def enter(self, channel: str, member: str, data: Any = None) -> int:
        """Be in a channel; as `PubSubClient.enter`."""
        return self._bridge.run(lambda client: client.enter(channel, member, data))

    def update(self, channel: str, member: str, data: Any) -> int:
        """Have other data for the others."""
        return self._bridge.run(lambda client: client.update(channel, member, data))

    def leave(self, channel: str, member: str) -> None:
        """Be there no more."""
        self._bridge.run(lambda client: client.leave(channel, member))

    def members(self, channel: str) -> tuple[PubSubMember, ...]:
        """Who is in a channel."""
        return self._bridge.run(lambda client: client.members(channel))

    def members_page(
        self, channel: str, after: str = "", *, bytes_max: int = MEMBERS_BYTES
    ) -> PubSubMembersPage:
        """Some of them, by name; as `PubSubClient.members_page`."""
        return self._bridge.run(
            lambda client: client.members_page(channel, after, bytes_max=bytes_max)
        )

    def subscribe(
        self, channel: str, after: int | None = None, *, presence: bool = False
    ) -> SyncSubscription:
        """What is received of a channel, behind a position or from now on; to be entered."""
        return SyncSubscription(self._bridge, channel, after, presence=presence)

    def close(self) -> None:
        """End the connection."""
        self._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class SyncSubscription:
    """A `ChannelSubscription` for one thread: enter it, then iterate, or call `next`."""

    def __init__(
        self,
        bridge: ThreadBridge[PubSubClient],
        channel: str,
        after: int | None,
        *,
        presence: bool = False,
    ) -> None:
        self._bridge = bridge
        self._presence = presence
        self._channel = channel
        self._after = after
        self._inner: ChannelSubscription | None = None

    def __enter__(self) -> Self:
        async def enter(client: PubSubClient) -> ChannelSubscription:
            return await client.subscribe(
                self._channel, self._after, presence=self._presence
            ).__aenter__()

        self._inner = self._bridge.run(enter)
        return self

    def __exit__(self, *_: object) -> None:
        inner, self._inner = self._entered(), None
        self._bridge.run(lambda client: client.remove(inner))

    def __iter__(self) -> Iterator[Received]:
        return self

    def __next__(self) -> Received:
        return self.next()

    def next(self, timeout_ms: float | None = None) -> Received:
        """The next message or loss; `TimeoutError` if there is none in time."""
        inner = self._entered()
        if timeout_ms is not None:
            return self._bridge.run(lambda _: inner.next(timeout_ms))
        while True:
            with suppress(TimeoutError):
                return self._bridge.run(lambda _: inner.next(_SLICE_MS))

    @property
    def position(self) -> int | None:
        """That of the last that was received."""
        return self._entered().position

    def _entered(self) -> ChannelSubscription:
        if self._inner is None:
            raise RuntimeError("a subscription is entered first: with client.subscribe(...) as it")
        return self._inner


async def _warnings_of(client: PubSubClient) -> Sequence[Mapping[str, Any]]:
    return client.warnings


async def _is_connected(client: PubSubClient) -> bool:
    return client.connected
