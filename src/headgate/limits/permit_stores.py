"""Permit stores: which store holds the places, by URL, and how tasks and threads come to it.

As for limits (`stores.py`): a store's connections belong to one event loop, so each loop that asks
has one of its own, and threads share one in a background loop, where their heartbeats beat too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, cast, final
from weakref import WeakKeyDictionary, WeakSet

from headgate.contracts.decision import Decision
from headgate.contracts.errors import BadValue
from headgate.contracts.store import Store
from headgate.limits.permit import Permit, PermitStore
from headgate.stores.redis.threads import Bridge
from headgate.system import SystemChance

# After a renewal that was not answered, the next try comes sooner than the next beat.
_AGAIN_S_MAX: Final = 1.0


@final
class PermitStores:
    """Where the places are: a store for the event loop that asks, one for threads."""

    __slots__ = ("__weakref__", "_bridge", "_by_loop", "_open", "blocking")

    def __init__(self, open_store: Callable[[], PermitStore]) -> None:
        self._open = open_store
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, PermitStore]
        self._by_loop = WeakKeyDictionary()
        # A bridge does not know what its store is, and only ever closes it.
        self._bridge = Bridge(cast("Callable[[], Store]", open_store))
        self.blocking: PermitStore = BlockingPermits(self._bridge)
        _all.add(self)

    def here(self) -> PermitStore:
        """The store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._by_loop.get(loop)
        if store is None:
            store = self._by_loop[loop] = self._open()
        return store

    def beat(self, permit: Permit, every_s: float) -> Heartbeat:
        """Renew a thread's permit until it ends; the background loop does it."""

        async def begin(store: Store) -> Heartbeat:
            return Heartbeat(permit, permit.of(cast("PermitStore", store)), every_s)

        return self._bridge.run(begin)

    def begin_anew(self) -> None:
        """In a child, after a fork: the parent's sockets are not ours."""
        _left_to_the_parent.append([*self._by_loop.items()])
        self._by_loop = WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the store of the running loop."""
        store = self._by_loop.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.close()

    def close(self) -> None:
        """Close the store of the threads."""
        self._bridge.close()


@final
class BlockingPermits:
    """The threads' store: its coroutines block the thread that steps them, and never suspend."""

    __slots__ = ("_bridge",)

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def acquire(self, key: str, permit_id: str, count: int) -> Decision:
        """Hold `count` places of `key` under this name."""
        return self._bridge.run(lambda store: _of(store).acquire(key, permit_id, count))

    async def renew(self, key: str, permit_id: str, count: int) -> bool:
        """Hold them for the whole time from now."""
        return self._bridge.run(lambda store: _of(store).renew(key, permit_id, count))

    async def release(self, key: str, permit_id: str, count: int) -> bool:
        """Give them back."""
        return self._bridge.run(lambda store: _of(store).release(key, permit_id, count))

    async def look(self, key: str, count: int) -> Decision:
        """What `acquire` would decide."""
        return self._bridge.run(lambda store: _of(store).look(key, count))

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()


@final
class Heartbeat:
    """Renews a permit now and then, as a task of the loop it was made in, until either ends."""

    __slots__ = ("_loop", "_task")

    def __init__(self, permit: Permit, store: PermitStore, every_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(_beat(permit, store, every_s))

    def stop(self) -> None:
        """End it; any thread may say so."""
        try:
            self._loop.call_soon_threadsafe(self._task.cancel)
        except RuntimeError:
            return  # the loop has ended, and the task with it


async def _beat(permit: Permit, store: PermitStore, every_s: float) -> None:
    pause_s = every_s
    while permit.held:
        await asyncio.sleep(pause_s)
        pause_s = every_s if await permit.renewed(store) else min(every_s, _AGAIN_S_MAX)


def _of(store: Store) -> PermitStore:
    return cast("PermitStore", store)


def open_permit_stores(
    url: str, prefix: str, name: str, limit: int, expires_after_us: int
) -> PermitStores:
    """The stores of a URL; nothing is connected before the first ask."""
    if "://" not in url:
        raise BadValue(
            "store_url", url, 'give "memory:", "redis://host:6379/0", "redis+cluster://..." '
            'or "redis+sentinel://..."'
        )  # fmt: skip
    from headgate.stores.redis.permits import RedisPermits  # noqa: PLC0415
    from headgate.stores.redis.url import parse_url  # noqa: PLC0415

    settings = parse_url(url)
    return PermitStores(
        lambda: RedisPermits(settings, SystemChance(), name, limit, expires_after_us, prefix=prefix)
    )


_all: Final[WeakSet[PermitStores]] = WeakSet()
# Collecting what the parent still uses would end it there too.
_left_to_the_parent: Final[list[object]] = []


def _after_fork() -> None:
    for stores in [*_all]:
        stores.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
