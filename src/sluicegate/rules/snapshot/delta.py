"""Delta: what leads from one snapshot to another, by the keys whose rules have changed.

All records of a changed key are sent, none if there are none any more. Heads that have changed are
sent as what differs from the old text. What comes of it must have the content that was promised;
and it is told so before anything big was touched if it was made for another snapshot.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, final
from zlib import crc32

from sluicegate.rules.resources.packed import form_of
from sluicegate.rules.resources.pages import (
    CELL_BITS,
    END,
    HEAD_BYTES,
    OFF,
    PAGES,
    by_key,
    patch,
    record_key,
    record_kind,
    record_of,
)
from sluicegate.rules.snapshot.codec import NEWLINE, PRIORITIES, outline_of
from sluicegate.rules.snapshot.digests import (
    PAGES_PER_PAUSE,
    canonical,
    let_others_run,
    mark_of,
    page_digest,
)
from sluicegate.rules.snapshot.sections import (
    BYTES_MAX,
    DamagedSnapshot,
    PackedSection,
    SnapshotSection,
    frame,
    read_frame,
)
from sluicegate.rules.snapshot.snapshot import RulesSnapshot

WORD: Final = b"sgdelta\0"

# changed = group...     group = key_length:2 records:2 key record...
# record  = priority:1 kind:8 id_length:1 id
_GROUP: Final = struct.Struct("<HH")
_RECORD: Final = struct.Struct("<B8sB")
_SECTIONS: Final = ("contents", "outline", "heads", "head", "kinds", "changed")


def make_delta(before: RulesSnapshot, after: RulesSnapshot) -> bytes:
    """What `apply_delta` needs to make `after` of `before`."""
    changed: list[bytes] = []
    for place in range(PAGES):
        old, new = before.pages[place], after.pages[place]
        if old is not new and before.digests[place] != after.digests[place]:
            changed += _diff_pages(old, new)
    kinds = sorted(after.kinds[mark] for mark in after.kinds.keys() - before.kinds.keys())
    old_heads = {file.name: head for file, head in zip(before.files, before.heads, strict=True)}
    places = {digest: place for place, digest in enumerate(before.head_digests)}
    order: list[int] = []  # a place among the old heads, or below zero among those that follow
    heads: list[SnapshotSection] = []
    for file, head, digest in zip(after.files, after.heads, after.head_digests, strict=True):
        place = places.get(digest, -1 - len(heads))
        order.append(place)
        if place < 0:
            heads.append(SnapshotSection("head", head, like=old_heads.get(file.name, b"")))
    return frame(
        WORD,
        [
            SnapshotSection("contents", bytes.fromhex(before.content + after.content)),
            SnapshotSection("outline", after.outline(), like=before.outline()),
            SnapshotSection("heads", canonical(order)),
            SnapshotSection("kinds", NEWLINE.join(kinds)),
            SnapshotSection("changed", b"".join(changed)),
            *heads,
        ],
    )


def apply_delta(before: RulesSnapshot, data: bytes, *, bytes_max: int = BYTES_MAX) -> RulesSnapshot:
    """The snapshot that a delta leads to; `Damaged` if it does not, or begins elsewhere."""
    parts = read_frame(WORD, data, _SECTIONS, bytes_max=bytes_max)
    try:
        after, content = _apply(before, parts)
    except (ValueError, LookupError, TypeError, struct.error, RecursionError) as error:
        raise DamagedSnapshot(f"its parts do not fit together ({error})") from None
    if after.content != content:
        raise DamagedSnapshot("what it leads to is not what it says", "fetch the whole snapshot")
    return after


def _apply(before: RulesSnapshot, parts: Sequence[PackedSection]) -> tuple[RulesSnapshot, str]:
    if [part.name for part in parts[:5]] != ["contents", "outline", "heads", "kinds", "changed"]:
        raise DamagedSnapshot("its first parts are others than they should be")
    contents = parts[0].open().hex()
    half = len(before.content)
    if len(contents) != 2 * half or contents[:half] != before.content:
        raise DamagedSnapshot("it is for other rules than these", "fetch the whole snapshot")
    outline = outline_of(parts[1].open(before.outline()))
    old_heads = {file.name: head for file, head in zip(before.files, before.heads, strict=True)}
    heads: list[bytes] = []
    digests: list[bytes] = []
    order = json.loads(parts[2].open())
    more = list(parts[:4:-1])  # the next is the last
    for file, place in zip(outline.files, order, strict=True):
        if place >= 0:
            heads.append(before.heads[place])
            digests.append(before.head_digests[place])
        else:
            head = more.pop().open(old_heads.get(file.name, b""))
            heads.append(head)
            digests.append(sha256(head).digest())
    if more:
        raise DamagedSnapshot("it has heads of no file")
    changes = _Changes(before)
    changes.kinds(parts[3].open())
    changes.records(parts[4].open())
    return (
        RulesSnapshot(
            semantics=outline.semantics,
            merge_domains=outline.merge_domains,
            files=outline.files,
            heads=heads,
            kinds=changes.kinds_now(),
            uses=changes.uses,
            forms=changes.forms_now(),
            pages=changes.pages,
            digests=changes.digests,
            head_digests=digests,
        ),
        contents[half:],
    )


@final
class _Changes:
    """What a delta does to native rules."""

    __slots__ = ("_kinds", "digests", "forms", "pages", "uses")

    def __init__(self, before: RulesSnapshot) -> None:
        self._kinds = dict(before.kinds)
        self.uses = dict(before.uses)
        self.forms = {form: [*counts] for form, counts in before.forms.items()}
        self.pages = list(before.pages)
        self.digests = list(before.digests)

    def kinds(self, joined: bytes) -> None:
        """Learn kinds that are new."""
        for text in joined.split(NEWLINE) if joined else ():
            self._kinds[mark_of(text)] = text

    def records(self, data: bytes) -> None:
        """Have other records for some keys."""
        pages: dict[int, dict[bytes, list[bytes]]] = {}
        at = 0
        while at < len(data):
            at = self._group(data, at, pages)
        for turn, (place, changes) in enumerate(pages.items(), 1):
            if turn % PAGES_PER_PAUSE == 0:
                let_others_run()
            page, removed = patch(self.pages[place], changes)
            self.pages[place] = page
            self.digests[place] = page_digest(page)
            for record in removed:
                self._count(record, -1)
            for records in changes.values():
                for record in records:
                    self._count(record, 1)

    def kinds_now(self) -> dict[bytes, bytes]:
        """The kinds that rules still have."""
        return {mark: self._kinds[mark] for mark in self._kinds if self.uses.get(mark)}

    def forms_now(self) -> dict[tuple[int, str], tuple[int, int]]:
        """The forms that rules still have."""
        return {form: (has[0], has[1]) for form, has in self.forms.items() if any(has)}

    def _group(self, data: bytes, at: int, pages: dict[int, dict[bytes, list[bytes]]]) -> int:
        """Read the records of one key; where the next begin."""
        length, count = _GROUP.unpack_from(data, at)
        at += _GROUP.size
        key = _piece(data, at, length)
        at += length
        records: list[bytes] = []
        for _ in range(count):
            priority, kind, size = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            rule_id = _piece(data, at, size)
            at += size
            if priority not in PRIORITIES or kind not in self._kinds or not rule_id.isascii():
                raise DamagedSnapshot("a rule in it is none")
            records.append(record_of(key, priority, kind, rule_id))
        pages.setdefault(crc32(key) >> CELL_BITS, {})[key] = records
        return at

    def _count(self, record: bytes, by: int) -> None:
        kind = record_kind(record)
        uses = self.uses.get(kind, 0) + by
        if uses:
            self.uses[kind] = uses
        else:
            del self.uses[kind]
        key = record_key(record)
        if not key.startswith(OFF):
            family, shape, typed = form_of(key)
            self.forms.setdefault((family, shape), [0, 0])[typed] += by


def _piece(data: bytes, at: int, length: int) -> bytes:
    piece = data[at : at + length]
    if len(piece) < length or END in piece:
        raise DamagedSnapshot("a rule in it is cut off")
    return piece


def _diff_pages(old: bytes, new: bytes) -> list[bytes]:
    """The groups of all keys whose records are not the same in both pages."""
    old_records, new_records = by_key(old), by_key(new)
    groups: list[bytes] = []
    for key in sorted(old_records.keys() | new_records.keys()):
        records = new_records.get(key, [])
        if records != old_records.get(key, []):
            groups.append(_GROUP.pack(len(key), len(records)) + key)
            groups += [_encode_record(record, len(key)) for record in records]
    return groups


def _encode_record(record: bytes, key: int) -> bytes:
    rule_id = record[HEAD_BYTES + key + 1 :]
    return _RECORD.pack(record[2], record_kind(record), len(rule_id)) + rule_id
