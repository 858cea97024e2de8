"""LoopLag: how late the event loop is.

The arrival of bytes at a socket is not reported, so a timer that should fire each `BEAT_US`
measures it. While it is overdue, a request that begins now has waited at least that long since it
was read. If it fired late, requests of the same turn arrived at some instant of that time, half of
it ago on average; they begin within the next few turns.

The loop is `late` from a delay of `LATE_US` until it has been on time for `CALM_BEATS` beats: the
processor is the bottleneck then, and requests start one by one in the order of the queue. That
takes longer than one beat because work that starts one by one delays each beat by one piece only.

The timer runs while requests arrive, and ends once `IDLE_US` have passed without one.

Cost: a comparison for each request, a timer each 10 ms. Bounds: one timer.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.policies.admission.gate import Gate

BEAT_US: Final = 10_000
LATE_US: Final = 20_000
CALM_BEATS: Final = 20
IDLE_US: Final = 1_000_000
_TURNS: Final = 3  # accept, read, begin
_SECOND_US: Final = 1_000_000


@final
class LoopLag:
    """Measures the loop that runs, and tells the gate whether it is late."""

    __slots__ = ("_asked_us", "_calm", "_clock", "_due_us", "_gate", "_late_us", "_loop", "_turns")

    def __init__(self, clock: Clock, gate: Gate) -> None:
        self._clock = clock
        self._gate = gate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due_us = 0
        self._late_us = 0  # of the last turn, while requests that it read begin
        self._turns = 0
        self._asked_us = 0
        self._calm = 0  # beats until the loop counts as on time

    def waited_us(self, now_us: int) -> int:
        """Return how long a request that begins now has been here, roughly."""
        self._asked_us = now_us
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first request, or the first after a pause or a loop
            self._loop = loop
            self._late_us = 0
            self._gate.lagging = False
            self._set(loop, now_us)
            return 0
        overdue_us = now_us - self._due_us
        if overdue_us > LATE_US:
            self._set_late()
        return max(self._late_us // 2, overdue_us, 0)

    def lag_us(self) -> int:
        """Return how late the last turn was."""
        return self._late_us

    def _set_late(self) -> None:
        self._gate.lagging = True
        self._calm = CALM_BEATS

    def _set(self, loop: asyncio.AbstractEventLoop, now_us: int) -> None:
        self._due_us = now_us + BEAT_US
        loop.call_later(BEAT_US / _SECOND_US, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        now_us = self._clock.now_us()
        if now_us - self._asked_us >= IDLE_US:
            self._loop = None
            self._gate.lagging = False
            return
        late_us = now_us - self._due_us
        if late_us > LATE_US:
            self._set_late()
        elif self._gate.lagging:
            self._calm -= 1
            self._gate.lagging = self._calm > 0
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
