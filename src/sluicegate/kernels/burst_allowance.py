"""Burst allowance: how much longer units may wait, for a short line would leave places idle.

A rule that keeps a line short takes it for granted that there is always somebody new to serve. With
arrivals in bursts there is not: what was refused in a burst could have been served in the pause
behind it, and still in time. How long the line has to be is found without refusing anybody, by
lines that are only counted: each is filled by all who come, holds no more than can be served within
its bound, and drains as fast as the places serve.

    bounds     `tight_us`, and that with a 32nd, a 16th, ... and all of what callers wait beyond it
    idle       how long a line had nothing to drain; a sum that fades
    spilled    what came and found the longest of them full, in the same way
    allowance  the least bound whose line was idle for `spared_permille` of the time longer than the
               longest one was, and four times of it, since the longest pause is still to come;
               none if the tight line will do
    spills     whether more than `spilled_permille` of what comes finds no room in the longest line

Below the capacity all lines are idle equally, far above it none is, and there is no allowance.
Bursts of 50 ms at four times the capacity, and pauses as long, are seen within two or three of
them.

A clock that goes back drains nothing.

Not good at: work whose mean time is not known; pauses longer than callers wait, where there is
nothing to win.

Cost: some five operations for each of seven lines for each unit that comes, while anybody has had
to wait lately; else none. What was seen fades over ten times of what callers wait, and after a
silence as long as that it is forgotten. Bounds: two numbers for each line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged

SPAN_US_MAX: Final = 3_600_000_000

_LONGER: Final = 6  # lines beside the tight one, each twice as long as the one before
_AHEAD: Final = 2  # of the line that would have been enough
_FADE_TIMES: Final = 10
_JUDGE_US: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class BurstAllowanceSettings:
    """How much idle time is spared, from when on a line spills, and how far this may go."""

    spared_permille: int = ranged(5, 0, 1_000)
    spilled_permille: int = ranged(200, 0, 1_000)
    allowance_us_max: int = ranged(SPAN_US_MAX, 0, SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)


DEFAULTS: Final = BurstAllowanceSettings()


@final
class BurstAllowance:
    """The lines that are counted, and the allowance that follows from them."""

    __slots__ = (
        "_asked_us",
        "_at_us",
        "_bounds",
        "_fade_us",
        "_held",
        "_idle",
        "_judged_us",
        "_seen_us",
        "_settings",
        "_spilled_us",
        "_tight_us",
        "_wait_us",
        "counts",
        "spills",
        "us",
    )

    def __init__(self, settings: BurstAllowanceSettings = DEFAULTS) -> None:
        self._settings = settings
        self._bounds = [0.0] * (1 + _LONGER)
        self._held = [0.0] * (1 + _LONGER)
        self._idle = [0.0] * (1 + _LONGER)
        self._tight_us = self._wait_us = 0
        self._fade_us = self._seen_us = self._asked_us = self._spilled_us = 0.0
        self._at_us = self._judged_us = 0
        self.spills = False
        self.us = 0  # how much longer units may wait
        self.counts = False  # whether `record` is to hear of all who come

    def fit(self, tight_us: int, wait_us: int) -> None:
        """Scale to a line that is `tight_us` long by its rule, and callers who wait `wait_us`."""
        if tight_us == self._tight_us and abs(wait_us - self._wait_us) <= self._wait_us >> 4:
            return
        self._tight_us, self._wait_us = tight_us, wait_us
        longest_us = max(0, min(wait_us - tight_us, self._settings.allowance_us_max))
        bounds = self._bounds
        bounds[0] = float(tight_us)
        for at in range(1, len(bounds)):
            bounds[at] = tight_us + longest_us / (1 << (_LONGER - at))
        self._fade_us = float(_FADE_TIMES * max(1, wait_us))

    def begin(self, now_us: int) -> None:
        """Count from now on: somebody has to wait."""
        if not self.counts and self._settings.allowance_us_max > 0:
            self.counts = True
            self._at_us = self._judged_us = now_us

    def record(self, work_us: float, now_us: int) -> None:
        """Record a unit that comes, and for how long it is work for all places together."""
        span_us = float(now_us - self._at_us)
        self._at_us = now_us
        if span_us < 0.0:
            span_us = 0.0
            self._judged_us = now_us
        held, idle, bounds = self._held, self._idle, self._bounds
        spilled_us = 0.0
        for at in range(len(bounds)):
            left_us = held[at] - span_us
            if left_us < 0.0:
                idle[at] -= left_us
                left_us = 0.0
            left_us += work_us
            spilled_us = left_us - bounds[at]
            held[at] = left_us if spilled_us <= 0.0 else bounds[at]
        if spilled_us > 0.0:
            self._spilled_us += spilled_us
        self._asked_us += work_us
        self._seen_us += span_us
        if now_us - self._judged_us >= _JUDGE_US:
            self._judge(now_us)

    def _judge(self, now_us: int) -> None:
        """Choose anew, and let what was seen fade."""
        settings, idle = self._settings, self._idle
        spared_us = idle[-1] + self._seen_us * settings.spared_permille / 1_000
        found = 0
        while idle[found] > spared_us:
            found += 1
        if found > 0:
            found = min(found + _AHEAD, _LONGER)
        self.us = int(self._bounds[found] - self._bounds[0])
        self.spills = self._spilled_us * 1_000 > self._asked_us * settings.spilled_permille
        kept = max(0.0, 1.0 - (now_us - self._judged_us) / max(1.0, self._fade_us))
        self._judged_us = now_us
        self._seen_us *= kept
        self._asked_us *= kept
        self._spilled_us *= kept
        for at in range(len(idle)):
            idle[at] *= kept
        if kept == 0.0:
            self.us = 0
            self.spills = self.counts = False
