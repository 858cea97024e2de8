"""Formats: which kinds of image are accepted, told by their first bytes and by nothing else.

A name, a suffix and a Content-Type are claims of strangers. What is not in this table is never
shown to a decoder: no SVG (it reads files and addresses), no PDF, no text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HEAD_BYTES: Final = 32


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
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"II*\x00", _TIFF),
    (b"MM\x00*", _TIFF),
)
_AVIF_BRANDS: Final = (b"avif", b"avis")


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
