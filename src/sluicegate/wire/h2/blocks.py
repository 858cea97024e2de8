"""Blocks: header sections that we send, encoded once.

They use the static table and plain literals, never the dynamic table, so a block means the same on
every connection at any time and can be a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.h2.frames import END_HEADERS, END_STREAM, FRAME_BYTES_MAX, HEADERS

_STATUS_NAME: Final = 8  # the static table's first :status
_STATUSES: Final = {
    b"200": 8,
    b"204": 9,
    b"206": 10,
    b"304": 11,
    b"400": 12,
    b"404": 13,
    b"500": 14,
}
# What the static table has of the names that we send.
_NAMES: Final = {b"content-length": 28, b"content-type": 31, b"allow": 22, b"server": 54}
TABLE_UNUSED: Final = b"\x20"  # from now on we keep nothing: a dynamic table of size 0


@final
class HeaderBlock:
    """An encoded header section with the first five bytes of its frame, open and ending."""

    __slots__ = ("encoded", "ending", "opening")

    def __init__(self, encoded: bytes) -> None:
        size = len(encoded) + len(TABLE_UNUSED)  # which the connection's first may need before it
        if size > FRAME_BYTES_MAX:
            raise BadValue("h2.block", encoded, f"send at most {FRAME_BYTES_MAX:,} bytes of header")
        length = len(encoded).to_bytes(3, "big")
        self.encoded = encoded
        self.opening = length + bytes((HEADERS, END_HEADERS))
        self.ending = length + bytes((HEADERS, END_HEADERS | END_STREAM))


def block(fields: Sequence[tuple[bytes, bytes]]) -> HeaderBlock:
    """Encode a header section. Names are lower-case; `:status` comes first."""
    return HeaderBlock(b"".join([_field(name, value) for name, value in fields]))


def _field(name: bytes, value: bytes) -> bytes:
    if name == b":status":
        meaning = _STATUSES.get(value)
        if meaning is not None:
            return bytes((0x80 | meaning,))
        return _integer(_STATUS_NAME, 4) + _string(value)
    index = _NAMES.get(name)
    if index is not None:
        return _integer(index, 4) + _string(value)
    return b"\0" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    return _integer(len(text), 7) + text


def _integer(value: int, bits: int) -> bytes:
    """RFC 7541 section 5.1, with the bits before the prefix 0."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    data = bytearray((most,))
    value -= most
    while value >= 0x80:
        data.append(0x80 | (value & 0x7F))
        value >>= 7
    data.append(value)
    return bytes(data)
