"""Pages: native rules as bytes, in a form that is the same however they came to be there.

A rule is a *record*: where it applies (its *key*), its priority, what it says (the mark of its
kind) and its name. Records are ordered by the checksum of their keys, and `PAGES` pages share them
by the first bits of that; so a change touches one page, and what has not changed is shared between
versions. A million rules are some four thousand objects that nobody has to count or to free singly.

    page    = shift  directory  records
    record  = length:2  priority:1  kind:8  key  0xff  rule_id

The directory says where the records of the next bits of the checksum begin, about one a cell. Texts
are UTF-8, in which 0xff and 0xfe never stand; so 0xff ends a key, and 0xfe stands before the type
of client in it. The byte of the priority also tells a template, and all below a path, from an exact
path: none of these is found by being asked for as it is written. A rule that is off stands under
its name, for nobody looks it up by its path.

The records of one key are ordered by priority; those that apply together stand in the order in
which they count.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from sluicegate.kernels.native import i64

PAGES: Final = 4_096
CELL_BITS: Final = 20  # of a checksum, below those that say the page
HEAD_BYTES: Final = 11
OFFSET_BYTES: Final = 3
PAGE_BYTES_MAX: Final = (1 << 24) - 1
SAME_MARK_MAX: Final = 1_024  # records in one cell of the largest directory
KIND_BYTES: Final = 8
NO_PAGE: Final = b""

PRIORITY: Final = 0x07
TEMPLATE: Final = 0x20
BELOW: Final = 0x40
OFF: Final = b"-"
END: Final = b"\xff"
CLIENT: Final = b"\xfe"
_CELLS: Final = (1 << CELL_BITS) - 1


def key_of(path: str, client_type: str) -> bytes:
    """The key of a rule on a plain pattern, or on every path."""
    key = path.encode()
    return key + CLIENT + client_type.encode() if client_type else key


def flag_of(path: str) -> int:
    """What kind of pattern it is."""
    return BELOW if path.endswith("/*") else TEMPLATE if "{" in path else 0


def off_key(key: bytes, rule_id: str) -> bytes:
    """The key of a rule that is off: it stands alone, whatever its path."""
    return OFF + rule_id.encode() + CLIENT + key


def record_of(key: bytes, priority: int, kind: bytes, rule_id: bytes) -> bytes:
    """One record."""
    length = HEAD_BYTES + len(key) + 1 + len(rule_id)
    return length.to_bytes(2, "little") + bytes((priority,)) + kind + key + END + rule_id


def record_key(record: bytes) -> bytes:
    """The key of a record."""
    return record[HEAD_BYTES : record.index(END, HEAD_BYTES)]


def record_kind(record: bytes) -> bytes:
    """The mark of the kind of a record."""
    return record[3:HEAD_BYTES]


def page_of(records: list[bytes]) -> bytes:
    """A page of records that are in order; a `ValueError` if they are too many for one."""
    if not records:
        return NO_PAGE
    shift = CELL_BITS - _bits(len(records))
    cells = 1 << (CELL_BITS - shift)
    at = 1 + OFFSET_BYTES * (cells + 1)
    begins: list[int] = []
    same = 0
    for record in records:
        cell = (crc32(record_key(record)) & _CELLS) >> shift
        if len(begins) <= cell:
            same = 0
            while len(begins) <= cell:
                begins.append(at)
        same += 1
        if same > SAME_MARK_MAX:
            raise ValueError(f"more than {SAME_MARK_MAX:,} of the paths have like checksums")
        at += len(record)
    while len(begins) <= cells:
        begins.append(at)
    return _page(shift, begins, b"".join(records))


def _page(shift: int, begins: list[int], records: bytes) -> bytes:
    if begins[-1] > PAGE_BYTES_MAX:
        raise ValueError("the paths that have like checksums are more than fit")
    head = [shift]
    for begin in begins:
        head.append(begin & 0xFF)
        head.append(begin >> 8 & 0xFF)
        head.append(begin >> 16)
    return bytes(head) + records


def _bits(count: int) -> int:
    """How many bits of a checksum the directory goes by: about one record a cell."""
    return min((count - 1).bit_length(), CELL_BITS)


def records_start(page: bytes) -> int:
    """Where the records of a page begin."""
    return 1 + OFFSET_BYTES * ((1 << (CELL_BITS - page[0])) + 1) if page else 0


def records_of(page: bytes) -> list[bytes]:
    """All records of a page, in order."""
    return _split(page, records_start(page), len(page))


def by_key(page: bytes) -> dict[bytes, list[bytes]]:
    """The records of a page, by their keys."""
    found: dict[bytes, list[bytes]] = {}
    for record in records_of(page):
        found.setdefault(record_key(record), []).append(record)
    return found


def patch(page: bytes, changes: dict[bytes, list[bytes]]) -> tuple[bytes, list[bytes]]:
    """The page with other records for some keys, and the records that they had."""
    removed: list[bytes] = []
    if not page:
        rows = sorted([(crc32(key), key) for key in changes])
        return page_of([record for _, key in rows for record in changes[key]]), removed
    shift = page[0]
    start = records_start(page)
    begins = _begins(page, start)
    count = _count(page, start)
    pieces: list[bytes] = []
    at = start
    for mark, key in sorted([(crc32(key), key) for key in changes]):
        cell = (mark & _CELLS) >> shift
        first, last = _span(page, _offset(page, cell), _offset(page, cell + 1), mark, key)
        old = _split(page, first, last)
        new = changes[key]
        removed += old
        count += len(new) - len(old)
        pieces.append(page[at:first])
        pieces += new
        at = last
        grown = sum([len(record) for record in new]) - (last - first)
        for later in range(cell + 1, len(begins)):
            begins[later] += grown
    pieces.append(page[at:])
    records = b"".join(pieces)
    if not count:
        return NO_PAGE, removed
    if _bits(count) == CELL_BITS - shift:
        return _page(shift, begins, records), removed
    return page_of(_split(records, 0, len(records))), removed


def _offset(page: bytes, cell: i64) -> int:
    at: i64 = 1 + OFFSET_BYTES * cell
    return page[at] | page[at + 1] << 8 | page[at + 2] << 16


def _begins(page: bytes, start: i64) -> list[int]:
    """The directory of a page."""
    begins: list[int] = []
    at: i64 = 1
    while at < start:
        begins.append(page[at] | page[at + 1] << 8 | page[at + 2] << 16)
        at += OFFSET_BYTES
    return begins


def _count(page: bytes, start: i64) -> int:
    """How many records a page has."""
    count = 0
    end: i64 = len(page)
    while start < end:
        start += page[start] | page[start + 1] << 8
        count += 1
    return count


def _span(page: bytes, here: int, last: int, mark: int, key: bytes) -> tuple[int, int]:
    """Where the records of a key begin and end in its cell, or where they would stand."""
    first = -1
    while here < last:
        after = here + (page[here] | page[here + 1] << 8)
        other = record_key(page[here:after])
        if other == key:
            if first < 0:
                first = here
        elif (crc32(other), other) > (mark, key):
            break
        here = after
    return (here if first < 0 else first), here


def _split(data: bytes, at: int, end: int) -> list[bytes]:
    """The records between two places."""
    records: list[bytes] = []
    while at < end:
        after = at + (data[at] | data[at + 1] << 8)
        records.append(data[at:after])
        at = after
    return records
