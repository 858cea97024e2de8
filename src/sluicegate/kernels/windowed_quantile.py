"""Windowed quantile: quantiles of the last few sub-windows, each value within alpha of the truth.

Source: the sketch of "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error
Guarantees" (Masson, Rim and Lee, 2019), in a ring. A value falls into the bucket

    key = floor(log(value) / log(gamma))             gamma = (1 + alpha) / (1 - alpha)

and a bucket answers with 2 * gamma^(key + 1) / (1 + gamma), which is within alpha of all it holds.
What is counted is exact, so the quantile asked for is the bucket that holds the value of that rank,
and two sketches are merged by adding their counts: the sum is the sketch of both streams, to the
last count. That is what makes a window out of it: `WindowedQuantile` keeps one sketch for each of
its sub-windows, asks all of them together, and forgets by throwing the oldest away.

The quantile q of n values is the one of rank floor(q * (n - 1)), counted from 0: 0 asks for the
lowest, 1 for the highest. Both are answered from their buckets too, within alpha, and not kept
exactly: two comparisons more on every value, for a question nobody asks of a latency.

What was changed: buckets are a list that begins at the lowest key in use, not a dictionary; there
are no negative values, so one list is enough; the width is a billionth finer than alpha asks for,
so that a value rounded over a bucket's edge is still within alpha.

Bounds: alpha from 0.001 to 0.2. Values from `value_min` to `value_max` (1 us and one hour, if
values are microseconds): what is lower counts as 0 and is answered as 0.0, what is higher counts
as `value_max`; a negative or non-finite value is refused. A sketch has at most `buckets_max`
buckets, of which the default range of values needs 1,101 at 1 %; where values spread wider, the
lowest collapse into one, so that high quantiles stay within alpha and low ones are answered too
high. A window has `windows` sketches: at most 48 kB of list for 5 sub-windows, and the integers
above 256 in it; values that spread by a factor of 1,000 take 350 buckets each.

Time: sub-windows begin at whole multiples of `sub_window_us`, and the one in progress is one of
them, so the window spans between `windows - 1` and `windows` of them. A clock that goes back counts
into the newest sub-window and reads all that is there; nothing is revived and nothing expires.

Cost: a logarithm and an addition each value; a rotation when a sub-window ends; a quantile walks
down from the highest bucket of every live sub-window at once, so a p95 is cheap and a p5 is not.
Measured here on one core, lognormal values (sigma 1), `add` in the same run as that of the
`ddsketch` package, which is interpreted and has no windows:

                                interpreted    compiled
    ddsketch 3.0.1 add               540 ns           -
    Sketch.add                       300 ns       38 ns
    WindowedQuantile.add             360 ns       53 ns
    p95 of 5 sub-windows              58 us        4 us
    p95 of 60 sub-windows            554 us       34 us

The logarithm was chosen by a trial: of the `add` above, `log2` made 290 ns interpreted where
`log` makes 330, but 93 ns compiled where `log` makes 48, for mypyc knows the latter as a function
of C. A dictionary of counts took 260 and 170 ns.

Not for a stream that must be remembered exactly, and not for a few values: the p95 of ten values
is one of the ten.
"""

from __future__ import annotations

from math import exp, log
from typing import Final, final

from sluicegate.kernels.bounds import within

ALPHA_MIN: Final = 0.001
ALPHA_MAX: Final = 0.2
VALUE_RANGE_MIN: Final = 2.0**-900
VALUE_RANGE_MAX: Final = 2.0**900
BUCKETS_MIN: Final = 16
BUCKETS_MAX: Final = 1 << 20
WINDOWS_MAX: Final = 1 << 12
SUB_WINDOW_US_MAX: Final = 1 << 53
HOUR_US: Final = 3.6e9
SECOND_US: Final = 1_000_000


@final
class Scale:
    """Which bucket a value falls into and what the bucket answers; sketches of one scale merge."""

    __slots__ = ("alpha", "buckets_max", "keys_per_e", "shift", "value_max", "value_min")

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        value_min: float = 1.0,
        value_max: float = HOUR_US,
        buckets_max: int = 1200,
    ) -> None:
        if not ALPHA_MIN <= alpha <= ALPHA_MAX:
            raise ValueError(f"alpha must be from {ALPHA_MIN} to {ALPHA_MAX}, not {alpha}")
        if not VALUE_RANGE_MIN <= value_min < value_max <= VALUE_RANGE_MAX:
            raise ValueError(
                "value_min must be below value_max and both from 2^-900 to 2^900, "
                f"not {value_min} and {value_max}"
            )
        within("buckets_max", buckets_max, BUCKETS_MIN, BUCKETS_MAX)
        self.alpha = alpha
        self.value_min = value_min
        self.value_max = value_max
        self.buckets_max = buckets_max
        finer = alpha * (1.0 - 1e-9)
        self.keys_per_e = 1.0 / log((1.0 + finer) / (1.0 - finer))
        # Keys of values in range are 1 and above, where int() is floor().
        self.shift = 1.0 - log(value_min) * self.keys_per_e

    def answer(self, key: int) -> float:
        """The value that stands for a bucket: within alpha of both of its edges."""
        width = 1.0 / self.keys_per_e
        return 2.0 * exp((key + 1 - self.shift) * width) / (1.0 + exp(width))


