"""Leaky bucket: work goes in by bursts and comes out evenly, one unit an interval.

Source: Turner's leaky bucket (1986), as a *queue*: the bucket holds work that was admitted and has
not left yet. It answers two questions at once: is there room (at most `depth` units in the bucket),
and if so, how long must this unit wait so that units leave evenly. Where GCRA and the token bucket
let a burst through at once, this smooths it; that is its whole point, and its price is latency.

One integer, `drained_at`: the instant (in the ticks of `pace.py`) at which the last admitted unit
will have left. With base = max(drained_at, now):

    delay = base - now        admitted  <=>  delay + c * interval <= depth * interval

Who ignores the delay has the bucket as a *meter*; it then admits exactly what a GCRA of burst
`depth` admits.

A clock that goes backwards only lengthens the delay. Cost: one integer a key.
Bounds: depth from 1 to 2^53.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.pace import COUNT_MAX, Pace, in_us
from sluicegate.kernels.verdict import NEVER, Verdict


def step(
    drained_at: int, now: int, cost: int, interval: int, depth: int
) -> tuple[int, bool, int, int, int, int]:
    """Decide one unit of work; instants, `interval` and `depth` are in ticks.

    Returns the new `drained_at`, whether the unit is admitted, the ticks it must wait before it
    leaves, the units there is room for, and the ticks until a retry succeeds (0, or `NEVER`) and
    until the bucket is dry.
    """
    base = drained_at if drained_at > now else now
    delay = base - now
    charge = cost * interval
    if delay + charge <= depth:
        base += charge
        return base, True, delay, (depth - delay - charge) // interval, 0, base - now
    room = depth - delay
    remaining = room // interval if room > 0 else 0
    return drained_at, False, 0, remaining, NEVER if charge > depth else charge - room, delay


@final
class LeakyBucket:
    """One bucket: `count` units leave every `period_us`, at most `depth` wait inside."""

    __slots__ = ("_depth", "_drained_at", "_pace", "delay_us")

    def __init__(self, count: int, period_us: int, depth: int | None = None) -> None:
        self._pace = Pace(count, period_us)
        depth = count if depth is None else depth
        within("depth", depth, 1, COUNT_MAX)
        self._depth = depth * self._pace.interval
        self._drained_at = 0
        self.delay_us = 0

    def take(self, cost: int, now_us: int) -> Verdict:
        """Put `cost` units in; `delay_us` then says how long they wait to leave evenly."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        per_us = self._pace.ticks_per_us
        self._drained_at, allowed, delay, remaining, retry, reset = step(
            self._drained_at, self._pace.ticks(now_us), cost, self._pace.interval, self._depth
        )
        self.delay_us = -(-delay // per_us)
        return Verdict(allowed, remaining, in_us(retry, per_us), in_us(reset, per_us))
