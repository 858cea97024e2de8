"""Values that can be checked, and a ledger of what was done to each row.

A value holds its row, its version (each given once, rising), how many changes by read-modify-write
are in it, its run, and a digest of all that. So a reader detects a value that was torn, misplaced
or invented.

With the ledger it also detects one that is too old: when a write was acknowledged and no other of
that row was under way, a read that begins later must find its version or a later one; of writes
that overlap, the lowest of their versions. A write that failed may be applied or not, at once or
later: then nothing is claimed about the age of its row.
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
NEVER_WRITTEN: Final = "of a version that was never written"
STALE: Final = "stale"


class YcsbRecord(NamedTuple):
    """The fields of a value."""

    row: int
    version: int
    changes: int
    run: int = 0


def encode(record: YcsbRecord, size: int) -> bytes:
    """The value of a record, of so many bytes."""
    if not VALUE_BYTES_MIN <= size <= VALUE_BYTES_MAX:
        raise BadValue("bytes", size, f"give from {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX}")
    head = _HEAD.pack(*record)
    filling = size - VALUE_BYTES_MIN
    body = head + (head * (filling // len(head) + 1))[:filling]
    return body + blake2b(body, digest_size=_DIGEST_BYTES).digest()


def decode(value: bytes) -> YcsbRecord | None:
    """The record in a value, or None if it is damaged."""
    body, digest = value[:-_DIGEST_BYTES], value[-_DIGEST_BYTES:]
    if len(value) < VALUE_BYTES_MIN or blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        return None
    return YcsbRecord(*_HEAD.unpack_from(body))


@final
class _Row:
    """The state of a row that was written since it was loaded."""

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
    """The writes of all rows. Rows that were only loaded cost nothing."""

    __slots__ = ("_rows", "_version", "run")

    def __init__(self, run: int = 0) -> None:
        self.run = run
        self._rows: dict[int, _Row] = {}
        self._version = 0

    def begin(self, row: int) -> int:
        """Begin a write of the row, and return its version."""
        self._version += 1
        state = self._rows.setdefault(row, _Row())
        if not state.writers:
            state.lowest = self._version
        state.writers += 1
        state.newest = self._version
        return self._version

    def end(self, row: int, *, applied: bool | None, changes: int = 0) -> None:
        """The write was applied, was certainly not, or (None) may be."""
        state = self._rows[row]
        state.writers -= 1
        if applied is None:
            state.doubtful = True
            state.changes_in_doubt += changes
        elif applied:
            state.changes += changes
        if not state.writers and applied and not state.doubtful:
            state.floor = max(state.floor, state.lowest)

    def floor(self, row: int) -> int:
        """The version that a read which begins now must find at least."""
        state = self._rows.get(row)
        return 0 if state is None else state.floor

    def find_fault(self, row: int, value: bytes | None, floor: int) -> str:
        """What is wrong with a value that was read, or nothing."""
        if value is None:
            return MISSING
        record = decode(value)
        if record is None:
            return DAMAGED
        if record.row != row:
            return MISPLACED
        if record.run != self.run:
            return FOREIGN
        state = self._rows.get(row)
        if record.version > (0 if state is None else state.newest):
            return NEVER_WRITTEN
        if record.version < floor and not (state is not None and state.doubtful):
            return STALE
        return ""

    def changed(self) -> dict[int, tuple[int, int]]:
        """Of each row that was read, changed and written: how often, and how often perhaps more."""
        return {
            row: (state.changes, state.changes_in_doubt)
            for row, state in self._rows.items()
            if state.changes or state.changes_in_doubt
        }
