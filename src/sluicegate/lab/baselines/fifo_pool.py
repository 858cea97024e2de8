"""FIFO pool: as many at work as there are workers; the others wait, first in, first out.

It is what a semaphore around a handler does, in the full mode. It is not bounded, knows no deadline
and no class, and never refuses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.rig import Rig
from sluicegate.lab.world import World


@final
class FifoPool:
    """A waiting policy that admits `places` at a time."""

    __slots__ = ("_free", "_queue")

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[asyncio.Future[None]] = deque()

    async def admit(self, request: Request, clock: Clock) -> FifoPermit:
        """Wait for a place."""
        if self._free > 0:
            self._free -= 1
            return FifoPermit(self)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.give_back()
            raise
        return FifoPermit(self)

    def give_back(self) -> None:
        """Hand a free place to the next waiter."""
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


@final
class FifoPermit:
    """One place."""

    __slots__ = ("_pool",)

    def __init__(self, pool: FifoPool) -> None:
        self._pool: FifoPool | None = pool

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the place back, once."""
        pool, self._pool = self._pool, None
        if pool is None:
            return False
        pool.give_back()
        return True


def fifo_pool(rig: Rig, world: World) -> FifoPool:
    """Return as many places as the rig has workers."""
    return FifoPool(rig.workers)
