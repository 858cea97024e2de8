"""Perceptual hash: 64 bits that are nearly the same for pictures that look nearly the same.

The difference hash (dHash; Krawetz, "Kind of Like That", 2013): the picture is shrunk to 9 x 8 grey
pixels, and each bit says whether a pixel is darker than its right neighbour. Size, format, quality
and brightness hardly change it; a crop, a mirror or a turn does. How far two pictures are apart is
the number of bits that differ: up to 4 is the same picture saved twice, above 10 is another.

Finding all hashes within a distance d is multi-index hashing (Norouzi, Punjani, Fleet, "Fast Search
in Hamming Space with Multi-Index Hashing", CVPR 2012). A hash is cut into 4 bands of 16 bits, and
each band is a table. If two hashes differ in d = 4r + a bits, then either one of the first a + 1
bands differs in at most r bits or one of the others in at most r - 1: so it is enough to look up
every band with that many of its bits flipped. What is found is compared whole. A BK-tree, the usual
choice, visits most of its nodes at d = 8; this one looks at 188 places and what lies there.

Pictures of one colour all have the hash 0, and a red coat has that of a blue one: do not share by
hash alone. A store of many keeps each hash at `bands_of` it and looks at `bands_near` another.

Bounds: `distance` up to `DISTANCE_MAX`. Cost: 4 table entries a hash; a look-up takes 1 to 4 places
for d <= 3, 20 to 68 for d <= 7, 188 for d = 8, and of n hashes each place holds n / 65,536 if they
are evenly spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from sluicegate.kernels.bounds import within

COLUMNS: Final = 9
ROWS: Final = 8
DISTANCE_MAX: Final = 12

_BANDS: Final = 4
_BAND_BITS: Final = 16
_BAND: Final = (1 << _BAND_BITS) - 1


def difference_hash(pixels: Sequence[int]) -> int:
    """Return the hash of 9 x 8 grey pixels, row by row."""
    if len(pixels) != COLUMNS * ROWS:
        raise ValueError(f"give {COLUMNS} x {ROWS} pixels, not {len(pixels)}")
    found = 0
    for row in range(ROWS):
        start = row * COLUMNS
        for column in range(start, start + COLUMNS - 1):
            found = found << 1 | (1 if pixels[column] < pixels[column + 1] else 0)
    return found


def hash_distance(one: int, other: int) -> int:
    """Return how many bits differ."""
    return (one ^ other).bit_count()


def _flips() -> list[list[int]]:
    """Every set of bits of a band to flip, by how many they are."""
    return [
        [sum(1 << bit for bit in bits) for bits in combinations(range(_BAND_BITS), count)]
        for count in range(DISTANCE_MAX // _BANDS + 1)
    ]


_FLIPS: Final = _flips()


def bands_of(hash_: int) -> list[tuple[int, int]]:
    """Return where a hash is kept: each band, and the bits of it."""
    return [(which, hash_ >> which * _BAND_BITS & _BAND) for which in range(_BANDS)]


def bands_near(hash_: int, distance: int) -> list[tuple[int, int]]:
    """Return where all that is at most so far away is kept, with more that is not."""
    within("distance", distance, 0, DISTANCE_MAX)
    radius, more = distance // _BANDS, distance % _BANDS
    found: list[tuple[int, int]] = []
    for which, key in bands_of(hash_):
        reach = radius if which <= more else radius - 1
        for count in range(reach + 1):
            found += [(which, key ^ flip) for flip in _FLIPS[count]]
    return found
