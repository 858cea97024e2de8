"""Monitor: measures the machine and the event loop for the gate, a few times a second.

The loop's lag is how late its own timer comes; the queue time is what decisions of the last look
took on average, which is the store's doing as soon as there is one. The CPU is that of the whole
machine, smoothed over about a second: one full look of a quarter of a second is no overload.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.policies.utilization_gate import Readings, UtilizationGate
from sluicegate.service.background import LAG_TICK_US, measure_lag
from sluicegate.system import LoadMeter
from sluicegate.telemetry.service_metrics import ServiceMetrics

LOOK_US: Final = 250_000
_SMOOTHING: Final = 0.3  # of the newest look


@final
class Monitor:
    """Feeds a gate."""

    def __init__(self, gate: UtilizationGate, tally: ServiceMetrics) -> None:
        self._gate = gate
        self._tally = tally
        self._meter = LoadMeter()
        self._cpu = 0.0
        self._lag_us = 0
        self._decisions = 0
        self._took_us = 0
        self._since_us = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        await measure_lag(self._tick)

    def _tick(self, late_us: int) -> None:
        self._lag_us = max(self._lag_us, late_us)
        self._since_us += LAG_TICK_US + late_us
        if self._since_us >= LOOK_US:
            self._since_us = 0
            self.look()

    def look(self) -> None:
        """Measure now, and feed the gate."""
        load = self._meter.look()
        self._cpu += (load.cpu - self._cpu) * _SMOOTHING
        decisions, took_us = self._tally.decisions, self._tally.took_us
        count = decisions - self._decisions
        queue_us = (took_us - self._took_us) // count if count else 0
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
