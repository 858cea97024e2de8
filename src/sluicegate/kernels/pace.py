"""Pace: how far apart units stand when `count` of them may pass in every `period_us`.

The obvious `period_us // count` is wrong as soon as it does not divide: 300,000 a second is one
unit every 3.33... microseconds, and a limiter that says 3 admits eleven per cent too much;
5,000,000 a second would be one every 0. Floating point is wrong more quietly: it drifts, and Lua
and Python round it apart.

So time is cut into *ticks*, small enough that the distance between two units is a whole number of
them. With g = gcd(count, period_us):

    ticks_per_us = count / g          interval (ticks from one unit to the next) = period_us / g

Both are exact for every rate, and the common ones stay small: 100/s has 1 tick a microsecond and an
interval of 10,000; 300,000/s has 3 and 10; 5,000,000/s has 5 and 1. An instant in ticks is
`now_us * ticks_per_us`, exact in Python at any size. Where integers are doubles (Lua), the same
value travels as whole microseconds and a remainder, `divmod(ticks, ticks_per_us)`.

Cost: one gcd when a limit is made, one multiplication a decision.
Bounds: `count` and `period_us` from 1 to 2^53.
"""

from __future__ import annotations

from math import gcd
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.native import i64

COUNT_MAX: Final = 1 << 53
PERIOD_US_MAX: Final = 1 << 53

_HALF: Final = 1 << 31
_INSTANT: Final = 1 << 52  # microseconds since the epoch stay below this until the year 2112
_FACTOR: Final = 1 << 10


def product(left: int, right: int) -> int:
    """`left * right`, exact at any size, and quick where it is sure to fit a machine integer.

    mypyc takes the long way as soon as one factor reaches 2^30, which every instant does.
    """
    if left >= 0 and right >= 0:
        if right < _FACTOR and left < _INSTANT:
            return int(i64(left) * i64(right))
        if left < _HALF and right < _HALF:
            return int(i64(left) * i64(right))
    return left * right


@final
class Pace:
    """`count` units every `period_us`, in ticks that lose nothing."""

    __slots__ = ("count", "interval", "period_us", "ticks_per_us")

    def __init__(self, count: int, period_us: int) -> None:
        within("count", count, 1, COUNT_MAX)
        within("period_us", period_us, 1, PERIOD_US_MAX)
        shared = gcd(count, period_us)
        self.count = count
        self.period_us = period_us
        self.ticks_per_us = count // shared
        self.interval = period_us // shared

    def ticks(self, now_us: int) -> int:
        """An instant, or a span, in ticks."""
        return product(now_us, self.ticks_per_us)


def in_us(ticks: int, ticks_per_us: int) -> int:
    """A wait in microseconds, rounded up (a microsecond earlier is too early); `NEVER` stays."""
    return ticks if ticks <= 0 else -(-ticks // ticks_per_us)
