"""Stores: which store a limiter asks, by URL, and how tasks and threads come to it.

A store's connections belong to one event loop. So each loop that asks has a store of its own, and
threads share one that runs in a background loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final, final
from weakref import WeakKeyDictionary, WeakSet

from headgate.contracts.errors import BadValue
from headgate.contracts.observer import Observer
from headgate.contracts.store import Charge, Grant, Ruling, Store
from headgate.limits.far import FarKeys
from headgate.limits.tasks import TaskTicket
from headgate.limits.waiting import ThreadTicket, Ticket
from headgate.stores.redis.threads import Bridge
from headgate.system import SystemChance, now_us

SWEEP_S: Final = 0.5  # between looks for idle blocks


@final
class Stores:
    """Where a far store is: one for the event loop that asks, one for threads."""

    __slots__ = (
        "__weakref__",
        "_bridge",
        "_by_loop",
        "_loop",
        "_open",
        "_store",
        "_sweeps",
        "blocking",
    )

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: Store | None = None
        # Who is swept: None while the next sweep is due, else the one under way.
        self._sweeps: dict[FarKeys, asyncio.Task[None] | None] = {}
        self._bridge = Bridge(open_store)
        self.blocking: Store = BlockingStore(self._bridge)
        _all.add(self)

    def here(self) -> Store:
        """The store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._store
        if store is None or loop is not self._loop:
            found = self._by_loop.get(loop)
            store = self._by_loop[loop] = self._open() if found is None else found
            self._loop, self._store = loop, store
        return store

    def ticket(self, store: Store) -> Ticket:
        """A place in a line, for whoever asks this store."""
        return ThreadTicket() if store is self.blocking else TaskTicket()

    def begin_anew(self) -> None:
        """In a child, after a fork: what the parent holds is not ours, no block and no socket."""
        _left_to_the_parent.append((self._store, [*self._by_loop.items()]))
        self._by_loop = WeakKeyDictionary()
        self._loop = self._store = None
        self._sweeps = {}

    def sweep(self, store: Store, keys: FarKeys) -> None:
        """Have idle blocks of leases given back, now and then, while there are any."""
        if keys in self._sweeps:
            return
        self._sweeps[keys] = None
        if store is self.blocking:
            self._bridge.run(lambda its: self._arm(its, keys))
        else:
            self._sweep_later(store, keys)

    async def _arm(self, store: Store, keys: FarKeys) -> None:
        self._sweep_later(store, keys)

    def _sweep_later(self, store: Store, keys: FarKeys) -> None:
        asyncio.get_running_loop().call_later(SWEEP_S, self._begin_sweep, store, keys)

    def _begin_sweep(self, store: Store, keys: FarKeys) -> None:
        self._sweeps[keys] = asyncio.get_running_loop().create_task(self._sweep(store, keys))

    async def _sweep(self, store: Store, keys: FarKeys) -> None:
        await keys.give_back(store)
        if keys.leased:
            self._sweep_later(store, keys)
        else:
            del self._sweeps[keys]

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
        self._fail_at_once(charges)
        return self._bridge.run(
            lambda store: store.take(charges, keep=keep, count_refused=count_refused)
        )

    async def take_some(self, charge: Charge, ladder: Sequence[int]) -> Grant:
        """Take the first cost of `ladder` that fits."""
        self._fail_at_once([charge])
        return self._bridge.run(lambda store: store.take_some(charge, ladder))

    async def settle(self, charges: Sequence[Charge], taken_us: int | None = None) -> None:
        """Correct what was taken."""
        self._bridge.run(lambda store: store.settle(charges, taken_us))

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget what was taken."""
        self._bridge.run(lambda store: store.reset(charges))

    def _fail_at_once(self, charges: Sequence[Charge]) -> None:
        """Two changes of threads are a high price for what is known already."""
        gone = getattr(self._bridge.store, "gone", None)
        error = None if gone is None else gone(charges)
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close the threads' store."""
        self._bridge.close()


def open_stores(
    url: str,
    prefix: str,
    open_store: Callable[[], Store] | None = None,
    observer: Observer | None = None,
) -> Stores:
    """The stores of a URL, or of one's own; nothing is connected before the first ask."""
    if open_store is not None:
        return Stores(open_store)
    if "://" not in url:
        raise BadValue(
            "store_url", url, 'give "memory:", "redis://host:6379/0", "redis+cluster://..." '
            'or "redis+sentinel://..."'
        )  # fmt: skip
    # Here, because a store of one's own needs no Redis and no package for it.
    from headgate.stores.redis.store import RedisStore  # noqa: PLC0415
    from headgate.stores.redis.url import parse_url  # noqa: PLC0415

    settings = parse_url(url)
    return Stores(
        lambda: RedisStore(settings, SystemChance(), prefix=prefix, observer=observer, clock=now_us)
    )


_all: Final[WeakSet[Stores]] = WeakSet()
# Collecting what the parent still uses would end it there too.
_left_to_the_parent: Final[list[object]] = []


def _after_fork() -> None:
    for stores in [*_all]:
        stores.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
