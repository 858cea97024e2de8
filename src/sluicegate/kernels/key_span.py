"""Key span: how many rows lie between two keys of a partition, from what was written and scanned.

Keys are bytes in order, but seldom evenly spread over all bytes: `00012345` uses ten values of
each, and what all begin with alike tells nothing. So each position has its own alphabet, the bytes
that were met there, and a key is a number in that mixed radix. Over it rows are taken to be evenly
spread:

    rows between = rows per step * steps between, both ends held within the keys that were met

Rows per step come from the last scans, which know exactly how many rows they passed on which way,
and before there are any from the number of different keys that were written: of their 32-bit
checksums the `KEPT` lowest are kept, and the k-th lowest of n evenly spread numbers is near k / n.

What to mind. Rows in heaps are estimated wrongly until scans have passed there; an estimate only
decides what is charged first, never what is read.

Cost: a count of bits a byte, up to where the alphabets' product passes 2^48. Bounds: `POSITIONS` of
a key, `SCANS` scans, `KEPT` checksums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final
from zlib import crc32

POSITIONS: Final = 24
SCANS: Final = 8
KEPT: Final = 64
UNKNOWN: Final = -1
STEPS_MAX: Final = 1 << 48
_HASHES: Final = 1 << 32
_BIT: Final = tuple([1 << byte for byte in range(256)])


class PassedRange(NamedTuple):
    """What a scan passed: from `begin` to `end`, both included, were so many rows."""

    begin: bytes
    end: bytes
    rows: int


class KeySpanRow(NamedTuple):
    """A span as it is kept: its first and last key, its rows, and the alphabet of each position."""

    first: bytes
    last: bytes
    rows: int
    alphabets: tuple[int, ...]


@final
class KeySpan:
    """What is known of the keys of one partition."""

    __slots__ = ("_alphabets", "_checksums", "_first", "_last", "_passed", "_rows_a_step")

    def __init__(self) -> None:
        self._alphabets: list[int] = []  # of each position, a bit for each byte that was met
        self._first = b""  # the lowest key
        self._last: bytes | None = None  # the highest; None: none was met
        self._checksums: list[int] = []
        self._passed: list[PassedRange] = []
        self._rows_a_step = -1.0  # below 0: to be computed anew

    def write(self, key: bytes) -> None:
        """Take in a key that was written."""
        checksum = crc32(key)
        kept = self._checksums
        if len(kept) < KEPT:
            if checksum in kept:
                return
        elif checksum >= kept[-1]:
            last = self._last
            # Of many keys an eighth tells the alphabets, and each whether it is the first or last.
            if not checksum & 7 or key < self._first or last is None or key > last:
                self._meet(key)
            return
        elif checksum in kept:
            return
        else:
            kept.pop()
        self._meet(key)
        kept.append(checksum)
        kept.sort()
        self._rows_a_step = -1.0

    def scan(self, begin: bytes, end: bytes | None, met: Sequence[bytes], rows: int) -> None:
        """Take in a scan that has passed all from `begin` to `end` (None: to the last key).

        There were so many rows; `met` are keys of some, the first and the last among them.
        """
        for key in met:
            self._meet(key)
        highest = self._last
        if highest is None:
            return
        begin = max(begin, self._first)
        end = highest if end is None else min(end, highest)
        if begin > end:
            return
        if len(self._passed) >= SCANS:
            del self._passed[0]
        self._passed.append(PassedRange(begin, end, rows))
        self._rows_a_step = -1.0

    def rows_between(self, begin: bytes, end: bytes | None) -> int:
        """How many rows from `begin` to before `end` (None: to the last); `UNKNOWN` if no idea."""
        last = self._last
        if last is None:
            return UNKNOWN
        if self._rows_a_step < 0.0:
            self._rows_a_step = self._density()
        if self._rows_a_step <= 0.0:
            return UNKNOWN if not self._passed else 0
        low = self._step(max(begin, self._first))
        high = self._step(last) + 1 if end is None or end > last else self._step(end)
        return max(0, round((high - low) * self._rows_a_step))

    def rows(self) -> int:
        """How many different keys were written, as far as can be told."""
        kept = self._checksums
        if len(kept) < KEPT:
            return len(kept)
        return (KEPT - 1) * _HASHES // (kept[-1] + 1)

    def save(self) -> KeySpanRow | None:
        """Return what a restart keeps; None if no key was met."""
        if self._last is None:
            return None
        rows = max(0, self.rows_between(b"", None))
        return KeySpanRow(self._first, self._last, rows, tuple(self._alphabets))

    def restore(self, row: KeySpanRow) -> None:
        """Begin with what was kept, as if a scan had passed all of it."""
        self._alphabets = list(row.alphabets)
        self._first, self._last = row.first, row.last
        self._passed = [PassedRange(row.first, row.last, row.rows)]
        self._rows_a_step = -1.0

    def _meet(self, key: bytes) -> None:
        alphabets = self._alphabets
        length = min(len(key), POSITIONS)
        while len(alphabets) < length:
            alphabets.append(0)
        for at in range(length):
            bit = _BIT[key[at]]
            if not alphabets[at] & bit:
                alphabets[at] |= bit
                self._rows_a_step = -1.0
        if self._last is None:
            self._first = self._last = key
        elif key < self._first:
            self._first = key
        elif key > self._last:
            self._last = key

    def _step(self, key: bytes) -> int:
        """The number of a key; one that was not met is where it would stand among them."""
        number, steps, length = 0, 1, len(key)
        inside = True  # so far its bytes are of the alphabets
        for at, alphabet in enumerate(self._alphabets):
            radix = alphabet.bit_count()
            if steps > STEPS_MAX // radix:
                break
            steps *= radix
            digit = 0
            if inside and at < length:
                bit = _BIT[key[at]]
                digit = (alphabet & (bit - 1)).bit_count()
                inside = bool(alphabet & bit)  # else it stands before the next one, and its first
            number = number * radix + digit
        return number

    def _density(self) -> float:
        rows = steps = 0
        for one in self._passed:
            rows += one.rows
            steps += self._step(one.end) - self._step(one.begin) + 1
        if steps > 0:
            return rows / steps
        if self._last is None:
            return 0.0
        return self.rows() / (self._step(self._last) - self._step(self._first) + 1)
