"""Sliding window: at most `limit` in the last `window_us`, by two counters, by cells, or exactly.

Three forms of one idea, from cheap to exact.

*The counter* (`step`, `SlidingWindow`) is the form of Cloudflare's "How we built rate limiting
capable of scaling to millions of domains" (2017). It keeps the count of the current aligned window
and of the one before, and supposes that the earlier one's units came evenly:

    estimate = current + previous * (window - elapsed) / window
    admitted  <=>  estimate + c <= limit

*Cells* (`cells_step`, `SlidingCells`) cut the window into k; only the oldest, partly expired cell
is supposed to be even, so the error shrinks about as 1/k while the state grows to k + 2 integers:
the number of the cell, and the counts, oldest first. The counter is the case k = 1.

*The log* (`log_step`, `SlidingLog`) keeps every admitted instant: no estimate, no error, and memory
and time that grow with the limit. It is meant for small limits and refuses to be made above
`entries_max`. It is one flat tuple, which the garbage collector stops tracking; a million logs kept
as lists would be walked by every full collection.

What was changed: the comparison is made in whole numbers (`previous * (window - elapsed)` against
`(limit - c - current) * window`), so no estimate is ever rounded and Python and a store that counts
in integers agree. Only admitted units count. `retry_after` is solved, not searched: in each cell
the estimate falls along a line, so the instant at which it meets the limit is one division; one
microsecond earlier the unit is refused (if nothing else came).

How many cells? benchmarks/accuracy.py holds them against the log on a bursty stream (`rate error`:
what a limited key is admitted against what the log admits; `count error`: the estimate against the
requests of the last window; Cloudflare has published 6% of the latter for two counters, on its own
traffic). A table's take in this process, a refusal every other time; Redis keeps the state as text.

    cells  rate error  count error  ns compiled  ns interpreted  bytes a key  in Redis
        1       3.19%       13.79%          357           3,075           57        16
        2       1.88%        7.32%          626           2,240           65        19
        4       1.28%        4.30%          636           2,193           67        26
        8       0.70%        2.06%          718           2,236           71        38
       10       0.66%        1.64%          775           2,255           73        45
       12       0.57%        1.45%          799           2,306           75        51
       20       0.37%        0.83%          991           2,603           83        75
       60       0.17%        0.29%        2,233           3,592          123       196

The default is 10: the fewest that keep both errors below 2% with room to spare on every seed tried
(8 does not), and a number that divides every window people write down. What stays is *which* of a
key's units pass: about one decision in twenty at a limit that always binds, none at one that never
does. Where each single admission matters, only the log is exact.

What turns out to have cost less than was taken comes out of the cell (the entry, in a log) that it
was taken in, if that still counts, and never out of another: so a late settlement cannot make room
that was not used. What turns out to have cost more is charged now, until the window is full: its
own cell may be gone, and then who always guesses too low would never pay. What is given back with
no instant but now was taken a moment ago: it comes out of the current cell, and if that holds less,
out of the oldest that counts whole, because a unit that leaves too early would be admitted twice.

A clock that goes backwards stays at the start of the latest cell it has seen, so nothing expires
twice and nothing comes back.

Cost: three integers a key for the counter, k + 2 for cells, two for each admitted instant of a log;
a step is a few multiplications, and for cells and a log a copy of what they hold.
Bounds: limit from 1 to 2^53; k from 1 to 1,000; a log of at most `entries_max` units.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.pace import COUNT_MAX, PERIOD_US_MAX
from sluicegate.kernels.verdict import NEVER, Verdict

CELLS_DEFAULT: Final = 10
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
    taken_us: int,
    window_us: int,
    limit: int,
) -> tuple[int, int, int]:
    """Count `correction` more (or less, if negative) than was taken at `taken_us`.

    More is charged to the window of now, which holds `limit` at most. Less comes out of the count
    it went into; what was taken just now, out of the current one first, then the one before.
    """
    window, current, previous = roll(window, current, previous, now_us // window_us)
    if correction > 0:
        current += correction
        return window, current if current < limit else limit, previous
    # What was taken just now stands in the latest window, even if the clock went back.
    lately = taken_us >= now_us
    taken = taken_us // window_us
    if lately or taken == window:
        current += correction
        correction = current if current < 0 else 0
        current = current if current > 0 else 0
    if lately or taken == window - 1:
        previous += correction
        previous = previous if previous > 0 else 0
    return window, current, previous


def cells_within(window_us: int, cells: int) -> int:
    """The largest number of cells, at most `cells`, that cuts the window into equal ones."""
    while window_us % cells:
        cells -= 1
    return cells


def cells_roll(state: tuple[int, ...], cell: int, cells: int) -> tuple[int, ...]:
    """Move the counts on to cell number `cell`; what is older than the window is forgotten."""
    if not state:
        return (cell, *(0,) * (cells + 1))
    passed = cell - state[0]
    if passed <= 0:
        return state
    if passed > cells:
        passed = cells + 1
    return (cell, *state[1 + passed :], *(0,) * passed)


def cells_step(
    state: tuple[int, ...], now_us: int, cost: int, cell_us: int, cells: int, limit: int
) -> tuple[tuple[int, ...], bool, int, int, int]:
    """Decide one unit of work by `(cell, oldest count, ..., count of the cell)`; `()` is none yet.

    Returns the new state, whether the unit is admitted, how many more units of cost 1 would be
    admitted next, and the microseconds until a retry succeeds (0, or `NEVER`) and until no count
    says anything any more.
    """
    state = cells_roll(state, now_us // cell_us, cells)
    cell, oldest = state[0], state[1]
    elapsed = now_us - cell * cell_us
    if elapsed < 0:
        elapsed = 0
    whole = sum(state) - cell - oldest
    room = (limit - whole) * cell_us - oldest * (cell_us - elapsed)
    if cost * cell_us <= room:
        if cost:
            state = (*state[:-1], state[-1] + cost)
        return state, True, room // cell_us - cost, 0, _cells_reset_us(state, now_us, cell_us)
    remaining = room // cell_us if room > 0 else 0
    retry_us = NEVER
    if cost <= limit:
        retry_us = _cells_retry_us(state, now_us, whole, limit - cost, cell_us)
    return state, False, remaining, retry_us, _cells_reset_us(state, now_us, cell_us)


def _cells_retry_us(state: tuple[int, ...], now_us: int, whole: int, bar: int, cell_us: int) -> int:
    """The time until the estimate has fallen to `bar`, which it has not reached yet."""
    ahead = 0
    # Cell by cell into the future: at each edge one more count begins to expire.
    while whole > bar:
        ahead += 1
        whole -= state[1 + ahead]
    # Here more than `bar - whole` is expiring, so this is neither 0 nor past the cell's end.
    at = cell_us - (bar - whole) * cell_us // state[1 + ahead]
    return (state[0] + ahead) * cell_us + at - now_us


def _cells_reset_us(state: tuple[int, ...], now_us: int, cell_us: int) -> int:
    newest = len(state) - 1
    while newest and not state[newest]:
        newest -= 1
    return (state[0] + newest) * cell_us - now_us if newest else 0


def cells_settle(
    state: tuple[int, ...],
    now_us: int,
    correction: int,
    taken_us: int,
    cell_us: int,
    cells: int,
    limit: int,
) -> tuple[int, ...]:
    """Count `correction` more (or less, if negative) than was taken at `taken_us`.

    More is charged to the cell of now, until the whole cells hold `limit`. Less comes out of the
    cell it went into. What was taken just now comes out of the current cell; if that holds less,
    then out of the oldest whole cells first, as those leave first, and the expiring one last.
    """
    state = cells_roll(state, now_us // cell_us, cells)
    cell = state[0]
    if correction >= 0:
        room = limit - (sum(state) - cell - state[1])
        more = correction if correction < room else room
        return (*state[:-1], state[-1] + more) if more > 0 else state
    if taken_us >= now_us:
        places = [cells + 1, *range(2, cells + 1), 1]
    else:
        place = cells + 1 - (cell - taken_us // cell_us)
        places = [place] if 1 <= place <= cells + 1 else []
    counts = list(state)
    for place in places:
        back = counts[place] if counts[place] < -correction else -correction
        counts[place] -= back
        correction += back
    return tuple(counts)


def _check(limit: int, window_us: int) -> None:
    within("limit", limit, 1, COUNT_MAX)
    within("window_us", window_us, 1, PERIOD_US_MAX)


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

    def settle(self, correction: int, now_us: int, taken_us: int | None = None) -> None:
        """Count `correction` more than was taken at `taken_us` (None: now), or less if negative."""
        if taken_us is None:
            taken_us = now_us
        self._window, self._current, self._previous = settle(
            self._window,
            self._current,
            self._previous,
            now_us,
            correction,
            taken_us,
            self.window_us,
            self.limit,
        )


@final
class SlidingCells:
    """One row of `cells` counters and the one expiring behind them: closer to the truth."""

    __slots__ = ("_state", "cell_us", "cells", "limit")

    def __init__(self, limit: int, window_us: int, cells: int = CELLS_DEFAULT) -> None:
        _check(limit, window_us)
        within("cells", cells, 1, CELLS_MAX)
        if window_us % cells:
            raise ValueError(f"cells must divide window_us ({window_us}), and {cells} does not")
        self.limit = limit
        self.cells = cells
        self.cell_us = window_us // cells
        self._state: tuple[int, ...] = ()

    def take(self, cost: int, now_us: int) -> Verdict:
        """Count `cost` if the estimate leaves room for it, or say when it will."""
        if cost < 0:
            raise ValueError(f"cost must not be negative, not {cost}")
        self._state, allowed, remaining, retry_us, reset_us = cells_step(
            self._state, now_us, cost, self.cell_us, self.cells, self.limit
        )
        return Verdict(allowed, remaining, retry_us, reset_us)

    def settle(self, correction: int, now_us: int, taken_us: int | None = None) -> None:
        """Count `correction` more than was taken at `taken_us` (None: now), or less if negative."""
        if taken_us is None:
            taken_us = now_us
        self._state = cells_settle(
            self._state, now_us, correction, taken_us, self.cell_us, self.cells, self.limit
        )


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
    log: tuple[int, ...], now_us: int, correction: int, taken_us: int, window_us: int, limit: int
) -> tuple[int, ...]:
    """Log `correction` more (or less, if negative) than was taken at `taken_us`.

    More is logged now, up to `limit`. Less comes out of the entry of that very instant, and of no
    other. What was taken just now comes out of the latest entry if it is of now; if that holds
    less, then out of the oldest, as those leave first.
    """
    if correction > 0:
        room = log_step(log, now_us, 0, window_us, limit)[2]
        return log_step(log, now_us, min(correction, room), window_us, limit)[0]
    if not log:
        return log
    latest_us = log[-2] if log[-2] > now_us else now_us
    lately = taken_us >= now_us
    entries = [
        (log[place], log[place + 1])
        for place in range(1, len(log), 2)
        if log[place] > latest_us - window_us
    ]
    if lately and entries and entries[-1][0] == latest_us:
        entries.insert(0, entries.pop())
    kept: list[tuple[int, int]] = []
    for at_us, spent in entries:
        back = 0
        if lately or at_us == taken_us:
            back = spent if spent < -correction else -correction
            correction += back
        if spent > back:
            kept.append((at_us, spent - back))
    kept.sort()
    return _log_of(kept)


def _log_of(entries: list[tuple[int, int]]) -> tuple[int, ...]:
    if not entries:
        return ()
    log = [0]
    for at_us, spent in entries:
        log[0] += spent
        log += (at_us, spent)
    return tuple(log)


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

    def settle(self, correction: int, now_us: int, taken_us: int | None = None) -> None:
        """Log `correction` more than was taken at `taken_us` (None: now), or less if negative."""
        if taken_us is None:
            taken_us = now_us
        self._log = log_settle(self._log, now_us, correction, taken_us, self.window_us, self.limit)


def check_log(limit: int, entries_max: int = LOG_ENTRIES_MAX) -> None:
    """Refuse an exact log whose memory would grow past `entries_max` entries a key."""
    if limit > entries_max:
        raise ValueError(
            f"limit must be at most entries_max ({entries_max}) for an exact log, not {limit}: "
            "use the counter or cells, whose memory does not grow with the limit"
        )
