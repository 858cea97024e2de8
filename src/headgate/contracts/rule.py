"""Rule: match → limit. Here is the limit's half: how much, in how long, counted how.

A limit is a plain value that says what is wanted; `limits/rates.py` reads one from a rate string,
and a store turns it into state. Matching belongs to the rulebook.
"""

from __future__ import annotations

from enum import Enum
from typing import final

from headgate.contracts.errors import BadValue
from headgate.kernels.pace import COUNT_MAX, PERIOD_US_MAX


class Algorithm(Enum):
    """The ways to count, by the name of their kernel."""

    GCRA = "gcra"
    TOKEN_BUCKET = "token_bucket"
    LEAKY_BUCKET = "leaky_bucket"
    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW = "sliding_window"
    SLIDING_LOG = "sliding_log"


# Windows hold what they hold; only these know a burst apart from the count.
BURSTING = frozenset({Algorithm.GCRA, Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET})


@final
class Limit:
    """`count` units every `period_us`, `burst` of them at once, counted by `algorithm`."""

    __slots__ = ("algorithm", "burst", "count", "period_us")

    def __init__(
        self,
        count: int,
        period_us: int,
        *,
        burst: int | None = None,
        algorithm: Algorithm = Algorithm.GCRA,
    ) -> None:
        if not 1 <= count <= COUNT_MAX:
            raise BadValue("limit.count", count, "give a whole number from 1 to 2^53")
        if not 1 <= period_us <= PERIOD_US_MAX:
            raise BadValue("limit.period_us", period_us, "give a period from 1 us to 2^53 us")
        if burst is not None and algorithm not in BURSTING:
            raise BadValue(
                "limit.burst", burst, f"leave it out: {algorithm.value} has no burst of its own"
            )
        if burst is not None and not 1 <= burst <= COUNT_MAX:
            raise BadValue("limit.burst", burst, "give a whole number from 1 to 2^53")
        self.count = count
        self.period_us = period_us
        self.burst = count if burst is None else burst
        self.algorithm = algorithm

    def _fields(self) -> tuple[int, int, int, str]:
        return self.count, self.period_us, self.burst, self.algorithm.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        burst = "" if self.burst == self.count else f", burst={self.burst}"
        return f"Limit({self.count}, {self.period_us}{burst}, algorithm={self.algorithm})"
