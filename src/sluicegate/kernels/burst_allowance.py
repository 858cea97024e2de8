"""Burst allowance: how much longer units may wait, since refusing some left places idle later.

A rule that keeps a line short takes it for granted that there is always somebody new to serve. With
arrivals in bursts there is not: what was refused in a burst could have been served in the pause
behind it, and still in time. So this counts the idle time of places, as far as refused work would
have filled it, and lets units wait for longer by it:

    lost       idle time of a place while a refused unit would still have been in time, at most
               the work of the refused, and while a third of the places is idle; a sum that fades
               with `fade_us`
    allowance  `times` what `lost` is above `spared_permille` of `fade_us`, up to `allowance_us_max`
    spills     whether more than `spilled_permille` of the work is refused or comes too late for all
               that; sums that fade alike

Under a steady overload nobody is missed: places are idle for a few ten-thousandths of the time,
which `spared_permille` spares, and the line stays as short as its rule has it. Nearer to the
capacity chance leaves a few places idle more often, where a pause leaves most. With any counted, a
steady load of 1.1 before 16 workers had a p99 of 59 to 190 ms where 54 to 62 would do, with five
seeds of nine; so with two of them, 74 and 146 ms.

Under bursts of 50 ms at four times the capacity, and pauses as long, of 32 workers of 10 ms, 22% of
what they could do is lost; the allowance finds 400 ms within some bursts, and 1% is lost. What
holds it up is what is still lost: with `times` at 1 that was 5%.

While work does not spill, all that waits can be served in time, and so in its order. If it does,
only who comes last can be answered soon.

An overload that follows upon bursts has no pauses, and a long line is of no use in it. So once
there was none for `pauses_us` the allowance fades within `allowance_us_max`, and with the first it
is what it was. A pause is idle time of a quarter of a unit's work for each place within that time
(and no more than an eighth of it): chance alone leaves less.

All spans are for work of 10 ms or so; `fit` makes them as many times as long for slower work.

A refused unit counts only until the instant when it would have been too late, all of them until the
last such instant. A clock that goes back counts for nothing.

Not good at: pauses longer than callers wait, where there is nothing to win; very few units, whose
chance of meeting idle places is a matter of luck.

Cost: some twenty additions for each permit while anything refused is remembered, else a
comparison. Bounds: twelve numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged

SPAN_US_MAX: Final = 3_600_000_000
_PAUSE: Final = 3  # of so many places at least one is idle in a pause


@dataclass(frozen=True, kw_only=True)
class BurstAllowanceSettings:
    """How long idle time is remembered, how much of it is spared, and how far this may go.

    Bursts have a pause in every `pauses_us`; without, it is an overload.
    """

    fade_us: int = ranged(20_000_000, 1, SPAN_US_MAX)
    spared_permille: int = ranged(1, 0, 1_000)
    times: int = ranged(8, 1, 1_000)
    spilled_permille: int = ranged(200, 0, 1_000)
    allowance_us_max: int = ranged(400_000, 0, SPAN_US_MAX)
    pauses_us: int = ranged(2_000_000, 1, SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)


DEFAULTS: Final = BurstAllowanceSettings()


@final
class BurstAllowance:
    """What was lost to places that were idle, and the allowance that follows from it."""

    __slots__ = (
        "_allowance_us_max",
        "_at_us",
        "_busy_since_us",
        "_done_us",
        "_fade_us",
        "_held",
        "_lost_us",
        "_most_us",
        "_pauses_us",
        "_refused_us",
        "_rested_us",
        "_settings",
        "_spared_us",
        "_spilled_permille",
        "_spilled_us",
        "_times",
        "_until_us",
        "_work_us",
        "counts",
        "pauses",
        "spills",
        "us",
    )

    def __init__(self, settings: BurstAllowanceSettings = DEFAULTS) -> None:
        self._settings = settings
        self._times = settings.times
        self._spilled_permille = settings.spilled_permille
        self._at_us = 0
        self._refused_us = 0  # the work of who was refused, and could still be done in time
        self._until_us = 0  # when that will be too late
        self._lost_us = 0.0
        self._most_us = 0.0  # of it, that counts
        self._spilled_us = 0.0  # work that was not done, and what the places did meanwhile
        self._done_us = 0.0
        self.spills = False
        self._busy_since_us = 0  # there was no pause since
        self._rested_us = 0.0  # the idle time of places of late
        self._work_us = 0
        self._held = 1.0  # of the allowance, while there is no pause
        self.pauses = True  # whether there was a pause of late
        self.us = 0  # how much longer units may wait
        self.counts = False  # whether `record` has anything to do
        self._fade_us = self._spared_us = self._allowance_us_max = self._pauses_us = 0
        self.fit(1)

    def fit(self, times: int) -> None:
        """Scale to work that takes so many times as long: all spans are as many times as long."""
        settings = self._settings
        self._fade_us = settings.fade_us * times
        self._spared_us = self._fade_us * settings.spared_permille // 1_000
        self._allowance_us_max = settings.allowance_us_max * times
        self._pauses_us = settings.pauses_us * times
        self._most_us = self._spared_us + self._allowance_us_max / self._times
        self._lost_us = min(self._lost_us, self._most_us)

    def record_refusal(self, work_us: int, late_us: int, now_us: int) -> None:
        """Record that work was refused which would be in time until `late_us`."""
        if late_us <= now_us or self._allowance_us_max == 0:
            return
        if not self.counts:
            self.counts = True
            self._at_us = self._busy_since_us = now_us
        elif self._until_us <= now_us:
            self._refused_us = 0
        self._refused_us += work_us
        self._spilled_us += work_us
        self._work_us = work_us
        if late_us > self._until_us:
            self._until_us = late_us

    def record_missed(self) -> None:
        """Record that a unit came and was refused before the line: there is no pause."""
        self._refused_us = 0

    def record_late(self, work_us: int) -> None:
        """Record that it became too late for work; nothing could have been done for it."""
        if self.counts:
            self._spilled_us += work_us

    def record(self, idle: int, places: int, now_us: int) -> None:
        """Record that so many of the places were idle until now; before their number changes."""
        span_us = now_us - self._at_us
        self._at_us = now_us
        if span_us <= 0 or self._allowance_us_max == 0:
            return
        kept = max(0.0, 1.0 - span_us / self._fade_us)
        self._lost_us *= kept
        self._spilled_us *= kept
        self._done_us = self._done_us * kept + (places - idle) * span_us
        if self._refused_us > 0:
            begun_us = now_us - span_us
            if idle > 0 and idle * _PAUSE >= places and self._until_us > begun_us:
                lost_us = min(self._refused_us, idle * (min(now_us, self._until_us) - begun_us))
                self._refused_us -= lost_us
                self._lost_us = min(self._most_us, self._lost_us + lost_us / places)
            if self._until_us <= now_us:
                self._refused_us = 0
        self._record_pause(idle, places, span_us, now_us)
        above_us = int(self._lost_us) - self._spared_us
        self.us = int(self._held * max(0, min(self._allowance_us_max, self._times * above_us)))
        spilled_us = self._spilled_us
        self.spills = spilled_us * 1_000 > (spilled_us + self._done_us) * self._spilled_permille
        self.counts = self._refused_us > 0 or self._lost_us >= 1.0

    def _record_pause(self, idle: int, places: int, span_us: int, now_us: int) -> None:
        within_us = self._allowance_us_max
        kept = max(0.0, 1.0 - span_us / within_us)
        self._rested_us = self._rested_us * kept + idle * min(span_us, within_us)
        pause_us = min(self._work_us, within_us // 2) // 4
        if self._rested_us >= places * pause_us:
            self._rested_us = 0.0
            self._busy_since_us = now_us
            self._held = 1.0
            self.pauses = True
        elif now_us - self._busy_since_us > self._pauses_us:
            self._held *= kept
            self.pauses = False
