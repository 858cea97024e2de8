"""Checksums: what each row of an LMDB environment begins with, so that damage is found when read.

    0xC5                  a row with checksums; no row of format 1 begins so
    2 bytes               of the key: the lower half of its CRC-32
    4 bytes               CRC-32 of the key and the value
    the value

LMDB has no checksums itself. The key is part of the sum, so a value is not taken for that of
another key. A damaged key is not found at all: it lies where it does not belong, and a search ends
beside it. So a search without a result checks both neighbors: their order, and the sums of their
keys. An environment that was created with format 1 may have rows without checksums; these are read
unverified.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final
from zlib import crc32

import lmdb

from sluicegate.contracts.engine import VALUE_BYTES_MAX
from sluicegate.contracts.errors import DataLoss
from sluicegate.stores.engines.damage import DamageLog

HEAD: Final = 0xC5
HEAD_BYTES: Final = 7
_pack: Final = Struct(">BHI").pack
_unpack: Final = Struct(">BHI").unpack_from
FORMAT_KEY: Final = b"format"  # has none: every release must be able to read it
_STORED_BYTES_MAX: Final = HEAD_BYTES + VALUE_BYTES_MAX


def seal(key: bytes, value: bytes) -> bytes:
    """Return the value behind its checksums."""
    of_key = crc32(key)
    return _pack(HEAD, of_key & 0xFFFF, crc32(value, of_key)) + value


def has_checksum(stored: bytes) -> bool:
    """Whether a row begins as one with checksums."""
    return len(stored) >= HEAD_BYTES and stored[0] == HEAD


def unseal(key: bytes, stored: bytes) -> bytes | None:
    """Return the value of a row whose checksums fit; None of any other."""
    if not HEAD_BYTES <= len(stored) <= _STORED_BYTES_MAX:
        return None
    head, key_sum, row_sum = _unpack(stored)
    of_key = crc32(key)
    if head != HEAD or key_sum != of_key & 0xFFFF:
        return None
    value = stored[HEAD_BYTES:]
    return value if row_sum == crc32(value, of_key) else None


@final
class RowChecks:
    """Verifies the rows of one environment. `mixed`: some may have no checksums."""

    __slots__ = ("_damage", "mixed")

    def __init__(self, damage: DamageLog) -> None:
        self._damage = damage
        self.mixed = False

    def get(
        self, txn: lmdb.Transaction[bytes], key: bytes, db: lmdb._Database | None = None
    ) -> bytes | None:
        """Return the verified value of a key, or None if the key is certainly absent."""
        stored = txn.get(key) if db is None else txn.get(key, db=db)
        if stored is not None:
            return self.value(key, stored)
        with txn.cursor() if db is None else txn.cursor(db) as cursor:
            if cursor.set_range(key):
                self.neighbor(cursor, above=key)
                beyond = cursor.prev()
            else:
                beyond = cursor.last()
            if beyond:
                self.neighbor(cursor, below=key)
        return None

    def value(self, key: bytes, stored: bytes) -> bytes:
        """Return the value of a row; raise `DataLoss` if its checksums do not fit."""
        value = unseal(key, stored)
        if value is not None:
            return value
        if self.mixed and not has_checksum(stored):
            return stored
        raise self._damage.found("its checksum does not fit")

    def neighbor(
        self,
        cursor: lmdb.Cursor[bytes],
        *,
        above: bytes | None = None,
        below: bytes | None = None,
    ) -> None:
        """Check the key under the cursor: its own sum, and its side of the key searched for."""
        key = cursor.key()
        if (above is not None and key <= above) or (below is not None and key >= below):
            raise self.out_of_order()
        stored = cursor.value()
        if has_checksum(stored):
            if int.from_bytes(stored[1:3], "big") != crc32(key) & 0xFFFF:
                raise self._damage.found("the checksum of its key does not fit")
        elif not self.mixed and key != FORMAT_KEY:
            raise self._damage.found("it has no checksum")

    def out_of_order(self) -> DataLoss:
        """Return the error of a key that lies where it does not belong."""
        return self._damage.found("its keys are out of order")
