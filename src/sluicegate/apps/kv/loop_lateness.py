"""Loop lateness: for how long this process's event loop was late, in total.

A request that waits for its engine is answered late if the event loop is: because it computes, or
because the machine does not run it. That time is no cost of the request. `record` is called by a
timer, each `LAG_TICK_US`; between two calls the lateness that has begun counts too.
"""

from __future__ import annotations

from typing import final

from sluicegate.service.background import LAG_TICK_US


@final
class LoopLateness:
    """The total lateness of a loop's timer."""

    __slots__ = ("_due_us", "_total_us")

    def __init__(self) -> None:
        self._total_us = 0
        self._due_us = -1  # of the next call; below 0: there was none

    def record(self, late_us: int, now_us: int) -> None:
        """Add the lateness of one call of the timer."""
        self._total_us += late_us
        self._due_us = now_us + LAG_TICK_US

    def total_us(self, now_us: int) -> int:
        """Return the total lateness; callers use differences of it."""
        if self._due_us < 0 or now_us <= self._due_us:
            return self._total_us
        return self._total_us + now_us - self._due_us
