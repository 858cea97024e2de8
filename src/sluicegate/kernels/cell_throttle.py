"""Cell throttle: the arithmetic of redis-cell's CL.THROTTLE, digit for digit.

Source: redis-cell 0.3 (Brandur Leach), a module that gives Redis a GCRA as one command. The rate is
not configured anywhere: each ask brings its `max_burst`, `count` and `period_s` along, and what is
kept of a key is one instant, the *theoretical arrival time* (TAT). So another rate for the same key
keeps what was taken: a schedule that is two seconds ahead stays two seconds ahead.

It is the algorithm of `gcra.py` with the habits of that command, which differ on purpose:

    interval  = period / count, cut to whole nanoseconds
    tolerance = interval * (max_burst + 1)
    new       = max(tat, now) + interval * quantity        limited  <=>  now < new - tolerance

`max_burst` is therefore one less than what may come at once. A limited ask leaves no trace and is
told when to come back, or -1 where no wait can help because it costs more than the tolerance ever
holds: limited with a retry of -1 is no contradiction. A quantity of 0 looks and takes nothing.
Seconds are cut, and one is added where a whole millisecond is left over; what is below a
millisecond is dropped (`seconds`).

What was changed. `remaining` is exact, where redis-cell divides whole microseconds as floating
point and so counts too much where the interval is a few microseconds or less. A product that 64
bits cannot hold is refused, where redis-cell wraps around and limits at random. A negative quantity
gives back, as there, but never below a whole bucket, where redis-cell fails while it sets the
expiry. A negative rate is no rate, and is refused as zero is.

A clock that goes backwards never admits more: the TAT stays, so the wait grows by the step.

Cost: one integer a key; two multiplications, two divisions and a comparison an ask, in plain
integers at any size, and in machine integers where mypyc knows that they fit.
Bounds: count and period from 1; interval at least a nanosecond; tolerance and charge within 2^62 ns
(146 years) on either side of nothing.
"""

from __future__ import annotations

from typing import Final

from sluicegate.kernels.native import i64
from sluicegate.kernels.pace import product

ZERO_RATE: Final = "Zero rates are not supported"
TOO_LARGE: Final = "This rate is too large: it spans more than 146 years"
SPAN_NS_MAX: Final = (1 << 62) - 1
NOT_SAID: Final = -1  # allowed, so no retry; or no wait can help

_SECOND_NS: Final = 1_000_000_000
_MILLISECOND_NS: Final = 1_000_000
_PERIOD_S_MAX: Final = 9_000_000_000  # in nanoseconds this still fits 63 bits
_COUNT_MAX: Final = 1 << 62


def quota(max_burst: int, count: int, period_s: int, quantity: int) -> tuple[int, int, int]:
    """Interval, tolerance and charge of an ask, in nanoseconds; ValueError says what is wrong."""
    if count < 1 or period_s < 1:
        raise ValueError(ZERO_RATE)
    if period_s <= _PERIOD_S_MAX and count < _COUNT_MAX:
        interval = int(i64(period_s) * i64(_SECOND_NS) // i64(count))
    else:
        interval = period_s * _SECOND_NS // count
    if interval < 1:
        raise ValueError(ZERO_RATE)
    tolerance = product(interval, max_burst + 1)
    charge = interval if quantity == 1 else product(interval, quantity)
    if not (-SPAN_NS_MAX <= tolerance <= SPAN_NS_MAX and -SPAN_NS_MAX <= charge <= SPAN_NS_MAX):
        raise ValueError(TOO_LARGE)
    return interval, tolerance, charge


def step(
    tat_ns: int, now_ns: int, interval: int, tolerance: int, charge: int
) -> tuple[int, bool, int, int, int]:
    """Decide one ask; `tat_ns` of a key that is not known is 0.

    Returns the new TAT, whether the ask is limited, how many units of 1 are left, the nanoseconds
    until it would pass (`NOT_SAID` if it did, or never will), and until nothing is owed.
    """
    ahead = tat_ns - now_ns
    if ahead < 0:
        ahead = 0
    over = ahead + charge - tolerance
    if over <= 0:
        if charge != 0:
            ahead += charge
            if ahead > 0:
                tat_ns = now_ns + ahead
            else:
                tat_ns = ahead = 0
        room = tolerance - ahead
        left = room // interval if room > 0 else 0
        return tat_ns, False, left, NOT_SAID, ahead
    room = tolerance - ahead
    left = room // interval if room > 0 else 0
    return tat_ns, True, left, over if charge <= tolerance else NOT_SAID, ahead


def seconds(span_ns: int) -> int:
    """A span as the reply tells it; `NOT_SAID` stays."""
    if span_ns <= 0:
        return span_ns
    whole = span_ns // _SECOND_NS
    return whole + 1 if span_ns - whole * _SECOND_NS >= _MILLISECOND_NS else whole
