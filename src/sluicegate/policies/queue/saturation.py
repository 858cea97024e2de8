"""Saturation: whether nearly all arrivals have to wait, and how long the line may be then.

A queue has a line now and then at any load; only above what it can do is there always one. So each
who comes counts, as one who found a place free or as one who did not, in an average over the last
thirty or so. Above 95% it is crowded, and stays so until fewer than three in four have to wait.

The time of one work is always allowed: with less there would seldom be anybody in line to choose
from, and whoever comes luckily would be served instead of who matters.

What it is for: a line that is bounded by what the places serve in `line_us` tells the refused at
once, and at 80% of the load such a bound would refuse bursts that would have been served.

Cost: an addition and a shift for each who comes. Bounds: two numbers.
"""

from __future__ import annotations

from typing import Final, final

_SHIFT: Final = 5  # one who comes weighs a thirty-second
_ALL: Final = 1 << 20
_MOST: Final = _ALL * 95 // 100
_FEW: Final = _ALL * 3 // 4


@final
class Saturation:
    """The average, and what follows from it."""

    __slots__ = ("_waits", "line_us", "stands")

    def __init__(self, line_us: int | None) -> None:
        self.line_us = line_us
        self._waits = 0  # of those who came last, as parts of _ALL
        self.stands = False

    def found_free(self) -> None:
        """Somebody has come and found a place."""
        self._waits -= self._waits >> _SHIFT
        if self.stands and self._waits < _FEW:
            self.stands = False

    def found_none(self) -> None:
        """Somebody has come and has to wait."""
        self._waits += (_ALL - self._waits) >> _SHIFT
        if self._waits > _MOST and self.line_us is not None:
            self.stands = True

    def room(self, places: int, service_us: int) -> int | None:
        """How many may be in line; None is as many as come."""
        if not self.stands or self.line_us is None:
            return None
        return max(places, self.line_us * places // max(1, service_us))

    def wait_us(self, timeout_us: int, service_us: int) -> int:
        """How long one may stand in line who may stand so long where there is no crowd."""
        if not self.stands or self.line_us is None:
            return timeout_us
        return min(timeout_us, max(self.line_us, service_us))
