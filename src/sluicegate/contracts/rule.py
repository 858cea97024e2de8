"""Rule: match → limit. Here is the limit's half: how much, in how long, counted how.

A limit is a plain value that says what is wanted; `limits/rates.py` reads one from a rate string,
and a store turns it into state. Matching belongs to the rulebook.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Never, final

from sluicegate.contracts.edge import Given, whole
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.pace import COUNT_MAX, PERIOD_US_MAX
from sluicegate.kernels.sliding_window import CELLS_DEFAULT, CELLS_MAX, cells_within


class Algorithm(Enum):
    """The ways to count, by the name of their kernel."""

    GCRA = "gcra"
    TOKEN_BUCKET = "token_bucket"
    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW = "sliding_window"
    SLIDING_LOG = "sliding_log"


_COUNT_REMEDY: Final = "give a whole number from 1 to 2^53"
_PERIOD_REMEDY: Final = (
    "name it, and give microseconds from 1 to 2^53: Limit(5, period_us=60_000_000) is 5 a minute"
)
# Windows hold what they hold; only these know a burst apart from the count.
BURSTING = frozenset({Algorithm.GCRA, Algorithm.TOKEN_BUCKET})


@final
class Limit:
    """`count` units every `period_us`, `burst` of them at once, counted by `algorithm`.

    A sliding window is counted in so many `cells`; they are equal, so if the number does not divide
    the period it becomes the largest below that does. What has no cells to choose has one.
    """

    __slots__ = ("algorithm", "burst", "cells", "count", "period_us")

    def __init__(
        self,
        count: Given[int],
        *unnamed: Given[Never],
        period_us: Given[int] = 0,
        burst: Given[int | None] = None,
        cells: Given[int | None] = None,
        algorithm: Given[Algorithm] = Algorithm.GCRA,
    ) -> None:
        whole("limit.count", count, 1, COUNT_MAX, _COUNT_REMEDY)
        if unnamed:  # as `Limit(5, 60)`, which would be 5 in 60 us
            raise BadValue("limit.period_us", unnamed[0], _PERIOD_REMEDY)
        whole("limit.period_us", period_us, 1, PERIOD_US_MAX, _PERIOD_REMEDY)
        if not isinstance(algorithm, Algorithm):
            raise BadValue("limit.algorithm", algorithm, "give a member of Algorithm")
        if burst is not None and algorithm not in BURSTING:
            raise BadValue(
                "limit.burst", burst, f"leave it out: {algorithm.value} has no burst of its own"
            )
        if burst is not None:
            whole("limit.burst", burst, 1, COUNT_MAX, _COUNT_REMEDY)
        if cells is not None and algorithm is not Algorithm.SLIDING_WINDOW:
            raise BadValue(
                "limit.cells",
                cells,
                f"leave it out: only sliding_window has cells, {algorithm.value} has none",
            )
        if cells is not None:
            whole(
                "limit.cells", cells, 1, CELLS_MAX, f"give a whole number from 1 to {CELLS_MAX:,}"
            )
        self.count: int = count
        self.period_us: int = period_us
        self.burst: int = count if burst is None else burst
        self.cells = 1
        if algorithm is Algorithm.SLIDING_WINDOW:
            self.cells = cells_within(period_us, CELLS_DEFAULT if cells is None else cells)
        self.algorithm: Algorithm = algorithm

    def _fields(self) -> tuple[int, int, int, int, str]:
        return self.count, self.period_us, self.burst, self.cells, self.algorithm.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        burst = "" if self.burst == self.count else f", burst={self.burst}"
        cells = f", cells={self.cells}" if self.algorithm is Algorithm.SLIDING_WINDOW else ""
        algorithm = f"algorithm={self.algorithm}"
        return f"Limit({self.count}, period_us={self.period_us}{burst}{cells}, {algorithm})"
