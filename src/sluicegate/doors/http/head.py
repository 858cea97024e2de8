"""Head: that of a request while its pieces come, and what is wrong with it. No input or output.

What is over a bound is counted and not kept; it is refused once the head is whole, so that the
client has been read to where its body begins.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, final
from urllib.parse import unquote

import httptools

from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.http.message import HttpReply, HttpRequest
from sluicegate.doors.http.replies import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    OTHER_CODING,
    OTHER_VERSION,
    URL_TOO_LONG,
)
from sluicegate.doors.http.settings import HttpSettings

TARGETS_MAX: Final = 256  # remembered, of `url_bytes_max` at most
_VERSIONS: Final = ("1.1", "1.0")
_OFFER: Final = (b"connection", b"upgrade", b"http2-settings")


@final
class HttpHead:
    """The head that is being read, then its trailers; one after the other on a connection."""

    __slots__ = ("_headers", "_settings", "_url", "bytes", "coming", "mistake")

    def __init__(self, settings: HttpSettings) -> None:
        self.coming = False  # its first byte is there, and its end is not
        self.bytes = 0  # its trailers included
        self.mistake: HttpReply | None = None
        self._settings = settings
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def begin(self) -> None:
        """Forget the one before."""
        self.coming = True
        self.bytes = 0
        self.mistake = None
        self._url = b""
        self._headers = []

    def add_url(self, url: bytes) -> None:
        """A piece of what is asked for."""
        self.bytes += len(url)
        if len(self._url) + len(url) > self._settings.url_bytes_max:
            self.mistake = self.mistake or URL_TOO_LONG
        else:
            self._url += url

    def add_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which is counted and forgotten: it may not say who asks."""
        self.bytes += len(name) + len(value) + 4
        if not self.coming:
            return
        settings = self._settings
        if self.bytes > settings.head_bytes_max or len(self._headers) >= settings.headers_max:
            self.mistake = self.mistake or HEAD_TOO_LARGE
        else:
            self._headers.append((name.lower(), value))

    def end(self, method: str, version: str, peer: PeerInfo) -> HttpRequest:
        """The request of a head that is whole; `mistake` says what it says that cannot be."""
        self.coming = False
        # A token in a query is kept no longer than the request.
        parse = _parse_target if b"access_token" in self._url else _target
        raw_path, path, query = parse(self._url)
        request = HttpRequest(method, path, query, self._headers, peer, raw_path)
        self.mistake = self.mistake or _mistake_in(request, self._url, version)
        return request

    def without_offer(self, request: HttpRequest, version: str, *, keep_alive: bool) -> bytes:
        """The bytes of this head, without the offer of another protocol."""
        fields = [(name, value) for name, value in request.headers if name not in _OFFER]
        if not keep_alive:
            fields.append((b"connection", b"close"))
        head = b"".join(b"%b: %b\r\n" % one for one in fields)
        line = b"%b %b HTTP/%b" % (request.method.encode(), self._url, version.encode())
        return b"%b\r\n%b\r\n" % (line, head)


def _mistake_in(request: HttpRequest, url: bytes, version: str) -> HttpReply | None:
    """The refusal of a head that is whole, and says what cannot be."""
    if version not in _VERSIONS:
        return OTHER_VERSION
    if not request.path or (version != "1.0" and request.count(b"host") != 1):
        return BAD_REQUEST
    if not url.startswith(b"/"):
        authority = _authority(url)
        if authority and authority != request.header(b"host").lower():
            return BAD_REQUEST
    if b"transfer-encoding" in request.first:
        for name, value in request.headers:
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                return OTHER_CODING
    return None


@lru_cache(TARGETS_MAX)
def _target(url: bytes) -> tuple[str, str, bytes]:
    """Return the parsed target from a cache of recent ones."""
    return _parse_target(url)


def _parse_target(url: bytes) -> tuple[str, str, bytes]:
    """Return the raw path, the decoded path and the query; empty paths for an invalid target."""
    if url == b"*":
        return "*", "*", b""
    try:
        parsed = httptools.parse_url(url)
        path = (parsed.path or b"").decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        return "", "", b""
    return path, unquote(path), parsed.query or b""


def _authority(url: bytes) -> bytes:
    """The host that a target names, in lower case; no host at all for what is not HTTP's."""
    scheme, _, rest = url.lower().partition(b"://")
    if scheme not in (b"http", b"https"):
        return url if rest else b""
    return rest.partition(b"/")[0].partition(b"?")[0]
