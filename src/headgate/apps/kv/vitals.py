"""Vitals: tells the stress of a dispatcher how late its event loop is.

A loop that is late is a queue that no policy sees. The CPU of the whole machine is left out: who
else works there is no business of this dispatcher, and its own is told by the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from headgate.contracts.clock import Clock
from headgate.policies.stress import Stress

TICK_S: Final = 0.05


@final
class Vitals:
    """Ticks until it is closed."""

    __slots__ = ("_clock", "_stress", "_task")

    def __init__(self, stress: Stress, clock: Clock) -> None:
        self._stress = stress
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late_us = int((loop.time() - due_s) * 1e6)
            self._stress.looped(max(0, late_us), self._clock.now_us())
