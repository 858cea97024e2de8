"""Monitor: measures for the gate how the service fares, a few times a second.

It measures what the service does and suffers itself, so that it never refuses for what its
neighbours do. The loop's lag is how late its own timer comes, less what the scheduler gave to
others meanwhile; how full it is says `background.busy_share`. The queue time is what decisions took
on average, which is the store's doing as soon as there is one; while fewer than one is under way at
a time, no request waits for another. The queue of a remote store is full at the time-out of its
path, since a distant Redis is not an overloaded one. While the store is slow or down the queue
counts as empty: rejecting requests does not make such a store quicker, and the failure policies of
the rules decide. With `machine`, the machine's CPU counts too, and with `pressure` the stall of its
tasks (PSI of disks and memory), as separate signals.

Each reading is smoothed over about a second: one look of a quarter of a second is no overload.
"""

from __future__ import annotations

import logging
from typing import Final, final

from sluicegate.apps.limiter.store_watch import OK, LimiterStoreWatch
from sluicegate.policies.admission.utilization_gate import SIGNALS, Readings, UtilizationGate
from sluicegate.service.background import LAG_TICK_US, busy_share, measure_lag
from sluicegate.system import LoadMeter, Throttling, now_us, read_pressure, thread_times
from sluicegate.telemetry.service_metrics import ServiceMetrics

LOOK_US: Final = 250_000
LOG_EVERY_US: Final = 60_000_000  # what comes and goes faster is told once
_SMOOTHING: Final = 0.3  # of the newest look

_log: Final = logging.getLogger("sluicegate.limiter")


@final
class Monitor:
    """Feeds a gate. It is made in the thread of the event loop that it measures."""

    def __init__(
        self,
        gate: UtilizationGate,
        tally: ServiceMetrics,
        store: LimiterStoreWatch | None = None,
        *,
        machine: bool = False,
        pressure: bool = False,
    ) -> None:
        self._gate = gate
        self._tally = tally
        self._store = LimiterStoreWatch() if store is None else store
        self._machine = LoadMeter() if machine else None
        self._pressure = pressure
        self._throttling = Throttling()
        self._held_us = self._throttling.held_us()
        self._times = self._ticked = thread_times()
        self._decisions = tally.decisions
        self._took_us = tally.took_us
        self._since_us = self._late_us = self._ticks = 0
        self._readings = Readings()
        self._logged_us: int | None = None

    async def run(self) -> None:
        """Measure until cancelled."""
        await measure_lag(self.tick)

    def tick(self, late_us: int) -> None:
        """Take in how late one tick of the loop was."""
        times = thread_times()
        self._late_us += max(0, late_us - (times.waited_us - self._ticked.waited_us))
        self._ticks += 1
        self._ticked = times
        self._since_us += LAG_TICK_US + late_us
        if self._since_us >= LOOK_US:
            self.look(self._since_us)
            self._since_us = self._late_us = self._ticks = 0

    def look(self, passed_us: int) -> None:
        """Feed the gate with what was measured in the time that has passed."""
        times, held_us = thread_times(), self._throttling.held_us()
        decisions, took_us = self._tally.decisions, self._tally.took_us
        count, their_us = decisions - self._decisions, took_us - self._took_us
        machine = None if self._machine is None else self._machine.look().cpu
        pressure = read_pressure() if self._pressure else None
        settings = self._gate.settings
        newest = Readings(
            cpu=busy_share(self._times, times, passed_us),
            throttled=min((held_us - self._held_us) / passed_us, settings.throttled_full),
            lag_us=min(self._late_us // max(self._ticks, 1), settings.lag_us_full),
            queue_us=self._queue_us(their_us, count) if their_us > passed_us else 0,
            machine_cpu=machine or 0.0,
            machine_io=0.0 if pressure is None else pressure.io,
            machine_memory=0.0 if pressure is None else pressure.memory,
        )
        self._times, self._held_us = times, held_us
        self._decisions, self._took_us = decisions, took_us
        self._readings = _smoothed(self._readings, newest)
        shed = self._gate.shedding
        self._gate.observe(self._readings)
        if self._gate.shedding and not shed:
            self._log_shed()

    def _queue_us(self, took_us: int, count: int) -> int:
        """How long decisions waited for each other, on the scale of the gate."""
        if self._store.health != OK:
            return 0
        full_us = self._gate.settings.queue_us_full
        return min(took_us * full_us // (count * max(full_us, self._store.timeout_us)), full_us)

    def _log_shed(self) -> None:
        at_us = now_us()
        if self._logged_us is None or at_us - self._logged_us >= LOG_EVERY_US:
            worst = self._gate.worst
            _log.warning(
                "the service is overloaded and sheds what matters less: %s (%s, %.0f%% of full); "
                "--shed off stops that",
                SIGNALS[worst],
                worst,
                self._gate.stats().signals[worst] * 100,
            )
        self._logged_us = at_us


def _smoothed(before: Readings, newest: Readings) -> Readings:
    return Readings(
        *(old + (new - old) * _SMOOTHING for old, new in zip(before, newest, strict=True))
    )
