"""Names: which number a space has in an LMDB environment, and which spaces are being dropped.

Two small databases beside the rows: `names` (name to number) and `state`:

    format               the version of all this, as text
    mixed                if there: the environment was of format 1, which had no checksums
    next                 the number that the next new space gets
    epoch                counts drops, so that whoever remembers a number knows when to forget it
    dropped + number     a space whose rows are still to be deleted
    probe                written to test whether a commit succeeds

All but the first have checksums, as rows have (`checksums.py`).

A dropped space loses its name and gets its mark in one transaction: a kill at any instant leaves
rows that nobody reads, and a mark by which they are deleted later.
"""

from __future__ import annotations

from typing import Final, final

import lmdb

from sluicegate.contracts.errors import DataLoss, Unavailable
from sluicegate.stores.engines.lmdb.checksums import FORMAT_KEY, RowChecks, seal
from sluicegate.stores.engines.lmdb.keys import NUMBER_MAX, number_bytes

FORMAT: Final = 2
_UPGRADED: Final = b"1"  # a format that is read, and made the newer one
_MIXED_KEY: Final = b"mixed"
_PROBE_KEY: Final = b"probe"
_NEXT_KEY: Final = b"next"
_EPOCH_KEY: Final = b"epoch"
_DROPPED: Final = b"dropped"
REMEMBERED_MAX: Final = 10_000  # numbers; then all are forgotten, and looked up again


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
