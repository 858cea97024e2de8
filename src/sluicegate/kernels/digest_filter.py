"""Digest filter: a set of digests in a fixed number of bytes, that never forgets one it was given.

Source: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors" (1970). Each digest sets
`PLACES` bits; one whose bits are all set is in the set, or is taken for one that is. The places
come from one keyed hash of the digest by double hashing (Kirsch and Mitzenmacher, "Less Hashing,
Same Performance", 2008).

    p = (share of bits that are set) ^ PLACES      the chance that one that is not in it seems to be

Who marks what must not be removed errs to the safe side with it: what is in the set is always
found, and of what is not, a share p is kept by mistake. The `salt` makes that another share each
time, so that what one run keeps by mistake a later one removes, and nobody can choose digests that
are always mistaken.

Bits for a digest, and p:    27: 0.0002    16: 0.0014    10: 0.009    5: 0.10    2.5: 0.48

Cost: a hash and 5 bits, about 2 us interpreted. Bounds: the bytes that it is made with, and no more
however many are added.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, final

from sluicegate.kernels.bounds import within

PLACES: Final = 5
BYTES_MAX: Final = 1 << 36
SALT_BYTES_MAX: Final = 64


@final
class DigestFilter:
    """A set that may take what it was not given for what it was."""

    __slots__ = ("_bits", "_salt", "_table", "added", "ones")

    def __init__(self, bytes_max: int, salt: bytes) -> None:
        within("bytes_max", bytes_max, 8, BYTES_MAX)
        within("salt", len(salt), 0, SALT_BYTES_MAX)
        self.added = 0
        self.ones = 0
        self._salt = salt
        self._bits = bytes_max * 8
        self._table = bytearray(bytes_max)

    def add(self, digest: bytes) -> bool:
        """Put it in; return whether it surely was not there."""
        self.added += 1
        table, bits, fresh = self._table, self._bits, False
        place, step = self._hash(digest)
        for _ in range(PLACES):
            at = place % bits
            bit = 1 << (at & 7)
            if not table[at >> 3] & bit:
                table[at >> 3] |= bit
                self.ones += 1
                fresh = True
            place += step
        return fresh

    def __contains__(self, digest: bytes) -> bool:
        table, bits = self._table, self._bits
        place, step = self._hash(digest)
        for _ in range(PLACES):
            at = place % bits
            if not table[at >> 3] & (1 << (at & 7)):
                return False
            place += step
        return True

    @property
    def mistaken(self) -> float:
        """The chance that one that was not put in seems to be there."""
        share = self.ones / self._bits
        return float(share**PLACES)

    def _hash(self, digest: bytes) -> tuple[int, int]:
        hashed = blake2b(digest, digest_size=16, key=self._salt).digest()
        return int.from_bytes(hashed[:8], "big"), int.from_bytes(hashed[8:], "big") | 1
