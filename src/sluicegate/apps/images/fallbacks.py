"""Fallbacks: images for a page whose own image is not ready in time.

A browser shows nothing for an `<img>` that got a 503, and does not retry. So a request for an
`<img>` waits `--fallback-s`, then gets the nearest variant of the same original that is stored, or
a gray placeholder of the requested size. The work continues behind the answer, and the next
request gets the image.

Bounds: `ROWS_MAX` variants are compared, and a placeholder has `SIDE_MAX` pixels a side.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable
from math import log
from typing import Final, NamedTuple

from sluicegate.apps.images.contents import Contents
from sluicegate.apps.images.failures import NoImageError, kind_of
from sluicegate.apps.images.maps import ImageMaps
from sluicegate.apps.images.records import VariantRecord
from sluicegate.contracts.errors import Refused, SluicegateError, Unavailable
from sluicegate.contracts.image_spec import ImageSpec
from sluicegate.doors.http.message import HttpReply, HttpRequest

ROWS_MAX: Final = 200
SIDE_MAX: Final = 1_024
MAX_AGE_S: Final = 2  # soon the image is ready
_GRAY: Final = 0xDD
_EVERYWHERE: Final = ("image/jpeg", "image/png", "image/gif")  # what every client shows
_DESTINATION: Final = b"sec-fetch-dest"
_NOT_READY: Final = (503, 504)
_log: Final = logging.getLogger("sluicegate.images")


class FallbackImage(NamedTuple):
    """Bytes and media type of an image that is shown instead."""

    data: bytes
    type: str


def is_for_page(request: HttpRequest) -> bool:
    """Whether an `<img>` sends this: `Sec-Fetch-Dest: image`, or an image type first in `Accept`.

    A browser that navigates to the image, and a client that names no image type, gets the error.
    """
    destination = request.header(_DESTINATION)
    if destination:
        return destination == b"image"
    return request.header(b"accept").lstrip().lower().startswith(b"image/")


def is_not_ready(error: SluicegateError) -> bool:
    """Whether an image may well be made later: no room, no time, or a store that is away."""
    if isinstance(error, Refused):
        reason = error.decision.reason
        return reason is None or reason.http_status in _NOT_READY
    if isinstance(error, NoImageError):
        return kind_of(error.kind).status == 503
    return isinstance(error, Unavailable)


async def find_fallback(
    maps: ImageMaps, contents: Contents, url: str, spec: ImageSpec, accept: str
) -> FallbackImage:
    """The nearest variant that is stored, else a placeholder; an unavailable store is no error."""
    try:
        record = await maps.url(url)
        if record is not None and record.content:
            types = {f"image/{spec.format}", *_EVERYWHERE}
            rows = await maps.variants(record.content, ROWS_MAX)
            usable = [one for one in rows if one.type in types or (one.type and one.type in accept)]
            for found in nearest(usable, spec)[:2]:
                data = await contents.read(found.content, found.generation, found.size)
                if data is not None:
                    return FallbackImage(data, found.type)
    except SluicegateError as error:
        _log.warning("no fallback for %s: %s", url, error)
    return FallbackImage(gray_png(spec.width, spec.height), "image/png")


def nearest(variants: Iterable[VariantRecord], spec: ImageSpec) -> list[VariantRecord]:
    """The variants that are images, the nearest in size first; the largest if any size would do."""

    def distance(one: VariantRecord) -> float:
        sides = ((spec.width, one.width), (spec.height, one.height))
        ratios = [abs(log(have / wanted)) for wanted, have in sides if wanted]
        return sum(ratios) if ratios else -float(one.width)

    images = [one for one in variants if not one.failure and one.width and one.height]
    return sorted(images, key=distance)


def gray_png(width: int, height: int) -> bytes:
    """A gray picture of this size; a side that is not given is that of the other."""
    width, height = width or height or 1, height or width or 1
    scale = min(1.0, SIDE_MAX / max(width, height))
    width, height = max(1, int(width * scale)), max(1, int(height * scale))
    head = struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0)  # one bit of a palette
    rows = bytes(1 + -(-width // 8)) * height
    parts = ((b"IHDR", head), (b"PLTE", bytes([_GRAY] * 3)), (b"IDAT", zlib.compress(rows)))
    chunks = [_chunk(kind, data) for kind, data in (*parts, (b"IEND", b""))]
    return b"".join((b"\x89PNG\r\n\x1a\n", *chunks))


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def fallback_reply(fallback: FallbackImage, max_age_s: int) -> HttpReply:
    """The reply: for this client alone, and for seconds."""
    age_s = min(MAX_AGE_S, max_age_s)
    headers = ((b"x-image", b"fallback"), (b"cache-control", b"private, max-age=%d" % age_s))
    return HttpReply(200, fallback.data, fallback.type.encode(), headers)