@final
class Sketch:
    """How many values fell into each bucket: `counts[i]` of key `low + i`, and `zeros`."""

    __slots__ = ("count", "counts", "low", "scale", "zeros")

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.low = 0
        self.counts: list[int] = []
        self.zeros = 0
        self.count = 0

    def add(self, value: float) -> None:
        """Count one value."""
        scale = self.scale
        if not scale.value_min <= value <= scale.value_max:
            self._add_outside(value)
            return
        counts = self.counts
        place = int(log(value) * scale.keys_per_e + scale.shift) - self.low
        if not 0 <= place < len(counts):
            place = self._make_room(place + self.low)
        counts[place] += 1
        self.count += 1

    def merge(self, other: Sketch) -> None:
        """Count all that `other` has counted too."""
        if self.scale is not other.scale:
            raise ValueError("only sketches of one scale merge")
        theirs = other.counts
        if theirs:
            self._make_room(other.low)
            # Where their lowest bucket stands here; below 0 if it has collapsed.
            place = self._make_room(other.low + len(theirs) - 1) - len(theirs) + 1
            counts = self.counts
            for hits in theirs:
                counts[place if place > 0 else 0] += hits
                place += 1
        self.zeros += other.zeros
        self.count += other.count

    def clear(self) -> None:
        """Forget everything."""
        self.counts = []
        self.zeros = 0
        self.count = 0

    def quantile(self, q: float) -> float | None:
        """The value of rank floor(q * (count - 1)), within alpha; None if there is nothing."""
        return quantile([self], q)

    def _add_outside(self, value: float) -> None:
        if not 0.0 <= value <= VALUE_RANGE_MAX:
            raise ValueError(f"value must be from 0 to 2^900, not {value}")
        if value < self.scale.value_min:
            self.zeros += 1
            self.count += 1
        else:
            self.add(self.scale.value_max)

    def _make_room(self, key: int) -> int:
        """The place of the bucket `key`, widening the list; the lowest collapse at the bound."""
        counts = self.counts
        buckets_max = self.scale.buckets_max
        if not counts:
            counts.append(0)
            self.low = key
        elif key < self.low:
            more = self.low - key
            if more > buckets_max - len(counts):
                more = buckets_max - len(counts)
            counts[0:0] = [0] * more
            self.low -= more
        elif key >= self.low + len(counts):
            surplus = key + 1 - buckets_max - self.low
            if surplus > 0:
                counts[: surplus + 1] = [sum(counts[: surplus + 1])]
                self.low += surplus
            counts.extend([0] * (key + 1 - self.low - len(counts)))
        return key - self.low if key > self.low else 0


def quantile(sketches: list[Sketch], q: float) -> float | None:
    """The quantile of all that sketches of one scale have counted, as if one had counted it."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must be from 0 to 1, not {q}")
    count = zeros = top = 0
    for sketch in sketches:
        count += sketch.count
        zeros += sketch.zeros
        high = sketch.low + len(sketch.counts) - 1
        if high > top and sketch.counts:
            top = high
    if count == 0:
        return None
    above = count - 1 - int(q * (count - 1))
    if above >= count - zeros:
        return 0.0
    scale = sketches[0].scale
    # One sketch of them all would have collapsed everything below this bucket into it.
    bottom = top - scale.buckets_max + 1
    key = top
    while True:
        for sketch in sketches:
            place = key - sketch.low
            if 0 <= place < len(sketch.counts):
                above -= sketch.counts[place]
        if above < 0 or key == bottom:
            return scale.answer(key)
        key -= 1


@final
class WindowedQuantile:
    """Quantiles of the last `windows` sub-windows of `sub_window_us` each."""

    __slots__ = ("_ring", "_slot", "current", "end_us", "scale", "sub_window_us")

    def __init__(
        self, windows: int = 5, sub_window_us: int = SECOND_US, scale: Scale | None = None
    ) -> None:
        within("windows", windows, 1, WINDOWS_MAX)
        within("sub_window_us", sub_window_us, 1, SUB_WINDOW_US_MAX)
        self.scale = Scale() if scale is None else scale
        self.sub_window_us = sub_window_us
        self._ring = [Sketch(self.scale) for _ in range(windows)]
        self._slot = 0
        self.current = self._ring[0]
        self.end_us = sub_window_us

    def add(self, value: float, now_us: int) -> None:
        """Count one value in the sub-window in progress."""
        if now_us >= self.end_us:
            self.rotate(now_us)
        self.current.add(value)

    def rotate(self, now_us: int) -> None:
        """Begin the sub-window of `now_us`, and forget those that it pushes out."""
        slot = now_us // self.sub_window_us
        ring = self._ring
        fresh = slot - self._slot
        if fresh <= 0:
            return
        for i in range(min(fresh, len(ring))):
            ring[(slot - i) % len(ring)].clear()
        self._slot = slot
        self.current = ring[slot % len(ring)]
        self.end_us = (slot + 1) * self.sub_window_us

    def count(self, now_us: int) -> int:
        """How many values are in the window."""
        self.rotate(now_us)
        return sum([sketch.count for sketch in self._ring])

    def quantile(self, q: float, now_us: int) -> float | None:
        """The quantile of all values in the window; None if there are none."""
        self.rotate(now_us)
        return quantile(self._ring, q)

    def lowest(self, q: float, count_min: int) -> float | None:
        """The lowest quantile of a sub-window alone, of those that hold so many values or more."""
        found: float | None = None
        for sketch in self._ring:
            if sketch.count >= count_min:
                value = sketch.quantile(q)
                if value is not None and (found is None or value < found):
                    found = value
        return found
