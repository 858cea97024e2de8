"""Keys: how a space, a partition and a sort key lie in one key of an embedded engine.

    4 bytes the space's number | 1 byte the partition's length | the partition | the sort key

Numbers count up and are never given twice, so what is left of a dropped space is never taken for a
new one. Byte order within a partition is the order of the sort keys. The longest key has 485
bytes, and LMDB takes 511. A walk goes in this order: shorter partitions first.
"""

from __future__ import annotations

from typing import Final

NUMBER_BYTES: Final = 4
NUMBER_MAX: Final = (1 << 31) - 1


def number_bytes(number: int) -> bytes:
    """A space's number as the beginning of its keys."""
    return number.to_bytes(NUMBER_BYTES, "big")


def prefix_of(number: bytes, partition: bytes) -> bytes:
    """What all keys of a partition begin with, and no other."""
    return b"%b%c%b" % (number, len(partition), partition)


def key_of(number: bytes, partition: bytes, sort: bytes) -> bytes:
    """The key of a place."""
    return b"%b%c%b%b" % (number, len(partition), partition, sort)


def behind(prefix: bytes) -> bytes:
    """The least key behind all that begin with `prefix`, which begins with a space's number."""
    # A number is never as high as 0xffffffff, so there is a byte to count up.
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,))


def place_of(key: bytes) -> tuple[bytes, bytes]:
    """The partition and the sort key."""
    sort_at = NUMBER_BYTES + 1 + key[NUMBER_BYTES]
    return key[NUMBER_BYTES + 1 : sort_at], key[sort_at:]
