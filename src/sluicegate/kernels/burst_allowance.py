"""Burst allowance: how much longer units may wait, where a long line fills the pauses of arrivals.

A rule that keeps a line short takes it for granted that there is always somebody new to serve. With
arrivals in bursts there is not: what was refused in a burst could have been served in the pause
behind it, and still in time. Whether that is so can be reckoned, whatever is refused meanwhile. Two
lines are filled with all that comes, and emptied at the rate at which the places work. One is as
short as a rule keeps it, the other as long as units may wait with the whole allowance; what finds
no room is lost. Then

    gained     time in which the short line is empty and the long one is not, in multiples of what
               chance may gain in `fade_us`; it fades alike, up to `gained_permille_max`
    chance     `chance_permille_min` of the time, or one part in K + 1 of it where the short line
               has room for K units, if that is more
    allowance  none while no more is gained than by chance, and `allowance_us_max` from an eighth
               more on
    spills     whether the long line has lost more than `spilled_permille` of the work; fades alike

Arrivals that are steady gain next to nothing at any load: the lines are empty together below the
capacity, and never above it. At the capacity the short one is empty by itself for one part in 2K
(the queue M/D/1/K). The most that was gained of the time, at loads of 0.9 to 1.4, and the least of
it under bursts (100 ms in 200 at the capacity, 50 in 100 at twice of it, 20 in 80 at it; 30 s,
`tests/kernels/test_burst_allowance.py` has the arrivals):

    K                     2       4       8       32      64
    steady, most          0.306   0.163   0.096   0.028   0.012
    chance                0.333   0.200   0.111   0.030   0.020
    bursts, median        0.381   0.296   0.317   0.313   0.317
    bursts, least         0.199   0.140   0.074   0.120   0.082

An overload that follows upon bursts has no pauses, and a long line is of no use in it. What was
gained gives all of the allowance for another 2 s at most, and none of it after 2.2 s: meanwhile who
is answered waits no longer than else (the newest go first), and who is refused hears of it late.
After 1.4 s, as it was, a burst of 1.2 s among shorter ones lost what its pause could have served
(0.014 of 15 s). It takes no caution to give all at once: nothing that the allowance does changes
what is reckoned.

While work does not spill, all that waits can be served in time, and so in its order. If it does,
only who comes last can be answered soon.

All spans are for work of 10 ms or so; `fit` makes them as many times as long for slower work. A
clock that goes back counts for nothing.

Not good at: pauses longer than callers wait, where there is little to win; one or two places, where
chance and bursts are hardly told apart; callers who come again for having been refused, and count
as others.

Cost: some twenty additions for each unit that comes while anything was refused of late, else a
comparison. Bounds: a dozen numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged

SPAN_US_MAX: Final = 3_600_000_000
_STEEP: Final = 8.0  # all of the allowance an eighth above what chance gains
_FORGOTTEN: Final = 0.02
_EXPECTED: Final = 2.0  # gained by bursts that are expected and have not been seen


@dataclass(frozen=True, kw_only=True)
class BurstAllowanceSettings:
    """The two lines, and how long it is remembered what the long one gained."""

    short_us: int = ranged(20_000, 1, SPAN_US_MAX)
    allowance_us_max: int = ranged(400_000, 0, SPAN_US_MAX)
    fade_us: int = ranged(2_000_000, 1, SPAN_US_MAX)
    chance_permille_min: int = ranged(20, 1, 1_000)
    gained_permille_max: int = ranged(3_000, 1_000, 1_000_000)
    spilled_permille: int = ranged(200, 0, 1_000)

    def __post_init__(self) -> None:
        check_ranges(self)


DEFAULTS: Final = BurstAllowanceSettings()


@final
class BurstAllowance:
    """The two lines, and the allowance that follows from them."""

    __slots__ = (
        "_allowance_us_max",
        "_at_us",
        "_came_us",
        "_chance_us",
        "_fade_us",
        "_long_us",
        "_settings",
        "_short_us",
        "_short_us_max",
        "_spilled_us",
        "_until_us",
        "counts",
        "gained",
        "patience_us",
        "spills",
        "us",
    )

    def __init__(self, settings: BurstAllowanceSettings = DEFAULTS) -> None:
        self._settings = settings
        self._at_us = 0
        self._short_us = 0.0  # the work in each line
        self._long_us = 0.0
        self._chance_us = 1.0  # what chance alone may gain in `fade_us`
        self._came_us = 0.0  # the work of all that came, and what of it the long line lost
        self._spilled_us = 0.0
        self._until_us = 0
        self.patience_us = SPAN_US_MAX  # how long callers wait in line
        self.gained = 0.0  # lately, in multiples of that
        self.spills = False
        self.us = 0  # how much longer units may wait
        self.counts = False  # whether arrivals are to be recorded
        self._fade_us = self._short_us_max = self._allowance_us_max = 0
        self.fit(1)

    def fit(self, times: int) -> None:
        """Scale to work that takes so many times as long: all spans are as many times as long.

        So is what chance gains: what was gained before is less of it.
        """
        settings = self._settings
        fade_us = settings.fade_us * times
        most = settings.gained_permille_max / 1_000
        self.gained = min(self.gained * self._fade_us / fade_us, most)
        self._fade_us = fade_us
        self._short_us_max = settings.short_us * times
        self._allowance_us_max = settings.allowance_us_max * times

    def record_refusal(self, line_us: float, now_us: int, *, expected: bool = False) -> None:
        """Record that a unit was refused while those in line had work for so long before them.

        The first of them begins a burst as far as is known, where bursts are `expected`.
        """
        if self._allowance_us_max == 0:
            return
        if not self.counts:
            self.counts = True
            self._at_us = now_us
            self._long_us = line_us
            self._short_us = min(line_us, self._short_us_max)
            if expected:
                self.gained = min(_EXPECTED, self._settings.gained_permille_max / 1_000)
                self.us = self._allowance_us_max
        self._until_us = now_us + self._fade_us

    def record_arrival(self, work_us: float, now_us: int, *, stalled: bool = False) -> None:
        """Record a unit, refused or not, that keeps all places at work for so long."""
        self.advance(now_us, stalled=stalled)
        short_us_max = self._short_us_max
        least = self._settings.chance_permille_min / 1_000
        self._chance_us = self._fade_us * max(least, work_us / (short_us_max + work_us))
        self._came_us += work_us
        if self._short_us + work_us <= short_us_max:
            self._short_us += work_us
        long_us_max = max(
            short_us_max, min(self.patience_us, short_us_max + self._allowance_us_max)
        )
        if self._long_us + work_us <= long_us_max:
            self._long_us += work_us
        else:
            self._spilled_us += work_us

    def advance(self, now_us: int, *, stalled: bool = False) -> None:
        """Let time pass, in which the places work, or stand still."""
        span_us = now_us - self._at_us
        self._at_us = now_us
        if span_us <= 0:
            return
        settings = self._settings
        kept = max(0.0, 1.0 - span_us / self._fade_us)
        gained = self.gained * kept
        if stalled:
            span_us = 0
        if span_us > self._short_us:
            gained_us = max(0.0, min(span_us, self._long_us) - self._short_us)
            gained = min(gained + gained_us / self._chance_us, settings.gained_permille_max / 1_000)
        self.gained = gained
        self._short_us = max(0.0, self._short_us - span_us)
        self._long_us = max(0.0, self._long_us - span_us)
        self._came_us *= kept
        self._spilled_us *= kept
        self.spills = self._spilled_us * 1_000 > self._came_us * settings.spilled_permille
        self.us = int(self._allowance_us_max * max(0.0, min(1.0, _STEEP * (gained - 1.0))))
        self.counts = gained >= _FORGOTTEN or now_us < self._until_us
