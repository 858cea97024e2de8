"""Sliding window: at most `limit` in the last `window_us`, by two counters, by cells, or exactly.

Three forms of one idea, from cheap to exact.

*The counter* (`step`, `SlidingWindow`) is the form of Cloudflare's "How we built rate limiting
capable of scaling to millions of domains" (2017). It keeps the count of the current aligned window
and of the one before, and supposes that the earlier one's units came evenly:

    estimate = current + previous * (window - elapsed) / window
    admitted  <=>  estimate + c <= limit

*Cells* (`SlidingCells`) cut the window into k; only the oldest, partly expired cell is supposed to
be even, so the error shrinks about as 1/k while the state grows to k + 2 integers. The counter is
the case k = 1.

*The log* (`log_step`, `SlidingLog`) keeps every admitted instant: no estimate, no error, and memory
and time that grow with the limit. It is meant for small limits and refuses to be made above
`entries_max`. It is one flat tuple, which the garbage collector stops tracking; a million logs kept
as lists would be walked by every full collection.

What was changed: the comparison is made in whole numbers (`previous * (window - elapsed)` against
`(limit - c - current) * window`), so no estimate is ever rounded and Python and a store that counts
in integers agree. Only admitted units count. `retry_after` is solved, not searched: in each cell
the estimate falls along a line, so the instant at which it meets the limit is one division; one
microsecond earlier the unit is refused (if nothing else came).

Error of the two-counter form: if a burst sat at one end of the previous window, the estimate is off
by up to the whole burst for up to a window; Cloudflare measured a mean error of 6% over 400 million
requests.

A clock that goes backwards stays at the start of the latest cell it has seen, so nothing expires
twice and nothing comes back.

Cost: three integers a key for the counter, k + 2 for cells, two for each admitted instant of a log;
a step is a few multiplications, and for a log a copy of what it holds.
Bounds: limit from 1 to 2^53; k from 1 to 1,000; a log of at most `entries_max` units.
"""

from __future__ import annotations

from typing import Final, final

from headgate.kernels.pace import COUNT_MAX, PERIOD_US_MAX
from headgate.kernels.verdict import NEVER, Verdict

CELLS_MAX: Final = 1_000
LOG_ENTRIES_MAX: Final = 1_000


def roll(window: int, current: int, previous: int, now: int) -> tuple[int, int, int]:
    """Move the two counters on to window number `now`; what is two windows old is forgotten."""
    if now <= window:
        return window, current, previous
    return now, 0, current if now == window + 1 else 0


