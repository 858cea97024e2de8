"""Fleet state: whether any limiter that shares our store sheds, as all of them tell their callers.

A limiter that sheds says so each second by one mark in the store (`stores/redis/mark.py`), which is
gone `HEARD_US` after the last has said it; each reads it once a second. So the cost of a limiter
does not grow with the fleet, and the fleet's state is that of the worst of those that were heard
in the last seconds. Nothing is heard while the store does not answer, and without one: then the
fleet's state is this worker's own.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import SluicegateError
from sluicegate.policies.admission.utilization_gate import OpenGate, UtilizationGate

TICK_S: Final = 1.0
HEARD_US: Final = 3_000_000


class SharedMark(Protocol):
    """What limiters leave each other; a `RedisMark` is one."""

    async def set(self, text: str, ttl_ms: int) -> None:
        """Say it, for so long."""
        ...

    async def read(self) -> str:
        """What somebody has said lately, or ""."""
        ...


@final
class FleetState:
    """Tells the others of one worker's gate, and the gate of the others."""

    __slots__ = ("_clock", "_gate", "_heard_us", "_mark", "_node", "failure", "sheds")

    def __init__(
        self, gate: UtilizationGate | OpenGate, mark: SharedMark, node: str, clock: Clock
    ) -> None:
        self._gate = gate
        self._mark = mark
        self._node = node
        self._clock = clock
        self._heard_us = 0
        self.sheds = ""  # who was heard last
        self.failure = ""  # why nothing is heard

    async def run(self) -> None:
        """Tell and hear until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(TICK_S)

    async def tick(self) -> None:
        """Say what this worker does, and hear what the others do."""
        try:
            if self._gate.shedding:
                await self._mark.set(self._node, HEARD_US // 1_000)
            self.sheds = await self._mark.read()
        except SluicegateError as error:
            self.failure = str(error)
            if self._clock.now_us() - self._heard_us >= HEARD_US:
                self.sheds = ""
        else:
            self.failure = ""
            self._heard_us = self._clock.now_us()
        self._gate.fleet_sheds = bool(self.sheds)

    def state(self) -> object:
        """What was heard."""
        return {"sheds": self.sheds, "node": self._node, "failure": self.failure}
