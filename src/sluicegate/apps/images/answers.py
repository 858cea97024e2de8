"""Answers: an image as an HTTP reply: tags, caching, conditions, ranges. Pure.

Not `public`: a cache between may keep what anybody may have, and not what was asked for with a
token (RFC 9111, 3.5).
"""

from __future__ import annotations

import re
from typing import Final

from sluicegate.apps.images.failures import NoImageError, kind_of
from sluicegate.apps.images.pipeline import Image
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.http.etags import ANY, IF_NONE_MATCH, wanted_tags
from sluicegate.doors.http.message import Headers, HttpReply, HttpRequest, problem

TAG_CHARS: Final = 32
FRAMES: Final = b"x-image-frames"
IF_MODIFIED_SINCE: Final = b"if-modified-since"
CONDITIONS: Final = frozenset((IF_NONE_MATCH, IF_MODIFIED_SINCE, b"range"))
_RANGE: Final = re.compile(rb"bytes=(\d{0,15})-(\d{0,15})")


def image_reply(
    image: Image, request: HttpRequest, caching: bytes, *, negotiated: bool
) -> HttpReply:
    """The image, a part of it, or that it has not changed; `caching` is its `Cache-Control`."""
    tag = image.digest[:TAG_CHARS]
    headers: Headers = (
        (b"etag", b'"%b"' % tag.encode()),
        (b"cache-control", caching),
        (b"accept-ranges", b"bytes"),
    )
    if image.last_modified:
        headers += ((b"last-modified", image.last_modified.encode("latin-1", "replace")),)
    if image.original:
        keys = (image.original[:TAG_CHARS], *image.owners)
        headers += (
            (b"surrogate-key", " ".join(keys).encode()),
            (b"cache-tag", ",".join(keys).encode()),
        )
    if image.pages > 1:
        headers += ((FRAMES, b"%d of %d" % (image.frames, image.pages)),)
    if negotiated:
        headers += ((b"vary", b"accept"),)
    if not CONDITIONS.isdisjoint(request.first):
        return _conditional(image, request, tag, headers)
    return HttpReply(200, image.data, image.type.encode(), headers)


def _conditional(image: Image, request: HttpRequest, tag: str, headers: Headers) -> HttpReply:
    try:
        wanted = wanted_tags(request, IF_NONE_MATCH)
    except BadValue:  # a cache's, of more tags or in another form: it gets the image
        wanted = ()
    if ANY in wanted or tag in wanted:
        return HttpReply(304, headers=headers)
    # Of a date only that very one: an origin's may go back.
    since = b"" if IF_NONE_MATCH in request.first else request.header(IF_MODIFIED_SINCE)
    if since and since == image.last_modified.encode("latin-1", "replace"):
        return HttpReply(304, headers=headers)
    asked = request.header(b"range")
    condition = request.header(b"if-range")
    if asked and condition in (b"", b'"%b"' % tag.encode()):
        span = range_of(asked, len(image.data))
        if span is None:
            span = (0, 0)
            end = (b"content-range", b"bytes */%d" % len(image.data))
            return problem(416, "Range Not Satisfiable", "it is shorter", headers=(end,))
        if span[1]:
            begin, end_at = span
            part = (b"content-range", b"bytes %d-%d/%d" % (begin, end_at - 1, len(image.data)))
            data = image.data[begin:end_at]
            return HttpReply(206, data, image.type.encode(), (*headers, part))
    return HttpReply(200, image.data, image.type.encode(), headers)


def range_of(value: bytes, size: int) -> tuple[int, int] | None:
    """Begin and end of the one range; (0, 0) for what is to be ignored, None for none there."""
    found = _RANGE.fullmatch(value.replace(b" ", b""))
    if found is None or not (found[1] or found[2]):
        return 0, 0
    if not found[1]:
        count = min(int(found[2]), size)
        return (size - count, size) if count else None
    begin = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < begin:
        return 0, 0
    return (begin, end) if begin < size else None


def failure_reply(error: NoImageError, now_us: int, max_age_s: int) -> HttpReply:
    """There is no image: why, and until when nobody tries again."""
    row = kind_of(error.kind)
    left_s = max(0, (error.until_us - now_us) // 1_000_000)
    headers: Headers
    if row.passing or not left_s:
        headers = ((b"retry-after", b"%d" % max(1, left_s)),)
    else:
        headers = ((b"cache-control", b"max-age=%d" % min(left_s, max_age_s)),)
    more = {"kind": error.kind, "seen": error.detail}
    return problem(row.status, "No Image", str(error), headers=headers, more=more)
