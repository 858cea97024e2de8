"""Cut PNG: the rows that a truncated PNG still has, as a whole PNG of that height.

libpng reads compressed data in blocks of 8 KiB and discards the last, incomplete one. Browsers show
every row that can be decompressed, so this module does the same: it decompresses what is there,
keeps complete rows and compresses them again. Interlaced files keep their height: their missing
passes are zero.

Bounds: decompresses at most `bytes_max` bytes, which the header's size determines.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER: Final = struct.Struct(">IIBBBBB")  # width, height, depth, color type, 3 methods
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by color type
_LEVEL: Final = 1  # of zlib: the result is read once, in this process
_PIECE_BYTES: Final = 256  # decompressed at a time: a fault loses the piece in which it is


class CutPng(NamedTuple):
    """A complete PNG, and how many rows of the original it has."""

    data: bytes
    rows: int


def complete_png(data: bytes | memoryview) -> CutPng | None:
    """Return the rows that can be read; None if there is not one."""
    data = bytes(data)
    before: list[bytes] = []  # chunks that come before the pixels: palette, transparency, colors
    packed: list[bytes] = []
    for name, body in _chunks(data):
        if name == b"IDAT":
            packed.append(body)
        elif packed:
            break
        elif name != b"IHDR":
            before.append(_chunk(name, body))
    head = next((body for name, body in _chunks(data) if name == b"IHDR"), b"")
    if len(head) != _HEADER.size:
        return None
    width, height, depth, color, *methods = _HEADER.unpack(head)
    if color not in _CHANNELS or not width or not height:
        return None
    row_bytes = 1 + (width * depth * _CHANNELS[color] + 7) // 8
    # Each of the seven passes of an interlaced file rounds its rows up.
    bytes_max = row_bytes * height if not methods[2] else 2 * row_bytes * (height + 7)
    pixels = _unpack(b"".join(packed), bytes_max)
    rows = height
    if methods[2]:
        if len(pixels) < row_bytes:
            return None
        pixels = pixels.ljust(bytes_max, b"\0")
    else:
        rows = min(height, len(pixels) // row_bytes)
        pixels = pixels[: rows * row_bytes]
    if not rows:
        return None
    parts = (
        _chunk(b"IHDR", _HEADER.pack(width, rows, depth, color, *methods)),
        *before,
        _chunk(b"IDAT", zlib.compress(pixels, _LEVEL)),
        _chunk(b"IEND", b""),
    )
    return CutPng(SIGNATURE + b"".join(parts), rows)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks; the last may be cut short."""
    at = len(SIGNATURE)
    while at + 8 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += 12 + size


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _unpack(packed: bytes, bytes_max: int) -> bytes:
    """Return what can be decompressed before the end or the first fault."""
    unpacker = zlib.decompressobj()
    found: list[bytes] = []
    left = bytes_max
    for at in range(0, len(packed), _PIECE_BYTES):
        try:
            piece = unpacker.decompress(packed[at : at + _PIECE_BYTES], left)
        except zlib.error:
            break
        found.append(piece)
        left -= len(piece)
        if left <= 0 or unpacker.eof:
            break
    return b"".join(found)
