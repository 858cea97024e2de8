"""EWMA: the exponentially weighted moving average over instants that come when they like.

The textbook form, `mean += a * (value - mean)`, forgets per observation: at ten times the traffic
it forgets ten times as fast. The usual cure makes a depend on the time since the last observation,
a = 1 - 2^(-gap / half_life), and has two flaws of its own. Of two observations at one instant the
second has a gap of 0 and so no weight at all; and the very first one is worth whatever the start
value says. So this one keeps the weight beside the mean, and is the exact weighted average

    mean = sum(value_i * 2^(-(now - at_i) / half_life)) / sum(2^(-(now - at_i) / half_life))

in constant memory, because both sums age by the same factor:

    kept   = weight * 2^(-gap / half_life)              weight = kept + 1
    mean   = value + (mean - value) * kept / (kept + 1)

Observations at one instant count alike, in any order; the first one is the mean; a constant stays
that constant to the last bit; and silence changes nothing but the weight, so that after a long one
the next observation is the mean. The form is written from `value`'s side for these last two.
`weight` says how many fresh observations the mean is worth: judge by it whether to trust it.

**Peak.** `PeakEwma` rises to a higher value at once and decays by half every half-life:

    peak = max(value_i * 2^(-(now - at_i) / half_life))

It follows the peak-sensitive average of Finagle's load balancer, made to compare hosts for
`two_choices`: a slow answer must be seen with the first one, and forgiven slowly. There a lower
value pulls the average towards it by the gap since the last one, so again the second of two at an
instant is lost. The maximum has no order, two of them merge by `max`, and after a spike the two
differ by less than the level of ordinary values. It decays towards nothing, also while silent: a
host that was slow is tried again some day.

A clock that goes back does not move the instant: what comes then counts as if it came at the latest
instant seen, and nothing is ever younger than it was.

Cost: one exponential for each new instant, none for ties. Measured here, ns an `add` on one core,
every instant new: Ewma 280 interpreted, 48 compiled; PeakEwma 200 and 46.
Bounds: the half-life from 1 us to 2^53 us, values up to `VALUE_MAX` in size. The time constant is
half_life / ln 2; a window of w seconds has about the memory of a half-life of 0.35 w.
Not for tails: a mean says nothing of a p95 (see `windowed_quantile.py`).
"""

from __future__ import annotations

from math import exp
from typing import Final, final

from sluicegate.kernels.bounds import within

HALF_LIFE_US_MAX: Final = 1 << 53
VALUE_MAX: Final = 2.0**900  # so that no difference of two values leaves the floats
_LN_2: Final = 0.6931471805599453


def decay_per_us(half_life_us: int) -> float:
    """The rate that `step` and `peak_step` take: ln 2 / half-life, checked."""
    within("half_life_us", half_life_us, 1, HALF_LIFE_US_MAX)
    return _LN_2 / half_life_us


def step(
    mean: float, weight: float, at_us: int, value: float, now_us: int, decay: float
) -> tuple[float, float, int]:
    """Take in one observation; returns the new mean, weight and instant."""
    if now_us > at_us:
        weight *= exp((at_us - now_us) * decay)
        at_us = now_us
    # kept / (kept + 1) is 0 when nothing is kept: the mean is then the value, exactly.
    return value + (mean - value) * (weight / (weight + 1.0)), weight + 1.0, at_us


def peak_step(
    peak: float, at_us: int, value: float, now_us: int, decay: float
) -> tuple[float, int]:
    """Take in one observation of 0 or more; returns the new peak and instant."""
    if now_us > at_us:
        peak *= exp((at_us - now_us) * decay)
        at_us = now_us
    return value if value > peak else peak, at_us


@final
class Ewma:
    """The average of all that was seen, each halved in weight every `half_life_us`."""

    __slots__ = ("_at_us", "_decay", "_mean", "_weight", "half_life_us")

    def __init__(self, half_life_us: int) -> None:
        self._decay = decay_per_us(half_life_us)
        self.half_life_us = half_life_us
        self._mean = 0.0
        self._weight = 0.0
        self._at_us = 0

    def add(self, value: float, now_us: int) -> None:
        """Take in one observation."""
        if not -VALUE_MAX <= value <= VALUE_MAX:
            raise ValueError(f"value must be finite and at most 2^900 in size, not {value}")
        self._mean, self._weight, self._at_us = step(
            self._mean, self._weight, self._at_us, value, now_us, self._decay
        )

    def mean(self) -> float | None:
        """The average, or None if nothing was ever seen. It does not change with time alone."""
        return self._mean if self._weight > 0.0 else None

    def weight(self, now_us: int) -> float:
        """How many fresh observations the mean is worth at `now_us`."""
        gap_us = now_us - self._at_us
        return self._weight * exp(-gap_us * self._decay) if gap_us > 0 else self._weight


@final
class PeakEwma:
    """The highest of what was seen, each halved every `half_life_us`."""

    __slots__ = ("_at_us", "_decay", "_peak", "half_life_us")

    def __init__(self, half_life_us: int) -> None:
        self._decay = decay_per_us(half_life_us)
        self.half_life_us = half_life_us
        self._peak = 0.0
        self._at_us = 0

    def add(self, value: float, now_us: int) -> None:
        """Take in one observation of 0 or more."""
        if not 0.0 <= value <= VALUE_MAX:
            raise ValueError(f"value must be from 0 to 2^900, not {value}")
        self._peak, self._at_us = peak_step(self._peak, self._at_us, value, now_us, self._decay)

    def peak(self, now_us: int) -> float:
        """The peak as it has decayed by `now_us`; 0.0 if nothing was ever seen."""
        gap_us = now_us - self._at_us
        return self._peak * exp(-gap_us * self._decay) if gap_us > 0 else self._peak
