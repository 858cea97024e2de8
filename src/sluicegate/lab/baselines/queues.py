"""Queues: the plain orders in which work waits for a server's workers.

*No control* is what a server with a pool of workers and an accept queue does by itself: whoever
comes waits for as long as it takes, first in, first out. Units whose callers have given up are
served too, because nobody tells the server.

*Bounded FIFO* is the thread pool with a bounded queue that most servers have. At its best the bound
is twice the workers, as here, which is right for this service time and this number of workers and
no other: a bound above what is served within the callers' timeout is no bound at all. It does not
adapt when the service slows down, and knows neither class nor deadline.

*Plain LIFO* is the simplest order that survives overload. It is not bounded: a unit that was not
served at once stays in memory after its caller has left, and may be served hours later for nothing.

*FIFO pool* is the full mode's form of no control, as a semaphore around a handler: as many at work
as there are workers; the others wait, first in, first out. It is not bounded, knows no deadline and
no class, and never refuses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkUnit
from sluicegate.lab.world import World

LENGTH_PER_WORKER: Final = 2


class NoControl:
    """A FIFO queue without a bound; other baselines change what it admits or serves."""

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units: deque[WorkUnit] = deque()

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Append the unit."""
        self.units.append(unit)

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the oldest."""
        return self.units.popleft() if self.units else None

    def waiting(self) -> int:
        """Return how many are held."""
        return len(self.units)


@final
class BoundedFifo(NoControl):
    """A queue of at most `length_max`."""

    __slots__ = ("_length_max",)

    def __init__(self, length_max: int) -> None:
        super().__init__()
        if length_max < 1:
            raise BadValue("length_max", length_max, "give at least 1")
        self._length_max = length_max

    def arrive(self, unit: WorkUnit, now_us: int, lost: list[WorkUnit]) -> None:
        """Append the unit, or refuse it if the queue is full."""
        (lost if len(self.units) >= self._length_max else self.units).append(unit)


@final
class PlainLifo(NoControl):
    """A stack without a bound."""

    __slots__ = ()

    def take(self, now_us: int, lost: list[WorkUnit]) -> WorkUnit | None:
        """Return the newest."""
        return self.units.pop() if self.units else None


def no_control(rig: Rig) -> NoControl:
    """Return a queue without a bound."""
    return NoControl()


def bounded_fifo(rig: Rig) -> BoundedFifo:
    """Return a queue of twice as many places as there are workers."""
    return BoundedFifo(LENGTH_PER_WORKER * rig.workers)


def plain_lifo(rig: Rig) -> PlainLifo:
    """Return a stack without a bound."""
    return PlainLifo()


@final
class FifoPool:
    """A waiting policy that admits `places` at a time."""

    __slots__ = ("_free", "_queue")

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

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
