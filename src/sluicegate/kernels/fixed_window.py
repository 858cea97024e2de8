"""Fixed window: a counter that starts anew whenever the clock enters the next window.

Source: the oldest limiter there is; the windows are aligned to the epoch, as in Envoy's rate-limit
service, so that every node and every store agrees where one ends without being told.

    window = now // period        admitted  <=>  used + c <= limit

It is the cheapest to explain and to store, and it has one flaw that no tuning removes: a caller who
spends the whole limit at the end of one window and again at the start of the next passes twice the
limit in a moment. Where that matters, `sliding_window.py` costs a few more numbers.

What was changed from the usual form: a refused unit is not counted, so a caller who hammers on a
closed door is not punished into the next window, and a large refused unit does not bar small ones.

A clock that goes back into an earlier window stays in the later one it has seen.

What turns out to have cost less than was taken is given back only if the window it was taken in is
still this one: what has passed no longer counts, so giving it back would make room that was never
used. What turns out to have cost more is always charged to the window of now, whenever it was
taken, and fills that window at most: else who always guesses too low would never pay.

Cost: two integers a key. Bounds: limit from 1 to 2^53, period from 1 microsecond.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.pace import COUNT_MAX, PERIOD_US_MAX
from sluicegate.kernels.verdict import NEVER, Verdict


def step(
    window: int, used: int, now_us: int, cost: int, period_us: int, limit: int
) -> tuple[int, int, bool, int]:
    """Decide one unit of work.

    Returns the window and what is used of it, whether the unit is admitted, and the microseconds
    until a retry succeeds (0, or `NEVER`).
    """
    current = now_us // period_us
    if current > window:
        window, used = current, 0
    if used + cost <= limit:
        return window, used + cost, True, 0
    if cost > limit:
        return window, used, False, NEVER
    return window, used, False, (window + 1) * period_us - now_us


def settle(
    window: int,
    used: int,
    now_us: int,
    correction: int,
    taken_us: int,
    period_us: int,
    limit: int,
) -> tuple[int, int]:
    """Count `correction` more (or less, if negative) than was taken at `taken_us`.

    A window holds 0 to `limit`.
    """
    current = now_us // period_us
    if current > window:
        window, used = current, 0
    # What was taken at this very instant stands in the latest window, even if the clock went back.
    if correction < 0 and taken_us < now_us and taken_us // period_us != window:
        return window, used
    used += correction
    if used < 0:
        used = 0
    return window, used if used < limit else limit


@final
class FixedWindow:
    """One counter: at most `limit` in every window of `period_us`, aligned to the epoch."""

    __slots__ = ("_used", "_window", "limit", "period_us")

    def __init__(self, limit: int, period_us: int) -> None:
        within("limit", limit, 1, COUNT_MAX)
        within("period_us", period_us, 1, PERIOD_US_MAX)
        self.limit = limit
        self.period_us = period_us
        self._window = 0
        self._used = 0

    def take(self, cost: int, now_us: int) -> Verdict:
        """Count `cost` in the window of `now_us`, or say when the next one starts."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._window, self._used, allowed, retry_us = step(
            self._window, self._used, now_us, cost, self.period_us, self.limit
        )
        reset_us = (self._window + 1) * self.period_us - now_us if self._used else 0
        return Verdict(allowed, self.limit - self._used, retry_us, reset_us)

    def settle(self, correction: int, now_us: int, taken_us: int | None = None) -> None:
        """Count `correction` more than was taken at `taken_us` (None: now), or less if negative."""
        if taken_us is None:
            taken_us = now_us
        self._window, self._used = settle(
            self._window, self._used, now_us, correction, taken_us, self.period_us, self.limit
        )
