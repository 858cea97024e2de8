"""Single flight: a dict of tasks, and whoever comes while one runs awaits it.

It is the coalescing that one writes in six lines. It awaits the task itself: in asyncio that hands
a waiter's cancellation on to the task, and so to all who wait. With `shielded` there is a shield
before it: then nobody's end is another's, and a fetch that hangs is never given up. It is not
bounded, knows no deadline and no criticality, and lets a reader join after a write what began
before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import final

from sluicegate.contracts.request import Request

Fetch = Callable[[str], Awaitable[int]]


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
