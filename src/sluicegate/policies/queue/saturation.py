"""Saturation: whether nearly all arrivals have to wait, and how long the line may be then.

A queue has a line now and then at any load; only above its capacity is there always one. So each
arrival counts, as one that found a place free or as one that did not, in an average over the last
thirty or so. Above 95% the queue is saturated, until fewer than three in four have to wait.

The time in which eight places become free is always allowed, or that of one unit of work if it is
less: with less there would seldom be anybody in line to choose from, and a lucky arrival would be
served instead of one that matters. Where more are at work than the engine does at once, a unit
takes longer than its work does, and its time alone says too much: 13 places before 8 slots of 10 ms
made a line of 16 ms instead of 12, and what was refused at twice the load was told after 17 ms and
not 13 (p99), or after 4 and not 2 (p50), with as much done.

The purpose: a line bounded by what the places serve in `line_us` refuses at once; at 80% of the
load such a bound would refuse bursts that could have been served.

Cost: an addition and a shift for each who comes. Bounds: two numbers.
"""

from __future__ import annotations

from typing import Final, final

_SHIFT: Final = 5  # one who comes weighs a thirty-second
_ALL: Final = 1 << 20
_MOST: Final = _ALL * 95 // 100
_FEW: Final = _ALL * 3 // 4
_TO_CHOOSE: Final = 8  # places that become free in the shortest line


@final
class Saturation:
    """The average, and what follows from it."""

    __slots__ = ("_waits", "line_us", "stands")

    def __init__(self, line_us: int | None) -> None:
        self.line_us = line_us
        self._waits = 0  # of those who came last, as parts of _ALL
        self.stands = False

    def record_free(self) -> None:
        """Record an arrival that found a place."""
        self._waits -= self._waits >> _SHIFT
        if self.stands and self._waits < _FEW:
            self.stands = False

    def record_full(self) -> None:
        """Record an arrival that has to wait."""
        self._waits += (_ALL - self._waits) >> _SHIFT
        if self._waits > _MOST and self.line_us is not None:
            self.stands = True

    def room(self, places: int, service_us: int, allowance_us: int = 0) -> int | None:
        """How many may be in line; None is as many as come."""
        if not self.stands or self.line_us is None:
            return None
        line_us = self._least_us(self.line_us, places, service_us) + allowance_us
        return max(1, line_us * places // max(1, service_us))

    def wait_us(self, timeout_us: int, places: int, service_us: int, allowance_us: int = 0) -> int:
        """How long a unit may wait that may wait `timeout_us` in a queue that is not saturated."""
        if not self.stands or self.line_us is None:
            return timeout_us
        return min(timeout_us, self._least_us(self.line_us, places, service_us) + allowance_us)

    def _least_us(self, line_us: int, places: int, service_us: int) -> int:
        """The line, or the time in which a few places become free."""
        return max(line_us, min(service_us, _TO_CHOOSE * service_us // places))
