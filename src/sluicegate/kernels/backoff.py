"""Backoff: how long to wait before a call is tried again.

Source: binary exponential backoff (Metcalfe and Boggs, "Ethernet: Distributed Packet Switching for
Local Computer Networks", 1976), with the full, equal and decorrelated jitter that Marc Brooker
compared in "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015). Attempts count from 0,
the wait before the first retry. Every form draws evenly from a range of whole microseconds:

    ceiling      = min(cap, base * 2^attempt)
    none           from ceiling       to ceiling
    full           from 0             to ceiling                      (the default)
    equal          from ceiling / 2   to ceiling
    decorrelated   from base          to min(cap, 3 * the wait before)

Full jitter spreads retries widest and so sends the fewest at once; its price is that a wait may be
0. Equal jitter never comes back early. Decorrelated jitter needs no attempt number, only the last
wait. `none` keeps a crowd that failed together together: it is here to show that, and for tests.

What was added: a server's hint (Retry-After, a gRPC push-back) lifts the low end of the range and
keeps its width, so nobody comes before the server asked, and those who were told the same instant
do not all come at it. (`none` has no width, and a hint does not give it one.) A hint beyond
`hint_us_max`, or a negative one as in gRPC, answers `NEVER`: give up, rather than come early or
sleep for a day.

Not good at: bounding how many retries there are. That is the retry budget's work; backoff only
delays a storm whose callers never give up.

Cost: a shift and a multiplication; no state but the last wait of the decorrelated form.
Bounds: base, cap and hint from 1 us to 2^52 us, so that a float draw picks an exact integer; any
attempt number, since the shift is bounded by the cap's bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged, within
from sluicegate.kernels.verdict import NEVER

WAIT_US_MAX: Final = 1 << 52

NONE: Final = "none"
FULL: Final = "full"
EQUAL: Final = "equal"
DECORRELATED: Final = "decorrelated"
JITTERS: Final = (NONE, FULL, EQUAL, DECORRELATED)


def ceiling_us(attempt: int, base_us: int, wait_us_max: int) -> int:
    """`base_us` doubled `attempt` times, never above `wait_us_max`, nor wider than needed."""
    if attempt < 0:
        raise ValueError(f"attempt must be 0 or more, not {attempt}")
    if attempt >= wait_us_max.bit_length():
        return wait_us_max
    doubled = base_us << attempt
    return doubled if doubled < wait_us_max else wait_us_max


def between_us(low_us: int, high_us: int, draw: float) -> int:
    """A whole number from `low_us` to `high_us`, both possible; `draw` is in [0, 1)."""
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"draw must be at least 0 and below 1, not {draw}")
    return low_us + int(draw * (high_us - low_us + 1))


@dataclass(frozen=True, kw_only=True)
class BackoffSettings:
    """Where the waits begin, where they end, how they are spread, and the longest hint heeded."""

    base_us: int = ranged(100_000, 1, WAIT_US_MAX)
    wait_us_max: int = 20_000_000
    jitter: str = FULL
    hint_us_max: int = ranged(300_000_000, 1, WAIT_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        within("wait_us_max", self.wait_us_max, self.base_us, WAIT_US_MAX)
        if self.jitter not in JITTERS:
            raise ValueError(f"jitter must be one of {', '.join(JITTERS)}, not {self.jitter!r}")


@final
class Backoff:
    """Waits that start at `base_us` and grow to `wait_us_max`, spread by `jitter`."""

    __slots__ = ("_base_us", "_hint_us_max", "_jitter", "_wait_us_max")

    def __init__(self, settings: BackoffSettings) -> None:
        self._base_us = settings.base_us
        self._wait_us_max = settings.wait_us_max
        self._hint_us_max = settings.hint_us_max
        self._jitter = settings.jitter

    def wait_us(self, attempt: int, draw: float, *, hint_us: int = 0, previous_us: int = 0) -> int:
        """The wait before retry `attempt`, or `NEVER` when the server's hint says to give up.

        `hint_us` is what the server asked for, 0 when it said nothing; `previous_us` is the last
        wait, which only the decorrelated form reads (0 before the first).
        """
        if hint_us < 0 or hint_us > self._hint_us_max:
            return NEVER
        low, high = self._range_us(attempt, previous_us)
        if hint_us > low:
            high += hint_us - low
            low = hint_us
        return between_us(low, high, draw)

    def _range_us(self, attempt: int, previous_us: int) -> tuple[int, int]:
        if self._jitter == DECORRELATED:
            if attempt < 0:
                raise ValueError(f"attempt must be 0 or more, not {attempt}")
            if previous_us < self._base_us:
                previous_us = self._base_us
            return self._base_us, min(self._wait_us_max, 3 * previous_us)
        ceiling = ceiling_us(attempt, self._base_us, self._wait_us_max)
        if self._jitter == FULL:
            return 0, ceiling
        if self._jitter == EQUAL:
            return ceiling // 2, ceiling
        return ceiling, ceiling


def reconnect_backoff(base_us: int, wait_us_max: int) -> Backoff:
    """A backoff for whoever tries until it works: never at once, and never all together."""
    return Backoff(BackoffSettings(base_us=base_us, wait_us_max=wait_us_max, jitter=EQUAL))
