"""Standstill: whether a line that stands is an overload, or as many callers as wait for answers.

CoDel asks whether a line *stands*. That of fifty connections, each of which asks again when it has
its answer, always stands, and refusing one of them makes nobody faster: it comes again at once. Its
length stays what it is. In an overload more comes than is served, so the line grows; and a line
that is left of a burst becomes shorter, and to refuse it helps who comes after it. So what CoDel
would refuse is refused only once

- the longest line of a window (half of CoDel's interval) and that of another one, since the line
  began to stand, are further apart than a quarter, or
- somebody of the class has been too late for its own deadline, or had no room.

Lengths, not delays: an engine that becomes slower makes the same fifty wait for longer.

Once units are refused the line no longer tells one from the other, for both sorts come again. So a
verdict is *tried*: after two seconds nobody is refused for a moment, and if the line moves again
the verdict stands, and is tried again after four times as long, up to two minutes. A try ends as
soon as somebody has waited for twice the bound, the next one for four times, up to sixteen: it
costs an overload little, and many connections that came one after the other are found out.

One class before places for 4,000 a second, callers who ask again at once, three seconds
(tests/policies/queue/test_standstill.py):

    connections             50          100         200
    refused, CoDel alone    0.08        0.55        0.78
    with this               0           0           0
    wait, p50, of the lot   12 ms       25 ms       50 ms

`stress` asks the same of all lines together, by the mean number that wait: of that it bears more
noise, and to it what shrinks is no overload.

Cost: a few comparisons for each who leaves a line that has waited. Bounds: a handful of integers.
"""

from __future__ import annotations

from typing import Final, final

_NONE: Final = -1
_TRY_AFTER: Final = 20  # intervals
_TRY_AFTER_MOST: Final = 1_280
_DEEPEST: Final = 4  # the bound of a try is 2 ** so many bounds
_TRY_WINDOWS: Final = 4


@final
class Standstill:
    """What is known of one line; `holds` is asked with each unit that could be refused."""

    __slots__ = (
        "_deep",
        "_least",
        "_longest",
        "_most",
        "_moves",
        "_parts",
        "_shrinking",
        "_try_after",
        "_try_at_us",
        "_window_end_us",
        "_windows",
    )

    def __init__(self, parts: int = 5, *, shrinking: bool = True) -> None:
        self._parts = parts  # of four: so much longer is noise
        self._shrinking = shrinking  # whether that counts, too
        self._moves = False
        self._least = self._most = _NONE  # of the windows' longest lines
        self._longest = 0
        self._window_end_us = _NONE
        self._windows = 0  # that are left of a try
        self._deep = 0
        self._try_after = _TRY_AFTER
        self._try_at_us = 0

    def record_late(self) -> None:
        """Record a unit that had no room, or no time left."""
        if not self._moves:
            self._moves = True
            self._try_at_us = 0

    @property
    def moves(self) -> bool:
        """Whether it is an overload, until a try."""
        return self._moves

    def record_calm(self) -> None:
        """Record that the line does not stand."""
        self._moves = False
        self._least = self._most = self._window_end_us = _NONE
        self._windows = self._deep = 0
        self._try_after = _TRY_AFTER

    def holds(
        self, length: int, delay_us: int, now_us: int, bound_us: int, interval_us: int
    ) -> bool:
        """Whether a line of `length` that stands neither grows nor shrinks."""
        window_us = interval_us // 2
        if self._moves:
            if self._try_at_us == 0:
                self._try_at_us = now_us + self._try_after * interval_us
            if now_us < self._try_at_us:
                return False
            self._begin_try(now_us + window_us)
        if now_us >= self._window_end_us or now_us < self._window_end_us - window_us:
            self._end_window(now_us + window_us)
        self._longest = max(self._longest, length)
        too_long = self._windows > 0 and delay_us > bound_us << self._deep
        if too_long or self._moved(length):
            self._moves = True
            self._try_at_us = now_us + self._try_after * interval_us
        return not self._moves

    def _moved(self, length: int) -> bool:
        if self._least < 0:
            return False
        most = max(length, self._most) if self._shrinking else length
        return 4 * most > self._parts * self._least

    def _begin_try(self, end_us: int) -> None:
        self._moves = False
        self._try_after = min(4 * self._try_after, _TRY_AFTER_MOST)
        self._deep = min(self._deep + 1, _DEEPEST)
        self._windows = _TRY_WINDOWS
        self._least = self._most = _NONE
        self._longest = 0
        self._window_end_us = end_us

    def _end_window(self, end_us: int) -> None:
        """Compare with the earlier ones; the first window of a try is for those to come back."""
        if self._window_end_us != _NONE and self._windows != _TRY_WINDOWS:
            self._least = self._longest if self._least < 0 else min(self._least, self._longest)
            self._most = max(self._most, self._longest)
        if self._windows > 0:
            self._windows -= 1
            if self._windows == 0:  # It stands still.
                self._deep = 0
                self._try_after = _TRY_AFTER
        self._longest = 0
        self._window_end_us = end_us
