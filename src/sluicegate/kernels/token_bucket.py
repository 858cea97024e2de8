"""Token bucket: tokens flow in at a rate, work takes them out, the bucket holds at most a burst.

Source: the classic of traffic shaping (Turner, "New directions in communications", 1986).

The bucket is written down as one integer, `full_at`: the instant (in the ticks of `pace.py`) at
which it would be full again if nothing more were taken. The tokens missing now are `full_at - now`,
each worth `interval` ticks. So refilling is no step at all and cannot drift: no fraction of a token
is ever rounded away, at 7 a minute as at 5,000,000 a second, however often the bucket is looked at.
It is the same integer that GCRA keeps; what this file adds is what GCRA has no words for:

- *Price.* The charge is `cost * interval * price_milli / 1000`, rounded up. A shedder raises the
  price of a class and its bucket drains faster; the refill never changes.
- *Debt.* A unit that costs more than the whole bucket would otherwise never pass. With `debt_max`
  it is admitted when the bucket is full and leaves it below empty, by at most `debt_max` tokens;
  all that follows waits until the debt is paid. A bucket in debt never lends more.
- *Refund and charge.* `settle` takes or gives back after the fact, within the same two bounds.

A clock that goes backwards makes the bucket emptier by the step, never fuller.

Cost: one integer a key, as GCRA. A step is in benchmarks/kernels.py.
Bounds: burst and debt to 2^53; price from 0 to 1,000,000 thousandths.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.pace import COUNT_MAX, Pace, in_us, product
from sluicegate.kernels.verdict import NEVER, Verdict

PRICE_ONE_MILLI: Final = 1_000
PRICE_MAX_MILLI: Final = 1_000_000


def charge_ticks(cost: int, interval: int, price_milli: int) -> int:
    """What `cost` takes out of a bucket at this price; a fraction of a tick is charged whole."""
    if price_milli == PRICE_ONE_MILLI:
        return cost * interval
    return -(-cost * interval * price_milli // PRICE_ONE_MILLI)


def step(
    full_at: int, now: int, charge: int, capacity: int, debt_max: int
) -> tuple[int, bool, int, int, int]:
    """Decide one charge; every argument is in ticks, `capacity` and `debt_max` too.

    Returns the new `full_at`, whether the charge is admitted, the ticks' worth of tokens left
    (below zero in debt), and the ticks until a retry succeeds (0, or `NEVER`) and until it is full.
    """
    base = full_at if full_at > now else now
    level = now + capacity - base
    need = charge if charge < capacity else capacity
    if charge - capacity > debt_max:
        return full_at, False, level, NEVER, base - now
    if need <= level:
        return base + charge, True, level - charge, 0, base + charge - now
    return full_at, False, level, need - level, base - now


def settle(full_at: int, now: int, correction: int, capacity: int, debt_max: int) -> int:
    """Take `correction` ticks more (or give back, if negative) after the fact, within the bounds.

    The bucket ends no fuller than full and no deeper than `debt_max` below empty.
    """
    base = (full_at if full_at > now else now) + correction
    deepest = now + capacity + debt_max
    if base > deepest:
        # A debt that is already deeper (the clock went back) is left as it is, not forgiven.
        return full_at if full_at > deepest else deepest
    return base if base > now else now


@final
class TokenBucket:
    """One bucket: `count` tokens every `period_us`, at most `burst` of them, `debt_max` below."""

    __slots__ = ("_capacity", "_debt", "_full_at", "_pace", "burst", "debt_max")

    def __init__(
        self, count: int, period_us: int, burst: int | None = None, *, debt_max: int = 0
    ) -> None:
        self._pace = Pace(count, period_us)
        burst = count if burst is None else burst
        within("burst", burst, 1, COUNT_MAX)
        within("debt_max", debt_max, 0, COUNT_MAX)
        self.burst = burst
        self.debt_max = debt_max
        self._capacity = burst * self._pace.interval
        self._debt = debt_max * self._pace.interval
        self._full_at = 0

    def take(self, cost: int, now_us: int, price_milli: int = PRICE_ONE_MILLI) -> Verdict:
        """Take `cost` tokens at a price (1000 is one token a unit), or say when to come back."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        if not 0 <= price_milli <= PRICE_MAX_MILLI:
            raise ValueError(f"price_milli must be from 0 to {PRICE_MAX_MILLI}, not {price_milli}")
        pace = self._pace
        interval, per_us = pace.interval, pace.ticks_per_us
        charge = charge_ticks(cost, interval, price_milli)
        self._full_at, allowed, level, retry, reset = step(
            self._full_at, product(now_us, per_us), charge, self._capacity, self._debt
        )
        remaining = level // interval if level > 0 else 0
        retry_us = in_us(retry, per_us) if retry else 0
        return Verdict(allowed, remaining, retry_us, -(-reset // per_us))

    def settle(self, correction: int, now_us: int) -> int:
        """Charge `correction` tokens more, or refund them if negative.

        Return the tokens that were not charged, because the debt is at its bound.
        """
        pace = self._pace
        interval, now = pace.interval, product(now_us, pace.ticks_per_us)
        before = self._full_at if self._full_at > now else now
        self._full_at = settle(
            self._full_at, now, correction * interval, self._capacity, self._debt
        )
        left = before + correction * interval - self._full_at
        return left // interval if correction > 0 and left > 0 else 0
