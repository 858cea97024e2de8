"""Codec: a snapshot as bytes, the same for the same rules, and back.

Records are sent as columns (keys, names, priorities, kinds by number), in blocks of pages, for like
things beside each other compress well; checksums and directories are not sent but made anew. The
digest of the content stands in front, and what was unpacked must have it. This file is not for the
compiler: each step is short, and between them others have their turns.
"""

from __future__ import annotations

import json
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import repeat
from sys import byteorder
from typing import Any, Final, NamedTuple
from zlib import crc32

from sluicegate.rules.mesh.rule import Semantics
from sluicegate.rules.resources.packed import WILD, Forms
from sluicegate.rules.resources.pages import (
    BELOW,
    CELL_BITS,
    END,
    HEAD_BYTES,
    NO_PAGE,
    PAGES,
    TEMPLATE,
    page_of,
    records_of,
)
from sluicegate.rules.resources.rule import ANY_PRIORITY
from sluicegate.rules.service_rule_set import RulesFile
from sluicegate.rules.snapshot.digests import ROWS_PER_PAUSE, let_others_run, mark_of, page_digests
from sluicegate.rules.snapshot.sections import (
    BYTES_MAX,
    DamagedSnapshot,
    PackedSection,
    SnapshotSection,
    frame,
    read_frame,
)
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

WORD: Final = b"sgrules\0"
BLOCK_ROWS: Final = 1 << 14
COLUMNS: Final = ("keys", "ids", "prios", "kindnos")
# What the byte of the priority may say.
PRIORITIES: Final = frozenset(
    flag | priority for flag in (0, TEMPLATE, BELOW) for priority in range(ANY_PRIORITY + 1)
)
NEWLINE: Final = b"\n"

_RECORD_HEAD: Final = struct.Struct("<HB8s")
_SECTIONS: Final = ("content", "outline", "heads", "kinds", *COLUMNS)


