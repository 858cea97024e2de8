"""Look-aside: who finds nothing in the cache asks the store, waits, and fills the cache.

It is how most applications use a cache, with a timeout and nothing else. Each reader fetches for
himself; nobody is refused, so when the store falls behind all wait until they give up, and nothing
is filled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

from sluicegate.contracts.request import Request


@final
class PlainLookAside:
    """Ask, and fill."""

    __slots__ = ("_fetch", "_fill")

    def __init__(
        self, fetch: Callable[[str], Awaitable[int]], fill: Callable[[str, int], None]
    ) -> None:
        self._fetch = fetch
        self._fill = fill

    async def fetch(self, request: Request) -> int:
        """Whatever it takes."""
        version = await self._fetch(request.key)
        self._fill(request.key, version)
        return version
