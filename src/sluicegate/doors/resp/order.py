"""Order: which command of a connection may be run while replies to earlier ones are owed.

A client that sends SET and then GET without waiting means them in that order. So a command waits
for those before it that write what it accesses, or read what it writes; all others go side by side,
because a hundred writes of a hundred keys should share one sync of a disk. A command that may touch
anything waits for whatever is written. Nothing here waits: the protocol asks, and holds a command
back until all that is owed is out.

What is owed is remembered until then, `keys_max` keys of it at most; more waits too.
"""

from __future__ import annotations

from typing import final

from sluicegate.doors.resp.session import FREE, LOADS, READS, SCANS, WRITES, Command, CommandTable


@final
class Order:
    """What the commands under way on one connection touch."""

    __slots__ = ("_keys_max", "_loads", "_looks", "_read", "_table", "_write_tables")

    def __init__(self, table: CommandTable, keys_max: int) -> None:
        self._table = table
        self._keys_max = keys_max
        self._read: set[bytes] = set()
        self._write_tables: set[bytes] = set()
        self._looks = False
        self._loads = False

    def may_run(self, parts: list[bytes]) -> bool:
        """Whether this command may be run now."""
        row = self._table.find(parts[0])
        if row is None or row.accesses == FREE:
            return True
        if self._loads:
            return False
        accesses = row.accesses
        if accesses == SCANS:
            return not self._write_tables
        if accesses == LOADS:
            return not (self._write_tables or self._read or self._looks)
        if len(self._read) + len(self._write_tables) >= self._keys_max:
            return False
        if accesses == READS:
            return not self._write_tables or self._write_tables.isdisjoint(self._keys(row, parts))
        if self._looks:
            return False
        keys = self._keys(row, parts)
        return self._write_tables.isdisjoint(keys) and self._read.isdisjoint(keys)

    def note(self, parts: list[bytes]) -> None:
        """This one is under way."""
        row = self._table.find(parts[0])
        if row is None:
            return
        accesses = row.accesses
        if accesses == READS:
            self._read.update(self._keys(row, parts))
        elif accesses == WRITES:
            self._write_tables.update(self._keys(row, parts))
        elif accesses == SCANS:
            self._looks = True
        elif accesses == LOADS:
            self._loads = True

    def clear(self) -> None:
        """Nothing is under way any more."""
        self._read.clear()
        self._write_tables.clear()
        self._looks = self._loads = False

    def _keys(self, row: Command, parts: list[bytes]) -> list[bytes]:
        first, last, step = row.keys
        end = len(parts) if last < 0 else last + 1
        normalize_key = self._table.normalize_key
        return [normalize_key(part) for part in parts[first:end:step]]
