"""Durations: how long requests for images took, by how they ended."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from sluicegate.telemetry.prometheus import Labels
from sluicegate.telemetry.snapshot import Histogram

HIT: Final = "hit"  # the variant was there
PROCESSED: Final = "processed"  # it was made, by this request or by another that it waited for
FALLBACK: Final = "fallback"  # another image was sent instead
ERROR: Final = "error"
OUTCOMES: Final = (HIT, PROCESSED, FALLBACK, ERROR)
BOUNDS_US: Final[tuple[int, ...]] = (
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000,
)  # fmt: skip


@final
class RequestDurations:
    """One histogram for each outcome."""

    __slots__ = ("_counts", "_totals_us")

    def __init__(self) -> None:
        self._counts = {outcome: [0] * (len(BOUNDS_US) + 1) for outcome in OUTCOMES}
        self._totals_us = dict.fromkeys(OUTCOMES, 0)

    def add(self, outcome: str, took_us: int) -> None:
        """Count a request that ended so."""
        took_us = max(0, took_us)  # a clock may be set back
        self._counts[outcome][bisect_left(BOUNDS_US, took_us)] += 1
        self._totals_us[outcome] += took_us

    def snapshot(self) -> dict[Labels, Histogram]:
        """The histograms by label."""
        return {
            (("outcome", outcome),): Histogram(BOUNDS_US, tuple(counts), self._totals_us[outcome])
            for outcome, counts in self._counts.items()
        }
