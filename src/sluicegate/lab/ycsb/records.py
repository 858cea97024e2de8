"""Values that tell whether they are the right ones, and what was done to each row.

A value holds its row, its version (of which each is given once, rising), how many changes by
read-modify-write are in it, whose run it is of, and a digest of all that. So a reader knows a value
that was torn, misplaced or invented.

With the ledger beside it, it also knows one that is too old: when a write was acknowledged and no
other of that row was under way, a read that begins later must find its version or a later one; of
writes that overlap, the lowest of their versions. A write that failed may be made or not, at once
or later: nothing more is said of the age of its row.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue

_HEAD: Final = Struct(">QQQQ")  # as in a record
_DIGEST_BYTES: Final = 16
VALUE_BYTES_MIN: Final = _HEAD.size + _DIGEST_BYTES
VALUE_BYTES_MAX: Final = 1 << 20

# What is wrong with a value.
MISSING: Final = "missing"
DAMAGED: Final = "damaged"
MISPLACED: Final = "misplaced"
FOREIGN: Final = "of another run"
UNHEARD_OF: Final = "of a version that was never written"
STALE: Final = "stale"


class Record(NamedTuple):
    """What a value says of itself."""

    row: int
    version: int
    changes: int
    run: int = 0


def encode(record: Record, size: int) -> bytes:
    """The value of a record, of so many bytes."""
    if not VALUE_BYTES_MIN <= size <= VALUE_BYTES_MAX:
        raise BadValue("bytes", size, f"give from {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX}")
    head = _HEAD.pack(*record)
    filling = size - VALUE_BYTES_MIN
    body = head + (head * (filling // len(head) + 1))[:filling]
    return body + blake2b(body, digest_size=_DIGEST_BYTES).digest()


def decode(value: bytes) -> Record | None:
    """What it says, or None if it is damaged."""
    body, digest = value[:-_DIGEST_BYTES], value[-_DIGEST_BYTES:]
    if len(value) < VALUE_BYTES_MIN or blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        return None
    return Record(*_HEAD.unpack_from(body))


@final
class _Row:
    """What is known of a row that was written since it was loaded."""

    __slots__ = ("changes", "changes_in_doubt", "doubtful", "floor", "lowest", "newest", "writers")

    def __init__(self) -> None:
        self.floor = 0  # the version that a read must find at least
        self.newest = 0  # that was given
        self.lowest = 0  # of the writes under way and those that overlapped with them
        self.writers = 0
        self.doubtful = False
        self.changes = 0
        self.changes_in_doubt = 0


@final
class WriteLedger:
    """What was done to all rows. Rows that were only loaded cost nothing."""

    __slots__ = ("_rows", "_version", "run")

    def __init__(self, run: int = 0) -> None:
        self.run = run
        self._rows: dict[int, _Row] = {}
        self._version = 0

    def begin(self, row: int) -> int:
        """A write of the row begins: its version."""
        self._version += 1
        kept = self._rows.setdefault(row, _Row())
        if not kept.writers:
            kept.lowest = self._version
        kept.writers += 1
        kept.newest = self._version
        return self._version

    def end(self, row: int, *, made: bool | None, changes: int = 0) -> None:
        """It was made, was certainly not, or (None) may be."""
        kept = self._rows[row]
        kept.writers -= 1
        if made is None:
            kept.doubtful = True
            kept.changes_in_doubt += changes
        elif made:
            kept.changes += changes
        if not kept.writers and made and not kept.doubtful:
            kept.floor = max(kept.floor, kept.lowest)

    def floor(self, row: int) -> int:
        """The version that a read which begins now must find at least."""
        kept = self._rows.get(row)
        return 0 if kept is None else kept.floor

    def wrong(self, row: int, value: bytes | None, floor: int) -> str:
        """What is wrong with what was read, or nothing."""
        if value is None:
            return MISSING
        record = decode(value)
        if record is None:
            return DAMAGED
        if record.row != row:
            return MISPLACED
        if record.run != self.run:
            return FOREIGN
        kept = self._rows.get(row)
        if record.version > (0 if kept is None else kept.newest):
            return UNHEARD_OF
        if record.version < floor and not (kept is not None and kept.doubtful):
            return STALE
        return ""

    def changed(self) -> dict[int, tuple[int, int]]:
        """Of each row that was read, changed and written: how often, and how often perhaps more."""
        return {
            row: (kept.changes, kept.changes_in_doubt)
            for row, kept in self._rows.items()
            if kept.changes or kept.changes_in_doubt
        }
