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

redis-cell's CL.THROTTLE counts alike and rounds otherwise: see `cell_throttle.py`.

Cost: one integer a key; see benchmarks/kernels.py for a step.
Bounds: cost from 0 (a look that takes nothing) to any size; burst from 1 to 2^53.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.pace import COUNT_MAX, Pace, in_us
from sluicegate.kernels.verdict import NEVER, Verdict


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
        within("burst", burst, 1, COUNT_MAX)
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
