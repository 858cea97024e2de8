"""Gradient2: a concurrency limit that follows the ratio of a slow latency to the present one.

Source: Netflix's concurrency-limits (2018), after the gradient of a delay in TCP congestion
control:

    limit' = limit * clamp(tolerance * baseline / latency, 0.5, 1) + queue,   smoothed by 0.2

What was changed, and why. The original's baseline is a slow mean of all latencies: at saturation it
takes up the queue, the gradient returns to 1, and the limit drifts up to its maximum. Here a probe
drains first, every `probe_updates` updates (`concurrency_limit.py`), and what it measures is the
baseline; between probes a loaded one only falls. The original is `probe_updates=0`. A drop reduces
it, which the original ignored, and teaches it no baseline.

It holds half as much again as the capacity, by its tolerance: 53 where 32 workers do the work. The
original drifts, and stood at 128 in the end. With a tolerance of 1.1 it holds 40. Good where a
reserve is welcome. Not good at: a limit of 1 or 2, where half is nothing; bimodal latency, whose
mean moves with the mix.

Cost: a few multiplications an update. Bounds: those of `AdaptiveNumber`; tolerance from 1 to 10,
smoothing above 0 to 1, `queue`, `long_updates` and `probe_updates` up to `LIMIT_MAX`.
"""

from __future__ import annotations

from math import isfinite
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.concurrency_limit import LIMIT_MAX, AdaptiveNumber, check_draw

_WARM_UP: Final = 10
_DRAINING: Final = 1
_MEASURING: Final = 2


@final
class Gradient2(AdaptiveNumber):
    """Follows the ratio of a slow latency baseline to the present latency."""

    __slots__ = (
        "_baseline_us",
        "_estimate",
        "_learned",
        "_long_updates",
        "_phase",
        "_probe_in",
        "_probe_updates",
        "_queue",
        "_smoothing",
        "_tolerance",
    )

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        tolerance: float = 1.5,
        smoothing: float = 0.2,
        queue: int = 4,
        long_updates: int = 600,
        probe_updates: int = 60,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        if not (isfinite(tolerance) and 1.0 <= tolerance <= 10.0):
            raise ValueError(f"tolerance must be from 1 to 10, not {tolerance}")
        if not 0.0 < smoothing <= 1.0:
            raise ValueError(f"smoothing must be above 0 and at most 1, not {smoothing}")
        within("queue", queue, 1, LIMIT_MAX)
        within("long_updates", long_updates, 1, LIMIT_MAX)
        within("probe_updates", probe_updates, 0, LIMIT_MAX)
        self._tolerance = tolerance
        self._smoothing = smoothing
        self._queue = queue
        self._long_updates = long_updates
        self._probe_updates = probe_updates
        self._probe_in = probe_updates
        self._phase = 0
        self._baseline_us = 0.0
        self._learned = 0
        self._estimate = float(initial)

    @property
    def baseline_us(self) -> float:
        """The latency that the present one is compared with; 0 before the first sample."""
        return self._baseline_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit."""
        check_draw(draw)
        if dropped:
            return self._hold(0.5 * self._estimate)
        if rtt_us < 1:
            return self.limit
        if self._phase == _DRAINING:
            self._phase = _MEASURING
            return self.limit
        if self._phase == _MEASURING:
            self._phase = 0
            self._baseline_us = float(rtt_us)
            self._probe_in = int(self._probe_updates * (0.5 + draw / 2))
            self.limit = int(self._estimate)
            return self.limit
        loaded = inflight * 2 >= self._estimate
        self._learn(rtt_us, loaded)
        if not loaded:
            return self.limit
        if self._probe_updates > 0:
            self._probe_in -= 1
            if self._probe_in < 0:
                self._phase = _DRAINING
                self.limit = max(self._limit_min, self.limit // 2)
                return self.limit
        gradient = max(0.5, min(1.0, self._tolerance * self._baseline_us / rtt_us))
        return self._hold(gradient * self._estimate + self._queue)

    def _learn(self, rtt_us: int, loaded: bool) -> None:
        if self._learned < _WARM_UP:
            self._learned += 1
            self._baseline_us += (rtt_us - self._baseline_us) / self._learned
        elif self._probe_updates == 0 or not loaded or rtt_us < self._baseline_us:
            self._baseline_us += (rtt_us - self._baseline_us) * 2 / (self._long_updates + 1)
        # After a long overload the mean would take minutes to come down.
        if self._baseline_us > 2 * rtt_us:
            self._baseline_us *= 0.95

    def _hold(self, wanted: float) -> int:
        self._phase = 0
        estimate = self._estimate + (wanted - self._estimate) * self._smoothing
        self._estimate = max(float(self._limit_min), min(float(self._limit_max), estimate))
        self.limit = int(self._estimate)
        return self.limit
