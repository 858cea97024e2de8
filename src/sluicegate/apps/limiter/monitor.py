"""Monitor: measures the machine and the event loop for the gate, a few times a second.

The loop's lag is how late its own timer comes; the queue time is what decisions of the last look
took on average, which is the store's doing as soon as there is one. The CPU is that of the whole
machine, smoothed over about a second: one full look of a quarter of a second is no overload.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from sluicegate.policies.utilization_gate import Readings, UtilizationGate
from sluicegate.system import LoadMeter
from sluicegate.telemetry.service_metrics import ServiceMetrics

LOOK_S: Final = 0.25
TICK_S: Final = 0.05
_SMOOTHING: Final = 0.3  # of the newest look


@final
class Monitor:
    """Feeds a gate until it is closed."""

    __slots__ = ("_cpu", "_decisions", "_gate", "_lag_us", "_meter", "_tally", "_task", "_took_us")

    def __init__(self, gate: UtilizationGate, tally: ServiceMetrics) -> None:
        self._gate = gate
        self._tally = tally
        self._meter = LoadMeter()
        self._cpu = 0.0
        self._lag_us = 0
        self._decisions = 0
        self._took_us = 0
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
        look_at_s = loop.time() + LOOK_S
        while True:
            due_s = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late_us = int((loop.time() - due_s) * 1e6)
            self._lag_us = max(self._lag_us, late_us)
            if loop.time() >= look_at_s:
                look_at_s = loop.time() + LOOK_S
                self.look()

    def look(self) -> None:
        """Measure now, and tell the gate."""
        load = self._meter.look()
        self._cpu += (load.cpu - self._cpu) * _SMOOTHING
        decisions, took_us = self._tally.decisions, self._tally.took_us
        made = decisions - self._decisions
        queue_us = (took_us - self._took_us) // made if made else 0
        self._decisions, self._took_us = decisions, took_us
        pressure = load.pressure
        self._gate.observe(
            Readings(
                self._cpu,
                None if pressure is None else pressure.io,
                None if pressure is None else pressure.memory,
                self._lag_us,
                queue_us,
            )
        )
        self._lag_us = 0
