"""Row stream: the rows of a part of a bulk upload, one behind the other.

    "SGR" and a version byte, 1
    then for each row
        partition, 1 byte of length      1 to 240 bytes
        sort key, 1 byte of length       0 to 240 bytes
        ttl_us, 8 bytes                  0 is for ever; counted from when the upload began
        value, 4 bytes of length         up to 16 MiB

Numbers have their weightiest byte first. A stream ends where a row ends; one that is cut is an
error that names the offset of the row that is not whole. A reader is fed pieces of any size and
keeps at most one row that is not whole yet. Once it knows how long that row is, it only puts pieces
aside until they are enough, so that the work grows with the bytes, whatever the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, VALUE_BYTES_MAX
from sluicegate.contracts.errors import BadValue

ROWS_MEDIA_TYPE: Final = "application/x-sluicegate-rows"
HEADER: Final = b"SGR\x01"
TTL_US_MAX: Final = (1 << 62) - 1
_VERSION_AT: Final = 3


class StreamRow(NamedTuple):
    """One row to load."""

    partition: bytes
    sort: bytes
    value: bytes
    ttl_us: int = 0


def row_bytes(row: StreamRow) -> bytes:
    """One row, as it stands in a stream."""
    partition, sort, value, ttl_us = row
    if not 1 <= len(partition) <= PARTITION_BYTES_MAX:
        raise BadValue("partition", partition, f"use 1 to {PARTITION_BYTES_MAX} bytes")
    if len(sort) > SORT_BYTES_MAX:
        raise BadValue("sort", sort, f"use up to {SORT_BYTES_MAX} bytes")
    if len(value) > VALUE_BYTES_MAX:
        raise BadValue("value", value[:16], f"use up to {VALUE_BYTES_MAX:,} bytes")
    if not 0 <= ttl_us <= TTL_US_MAX:
        raise BadValue("ttl_us", ttl_us, "say microseconds, or 0 for ever")
    return b"".join(
        (
            bytes((len(partition),)),
            partition,
            bytes((len(sort),)),
            sort,
            ttl_us.to_bytes(8, "big"),
            len(value).to_bytes(4, "big"),
            value,
        )
    )


def stream_of(rows: Iterable[StreamRow]) -> bytes:
    """A whole stream."""
    return HEADER + b"".join([row_bytes(row) for row in rows])


@final
class RowReader:
    """Reads a stream in pieces. `rows` counts those told so far."""

    __slots__ = ("_begun", "_left", "_needed", "_offset", "_value_bytes_max", "rows")

    def __init__(self, value_bytes_max: int = VALUE_BYTES_MAX) -> None:
        self._left = bytearray()
        self._needed = 0  # bytes of the row that is not whole; 0 while that is not known
        self._offset = 0  # of what is left, in the stream
        self._begun = False
        self._value_bytes_max = value_bytes_max
        self.rows = 0

    def feed(self, piece: bytes) -> list[StreamRow]:
        """The rows that are whole now."""
        if len(self._left) + len(piece) < self._needed:
            self._left += piece
            return []
        data = b"".join((self._left, piece)) if self._left else piece
        at = 0
        if not self._begun:
            if len(data) < len(HEADER):
                if not HEADER.startswith(data):
                    raise _not_ours(data)
                self._left = bytearray(data)
                return []
            if not data.startswith(HEADER):
                raise _not_ours(data)
            self._begun = True
            at = len(HEADER)
        rows: list[StreamRow] = []
        end = len(data)
        while True:
            row_at = at
            row, at = self._row(data, row_at, end)
            if row is None:
                break
            rows.append(row)
        self._left = bytearray(data[row_at:])
        self._offset += row_at
        self.rows += len(rows)
        return rows

    def end(self) -> None:
        """There is no more; an error if a row is not whole."""
        if not self._begun:
            raise _not_ours(bytes(self._left))
        if self._left:
            raise BadValue(
                f"rows at byte {self._offset}",
                bytes(self._left[:16]),
                "the last row is cut; send it whole",
            )

    def _row(self, data: bytes, at: int, end: int) -> tuple[StreamRow | None, int]:
        began = at
        self._needed = 0
        if at >= end:
            return None, began
        size = data[at]
        if not 1 <= size <= PARTITION_BYTES_MAX:
            raise self._bad("partition", size, began, f"1 to {PARTITION_BYTES_MAX}")
        partition_at = at + 1
        at = partition_at + size
        if at >= end:
            return None, began
        sort_size = data[at]
        if sort_size > SORT_BYTES_MAX:
            raise self._bad("sort key", sort_size, began, f"up to {SORT_BYTES_MAX}")
        sort_at = at + 1
        at = sort_at + sort_size
        if at + 12 > end:
            return None, began
        ttl_us = int.from_bytes(data[at : at + 8], "big")
        if ttl_us > TTL_US_MAX:
            raise self._bad("ttl_us", ttl_us, began, "less")
        value_size = int.from_bytes(data[at + 8 : at + 12], "big")
        if value_size > self._value_bytes_max:
            raise self._bad("value", value_size, began, f"up to {self._value_bytes_max:,}")
        value_at = at + 12
        at = value_at + value_size
        if at > end:
            self._needed = at - began
            return None, began
        row = StreamRow(
            data[partition_at : partition_at + size],
            data[sort_at : sort_at + sort_size],
            data[value_at:at],
            ttl_us,
        )
        return row, at

    def _bad(self, what: str, size: int, at: int, right: str) -> BadValue:
        offset = self._offset + at
        if what == "ttl_us":
            return BadValue(f"rows at byte {offset}: {what}", size, "say microseconds, or 0")
        return BadValue(f"rows at byte {offset}: bytes of {what}", size, f"use {right}")


def rows_of(data: bytes, value_bytes_max: int = VALUE_BYTES_MAX) -> list[StreamRow]:
    """The rows of a whole stream."""
    reader = RowReader(value_bytes_max)
    rows = reader.feed(data)
    reader.end()
    return rows


def _not_ours(data: bytes) -> BadValue:
    if data[:_VERSION_AT] == HEADER[:_VERSION_AT] and len(data) > _VERSION_AT:
        return BadValue(
            "rows at byte 3: version",
            data[_VERSION_AT],
            "it is of a newer release; upgrade this one",
        )
    return BadValue("rows at byte 0", data[:16], f"send {ROWS_MEDIA_TYPE}, which begins with SGR")
