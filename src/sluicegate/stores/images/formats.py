"""Formats: which kinds of image are accepted, told by their first bytes and by nothing else.

A name, a suffix and a Content-Type are claims of strangers. What is not in this table is never
shown to a decoder: no SVG (it reads files and addresses), no PDF, no text.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

HEAD_BYTES: Final = 32
_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK: Final = struct.Struct(">I4s")  # the size and name of a chunk
_PNG_CHUNKS_MAX: Final = 1_000  # that are read for whether it is animated


class ImageFormat(NamedTuple):
    """A format that is read; the library's loader of that name is the only one that may."""

    name: str
    media_type: str
    loader: str


_JPEG: Final = ImageFormat("jpeg", "image/jpeg", "jpegload")
_PNG: Final = ImageFormat("png", "image/png", "pngload")
_WEBP: Final = ImageFormat("webp", "image/webp", "webpload")
_GIF: Final = ImageFormat("gif", "image/gif", "gifload")
_TIFF: Final = ImageFormat("tiff", "image/tiff", "tiffload")
_AVIF: Final = ImageFormat("avif", "image/avif", "heifload")

SOURCE_FORMATS: Final = (_JPEG, _PNG, _WEBP, _GIF, _TIFF, _AVIF)
MEDIA_TYPES: Final = {one.name: one.media_type for one in SOURCE_FORMATS}
_BEGINNINGS: Final = (
    (b"\xff\xd8\xff", _JPEG),
    (_PNG_HEAD, _PNG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"II*\x00", _TIFF),
    (b"MM\x00*", _TIFF),
)
ANIMATED_AVIF: Final = b"avis"  # a brand, at the eighth byte
_AVIF_BRANDS: Final = (b"avif", ANIMATED_AVIF)


def sniff_image(head: bytes) -> ImageFormat | None:
    """Return the format that these first bytes begin; None for any other."""
    for beginning, found in _BEGINNINGS:
        if head.startswith(beginning):
            return found
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _WEBP
    if head[4:8] == b"ftyp" and head[8:12] in _AVIF_BRANDS:
        return _AVIF
    return None


def frames_of_png(data: bytes | memoryview) -> int:
    """Return the number of frames that a PNG states; 1 if it is not animated."""
    at = len(_PNG_HEAD)
    for _ in range(_PNG_CHUNKS_MAX):
        if at + 12 > len(data):
            break
        size, name = _PNG_CHUNK.unpack_from(data, at)
        if name == b"acTL" and size >= 4:
            return max(1, int.from_bytes(data[at + 8 : at + 12], "big"))
        if name == b"IDAT":  # an acTL chunk comes before the pixels
            break
        at += 12 + size
    return 1
