"""Stores: which store a limiter asks, by URL, and how tasks and threads come to it.

A store's connections belong to one event loop. So each loop that asks has a store of its own, and
threads share one that runs in a background loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final
from weakref import WeakKeyDictionary

from headgate.contracts.errors import BadValue
from headgate.contracts.store import Charge, Grant, Ruling, Store
from headgate.stores.redis.store import RedisStore
from headgate.stores.redis.threads import Bridge
from headgate.stores.redis.url import parse_url
from headgate.system import SystemChance


@final
class Stores:
    """Where a far store is: one for the event loop that asks, one for threads."""

    __slots__ = ("_bridge", "_by_loop", "_loop", "_open", "_store", "blocking")

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Store | None = None
        self._bridge = Bridge(open_store)
        self.blocking: Store = BlockingStore(self._bridge)

    def here(self) -> Store:
        """The store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._store
        if store is None or loop is not self._loop:
            found = self._by_loop.get(loop)
            store = self._by_loop[loop] = self._open() if found is None else found
            self._loop, self._store = loop, store
        return store

    async def aclose(self) -> None:
        """Close the store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._by_loop.pop(loop, None)
        if self._loop is loop:
            self._loop = self._store = None
        if store is not None:
            await store.close()

    def close(self) -> None:
        """Close the store of the threads."""
        self._bridge.close()


@final
class BlockingStore:
    """The threads' store: its coroutines block the thread that steps them, and never suspend."""

    __slots__ = ("_bridge",)

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def take(
        self, charges: Sequence[Charge], *, keep: bool = True, count_refused: bool = False
    ) -> Ruling:
        """Take every charge or none."""
        return self._bridge.run(
            lambda store: store.take(charges, keep=keep, count_refused=count_refused)
        )

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> Grant:
        """Take the first cost of `ladder` that fits."""
        return self._bridge.run(lambda store: store.take_some(charge, ladder))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        self._bridge.run(lambda store: store.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        self._bridge.run(lambda store: store.reset(charges))

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()


def open_stores(url: str, prefix: str) -> Stores:
    """The stores of a URL; nothing is connected before the first ask."""
    if "://" not in url:
        raise BadValue(
            "store_url", url, 'give "memory:", "redis://host:6379/0", "redis+cluster://..." '
            'or "redis+sentinel://..."'
        )  # fmt: skip
    settings = parse_url(url)
    return Stores(lambda: RedisStore(settings, SystemChance(), prefix=prefix))
