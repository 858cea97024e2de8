"""GCRA: a whole token bucket in one integer.

Source: the Generic Cell Rate Algorithm of the ATM Forum (Traffic Management 4.0, 1996), in its
virtual-scheduling form. It remembers only the *theoretical arrival time* (TAT): when the next unit
would be due if all so far had come exactly on pace. A unit of cost c is admitted if, after its own
share of time is added, the schedule is at most `tolerance` ahead of the clock:

    new = max(tat, now) + c * interval        admitted  <=>  new - tolerance <= now

with tolerance = burst * interval, so that a rested bucket admits `burst` units at one instant, then
one every interval. It admits exactly what a full-start token bucket of the same rate and burst
admits (the tests run both), needs no refill step, and the exact wait falls out of the comparison.

What was changed: time is in the ticks of `pace.py`, so rates that do not divide a microsecond are
exact; a refused unit leaves no trace; a unit that costs more than the burst is refused with `NEVER`
instead of a wait that would not help.

A clock that goes backwards never admits more: the TAT stays where it was, so the wait grows by the
step. State no longer ahead of the clock (`tat <= now`) is the same as none: it may be forgotten.

`cl_throttle` is the reply arithmetic of redis-cell's CL.THROTTLE, which differs on purpose: its
emission interval is truncated to whole nanoseconds, its burst is `max_burst + 1`, and its seconds
are rounded by their millisecond part. It keeps nanoseconds, to answer digit for digit.

Cost: one integer a key; see benchmarks/kernels.py for a step.
Bounds: cost from 0 (a look that takes nothing) to any size; burst from 1 to 2^53.
"""

from __future__ import annotations

from typing import Final, final

from headgate.kernels.pace import COUNT_MAX, Pace, in_us
from headgate.kernels.verdict import NEVER, Verdict

_SECOND_NS: Final = 1_000_000_000


def step(
    tat: int, now: int, cost: int, interval: int, tolerance: int
) -> tuple[int, bool, int, int, int]:
    """Decide one unit of work; all instants and distances are in ticks.

    Returns the new TAT, whether the unit is admitted, how many units of cost 1 would be admitted
    next, and the ticks until a retry succeeds (0, or `NEVER`) and until nothing is owed.
    """
    base = tat if tat > now else now
    room = now + tolerance - base
    charge = cost * interval
    if charge <= room:
        base += charge
        return base, True, (room - charge) // interval, 0, base - now
    # A clock that went back can leave the schedule further ahead than the tolerance.
    remaining = room // interval if room > 0 else 0
    return tat, False, remaining, NEVER if charge > tolerance else charge - room, base - now


@final
class Gcra:
    """One bucket: `count` units every `period_us`, `burst` at once (`count` if not said)."""

    __slots__ = ("_pace", "_tat", "_tolerance")

    def __init__(self, count: int, period_us: int, burst: int | None = None) -> None:
        self._pace = Pace(count, period_us)
        burst = count if burst is None else burst
        if not 1 <= burst <= COUNT_MAX:
            raise ValueError(f"burst must be from 1 to 2^53, not {burst}")
        self._tolerance = burst * self._pace.interval
        self._tat = 0

    def take(self, cost: int, now_us: int) -> Verdict:
        """Admit `cost` at `now_us`, or say when to come back."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        pace = self._pace
        per_us = pace.ticks_per_us
        self._tat, allowed, remaining, retry, reset = step(
            self._tat, self._pace.ticks(now_us), cost, pace.interval, self._tolerance
        )
        return Verdict(allowed, remaining, in_us(retry, per_us), in_us(reset, per_us))


def cl_throttle(
    tat_ns: int, now_ns: int, max_burst: int, count: int, period_s: int, quantity: int
) -> tuple[int, tuple[int, int, int, int, int]]:
    """redis-cell's CL.THROTTLE: the new TAT, and the five integers of its reply.

    The reply is: limited (0 or 1), limit, remaining, retry after in seconds (-1 when allowed or
    when no wait can help), and seconds until full.
    """
    if count < 1 or period_s < 1:
        raise ValueError("Zero rates are not supported")
    interval = period_s * _SECOND_NS // count
    if interval < 1:
        raise ValueError(f"{count} every {period_s} s is finer than a nanosecond")
    limit = max_burst + 1
    tolerance = interval * limit
    base = tat_ns if tat_ns > now_ns else now_ns
    charge = interval * quantity
    limited = now_ns < base + charge - tolerance
    retry = -1
    if not limited:
        tat_ns = base = base + charge
    elif charge <= tolerance:
        retry = _cell_seconds(base + charge - tolerance - now_ns)
    ahead = base - now_ns
    remaining = (tolerance - ahead) // interval if ahead < tolerance else 0
    return tat_ns, (int(limited), limit, remaining, retry, _cell_seconds(ahead))


def _cell_seconds(span_ns: int) -> int:
    seconds, rest_ns = divmod(span_ns, _SECOND_NS)
    return seconds + (1 if rest_ns >= 1_000_000 else 0)
