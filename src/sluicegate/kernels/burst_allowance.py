"""Burst allowance: how much longer units may wait, since refusing some left places idle later.

A rule that keeps a line short takes it for granted that there is always somebody new to serve. With
arrivals in bursts there is not: what was refused in a burst could have been served in the pause
behind it, and still in time. So this counts the idle time of places, as far as refused work would
have filled it, and lets units wait for longer by it:

    lost       idle time of a place while a refused unit would still have been in time, at most
               the work of the refused; a sum that fades with `fade_us`
    allowance  what `lost` is above `spared_permille` of `fade_us`, up to `allowance_us_max`

Under a steady overload nobody is missed: places are idle for a few thousandths of the time, which
`spared_permille` spares, and the line stays as short as its rule has it. Under bursts of 50 ms at
four times the capacity, and pauses as long, of 32 workers of 10 ms, 22% of what they could do is
lost; the allowance finds some 100 ms, and 5% are lost (tests/policies/queue/test_bursts.py).

A refused unit counts only until the instant when it would have been too late, all of them until the
last such instant. A clock that goes back counts for nothing.

Not good at: pauses longer than callers wait, where there is nothing to win; very few units, whose
chance of meeting idle places is a matter of luck.

Cost: some ten additions for each permit while anything refused is remembered, else a comparison.
Bounds: five numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged

SPAN_US_MAX: Final = 3_600_000_000


@dataclass(frozen=True, kw_only=True)
class BurstAllowanceSettings:
    """How long idle time is remembered, how much of it is spared, and how far this may go."""

    fade_us: int = ranged(20_000_000, 1, SPAN_US_MAX)
    spared_permille: int = ranged(5, 0, 1_000)
    allowance_us_max: int = ranged(400_000, 0, SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)


DEFAULTS: Final = BurstAllowanceSettings()


@final
class BurstAllowance:
    """What was lost to places that were idle, and the allowance that follows from it."""

    __slots__ = (
        "_allowance_us_max",
        "_at_us",
        "_fade_us",
        "_lost_us",
        "_refused_us",
        "_spared_us",
        "_until_us",
        "counts",
        "us",
    )

    def __init__(self, settings: BurstAllowanceSettings = DEFAULTS) -> None:
        self._fade_us = settings.fade_us
        self._spared_us = settings.fade_us * settings.spared_permille // 1_000
        self._allowance_us_max = settings.allowance_us_max
        self._at_us = 0
        self._refused_us = 0  # the work of who was refused, and could still be done in time
        self._until_us = 0  # when that will be too late
        self._lost_us = 0.0
        self.us = 0  # how much longer units may wait
        self.counts = False  # whether `record` has anything to do

    def record_refusal(self, work_us: int, late_us: int, now_us: int) -> None:
        """Record that work was refused which would be in time until `late_us`."""
        if late_us <= now_us or self._allowance_us_max == 0:
            return
        if not self.counts:
            self.counts = True
            self._at_us = now_us
        elif self._until_us <= now_us:
            self._refused_us = 0
        self._refused_us += work_us
        if late_us > self._until_us:
            self._until_us = late_us

    def record(self, idle: int, places: int, now_us: int) -> None:
        """Record that so many of the places were idle until now; before their number changes."""
        span_us = now_us - self._at_us
        self._at_us = now_us
        if span_us <= 0:
            return
        self._lost_us -= self._lost_us * min(1.0, span_us / self._fade_us)
        if self._refused_us > 0:
            begun_us = now_us - span_us
            if idle > 0 and self._until_us > begun_us:
                lost_us = min(self._refused_us, idle * (min(now_us, self._until_us) - begun_us))
                self._refused_us -= lost_us
                most_us = float(self._spared_us + self._allowance_us_max)
                self._lost_us = min(most_us, self._lost_us + lost_us / places)
            if self._until_us <= now_us:
                self._refused_us = 0
        self.us = max(0, int(self._lost_us) - self._spared_us)
        self.counts = self._refused_us > 0 or self._lost_us >= 1.0
