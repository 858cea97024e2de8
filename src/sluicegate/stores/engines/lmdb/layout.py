"""Layout: what lies in an LMDB environment, byte by byte: rows, their checksums, names of spaces.

A key is made by `bounds.key_of`. A row begins with checksums, so that damage is found when read:

    0xC5                  a row with checksums; no row of format 1 begins so
    2 bytes               of the key: the lower half of its CRC-32
    4 bytes               CRC-32 of the key and the value
    the value

LMDB has no checksums itself. The key is part of the sum, so a value is not taken for that of
another key. A damaged key is not found at all: it lies where it does not belong, and a search ends
beside it. So a search without a result checks both neighbors: their order, and the sums of their
keys. An environment that was created with format 1 may have rows without checksums; these are read
unverified.

Beside the rows are two small databases, `names` (name to number) and `state`:

    format               the version of all this, as text, without a checksum
    mixed                if there: the environment was of format 1, which had no checksums
    next                 the number that the next new space gets
    epoch                counts drops, so that whoever remembers a number knows when to forget it
    dropped + number     a space whose rows are still to be deleted
    probe                written to test whether a commit succeeds

A dropped space loses its name and gets its mark in one transaction: a kill at any instant leaves
rows that nobody reads, and a mark by which they are deleted later.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final
from zlib import crc32

import lmdb

from sluicegate.contracts.engine import VALUE_BYTES_MAX
from sluicegate.contracts.errors import DataLoss, Unavailable
from sluicegate.stores.engines.bounds import NUMBER_MAX, number_bytes
from sluicegate.stores.engines.damage import DamageLog

HEAD: Final = 0xC5
HEAD_BYTES: Final = 7
_pack: Final = Struct(">BHI").pack
_unpack: Final = Struct(">BHI").unpack_from
FORMAT_KEY: Final = b"format"  # has none: every release must be able to read it
_STORED_BYTES_MAX: Final = HEAD_BYTES + VALUE_BYTES_MAX
FORMAT: Final = 2
_UPGRADED: Final = b"1"  # a format that is read, and made the newer one
_MIXED_KEY: Final = b"mixed"
_PROBE_KEY: Final = b"probe"
_NEXT_KEY: Final = b"next"
_EPOCH_KEY: Final = b"epoch"
_DROPPED: Final = b"dropped"
REMEMBERED_MAX: Final = 10_000  # numbers; then all are forgotten, and looked up again


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
            value = unseal(key, stored)
            return self._unverified(stored) if value is None else value
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
        return self._unverified(stored) if value is None else value

    def _unverified(self, stored: bytes) -> bytes:
        """Return a row without checksums, where there may be any; else it is damaged."""
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


@final
class SpaceNames:
    """The two databases of an open environment, and what a reader remembers of them."""

    __slots__ = ("_checks", "_epoch", "_names", "_numbers", "_snapshot", "_state")

    def __init__(self, env: lmdb.Environment, checks: RowChecks) -> None:
        self._checks = checks
        self._names = env.open_db(b"names")
        self._state = env.open_db(b"state")
        self._numbers: dict[str, bytes] = {}
        self._epoch: bytes | None = None
        self._snapshot = -1

    def check_format(self, txn: lmdb.Transaction[bytes], folder: str, *, created: bool) -> None:
        """Write the format into a new environment; raise for a newer format.

        One that was `created` before must have its format.
        """
        text = txn.get(FORMAT_KEY, db=self._state)
        if text is None:
            if created:
                raise DataLoss(f"the engine in {folder}", "its format is gone; restore a backup")
            txn.put(FORMAT_KEY, b"%d" % FORMAT, db=self._state)
        elif text == _UPGRADED:
            self._put(txn, _MIXED_KEY, b"yes", self._state)
            txn.put(FORMAT_KEY, b"%d" % FORMAT, db=self._state)
        elif text != b"%d" % FORMAT:
            raise Unavailable(
                f"the engine in {folder}",
                f"its format is {text[:20].decode('ascii', 'replace')} and this is Sluicegate for"
                f" format {FORMAT}; start the version of Sluicegate that wrote it, or a newer one",
            )
        self._checks.mixed = txn.get(_MIXED_KEY, db=self._state) is not None

    def probe(self, txn: lmdb.Transaction[bytes]) -> None:
        """Change something, so that a commit has something to write."""
        txn.put(_PROBE_KEY, seal(_PROBE_KEY, b""), db=self._state)

    def read(self, txn: lmdb.Transaction[bytes], space: str) -> bytes | None:
        """The space's number as this snapshot has it; None if there is no such space."""
        snapshot = txn.id()
        if snapshot != self._snapshot:
            epoch = txn.get(_EPOCH_KEY, db=self._state)
            if epoch != self._epoch or len(self._numbers) >= REMEMBERED_MAX:
                self._numbers.clear()
                self._epoch = epoch
            self._snapshot = snapshot
        number = self._numbers.get(space)
        if number is None:
            number = self.find(txn, space)
            if number is not None:
                self._numbers[space] = number
        return number

    def find(self, txn: lmdb.Transaction[bytes], space: str) -> bytes | None:
        """The space's number in a transaction that may have changed it."""
        return self._checks.get(txn, space.encode(), self._names)

    def allot(self, txn: lmdb.Transaction[bytes], space: str) -> bytes:
        """The space's number; a new one if it has none."""
        number = self.find(txn, space)
        if number is None:
            next_number = int(self._checks.get(txn, _NEXT_KEY, self._state) or b"1")
            if next_number > NUMBER_MAX:
                raise Unavailable("the engine", "all numbers for spaces are used; restore into new")
            number = number_bytes(next_number)
            self._put(txn, _NEXT_KEY, b"%d" % (next_number + 1), self._state)
            self._put(txn, space.encode(), number, self._names)
        return number

    def drop(self, txn: lmdb.Transaction[bytes], space: str) -> bool:
        """Take the name away and mark what was under it; whether there was any."""
        number = self.find(txn, space)
        if number is None:
            return False
        txn.delete(space.encode(), db=self._names)
        self._put(txn, _DROPPED + number, space.encode(), self._state)
        epoch = int(self._checks.get(txn, _EPOCH_KEY, self._state) or b"0")
        self._put(txn, _EPOCH_KEY, b"%d" % (epoch + 1), self._state)
        return True

    def next_dropped(self, txn: lmdb.Transaction[bytes]) -> bytes | None:
        """The number of a space whose rows are to be deleted."""
        with txn.cursor(self._state) as cursor:
            if cursor.set_range(_DROPPED):
                key = cursor.key()
                if key.startswith(_DROPPED):
                    self._checks.value(key, cursor.value())  # or other rows would be deleted
                    return key[len(_DROPPED) :]
        return None

    def _put(
        self,
        txn: lmdb.Transaction[bytes],
        key: bytes,
        value: bytes,
        db: lmdb._Database,
    ) -> None:
        txn.put(key, seal(key, value), db=db)

    def forget(self, txn: lmdb.Transaction[bytes], number: bytes) -> None:
        """Remove the mark of a space whose rows are deleted."""
        txn.delete(_DROPPED + number, db=self._state)
