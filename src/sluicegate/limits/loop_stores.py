"""Loop stores: a store for each event loop, and one in the background for all threads.

A store's connections belong to one event loop. What the store keeps, limits or places, is not known
here; nor is where it is. After a fork nothing that the parent holds is the child's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final, Generic
from weakref import WeakKeyDictionary, WeakSet

from sluicegate.contracts.errors import BadValue
from sluicegate.limits.outage_watch import OutageWatch
from sluicegate.stores.thread_bridge import S, ThreadBridge


class LoopStores(Generic[S]):
    """The stores of all loops; `open_store` is called within each loop that needs one."""

    def __init__(self, open_store: Callable[[], S]) -> None:
        self._open = open_store
        self.bridge: ThreadBridge[S] = ThreadBridge(open_store)
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, S] = WeakKeyDictionary()
        # The one that was asked last, because it mostly is the one that is asked next.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: S | None = None
        self._pinned: S | None = None
        self.watch = OutageWatch()
        _all.add(self)

    def pin(self) -> None:
        """Use the running loop's store from now on, without looking which loop it is.

        Looking is a system call, which asks whether this process is still the same.
        """
        self._pinned = self.here()

    def here(self) -> S:
        """Return the store of the running loop."""
        if self._pinned is not None:
            return self._pinned
        loop = asyncio.get_running_loop()
        store = self._store
        if store is None or loop is not self._loop:
            found = self._by_loop.get(loop)
            store = self._by_loop[loop] = self._open() if found is None else found
            self._loop, self._store = loop, store
        return store

    def begin_anew(self) -> None:
        """In a child, after a fork."""
        _left_to_the_parent.append((self._store, [*self._by_loop.items()]))
        self._by_loop = WeakKeyDictionary()
        self._loop = self._store = self._pinned = None
        self.watch = OutageWatch()

    async def aclose(self) -> None:
        """Close the store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._by_loop.pop(loop, None)
        if self._loop is loop:
            self._loop = self._store = self._pinned = None
        if store is not None:
            await store.close()

    def close(self) -> None:
        """Close the store of the threads."""
        self.bridge.close()


def check_url(url: str) -> None:
    """Refuse what is no URL of a store, before a driver is looked for."""
    if "://" not in url:
        raise BadValue(
            "store_url",
            url,
            'give "memory:", "redis://host:6379/0", "redis+cluster://...", '
            '"redis+sentinel://..." or "sluicegate://host:7070"',
        )


_all: Final[WeakSet[LoopStores[Any]]] = WeakSet()
# Collecting what the parent still uses would end it there too.
_left_to_the_parent: Final[list[object]] = []


def _after_fork() -> None:
    for stores in [*_all]:
        stores.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
