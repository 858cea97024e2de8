"""No cache: every read goes to the store.

It is what a node without any defence does. It is never stale.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import final

from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import MISS


@final
class NoCache:
    """Nothing."""

    __slots__ = ("_get",)

    def __init__(self, get: Callable[[str], Awaitable[int]]) -> None:
        self._get = get

    def look(self, key: str) -> tuple[int, int | None]:
        """Nothing is there."""
        return MISS, None

    async def fetch(self, request: Request, looked: tuple[int, int | None]) -> int:
        """Ask."""
        return await self._get(request.key)

    def wrote(self, key: str) -> None:
        """Nothing is kept."""
