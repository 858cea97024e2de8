"""LoopLag: what a request has waited in its socket, because the event loop was busy elsewhere.

Nobody is notified when bytes reach a socket, so it is measured by a timer that should fire each
`BEAT_US`. If it is overdue, whatever is begun now has waited at least that long since it was read.
If it fired late, what was read in the same turn came at some instant of that time, half of it ago
on average; it is begun within the next few turns, and after those the loop is on time again.

The timer runs while requests come, and ends once `IDLE_US` have passed without one.

Cost: a comparison for each request, a timer each 5 ms. Bounds: one timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.clock import Clock

BEAT_US: Final = 5_000
IDLE_US: Final = 1_000_000
_TURNS: Final = 3  # accept, read, begin
_SECOND_US: Final = 1_000_000


@final
class LoopLag:
    """Measures the loop that runs; `record` is given each reading of the timer."""

    __slots__ = ("_asked_us", "_clock", "_due_us", "_late_us", "_loop", "_record", "_turns")

    def __init__(self, clock: Clock, record: Callable[[int, int], None]) -> None:
        self._clock = clock
        self._record = record
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due_us = 0
        self._late_us = 0  # of the last turn, while what was read in it is begun
        self._turns = 0
        self._asked_us = 0

    def waited_us(self, now_us: int) -> int:
        """Return how long a request that is begun now has been here, roughly."""
        self._asked_us = now_us
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first request, or the first after a pause or a loop
            self._loop = loop
            self._late_us = 0
            self._set(loop, now_us)
            return 0
        return max(self._late_us // 2, now_us - self._due_us, 0)

    def _set(self, loop: asyncio.AbstractEventLoop, now_us: int) -> None:
        self._due_us = now_us + BEAT_US
        loop.call_later(BEAT_US / _SECOND_US, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now_us = self._clock.now_us()
        if now_us - self._asked_us >= IDLE_US:
            self._loop = None
            return
        late_us = max(now_us - self._due_us, 0)
        self._record(late_us, now_us)
        if late_us >= BEAT_US:
            self._late_us = late_us
            self._turns = _TURNS
            loop.call_soon(self._turn, loop)
        self._set(loop, now_us)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns -= 1
        if self._turns > 0:
            loop.call_soon(self._turn, loop)
        else:
            self._late_us = 0
