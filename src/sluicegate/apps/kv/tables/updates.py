"""Updates: the changes that depend on what is there, as `decide` of a `RowsUpdate`.

An engine may call each several times, on its own thread; what the last call has found is the
result, and counts once the update has returned. No time, no input or output here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from sluicegate.contracts.key_values import Row, Write, WriteCondition, WriteIfResult, tag_of


@final
class ConditionalWrite:
    """A write if a condition holds."""

    __slots__ = ("_condition", "_write", "result")

    def __init__(self, write: Write, condition: WriteCondition) -> None:
        self._write = write
        self._condition = condition
        self.result = WriteIfResult(False, None)

    def decide(self, rows: Sequence[Row | None], now_us: int) -> Sequence[Write]:
        """Return the write, if it holds."""
        row, condition, write = rows[0], self._condition, self._write
        if condition.tag:
            holds = row is not None and tag_of(row.value) == condition.tag
        else:
            holds = (row is None) == condition.absent
        if not holds:
            self.result = WriteIfResult(False, row)
            return ()
        new: Row | None = None
        if write.value is not None:
            new = Row(write.sort, write.value, now_us + write.ttl_us if write.ttl_us else 0)
        self.result = WriteIfResult(True, new)
        return (write,)


@final
class Removal:
    """The removal of rows of one partition; `count` is of those that were there."""

    __slots__ = ("count", "partition", "sorts")

    def __init__(self, partition: bytes, sorts: Sequence[bytes]) -> None:
        self.partition = partition
        self.sorts = sorts
        self.count = 0

    def decide(self, rows: Sequence[Row | None], _now_us: int) -> Sequence[Write]:
        """Return the deletion of those that are there."""
        sorts = [sort for sort, row in zip(self.sorts, rows, strict=True) if row is not None]
        self.count = len(sorts)
        return [Write(self.partition, sort, None) for sort in sorts]


@final
class Expiry:
    """Another time to live for a row; `done` is whether there was one."""

    __slots__ = ("_partition", "_ttl_us", "done")

    def __init__(self, partition: bytes, ttl_us: int) -> None:
        self._partition = partition
        self._ttl_us = ttl_us
        self.done = False

    def decide(self, rows: Sequence[Row | None], _now_us: int) -> Sequence[Write]:
        """Return the row with its new time."""
        row = rows[0]
        self.done = row is not None
        return () if row is None else (Write(self._partition, row.sort, row.value, self._ttl_us),)
