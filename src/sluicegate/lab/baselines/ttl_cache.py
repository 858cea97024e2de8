"""TTL cache: every answer is kept for a while; who finds nothing fetches, each for himself.

It is the cache that most services have: a dict with times, and `del` on a write. It is not told of
fetches under way: a crowd that misses fetches as a crowd, and an answer that left the store before
a write and comes after it is kept. It bounds no memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import FRESH, MISS


@final
class TtlCache:
    """Values and when they end."""

    __slots__ = ("_clock", "_get", "_kept", "_ttl_us")

    def __init__(
        self, clock: Clock, get: Callable[[str], Awaitable[int]], *, ttl_us: int = 3_000_000
    ) -> None:
        self._clock = clock
        self._get = get
        self._ttl_us = ttl_us
        self._kept: dict[str, tuple[int, int]] = {}

    def look(self, key: str) -> tuple[int, int | None]:
        """What is kept of it."""
        kept = self._kept.get(key)
        if kept is not None and self._clock.now_us() < kept[1]:
            return FRESH, kept[0]
        return MISS, None

    async def fetch(self, request: Request, looked: tuple[int, int | None]) -> int:
        """Ask, and keep the answer."""
        version = await self._get(request.key)
        self._kept[request.key] = version, self._clock.now_us() + self._ttl_us
        return version

    def wrote(self, key: str) -> None:
        """Forget it."""
        self._kept.pop(key, None)