def pack(snapshot: RulesSnapshot) -> bytes:
    """The snapshot as it is sent."""
    texts = sorted(snapshot.kinds.values())
    numbers = {mark_of(text): number for number, text in enumerate(texts)}
    sections = [
        SnapshotSection("content", bytes.fromhex(snapshot.content)),
        SnapshotSection("outline", snapshot.outline()),
        SnapshotSection("heads", NEWLINE.join(snapshot.heads)),
        SnapshotSection("kinds", NEWLINE.join(texts)),
    ]
    rows = sum(snapshot.uses.values())
    blocks = 1 << max(0, (rows // BLOCK_ROWS).bit_length())
    step = max(1, PAGES // blocks)
    for first in range(0, PAGES, step):
        sections += _columns(snapshot.pages[first : first + step], numbers)
    return frame(WORD, sections)


def unpack(data: bytes, *, bytes_max: int = BYTES_MAX) -> RulesSnapshot:
    """The snapshot that was packed; `Damaged` if it is not whole or not understood here."""
    parts = read_frame(WORD, data, _SECTIONS, bytes_max=bytes_max)
    try:
        snapshot, content = _unpack(parts)
    except (ValueError, LookupError, TypeError, struct.error, RecursionError) as error:
        raise DamagedSnapshot(f"its parts do not fit together ({error})") from None
    if snapshot.content != content:
        raise DamagedSnapshot("what it holds is not what it says")
    return snapshot


def _unpack(parts: Sequence[PackedSection]) -> tuple[RulesSnapshot, str]:
    if [part.name for part in parts[:4]] != ["content", "outline", "heads", "kinds"]:
        raise DamagedSnapshot("its first parts are others than they should be")
    content = parts[0].open().hex()
    outline = outline_of(parts[1].open())
    heads = parts[2].open().split(NEWLINE) if outline.files else []
    joined = parts[3].open()
    texts = joined.split(NEWLINE) if joined else []
    marks = [mark_of(text) for text in texts]
    pages: list[bytes] = []
    uses: Counter[bytes] = Counter()
    columns = parts[4:]
    if len(columns) % len(COLUMNS):
        raise DamagedSnapshot("its columns are not all there")
    blocks = len(columns) // len(COLUMNS)
    for first in range(0, len(columns), len(COLUMNS)):
        block = columns[first : first + len(COLUMNS)]
        if tuple(part.name for part in block) != COLUMNS:
            raise DamagedSnapshot("its columns are not in order")
        records = _records(block, marks, uses)
        pages += _pages(records, len(pages), PAGES // blocks)
    if len(pages) != PAGES:
        raise DamagedSnapshot("its pages are not all there")
    snapshot = RulesSnapshot(
        semantics=outline.semantics,
        merge_domains=outline.merge_domains,
        files=outline.files,
        heads=heads,
        kinds=dict(zip(marks, texts, strict=True)),
        uses=dict(uses),
        forms=outline.forms,
        pages=pages,
        digests=page_digests(pages),
    )
    if len(uses) != len(texts) or len(heads) != len(outline.files):
        raise DamagedSnapshot("it says more or less than its rules need")
    return snapshot, content


class Outline(NamedTuple):
    """What is said once."""

    semantics: Semantics
    merge_domains: bool
    files: tuple[RulesFile, ...]
    forms: Forms


def outline_of(text: bytes) -> Outline:
    """The outline that a text says; an error of the ordinary kinds if it says none."""
    fields: Any = json.loads(text)
    files = tuple(RulesFile(*file) for file in fields["files"])
    for file in files:
        if [type(field) for field in file] != [str, str, int, str]:
            raise ValueError("a file is not told as files are")
    forms: dict[tuple[int, str], tuple[int, int]] = {}
    for family, shape, plain, typed in fields["forms"]:
        kinds = [type(field) for field in (family, shape, plain, typed)]
        if kinds != [int, str, int, int] or not shape or not 0 <= family <= WILD:
            raise ValueError("a form is not told as forms are")
        forms[family, shape] = (plain, typed)
    return Outline(Semantics(fields["semantics"]), fields["merge_domains"] is True, files, forms)


def _columns(pages: Sequence[bytes], numbers: Mapping[bytes, int]) -> list[SnapshotSection]:
    """The columns of a block."""
    keys: list[bytes] = []
    ids: list[bytes] = []
    priorities = bytearray()
    kinds = array("I")
    for page in filter(None, pages):
        for record in records_of(page):
            key, _, rule_id = record[HEAD_BYTES:].partition(END)
            keys.append(key)
            ids.append(rule_id)
            priorities.append(record[2])
            kinds.append(numbers[record[3:HEAD_BYTES]])
    # Keys and names are ended, not parted: none is other than one that is empty.
    columns = (_join(keys), _join(ids), bytes(priorities), _planes(kinds))
    return [SnapshotSection(name, data) for name, data in zip(COLUMNS, columns, strict=True)]


def _join(texts: Sequence[bytes]) -> bytes:
    return END.join([*texts, b""])


def _split(data: bytes) -> list[bytes]:
    texts = data.split(END)
    if texts.pop():
        raise DamagedSnapshot("a column has no end")
    return texts


def _planes(numbers: array[int]) -> bytes:
    """Little-endian numbers, first all lowest bytes, then all next: like beside like."""
    if byteorder == "big":
        numbers.byteswap()
    data = numbers.tobytes()
    return b"".join([data[plane::4] for plane in range(4)])


def _numbers(data: bytes, rows: int) -> array[int]:
    if len(data) != 4 * rows:
        raise DamagedSnapshot("a column is longer or shorter than the others")
    mixed = bytearray(len(data))
    for plane in range(4):
        mixed[plane::4] = data[plane * rows : (plane + 1) * rows]
    numbers = array("I", bytes(mixed))
    if byteorder == "big":
        numbers.byteswap()
    return numbers


def _records(
    block: Sequence[PackedSection], marks: Sequence[bytes], uses: Counter[bytes]
) -> list[tuple[int, bytes]]:
    """The records of a block, each with the checksum of its key."""
    keys, ids = _split(block[0].open()), _split(block[1].open())
    priorities = block[2].open()
    if not PRIORITIES.issuperset(priorities):
        raise DamagedSnapshot("a priority is none")
    if not len(keys) == len(ids) == len(priorities):
        raise DamagedSnapshot("a column is longer or shorter than the others")
    kinds = [marks[number] for number in _numbers(block[3].open(), len(keys))]
    uses.update(kinds)
    lengths = [HEAD_BYTES + 1 + len(key) + len(name) for key, name in zip(keys, ids, strict=True)]
    heads = map(_RECORD_HEAD.pack, lengths, priorities, kinds)
    records = map(b"".join, zip(heads, keys, repeat(END), ids, strict=False))
    return list(zip(map(crc32, keys), records, strict=True))


def _pages(rows: Sequence[tuple[int, bytes]], first: int, count: int) -> list[bytes]:
    """The pages of a block, from the first."""
    marks = [row[0] for row in rows]
    records = [row[1] for row in rows]
    if marks != sorted(marks) or (marks and marks[0] >> CELL_BITS < first):
        raise DamagedSnapshot("its rules are not in order")
    pages = [NO_PAGE] * count
    at = 0
    turn = ROWS_PER_PAUSE
    while at < len(marks):
        place = (marks[at] >> CELL_BITS) - first
        if place >= count:
            raise DamagedSnapshot("its rules are not in order")
        after = bisect_left(marks, (first + place + 1) << CELL_BITS, at)
        pages[place] = page_of(records[at:after])
        at = after
        if at >= turn:
            turn += ROWS_PER_PAUSE
            let_others_run()
    return pages
