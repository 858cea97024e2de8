"""gRPC calls as bytes: HEADERS without a dynamic table and one DATA, ready for any stream."""

from __future__ import annotations

from typing import Final, final

from sluicegate.wire.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS_ACK,
    WINDOW_FIRST,
    WINDOW_MAX,
    frame_head,
    settings_frame,
    window_update,
)

GREETING: Final = (
    PREFACE + settings_frame([]) + window_update(0, WINDOW_MAX - WINDOW_FIRST) + SETTINGS_ACK
)
_POST: Final = b"\x83"  # of the static table of RFC 7541, as are the names below
_HTTP: Final = b"\x86"
_PATH: Final = b"\x04"
_AUTHORIZATION: Final = b"\x0f\x08"
_CONTENT_TYPE: Final = b"\x0f\x10"
_NEW_NAME: Final = b"\x00"
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


def _text(text: str) -> bytes:
    """A string of HPACK, plain, shorter than a prefix of 7 bits can say."""
    assert len(text) < 127
    return bytes((len(text),)) + text.encode("ascii")
