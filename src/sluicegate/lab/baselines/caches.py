"""TTL cache: keeps every answer for a while, in a dict with times, and deletes it on a write.

A caller that finds nothing fetches by itself. The cache knows nothing of fetches in flight: a crowd
that misses fetches as a crowd, and an answer that left the store before a write and arrives after
it is kept. It bounds no memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS

Fetch: TypeAlias = Callable[[str], Awaitable[int]]


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
