"""Service times: the one record of how long work takes, with one update for each unit.

Keeps counts by size of the time, four buckets for each doubling, in two halves of a short window
and in one long window. A half ends after `HALF_US`, or later if it has fewer than `SAMPLES_MIN`
samples, and fades into the long window, which so follows changes over some minutes.

    quantiles       within 13% of the exact value: half the width of a bucket
    mean            exact

Cost: one addition, and a walk over the buckets each time a half ends. Bounds: 3 x `BUCKETS` counts.
"""

from __future__ import annotations

from typing import Final, final

HALF_US: Final = 500_000
SAMPLES_MIN: Final = 8
LEAST_SHARE: Final = 0.25
BUCKETS: Final = 4 * 40  # up to 2^40 us, 12 days
_FADE: Final = 0.98
_LEAST_WEIGHT: Final = 1 / 512


@final
class ServiceTimes:
    """The times of one operation on one resource."""

    __slots__ = (
        "_began_us",
        "_buckets",
        "_count",
        "_first_us",
        "_inflight",
        "_last",
        "_last_count",
        "_last_inflight",
        "_last_sum",
        "_latest_us",
        "_least_us",
        "_long",
        "_stale",
        "_sum",
        "_warm",
        "alone_us",
        "count",
        "last_us",
        "mean_inflight",
        "mean_us",
        "usual_us",
    )

    def __init__(self) -> None:
        self._buckets = [0.0] * BUCKETS
        self._last = [0.0] * BUCKETS
        self._long = [0.0] * BUCKETS
        self._began_us = 0
        self._count = self._last_count = 0
        self._sum = self._inflight = 0
        self._last_sum = self._last_inflight = 0
        self._least_us = 0
        self._latest_us = 0.0  # the time of the last unit, over the number in flight
        self._stale = False  # the next sample replaces the short window
        self._first_us = 0  # when the first unit ended
        self._warm = 0  # units that began after that
        self.count = 0
        self.last_us = 0  # when the last unit ended
        self.mean_us = 0.0  # of the short window
        self.mean_inflight = 1.0  # with how many others in flight
        self.usual_us = 0.0  # the mean of the long window
        self.alone_us = 0.0  # the least mean of a half, which follows larger ones slowly

    def record(self, took_us: int, inflight: int, now_us: int) -> bool:
        """Add a unit that took `took_us`, with `inflight` of them in flight.

        Return whether the times are known from now on.
        """
        was_known = self.is_known
        if not self._first_us:
            self._first_us = now_us
        elif now_us - took_us >= self._first_us:
            self._warm += 1
        if self._stale:
            self._forget()
        self.count += 1
        self.last_us = now_us
        place = max(took_us, 0)  # the bucket: the place of the first bit, and the two bits after it
        if took_us >= 4:
            shift = took_us.bit_length() - 3
            place = min(4 * (shift + 1) + ((took_us >> shift) & 3), BUCKETS - 1)
        self._buckets[place] += 1
        self._count += 1
        self._sum += took_us
        self._inflight += inflight
        self._latest_us = took_us / inflight
        now_known = self.is_known and not was_known
        if self._count < SAMPLES_MIN or now_us - self._began_us >= HALF_US:
            self._refresh(now_us)
        elif now_known:
            self._least_us = self.quantile_us(LEAST_SHARE)
        return now_known

    @property
    def is_known(self) -> bool:
        """Whether enough units have ended that began after the first had ended.

        The ones before it may all have been slow for a cold start, so they must be few enough.
        """
        return self._warm >= SAMPLES_MIN and self._warm >= LEAST_SHARE * self.count

    def least_us(self, inflight: int, now_us: int, *, free: bool, idle: bool = False) -> int:
        """Return the time that `LEAST_SHARE` of the work takes at most; 0 if too little is known.

        `inflight` others are in flight. With fewer of them than the samples had it is less, so that
        one unit is let in and measured after everything was slow. It is 0 for one unit, whose time
        takes the place of the window, if a slot is `free` and the last unit ended long ago, or if
        all is `idle` and the last unit took much less, as after a stall.
        """
        if not self.is_known:
            return 0
        least_us = self._least_us
        old = now_us - self.last_us > 2 * HALF_US + 2 * self.mean_us
        if (free and old) or (idle and 2 * self._latest_us * self.mean_inflight < least_us):
            self.last_us = now_us
            self._stale = True
            return 0
        if inflight + 1 < self.mean_inflight:
            return int(least_us * (inflight + 1) / self.mean_inflight)
        return least_us

    def quantile_us(self, share: float, *, long: bool = False) -> int:
        """Return a quantile of the short or the long window; 0 if it is empty."""
        counts = self._long if long else self._short()
        return _quantile(counts, share)

    def _forget(self) -> None:
        self._stale = False
        self._buckets, self._last = [0.0] * BUCKETS, [0.0] * BUCKETS
        self._count = self._last_count = 0
        self._sum = self._last_sum = 0
        self._inflight = self._last_inflight = 0

    def _short(self) -> list[float]:
        return [a + b for a, b in zip(self._buckets, self._last, strict=True)]

    def _refresh(self, now_us: int) -> None:
        """Update what is read often; end the half if it is old enough."""
        count = self._count + self._last_count
        self._least_us = self.quantile_us(LEAST_SHARE)
        self.mean_inflight = max(1.0, (self._inflight + self._last_inflight) / count)
        self.mean_us = (self._sum + self._last_sum) / count
        if self._count < SAMPLES_MIN:
            return
        weight = min(1.0, 1.0 - _FADE + self._count / self.count)
        mean_us = self._sum / self._count
        self.usual_us += (mean_us - self.usual_us) * weight
        self.alone_us = follow_least(self.alone_us, mean_us)
        long = self._long
        for place in range(BUCKETS):
            long[place] = long[place] * _FADE + self._buckets[place]
        self._last, self._buckets = self._buckets, [0.0] * BUCKETS
        self._last_count, self._last_sum = self._count, self._sum
        self._last_inflight = self._inflight
        self._count = self._sum = self._inflight = 0
        self._began_us = now_us


def follow_least(least_us: float, mean_us: float) -> float:
    """Return the least mean so far, 0 if there was none; it follows larger ones slowly."""
    if least_us == 0.0 or mean_us < least_us:
        return mean_us
    return least_us + (mean_us - least_us) * _LEAST_WEIGHT


def _middle_of(place: int) -> int:
    """Return the middle of a bucket."""
    if place < 4:
        return place
    shift = place // 4 - 1
    return ((4 + place % 4) << shift) + ((1 << shift) >> 1)


def _quantile(counts: list[float], share: float) -> int:
    wanted = share * sum(counts)
    if not wanted:
        return 0
    passed = 0.0
    for place, count in enumerate(counts):
        passed += count
        if count and passed >= wanted:
            return _middle_of(place)
    return 0
