"""Queues: the plain ways in which requests wait for a server's workers, as waiting policies.

*FIFO* is no control: a semaphore around a handler, as many in flight as there are workers. The
others wait, first in, first out, for as long as it takes. Requests whose callers have given up are
served too, because no network notifies the server. It has no deadline and no class, and
never rejects.

Others hold the requests that wait in another order:

- *bounded FIFO* is the thread pool with a bounded queue that most servers have. At its best the
  bound is twice the workers, as here, which is right for this service time and no other;
- *LIFO* is the simplest order that survives overload. It is not bounded: a request that was not
  served at once stays in memory after its caller has left;
- *folly* is the CoDel of folly: first in, first out, and a request that waited too long in an
  overloaded interval is rejected. It is the product's kernel `codel.Codel`, and a strong baseline.
  It knows neither deadlines nor classes, and has no bound;
- *token bucket* is what gateways and quotas use before a queue. At its best its rate is 98% of the
  capacity with a burst of a tenth of a second, as here. It admits the same number when the work
  becomes more expensive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import QUEUE_FULL
from sluicegate.contracts.request import Request
from sluicegate.kernels.codel import Codel
from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.rig import Rig
from sluicegate.lab.task_mode import MakePolicy
from sluicegate.lab.world import World

LENGTH_PER_WORKER: Final = 2
TOKEN_SHARE: Final = 0.98
BURST_S: Final = 0.1
SECOND_US: Final = 1_000_000
REJECTED: Final = Decision(False, 0, SECOND_US, 0, QUEUE_FULL, "queued_pool")


@final
class QueuedPermit:
    """One slot."""

    __slots__ = ("_pool",)

    def __init__(self, pool: QueuedPool) -> None:
        self._pool: QueuedPool | None = pool

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the slot back, once."""
        pool, self._pool = self._pool, None
        if pool is None:
            return False
        pool.give_back(now_us)
        return True


class Waiter(NamedTuple):
    """A request that waits; `started` is False if it is rejected."""

    arrived_us: int
    started: asyncio.Future[bool]


class FifoOrder:
    """First in, first out, without a bound; other orders change what it admits or serves."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        self.waiters: deque[Waiter] = deque()

    def arrive(self, waiter: Waiter, now_us: int) -> bool:
        """Append the waiter; return False to reject it."""
        self.waiters.append(waiter)
        return True

    def take(self, now_us: int) -> Waiter | None:
        """Return the oldest."""
        return self.waiters.popleft() if self.waiters else None


@final
class BoundedOrder(FifoOrder):
    """At most `length_max` wait."""

    __slots__ = ("_length_max",)

    def __init__(self, length_max: int) -> None:
        super().__init__()
        if length_max < 1:
            raise BadValue("length_max", length_max, "give at least 1")
        self._length_max = length_max

    def arrive(self, waiter: Waiter, now_us: int) -> bool:
        """Append the waiter, if there is room."""
        return len(self.waiters) < self._length_max and super().arrive(waiter, now_us)


@final
class LifoOrder(FifoOrder):
    """Last in, first out."""

    __slots__ = ()

    def take(self, now_us: int) -> Waiter | None:
        """Return the newest."""
        return self.waiters.pop() if self.waiters else None


@final
class CodelOrder(FifoOrder):
    """Rejects at its front."""

    __slots__ = ("_codel",)

    def __init__(self) -> None:
        super().__init__()
        self._codel = Codel()

    def take(self, now_us: int) -> Waiter | None:
        """Return the oldest that CoDel does not reject."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not self._codel.drop(now_us - waiter.arrived_us, now_us):
                return waiter
            if not waiter.started.done():
                waiter.started.set_result(False)
        return None


@final
class TokenOrder(FifoOrder):
    """`per_s` a second, and `burst` at once."""

    __slots__ = ("_bucket",)

    def __init__(self, per_s: int, burst: int) -> None:
        super().__init__()
        self._bucket = TokenBucket(per_s, SECOND_US, burst)

    def arrive(self, waiter: Waiter, now_us: int) -> bool:
        """Append the waiter, if there is a token."""
        return self._bucket.take(1, now_us).allowed and super().arrive(waiter, now_us)


@final
class QueuedPool:
    """A waiting policy that admits `slots` at a time; an order holds the others."""

    __slots__ = ("_free", "_order")

    def __init__(self, slots: int, order: FifoOrder | None = None) -> None:
        self._free = slots
        self._order = FifoOrder() if order is None else order

    async def admit(self, request: Request, clock: Clock) -> QueuedPermit | Decision:
        """Wait for a slot."""
        now_us = clock.now_us()
        waiter = Waiter(now_us, asyncio.get_running_loop().create_future())
        if not self._order.arrive(waiter, now_us):
            return REJECTED
        if self._free > 0:
            self._free -= 1
            self.give_back(now_us)
        try:
            started = await waiter.started
        except asyncio.CancelledError:
            if not waiter.started.cancelled() and waiter.started.result():
                self.give_back(clock.now_us())
            raise
        return QueuedPermit(self) if started else REJECTED

    def give_back(self, now_us: int) -> None:
        """Hand a free slot to the next waiter."""
        waiter = self._order.take(now_us)
        while waiter is not None and waiter.started.done():
            waiter = self._order.take(now_us)
        if waiter is None:
            self._free += 1
        else:
            waiter.started.set_result(True)


MakeOrder: TypeAlias = Callable[[Rig], FifoOrder]


def token_order(rig: Rig) -> TokenOrder:
    """Return a bucket of 98% of the capacity at speed 1."""
    per_s = max(int(TOKEN_SHARE * rig.capacity_per_s), 1)
    return TokenOrder(per_s, max(int(per_s * BURST_S), 1))


ORDERS: Final[dict[str, MakeOrder]] = {
    "bounded-fifo": lambda rig: BoundedOrder(LENGTH_PER_WORKER * rig.workers),
    "fifo": lambda rig: FifoOrder(),
    "folly": lambda rig: CodelOrder(),
    "lifo": lambda rig: LifoOrder(),
    "token-bucket": token_order,
}


def queued_pool(make_order: MakeOrder) -> MakePolicy:
    """Return a maker of a pool with as many slots as the rig has workers."""

    def make(rig: Rig, world: World) -> QueuedPool:
        return QueuedPool(rig.workers, make_order(rig))

    return make


fifo_pool: Final = queued_pool(ORDERS["fifo"])
