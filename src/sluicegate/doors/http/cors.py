"""CORS: pages of other origins that may read our answers, and open a WebSocket.

A browser sends the origin of the page. The reply to an allowed origin has the headers by which the
browser shows it to the page (Fetch standard, section 3.2); other pages see nothing. With `*`,
cookies and client certificates, which browsers send unasked, do not authenticate a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.doors.http.message import Headers, HttpReply, HttpRequest
from sluicegate.doors.http.site import own_origin

ANY: Final = "*"
MAX_AGE_S: Final = 600  # Chromium keeps none for longer than two hours, Firefox than a day
_PREFLIGHT: Final[Headers] = (
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id, traceparent"),
    (b"access-control-max-age", b"%d" % MAX_AGE_S),
)
_EXPOSED: Final = (
    b"access-control-expose-headers",
    b"date, etag, location, retry-after, www-authenticate, x-sluicegate-slowed-ms",
)
_VARY: Final = (b"vary", b"Origin")


@final
class Cors:
    """The origins that are allowed, as browsers write them; `*` is any."""

    __slots__ = ("_any", "_origins")

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(one.encode() for one in origins)
        self._any = ANY.encode() in self._origins

    def allows(self, request: HttpRequest) -> bool:
        """Whether a page of another origin sends this, and may."""
        origin = request.header(b"origin").lower()
        return bool(origin) and (self._any or origin in self._origins)

    def forget_ambient(self, request: HttpRequest) -> None:
        """Drop cookies and certificates of a page that only `*` allows."""
        origin = request.header(b"origin").lower()
        if self._any and origin and origin not in self._origins and not own_origin(request):
            request.first.pop(b"cookie", None)
            request.headers = [one for one in request.headers if one[0] != b"cookie"]
            request.peer = request.peer._replace(names=())

    def preflight(self, request: HttpRequest) -> HttpReply | None:
        """Return the reply to a browser that asks whether a page may send something."""
        asks = request.method == "OPTIONS" and request.header(b"access-control-request-method")
        if not asks or not self.allows(request):
            return None
        return HttpReply(204, headers=_PREFLIGHT)

    def dress(self, request: HttpRequest, reply: HttpReply) -> HttpReply:
        """Return a reply with the headers that show it to a page."""
        if reply.switch is not None:
            return reply
        more: list[tuple[bytes, bytes]] = [] if self._any else [_VARY]
        if self.allows(request):
            allowed = ANY.encode() if self._any else request.header(b"origin")
            more += [(b"access-control-allow-origin", allowed), _EXPOSED]
        return reply._replace(headers=(*reply.headers, *more), head=b"") if more else reply
