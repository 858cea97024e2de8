"""gRPC calls of a load: made before the first is due, numbered as they are sent, read as they come.

It does for gRPC what hiredis does for RESP, and as little: the generator has to stay cheap beside
what it measures. A call is HEADERS without a dynamic table and one DATA, so it is the same bytes
each time but for its stream. Of a reply only the message of `ShouldRateLimit` is looked at, for
whether it says OK; a reply without a message is an error of gRPC.

Replies must come in the order of the calls: one at a time on each connection, or of a server that
answers in order. Bounds: a message is one frame.
"""

from __future__ import annotations

import socket
from typing import Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.drills.record import ErrorText
from sluicegate.wire.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    STREAM_ID_MAX,
    WINDOW_FIRST,
    WINDOW_MAX,
    frame_head,
    settings_frame,
    window_update,
)
from sluicegate.wire.protobuf import span_bytes

SHOULD_RATE_LIMIT: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
GREETING: Final = (
    PREFACE + settings_frame([]) + window_update(0, WINDOW_MAX - WINDOW_FIRST) + SETTINGS_ACK
)
_POST: Final = b"\x83"  # of the static table of RFC 7541, as are the names below
_HTTP: Final = b"\x86"
_PATH: Final = b"\x04"
_AUTHORIZATION: Final = b"\x0f\x08"
_CONTENT_TYPE: Final = b"\x0f\x10"
_NEW_NAME: Final = b"\x00"
_OK: Final = b"\x08\x01"  # overall_code
_PREFIX_BYTES: Final = 5
_STREAM_AT: Final = 5  # in the head of a frame


@final
class GrpcCall:
    """One call, ready to be sent on any stream."""

    __slots__ = ("_body", "_head")

    def __init__(self, path: str, token: str, message: bytes) -> None:
        block = b"".join(
            (
                _POST,
                _HTTP,
                _PATH + _text(path),
                _AUTHORIZATION + _text(f"Bearer {token}"),
                _CONTENT_TYPE + _text("application/grpc"),
                _NEW_NAME + _text("te") + _text("trailers"),
            )
        )
        data = b"\0" + len(message).to_bytes(4, "big") + message
        self._head = frame_head(len(block), HEADERS, END_HEADERS, 0), block
        self._body = frame_head(len(data), DATA, END_STREAM, 0), data

    def on(self, stream: int) -> bytes:
        """Its bytes on this stream."""
        number = stream.to_bytes(4, "big")
        (head, block), (body, data) = self._head, self._body
        return b"".join((head[:_STREAM_AT], number, block, body[:_STREAM_AT], number, data))


@final
class GrpcReplies:
    """What comes on one connection; `gets` is True or an `ErrorText`; False: none is whole."""

    __slots__ = ("_message", "_unread")

    def __init__(self) -> None:
        self._unread = b""
        self._message = b""

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._unread += data

    def gets(self) -> bool | ErrorText:
        """The next reply."""
        unread, at = self._unread, 0
        found: bool | ErrorText = False
        while found is False and len(unread) - at >= HEAD_BYTES:
            size = int.from_bytes(unread[at : at + 3], "big")
            end = at + HEAD_BYTES + size
            if len(unread) < end:
                break
            kind, flags = unread[at + 3], unread[at + 4]
            if kind == DATA:
                self._message = unread[at + HEAD_BYTES + _PREFIX_BYTES : end]
            elif kind in (GOAWAY, RST_STREAM):
                found = ErrorText("RESET")
            elif kind == HEADERS and flags & END_STREAM:
                found = _verdict(self._message)
                self._message = b""
            at = end
        self._unread = unread[at:]
        return found


@final
class GrpcNumbers:
    """The streams of one connection."""

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = -1

    def frame(self, call: GrpcCall) -> bytes:
        """A call on the next of them."""
        self._stream += 2
        assert self._stream <= STREAM_ID_MAX  # a thousand million calls
        return call.on(self._stream)


def greet(sock: socket.socket) -> None:
    """Begin HTTP/2, and wait for the other side's settings."""
    sock.sendall(GREETING)
    head = b""
    while len(head) < HEAD_BYTES:
        data = sock.recv(HEAD_BYTES - len(head))
        if not data:
            raise Unavailable("gRPC", "the other side has hung up")
        head += data
    if head[3] != SETTINGS:
        raise Unavailable("gRPC", "the other side does not speak HTTP/2")
    left = int.from_bytes(head[:3], "big")
    while left:
        left -= len(sock.recv(left)) or left


def rate_limit_call(token: str, domain: str, key: str, value: str) -> GrpcCall:
    """Envoy's question with one descriptor of one entry."""
    entry = _field(1, key.encode()) + _field(2, value.encode())
    message = _field(1, domain.encode()) + _field(2, _field(1, entry))
    assert len(message) <= FRAME_BYTES_MAX
    return GrpcCall(SHOULD_RATE_LIMIT, token, message)


def _verdict(message: bytes) -> bool | ErrorText:
    if not message:
        return ErrorText("GRPC no message")
    return True if message[:2] == _OK else ErrorText("OVER_LIMIT")


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + span_bytes(data)


def _text(text: str) -> bytes:
    """A string of HPACK, plain, shorter than a prefix of 7 bits can say."""
    assert len(text) < 127
    return bytes((len(text),)) + text.encode("ascii")
