"""Pool: slots, and a bounded queue in front of them whose rule is given.

    a slot is free     the request takes it
    no slot is free    the request is queued, for as long as `timeout_us` returns
    a permit ends      the queue's next request takes the slot, unless `drop` rejects it

`timeout_us(queued, now_us)` decides when a request is queued, `drop(waited_us, now_us)` when it
leaves the queue; CoDel has a form of each. `standing_us` turns the queue from first in, first out
to last in, first out (`kernels/adaptive_lifo.py`). A request never waits beyond its deadline.

Bounds: `length_max` requests and `bytes_max` bytes. One pool belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUEUE_TIMEOUT, Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.adaptive_lifo import OVERFLOWED, AdaptiveLifo, QueueEntry

WAITER_BYTES: Final = 2_048  # of a request that waits, without its body
RETRY_AFTER_US: Final = 250_000


class PoolStats(NamedTuple):
    """Levels now, counts since the start."""

    slots: int
    inflight: int
    queued: int
    standing: bool
    admitted: int
    waited: int
    refused: int
    cancelled: int


@final
class PoolPermit:
    """One slot."""

    __slots__ = ("_open", "_pool", "waited_us")

    def __init__(self, pool: QueuePool, waited_us: int) -> None:
        self._pool = pool
        self._open = True
        self.waited_us = waited_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the slot to the next request."""
        if not self._open:
            return False
        self._open = False
        self._pool.release(now_us)
        return True


_Waiter: TypeAlias = "asyncio.Future[PoolPermit | Decision]"


@final
class QueuePool:
    """A `WaitingPolicy` and `PromptPolicy` over slots and a queue."""

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        timeout_us: Callable[[int, int], int],
        drop: Callable[[int, int], bool],
        length_max: int = 10_000,
        bytes_max: int = 64 << 20,
        standing_us: int | None = None,
        size_bytes: Callable[[Request], int] | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.inflight = 0
        self._timeout_us = timeout_us
        self._drop = drop
        self._size_bytes = size_bytes
        self._queue = AdaptiveLifo[_Waiter](
            length_max=length_max, weight_max=bytes_max, standing_us=standing_us
        )
        self._admitted = self._waited = self._refused = self._cancelled = 0

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return self._queue.length

    @property
    def queued_bytes(self) -> int:
        """Bytes of the requests that wait."""
        return self._queue.weight

    @property
    def standing(self) -> bool:
        """Whether the queue is served last in, first out."""
        return self._queue.lifo

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether a slot is free; then no request waits."""
        return self.inflight < self.slots

    def admit_now(self, request: Request, now_us: int) -> PoolPermit:
        """Take the free slot."""
        self._drop(0, now_us)  # CoDel has to see requests that did not wait
        self.inflight += 1
        self._admitted += 1
        return PoolPermit(self, 0)

    async def admit(self, request: Request, clock: Clock) -> PoolPermit | Decision:
        """Return a permit, now or when a slot is free for this request, or a refusal."""
        now_us = clock.now_us()
        if self.ready(request, now_us):
            return self.admit_now(request, now_us)
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        timeout_us, reason = self._timeout_us(self._queue.length, now_us), QUEUE_TIMEOUT
        left_us = request.remaining_us(now_us)
        if left_us is not None and left_us < timeout_us:
            timeout_us, reason = left_us, DEADLINE
        size = WAITER_BYTES + (0 if self._size_bytes is None else self._size_bytes(request))
        lost: list[QueueEntry[_Waiter]] = []
        entry = self._queue.push(waiter, timeout_us, now_us, lost, size)
        self._refuse_lost(lost)
        timer = loop.call_later(timeout_us / 1e6, self._expire, entry, reason, clock)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._leave(entry, clock.now_us())
            raise
        finally:
            timer.cancel()

    def release(self, now_us: int) -> None:
        """Free a slot, and give it to the next request; called by a permit."""
        self.inflight -= 1
        while self.inflight < self.slots:
            lost: list[QueueEntry[_Waiter]] = []
            entry = self._queue.pop(now_us, lost)
            self._refuse_lost(lost)
            if entry is None:
                return
            waiter = entry.item
            if waiter.done():  # cancelled, and its task has not run yet
                continue
            if self._drop(entry.waited_us, now_us):
                self._refuse(waiter, QUEUE_TIMEOUT)
                continue
            self.inflight += 1
            self._admitted += 1
            self._waited += 1
            waiter.set_result(PoolPermit(self, entry.waited_us))

    def stats(self) -> PoolStats:
        """Return levels and counts."""
        return PoolStats(
            self.slots,
            self.inflight,
            self._queue.length,
            self._queue.lifo,
            self._admitted,
            self._waited,
            self._refused,
            self._cancelled,
        )

    def _expire(self, entry: QueueEntry[_Waiter], reason: Reason, clock: Clock) -> None:
        if self._queue.cancel(entry, clock.now_us()):
            self._refuse(entry.item, reason)

    def _leave(self, entry: QueueEntry[_Waiter], now_us: int) -> None:
        """Its task was cancelled: leave the queue, or pass on the slot that it was just given."""
        self._cancelled += 1
        waiter = entry.item
        if waiter.done() and not waiter.cancelled():
            given = waiter.result()
            if isinstance(given, PoolPermit):
                given.end(Outcome.IGNORE, now_us, spent=False)
            return
        self._queue.cancel(entry, now_us)

    def _refuse_lost(self, lost: list[QueueEntry[_Waiter]]) -> None:
        for entry in lost:
            self._refuse(entry.item, QUEUE_FULL if entry.fate == OVERFLOWED else QUEUE_TIMEOUT)

    def _refuse(self, waiter: _Waiter, reason: Reason) -> None:
        if not waiter.done():
            self._refused += 1
            waiter.set_result(Decision(False, 0, RETRY_AFTER_US, RETRY_AFTER_US, reason, self.name))