def step(
    window: int, current: int, previous: int, now_us: int, cost: int, window_us: int, limit: int
) -> tuple[int, int, int, bool, int, int]:
    """Decide one unit of work by two counters.

    Returns the window and both counts, whether the unit is admitted, how many more units of cost 1
    would be admitted next, and the microseconds until a retry succeeds (0, or `NEVER`).
    """
    window, current, previous = roll(window, current, previous, now_us // window_us)
    elapsed = now_us - window * window_us
    if elapsed < 0:
        elapsed = 0
    room = (limit - current) * window_us - previous * (window_us - elapsed)
    if cost * window_us <= room:
        return window, current + cost, previous, True, room // window_us - cost, 0
    remaining = room // window_us if room > 0 else 0
    if cost > limit:
        return window, current, previous, False, remaining, NEVER
    if current + cost <= limit:
        at = window_us - (limit - cost - current) * window_us // previous
    else:
        # Not within this window: the current count becomes the previous one and decays in its turn.
        at = window_us + window_us - (limit - cost) * window_us // current
    return window, current, previous, False, remaining, window * window_us + at - now_us


def reset_us(window: int, current: int, previous: int, now_us: int, window_us: int) -> int:
    """The time until neither counter says anything any more."""
    if current:
        return (window + 2) * window_us - now_us
    if previous:
        return (window + 1) * window_us - now_us
    return 0


def settle(
    window: int,
    current: int,
    previous: int,
    now_us: int,
    correction: int,
    window_us: int,
    limit: int,
) -> tuple[int, int, int]:
    """Count `correction` more (or less, if negative) after the fact; a window holds 0 to `limit`.

    What is given back comes from the current window first, then from the one before.
    """
    window, current, previous = roll(window, current, previous, now_us // window_us)
    current += correction
    if current < 0:
        previous += current
        current = 0
    if previous < 0:
        previous = 0
    return window, current if current < limit else limit, previous


def _check(limit: int, window_us: int) -> None:
    if not 1 <= limit <= COUNT_MAX:
        raise ValueError(f"limit must be from 1 to 2^53, not {limit}")
    if not 1 <= window_us <= PERIOD_US_MAX:
        raise ValueError(f"window_us must be from 1 to 2^53, not {window_us}")


@final
class SlidingWindow:
    """One counter pair: about `limit` in any `window_us`."""

    __slots__ = ("_current", "_previous", "_window", "limit", "window_us")

    def __init__(self, limit: int, window_us: int) -> None:
        _check(limit, window_us)
        self.limit = limit
        self.window_us = window_us
        self._window = 0
        self._current = 0
        self._previous = 0

    def take(self, cost: int, now_us: int) -> Verdict:
        """Count `cost` if the estimate leaves room for it, or say when it will."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._window, self._current, self._previous, allowed, remaining, retry_us = step(
            self._window, self._current, self._previous, now_us, cost, self.window_us, self.limit
        )
        reset = reset_us(self._window, self._current, self._previous, now_us, self.window_us)
        return Verdict(allowed, remaining, retry_us, reset)

    def settle(self, correction: int, now_us: int) -> None:
        """Count `correction` more, or less if negative."""
        self._window, self._current, self._previous = settle(
            self._window,
            self._current,
            self._previous,
            now_us,
            correction,
            self.window_us,
            self.limit,
        )


@final
class SlidingCells:
    """One row of `cells` counters and the one expiring behind them: closer to the truth."""

    __slots__ = ("_cell", "_counts", "cell_us", "cells", "limit")

    def __init__(self, limit: int, window_us: int, cells: int) -> None:
        _check(limit, window_us)
        if not 1 <= cells <= CELLS_MAX:
            raise ValueError(f"cells must be from 1 to {CELLS_MAX}, not {cells}")
        if window_us % cells:
            raise ValueError(f"cells must divide window_us ({window_us}), and {cells} does not")
        self.limit = limit
        self.cells = cells
        self.cell_us = window_us // cells
        self._cell = 0
        # Oldest first: counts[0] is expiring, counts[cells] is the cell of now.
        self._counts = [0] * (cells + 1)

    def take(self, cost: int, now_us: int) -> Verdict:
        """Count `cost` if the estimate leaves room for it, or say when it will."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._roll(now_us // self.cell_us)
        counts, cell_us = self._counts, self.cell_us
        elapsed = now_us - self._cell * cell_us
        if elapsed < 0:
            elapsed = 0
        full = sum(counts) - counts[0]
        room = (self.limit - full) * cell_us - counts[0] * (cell_us - elapsed)
        allowed = cost * cell_us <= room
        if allowed:
            counts[-1] += cost
            room -= cost * cell_us
        retry_us = 0 if allowed else self._retry_us(cost, full, now_us)
        return Verdict(allowed, max(room // cell_us, 0), retry_us, self._reset_us(now_us))

    def _roll(self, cell: int) -> None:
        passed = cell - self._cell
        if passed <= 0:
            return
        kept = self._counts[passed:] if passed <= self.cells else []
        self._counts = kept + [0] * (self.cells + 1 - len(kept))
        self._cell = cell

    def _retry_us(self, cost: int, full: int, now_us: int) -> int:
        if cost > self.limit:
            return NEVER
        cell_us = self.cell_us
        # Cell by cell into the future: `full` loses a count at each edge, which then decays.
        for ahead, expiring in enumerate(self._counts):
            room = (self.limit - cost - full) * cell_us
            if room >= 0:
                at = cell_us - room // expiring if expiring else 0
                retry_us = (self._cell + ahead) * cell_us + max(at, 0) - now_us
                return max(retry_us, 0)
            full -= self._counts[ahead + 1]
        raise AssertionError("a cost within the limit fits an empty window")

    def _reset_us(self, now_us: int) -> int:
        for behind in range(self.cells, -1, -1):
            if self._counts[behind]:
                return (self._cell + behind + 1) * self.cell_us - now_us
        return 0


def log_step(
    log: tuple[int, ...], now_us: int, cost: int, window_us: int, limit: int
) -> tuple[tuple[int, ...], bool, int, int, int]:
    """Decide one unit of work by the log `(used, instant, cost, instant, cost, ...)`, oldest first.

    Returns the new log, whether the unit is admitted, what remains, and the microseconds until a
    retry succeeds (0, or `NEVER`) and until the log is empty. A refusal returns the same log.
    """
    asked_us = now_us
    used, oldest = (log[0], 1) if log else (0, 1)
    if log and log[-2] > now_us:
        now_us = log[-2]
    # A unit admitted at t counts in [t, t + window): at its far edge it is gone.
    while oldest < len(log) and log[oldest] <= now_us - window_us:
        used -= log[oldest + 1]
        oldest += 2
    if used + cost <= limit:
        used += cost
        if cost and log and log[-2] == now_us:
            log = (used, *log[oldest:-1], log[-1] + cost)
        elif cost:
            log = (used, *log[oldest:], now_us, cost)
        reset_us = log[-2] + window_us - asked_us if used else 0
        return log, True, limit - used, 0, reset_us
    reset_us = log[-2] + window_us - asked_us if used else 0
    if cost > limit:
        return log, False, limit - used, NEVER, reset_us
    remaining = limit - used
    while used + cost > limit:
        used -= log[oldest + 1]
        oldest += 2
    return log, False, remaining, log[oldest - 2] + window_us - asked_us, reset_us


def log_settle(
    log: tuple[int, ...], now_us: int, correction: int, window_us: int, limit: int
) -> tuple[int, ...]:
    """Log `correction` more (or less, if negative) after the fact; a log holds 0 to `limit`.

    What is given back comes from the newest entries first.
    """
    if correction > 0:
        room = log_step(log, now_us, 0, window_us, limit)[2]
        return log_step(log, now_us, min(correction, room), window_us, limit)[0]
    entries = list(log)
    while correction < 0 and len(entries) > 1:
        back = min(entries[-1], -correction)
        entries[-1] -= back
        entries[0] -= back
        correction += back
        if entries[-1] == 0:
            del entries[-2:]
    return tuple(entries) if len(entries) > 1 else ()


@final
class SlidingLog:
    """Every admitted instant of the last `window_us`: exact, for small limits."""

    __slots__ = ("_log", "limit", "window_us")

    def __init__(self, limit: int, window_us: int, *, entries_max: int = LOG_ENTRIES_MAX) -> None:
        _check(limit, window_us)
        check_log(limit, entries_max)
        self.limit = limit
        self.window_us = window_us
        self._log: tuple[int, ...] = ()

    def take(self, cost: int, now_us: int) -> Verdict:
        """Log `cost` if what the window holds leaves room for it, or say when it will."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._log, allowed, remaining, retry_us, reset_us = log_step(
            self._log, now_us, cost, self.window_us, self.limit
        )
        return Verdict(allowed, remaining, retry_us, reset_us)

    def settle(self, correction: int, now_us: int) -> None:
        """Log `correction` more, or less if negative."""
        self._log = log_settle(self._log, now_us, correction, self.window_us, self.limit)


def check_log(limit: int, entries_max: int = LOG_ENTRIES_MAX) -> None:
    """Refuse an exact log whose memory would grow past `entries_max` entries a key."""
    if limit > entries_max:
        raise ValueError(
            f"limit must be at most entries_max ({entries_max}) for an exact log, not {limit}: "
            "use the counter or cells, whose memory does not grow with the limit"
        )
