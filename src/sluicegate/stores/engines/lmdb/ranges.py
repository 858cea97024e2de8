"""Ranges: rows of an LMDB environment between two keys, in order, each of them verified.

A search that meets a damaged key ends at the wrong place, and a damaged key in a range can end it
early. So the neighbors of a range are verified too, and the order of its keys.
"""

from __future__ import annotations

import lmdb

from sluicegate.contracts.engine import EnginePage, Entry, KeyRange
from sluicegate.stores.engines.bounds import WALK_BYTES_MAX, place_of
from sluicegate.stores.engines.lmdb.layout import RowChecks


def read_page(
    checks: RowChecks,
    cursor: lmdb.Cursor[bytes],
    low: bytes,
    high: bytes,
    prefix_bytes: int,
    span: KeyRange,
) -> EnginePage:
    """Return rows with low <= key < high, from either side and as many as `span` allows."""
    reverse, rows_max, bytes_max = span.reverse, span.rows_max, span.bytes_max
    page_rows: list[tuple[bytes, bytes]] = []
    size = 0
    if low >= high:
        return EnginePage((), False, 0, 0)
    exists = _below(checks, cursor, high) if reverse else _from(checks, cursor, low)
    before: bytes | None = None
    if not exists:
        return EnginePage((), False, 0, 0)
    for key, stored in cursor.iterprev() if reverse else cursor.iternext():
        if before is not None and (key >= before if reverse else key <= before):
            raise checks.out_of_order()
        if not low <= key < high:
            checks.neighbor(cursor)
            break
        before = key
        if page_rows and (len(page_rows) >= rows_max or size >= bytes_max):
            return EnginePage(page_rows, True, len(page_rows), size)
        value = checks.value(key, stored)
        page_rows.append((key[prefix_bytes:], value))
        size += len(key) - prefix_bytes + len(value)
    return EnginePage(page_rows, False, len(page_rows), size)


def read_entries(
    checks: RowChecks,
    cursor: lmdb.Cursor[bytes],
    start: bytes,
    high: bytes,
    rows_max: int,
) -> list[Entry]:
    """Return entries with start <= key < high."""
    entries: list[Entry] = []
    size = 0
    before = b""
    if not _from(checks, cursor, start):
        return entries
    for key, stored in cursor.iternext():
        if key <= before:
            raise checks.out_of_order()
        if key >= high:
            checks.neighbor(cursor)
            break
        if entries and size >= WALK_BYTES_MAX:
            break
        before = key
        partition, sort = place_of(key)
        value = checks.value(key, stored)
        entries.append((partition, sort, value))
        size += len(value)
        if len(entries) >= rows_max:
            break
    return entries


def _from(checks: RowChecks, cursor: lmdb.Cursor[bytes], low: bytes) -> bool:
    """Set the cursor on the first key at or above `low`, if there is one."""
    exists = cursor.set_range(low)
    if cursor.prev() if exists else cursor.last():
        checks.neighbor(cursor, below=low)
        if not cursor.next():
            return False
    elif not exists or not cursor.first():
        return False
    if cursor.key() < low:
        raise checks.out_of_order()
    return True


def _below(checks: RowChecks, cursor: lmdb.Cursor[bytes], high: bytes) -> bool:
    """Set the cursor on the last key below `high`, if there is one."""
    if not cursor.set_range(high):
        return cursor.last()
    if cursor.key() != high:
        checks.neighbor(cursor, above=high)
    if not cursor.prev():
        return False
    if cursor.key() >= high:
        raise checks.out_of_order()
    return True
