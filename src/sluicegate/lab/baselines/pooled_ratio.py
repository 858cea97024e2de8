"""Pooled ratio: the p95 of ten minutes over the p95 of the last seconds, all values in one pool.

It is the latency ratio as one would write it from its definition, with the product's own sketch: it
forgets by time and is within 1% of the truth. It is not frozen: the slow work fills the long pool
too, and once 5% of it is slow, slow is what is usual.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.latency_ratio import NEUTRAL, RatioSettings
from sluicegate.kernels.windowed_quantile import WindowedQuantile

LONG_WINDOWS: Final = 60
LONG_WINDOW_US: Final = 10_000_000
REFRESH_US: Final = 1_000_000
_DEFAULTS: Final = RatioSettings()


@final
class PooledRatio:
    """Two windows of one stream."""

    __slots__ = ("_due_us", "_long", "_ratio", "_short")

    def __init__(self) -> None:
        self._short = WindowedQuantile(_DEFAULTS.short_windows, _DEFAULTS.short_window_us)
        self._long = WindowedQuantile(LONG_WINDOWS, LONG_WINDOW_US)
        self._due_us = 0
        self._ratio = NEUTRAL

    def add(self, latency_us: float, now_us: int) -> None:
        """Add to both windows."""
        self._short.add(latency_us, now_us)
        self._long.add(latency_us, now_us)

    def ratio(self, now_us: int) -> float:
        """Return a ratio from 1 towards 0, computed once a second while there are enough values."""
        if now_us >= self._due_us and self._short.count(now_us) >= _DEFAULTS.samples_min:
            self._due_us = now_us + REFRESH_US
            long = self._long.quantile(_DEFAULTS.quantile, now_us) or 0.0
            short = self._short.quantile(_DEFAULTS.quantile, now_us) or 0.0
            self._ratio = min(NEUTRAL, long / short) if short > 0.0 else NEUTRAL
        return self._ratio
