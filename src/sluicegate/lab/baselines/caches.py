"""Caches: how most services read through one, or do without.

*No cache* sends every read to the store. It is never stale.

*TTL cache* keeps every answer for a while: a dict with times, and `del` on a write. Who finds
nothing fetches, each by itself. It knows nothing of fetches under way: a crowd that misses fetches
as a crowd, and an answer that left the store before a write and comes after it is kept. It bounds
no memory.

*Look-aside* is how most applications fill a cache, with a timeout and nothing else: who finds
nothing asks the store, waits, and fills the cache. Nobody is refused, so when the store falls
behind all wait until they give up, and nothing is filled.

*Single flight* is the coalescing that one writes in six lines: a dict of tasks, and whoever comes
while one runs awaits it. It awaits the task itself: in asyncio that hands a waiter's cancellation
on to the task, and so to all who wait. With `shielded` there is a shield before it: then nobody's
end is another's, and a fetch that hangs is never given up. It is not bounded, knows no deadline and
no criticality, and lets a reader join after a write what began before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS

Fetch: TypeAlias = Callable[[str], Awaitable[int]]


@final
class NoCache:
    """Every read goes to the store."""

    __slots__ = ("_get",)

    def __init__(self, get: Fetch) -> None:
        self._get = get

    def look(self, key: str) -> tuple[int, int | None]:
        """Return a miss."""
        return MISS, None

    async def fetch(self, request: Request, looked: tuple[int, int | None]) -> int:
        """Read from the store."""
        return await self._get(request.key)

    def invalidate(self, key: str) -> None:
        """Do nothing: nothing is kept."""


@final
class TtlCache:
    """Values and when they end."""

    __slots__ = ("_clock", "_entries", "_get", "_ttl_us")

    def __init__(self, clock: Clock, get: Fetch, *, ttl_us: int = 3_000_000) -> None:
        self._clock = clock
        self._get = get
        self._ttl_us = ttl_us
        self._entries: dict[str, tuple[int, int]] = {}

    def look(self, key: str) -> tuple[int, int | None]:
        """Return the state of the key and its version."""
        entry = self._entries.get(key)
        if entry is not None and self._clock.now_us() < entry[1]:
            return FRESH, entry[0]
        return MISS, None

    async def fetch(self, request: Request, looked: tuple[int, int | None]) -> int:
        """Read from the store, and keep the answer."""
        version = await self._get(request.key)
        self._entries[request.key] = version, self._clock.now_us() + self._ttl_us
        return version

    def invalidate(self, key: str) -> None:
        """Forget the key."""
        self._entries.pop(key, None)


@final
class PlainLookAside:
    """Read, and fill."""

    __slots__ = ("_fetch", "_fill")

    def __init__(self, fetch: Fetch, fill: Callable[[str, int], None]) -> None:
        self._fetch = fetch
        self._fill = fill

    async def fetch(self, request: Request) -> int:
        """Read from the store, however long it takes."""
        version = await self._fetch(request.key)
        self._fill(request.key, version)
        return version


@final
class SingleFlight:
    """Tasks by key."""

    __slots__ = ("_fetch", "_flying", "_shielded")

    def __init__(self, fetch: Fetch, *, shielded: bool = False) -> None:
        self._fetch = fetch
        self._shielded = shielded
        self._flying: dict[str, asyncio.Future[int]] = {}

    async def share(self, request: Request) -> int:
        """Return the answer of the fetch under way, or of a new one."""
        key = request.key
        task = self._flying.get(key)
        if task is None:
            task = self._flying[key] = asyncio.ensure_future(self._fetch(key))
            task.add_done_callback(partial(self._finish, key))
        return await (asyncio.shield(task) if self._shielded else task)

    def _finish(self, key: str, task: asyncio.Future[int]) -> None:
        if not task.cancelled():
            task.exception()  # mark it as retrieved: all waiters may have left
        if self._flying.get(key) is task:
            del self._flying[key]
