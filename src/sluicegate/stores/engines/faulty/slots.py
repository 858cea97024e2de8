"""Work slots: work takes one for a while, and the rest wait, first come first served.

All instants are absolute. A timer is late by a millisecond or more, but the end of work and the
start of the next are computed from when it should have ended: eight slots of 10 ms are 800 a second
whatever the timers do. Where nobody waits, the next arrival within a moment is credited with that
lateness, so a caller that keeps as many under way as there are slots gets all of them too.

Nothing here asks the time or waits: the engine passes `now_us`, and asks when to come back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, final

CREDIT_US: Final = 3_000  # that whoever comes so soon after is credited with a timer's lateness


class SlotWaiter(NamedTuple):
    """One that waits for a slot."""

    came_us: int
    work_us: int
    done: asyncio.Future[None]


@final
class WorkSlots:
    """The slots and the line before them."""

    __slots__ = ("_busy", "_credits", "_number", "_slots", "_waiters")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._busy: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiters: deque[SlotWaiter] = deque()
        self._credits: deque[tuple[int, int]] = deque(maxlen=1_024)
        self._number = 0

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiters)

    def enter(self, work_us: int, done: asyncio.Future[None], now_us: int) -> None:
        """Queue so much work; `done` is resolved when it is done."""
        self.advance(now_us)
        self.enqueue(work_us, done, now_us)
        self.advance(now_us)

    def enqueue(self, work_us: int, done: asyncio.Future[None], now_us: int) -> None:
        """Stand in line, while nothing moves."""
        self._waiters.append(SlotWaiter(now_us, work_us, done))

    def set_slots(self, slots: int, now_us: int) -> None:
        """So many from now on; what is at work stays at work."""
        self.advance(now_us)
        self._slots = slots
        self.advance(now_us)

    def advance(self, now_us: int) -> None:
        """End what has ended by now, each at its instant, and begin what is next."""
        busy, waiters = self._busy, self._waiters
        while busy and busy[0][0] <= now_us:
            end_us, _, done = heappop(busy)
            if not done.done():
                done.set_result(None)
            if waiters and self._room():
                waiter = waiters.popleft()
                self._begin(waiter, max(end_us, waiter.came_us))
            else:
                self._credits.append((now_us, now_us - end_us))
        while waiters and self._room():
            waiter = waiters.popleft()
            self._begin(waiter, waiter.came_us - self._credit(now_us))

    def next_us(self) -> int | None:
        """When something ends; None if nothing is at work."""
        return self._busy[0][0] if self._busy else None

    def pause(self, us: int, now_us: int) -> None:
        """Let `us` that have passed until now count for nothing: what was at work ends later."""
        self._busy = [(end_us + us, number, done) for end_us, number, done in self._busy]
        heapify(self._busy)
        self._waiters = deque(one._replace(came_us=now_us) for one in self._waiters)
        self._credits.clear()

    def fail(self, error: Exception) -> None:
        """Fail all work and all waiters."""
        for done in [one[2] for one in self._busy] + [one.done for one in self._waiters]:
            if not done.done():
                done.set_exception(error)
        self._busy.clear()
        self._waiters.clear()

    def _room(self) -> bool:
        return not self._slots or len(self._busy) < self._slots

    def _begin(self, one: SlotWaiter, start_us: int) -> None:
        self._number += 1
        heappush(self._busy, (start_us + one.work_us, self._number, one.done))

    def _credit(self, now_us: int) -> int:
        while self._credits:
            freed_us, late_us = self._credits.popleft()
            if now_us - freed_us <= CREDIT_US:
                return late_us
        return 0
