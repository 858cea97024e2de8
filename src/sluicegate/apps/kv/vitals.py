"""Vitals: tells the stress of a dispatcher how late its event loop is.

A loop that is late is a queue that no policy sees. The CPU of the whole machine is left out: who
else works there is no business of this dispatcher, and its own is told by the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.policies.stress import Stress

TICK_S: Final = 0.05


@final
class Vitals:
    """Ticks."""

    __slots__ = ("_clock", "_stress")

    def __init__(self, stress: Stress, clock: Clock) -> None:
        self._stress = stress
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late_us = int((loop.time() - due_s) * 1e6)
            self._stress.record_loop_lag(max(0, late_us), self._clock.now_us())
