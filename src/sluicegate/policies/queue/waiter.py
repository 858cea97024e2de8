"""Waiters: who stands in line, who has to go, and who expires next.

The lines of `kernels/weighted_queue.py` are looked at from their ends; `Expiries` finds who has
expired in the middle of one. Who has left a line says so itself (`queued`), so nothing is taken out
of the heap before its time.

Cost: the heap's logarithm. Bounds: the heap is at most twice the line, and a little.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, final

from sluicegate.contracts.reasons import Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.adaptive_lifo import QUEUED, QueueEntry

_KEPT: Final = 64


class Waiter:
    """One unit in line; the gate knows what to do when it leaves."""

    __slots__ = ("entry", "expires_us", "lane", "latest_us", "queued_us", "request", "since_us")

    def __init__(self, request: Request, now_us: int) -> None:
        self.request = request
        self.queued_us = now_us
        # Its time in the socket and in the line of its door is delay too, where that is known.
        self.since_us = request.arrived_us if 0 < request.arrived_us < now_us else now_us
        self.lane = 0
        self.latest_us = -1  # from then on it is too late for its deadline
        self.expires_us = 0  # and from then on for whatever reason
        self.entry: QueueEntry[Waiter] | None = None

    @property
    def queued(self) -> bool:
        """Whether it stands in line."""
        return self.entry is not None and self.entry.fate == QUEUED


class LineRemoval(NamedTuple):
    """Somebody who has to go, why, and after how long it is worth coming again."""

    waiter: Waiter
    reason: Reason
    retry_us: int


@final
class Expiries:
    """Who expires next, wherever it stands."""

    __slots__ = ("_added", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._added = 0

    def add(self, waiter: Waiter, waiting: int) -> None:
        """Watch one of those who are `waiting`."""
        self._added += 1
        heappush(self._heap, (waiter.expires_us, self._added, waiter))
        if len(self._heap) > 2 * waiting + _KEPT:
            self._heap = [expiry for expiry in self._heap if expiry[2].queued]
            heapify(self._heap)

    def pop(self, now_us: int) -> Waiter | None:
        """Take out the next who has expired and still stands in line."""
        heap = self._heap
        while heap and heap[0][0] <= now_us:
            waiter = heappop(heap)[2]
            if waiter.expires_us <= now_us and waiter.queued:
                return waiter
        return None
