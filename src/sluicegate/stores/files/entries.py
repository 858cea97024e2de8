"""Entries: how events stand in a file, and how a file that is torn or damaged is read.

A segment begins with a header, of the format's version, the segment's first offset and its salt:

    "sluicegate" | version u32 | salt u32 | base offset u64 | crc32 u32

and goes on with entries, each with a mark, its length and its checksum, all big-endian:

    A7 "SG" 1E | length u32 | crc32 u32 | offset u64 | at_us i64 | length of kind u8 | kind | body

The checksum covers the length and all behind it, and begins with the salt. So what stands after
damage is found again by its mark, and a body that happens to hold a whole segment cannot be taken
for entries of this one. Nothing here opens a file: bytes in, events out.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import KIND_CHARS_MAX, Event

VERSION: Final = 1
MAGIC: Final = b"sluicegate"
MARK: Final = b"\xa7SG\x1e"
BODY_BYTES_MAX: Final = 16 << 20

_HEADER: Final = struct.Struct(">10sIIQ")
_CRC: Final = struct.Struct(">I")
_FRAME: Final = struct.Struct(">4sII")
_HEAD: Final = struct.Struct(">QqB")
_LENGTH: Final = struct.Struct(">I")

HEADER_BYTES: Final = _HEADER.size + _CRC.size
FRAME_BYTES: Final = _FRAME.size
ENTRY_BYTES_MIN: Final = _FRAME.size + _HEAD.size + 1
_LENGTH_MAX: Final = _HEAD.size + KIND_CHARS_MAX * 4 + BODY_BYTES_MAX
_AT_US_MAX: Final = 1 << 62


class Header(NamedTuple):
    """What a segment says of itself."""

    salt: int
    base: int


class EntryRead(NamedTuple):
    """What stands at a place: an event and where it ends, or why there is none.

    `more` means that an entry begins well and the file ends before it does, so it may be being
    written at this moment.
    """

    event: Event | None
    end: int
    more: bool = False


def pack_header(salt: int, base: int) -> bytes:
    """Return the first bytes of a segment."""
    fixed = _HEADER.pack(MAGIC, VERSION, salt, base)
    return fixed + _CRC.pack(crc32(fixed))


def parse_header(data: bytes) -> Header | str:
    """Return what a segment's first bytes say, or what is wrong with them."""
    if len(data) < HEADER_BYTES:
        return "the header is not whole"
    magic, version, salt, base = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return "this is no segment of an event log"
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        return "the header's checksum is wrong"
    if version != VERSION:
        return f"its format is version {version}, and this program reads version {VERSION}"
    return Header(salt, base)


def encode_kind(kind: str, body: bytes, at_us: int) -> bytes:
    """Return the kind as bytes, if all of it can be an entry."""
    encoded = kind.encode()
    if not 1 <= len(kind) <= KIND_CHARS_MAX or len(encoded) > 255:
        raise BadValue("event.kind", kind, f"give from 1 to {KIND_CHARS_MAX} characters")
    if len(body) > BODY_BYTES_MAX:
        raise BadValue("event.body", len(body), f"give at most {BODY_BYTES_MAX:,} bytes")
    if not -_AT_US_MAX < at_us < _AT_US_MAX:
        raise BadValue("event.at_us", at_us, "give microseconds since the epoch")
    return encoded


def pack_entry(salt: int, offset: int, at_us: int, kind: bytes, body: bytes) -> bytes:
    """Return an event as it stands in a file."""
    payload = b"".join((_HEAD.pack(offset, at_us, len(kind)), kind, body))
    length = len(payload)
    return _FRAME.pack(MARK, length, crc32(payload, crc32(_LENGTH.pack(length), salt))) + payload


def parse_entry(data: bytes, at: int, salt: int) -> EntryRead:
    """Return the entry that begins at this place."""
    left = len(data) - at
    if left < FRAME_BYTES:
        return EntryRead(None, at, MARK.startswith(data[at : at + len(MARK)][:left]))
    mark, length, checksum = _FRAME.unpack_from(data, at)
    if mark != MARK or not _HEAD.size <= length <= _LENGTH_MAX:
        return EntryRead(None, at)
    begin, end = at + FRAME_BYTES, at + FRAME_BYTES + length
    if end > len(data):
        return EntryRead(None, at, True)
    payload = data[begin:end]
    if crc32(payload, crc32(_LENGTH.pack(length), salt)) != checksum:
        return EntryRead(None, at)
    offset, at_us, kind_bytes = _HEAD.unpack_from(payload)
    body_at = _HEAD.size + kind_bytes
    kind = payload[_HEAD.size : body_at].decode("utf-8", "replace")
    return EntryRead(Event(offset, at_us, kind, payload[body_at:]), end)


def find_entry(data: bytes, at: int, salt: int, least: int) -> int:
    """Where the next good entry begins, at `at` or behind it, of offset `least` or more; or -1."""
    while True:
        at = data.find(MARK, at)
        if at < 0:
            return -1
        found = parse_entry(data, at, salt)
        if found.event is not None and found.event.offset >= least:
            return at
        at += 1
