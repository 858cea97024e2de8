"""Count-Min: roughly how often anything was seen, in a table of bytes; the doorman of a cache.

Source: Cormode and Muthukrishnan, "An Improved Data Stream Summary: the Count-Min Sketch and its
Applications" (2005); the conservative update is Estan and Varghese, "New Directions in Traffic
Measurement and Accounting" (2002); saturating counters that are halved after a sample, for cache
admission, are Einziger, Friedman and Manes, "TinyLFU: A Highly Efficient Cache Admission Policy"
(2017). Four rows of `width` counters; a key has one counter in each, and its estimate is the least:

    estimate(key) = min over rows of table[row, h_row(key)]
    add(key)      = count up only those of its four counters that stand at the estimate

An estimate is never below the truth (halved as often as the table was, and at most 255). It is
above by more than e * N / width with a probability under e^-4 = 1.8%, N being what was added since;
the conservative update makes it much less, since a light key no longer raises a heavy one's cells.

What was changed. Counters are bytes, not 4 bits: one index and no masks in Python, and halving the
whole table is one `bytes.translate`. The four places come from one 32-bit fingerprint
by double hashing (Kirsch and Mitzenmacher, "Less Hashing, Same Performance", 2008). `fingerprint`
is a CRC and not Python's `hash`, which differs in every process, so a run can be repeated. Whoever
forges colliding keys makes a cold key look warm; asking for the cold key itself does that as well.

Ageing: after `sample` additions every counter is halved, rounded down, so what was asked for once
is soon nothing again.

Cost: four bytes read, up to four written, an addition; the halving is 1 in `sample` of them.
Bounds: `width` from 16 to 2^24, a power of two; memory 4 * width bytes; a counter stops at 255.
Not good at: naming the heavy keys (it keeps none; see space_saving), small differences, and sums.
"""

from __future__ import annotations

from typing import Final, final
from zlib import crc32

from sluicegate.kernels.bounds import within

COUNTER_MAX: Final = 255
WIDTH_MAX: Final = 1 << 24
SAMPLE_MAX: Final = 1 << 53
_HALVES: Final = bytes([count // 2 for count in range(256)])
# Odd and below 2^30: times a 32-bit fingerprint it stays a small integer when compiled.
_SPREAD: Final = 0x2545F491


def fingerprint(key: str | bytes) -> int:
    """A key as 32 bits, the same in every process; a string as its UTF-8."""
    return crc32(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)


@final
class CountMin:
    """Four rows of `width` one-byte counters, halved after every `sample` additions."""

    __slots__ = ("_added", "_mask", "_table", "sample", "width")

    def __init__(self, width: int, *, sample: int | None = None) -> None:
        sample = 10 * width if sample is None else sample
        if not 16 <= width <= WIDTH_MAX or width & (width - 1):
            raise ValueError(f"width must be a power of two from 16 to 2^24, not {width}")
        within("sample", sample, 1, SAMPLE_MAX)
        self.width = width
        self.sample = sample
        self._mask = width - 1
        self._added = 0
        self._table = bytearray(4 * width)

    def add(self, print32: int) -> int:
        """Count one more of this fingerprint, and return its estimate."""
        table = self._table
        at, step = _start(print32)
        mask, width = self._mask, self.width
        a = at & mask
        b = width + ((at + step) & mask)
        c = 2 * width + ((at + 2 * step) & mask)
        d = 3 * width + ((at + 3 * step) & mask)
        count_a, count_b, count_c, count_d = table[a], table[b], table[c], table[d]
        least = _least(count_a, count_b, count_c, count_d)
        if least < COUNTER_MAX:
            raised = least + 1
            if count_a == least:
                table[a] = raised
            if count_b == least:
                table[b] = raised
            if count_c == least:
                table[c] = raised
            if count_d == least:
                table[d] = raised
            least = raised
        self._added += 1
        if self._added >= self.sample:
            self.halve()
            return least // 2
        return least

    def estimate(self, print32: int) -> int:
        """At most 255, and at least what was added of this fingerprint, halved as it aged."""
        table = self._table
        at, step = _start(print32)
        mask, width = self._mask, self.width
        return _least(
            table[at & mask],
            table[width + ((at + step) & mask)],
            table[2 * width + ((at + 2 * step) & mask)],
            table[3 * width + ((at + 3 * step) & mask)],
        )

    def halve(self) -> None:
        """Let the past count half."""
        self._table = self._table.translate(_HALVES)
        self._added = 0


def _start(print32: int) -> tuple[int, int]:
    """Where a fingerprint's walk over the rows starts, and its odd stride."""
    spread = (print32 & 0xFFFFFFFF) * _SPREAD
    return spread >> 30, (spread >> 13) | 1


def _least(a: int, b: int, c: int, d: int) -> int:
    least = a
    if b < least:
        least = b
    if c < least:
        least = c
    if d < least:
        least = d
    return least
