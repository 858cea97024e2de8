"""Replies: those that a connection gives by itself, and how the head of any is written."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from sluicegate.contracts.access import REVOKED
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.doors.http.message import HttpReply, problem

NO_BODY: Final = (101, 204, 304)
_STATUS: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
# No registered status: what a caller may set for units that are spent, apart from every other 429.
_STATUS[419] = b"HTTP/1.1 419 Insufficient Request Units\r\n"
_ALWAYS: Final = b"x-content-type-options: nosniff\r\n"
_NO_STORE: Final = b"cache-control: no-store\r\n"  # unless a reply says for how long
CACHE_CONTROL: Final = b"cache-control"

BAD_REQUEST: Final = problem(
    400, "Bad Request", "this is no request in HTTP/1.1, or it names not one host", close=True
)
OTHER_VERSION: Final = problem(
    505, "HTTP Version Not Supported", "ask in HTTP/1.1, or HTTP/1.0", close=True
)
OTHER_CODING: Final = problem(
    501, "Not Implemented", "the only Transfer-Encoding understood here is chunked", close=True
)
URL_TOO_LONG: Final = problem(
    414, "URI Too Long", "what is asked for is longer than http.url_bytes_max", close=True
)
HEAD_TOO_LARGE: Final = problem(
    431,
    "Request Header Fields Too Large",
    "headers, or trailers, are more than http.head_bytes_max or http.headers_max",
    close=True,
)
BODY_TOO_LARGE: Final = problem(
    413, "Content Too Large", "the body is longer than http.body_bytes_max", close=True
)
NO_EXPECTATION: Final = problem(
    417, "Expectation Failed", "nothing but 100-continue can be expected", close=True
)
HEAD_TOO_SLOW: Final = problem(
    408, "Request Timeout", "the headers did not come within http.head_timeout_s", close=True
)
BODY_TOO_SLOW: Final = problem(
    408, "Request Timeout", "the body did not come within http.body_timeout_s", close=True
)
ANSWER_TOO_SLOW: Final = problem(
    504, "Gateway Timeout", "the answer did not come within http.answer_timeout_s", close=True
)
TOO_MANY: Final = problem(
    503,
    "Capacity is reduced for the moment",
    OVERLOADED.sentence,
    headers=((b"retry-after", b"1"),),
    more={"reason": OVERLOADED.name},
)
ACCESS_ENDED: Final = problem(
    401,
    "Unauthorized",
    "access was revoked or has expired while the request was in flight",
    headers=((b"www-authenticate", b'Bearer realm="sluicegate", error="invalid_token"'),),
    close=True,
)
# How a WebSocket or an event stream ends; of RFC 6455's range for applications, after HTTP's 401.
UNAUTHENTICATED: Final = 4401  # the token is invalid or has expired: get another
DENIED: Final = 4403  # access was revoked or reduced
OUR_FAULT: Final = problem(
    500, "Internal Server Error", "the service failed to answer; its log says why"
)


def close_code(why: str) -> int:
    """Return the code of an access that has ended (`Identity.ended`)."""
    return DENIED if why == REVOKED else UNAUTHENTICATED


def last_event(why: str) -> bytes:
    """Return the last event of a stream whose caller's access has ended."""
    return b'event: end\ndata: {"code":%d,"reason":"%b"}\n\n' % (close_code(why), why.encode())


def head_of(reply: HttpReply, date: bytes, *, last: bool) -> bytes:
    """Status line and headers; a `ValueError` for a header that would be two."""
    end = b"connection: close\r\n\r\n" if last else b"\r\n"
    return b"".join((reply.head or _constant_head(reply), date, end))


def prepared(reply: HttpReply) -> HttpReply:
    """The same reply with its head made, for one that is sent many times."""
    return reply._replace(head=_constant_head(reply))


def _constant_head(reply: HttpReply) -> bytes:
    """What does not change from one time to the next."""
    parts = [_STATUS[reply.status]]
    if reply.status not in NO_BODY:
        parts.append(b"content-type: %b\r\n" % reply.content_type)
        if reply.pieces is None:
            parts.append(b"content-length: %d\r\n" % len(reply.body))
    parts.append(_ALWAYS)
    kept = False
    for name, value in reply.headers:
        kept |= name == CACHE_CONTROL
        if b"\r" in value or b"\n" in value or b"\0" in value:
            raise ValueError(name)
        parts.append(b"%b: %b\r\n" % (name, value))
    if not kept:
        parts.append(_NO_STORE)
    return b"".join(parts)
