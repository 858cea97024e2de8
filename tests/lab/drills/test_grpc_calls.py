"""Calls of a load by gRPC: their bytes, and what is made of replies, wherever they are split."""

from __future__ import annotations

import pytest

from sluicegate.lab.drills.grpc_calls import GrpcNumbers, GrpcReplies, rate_limit_call
from sluicegate.lab.drills.record import ErrorText
from sluicegate.wire.h2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame_head

ALLOWED = (
    frame_head(3, HEADERS, END_HEADERS, 1)
    + b"abc"
    + frame_head(9, DATA, 0, 1)
    + b"\0\0\0\0\4\x08\x01zz"
    + frame_head(2, HEADERS, END_HEADERS | END_STREAM, 1)
    + b"tr"
)
OVER = ALLOWED.replace(b"\x08\x01", b"\x08\x02")
FAILED = frame_head(2, HEADERS, END_HEADERS | END_STREAM, 3) + b"tr"


def replies(*pieces: bytes) -> list[str]:
    reader, found = GrpcReplies(), []
    for piece in pieces:
        reader.feed(piece)
        while (reply := reader.gets()) is not False:
            found.append(str(reply) if isinstance(reply, ErrorText) else "allowed")
    return found


def test_a_call_is_on_the_next_stream_of_its_connection_and_else_the_same() -> None:
    call, numbers = rate_limit_call("token", "domain", "key", "value"), GrpcNumbers()
    first, second = numbers.frame(call), numbers.frame(call)
    assert [int.from_bytes(one[5:9], "big") for one in (first, second)] == [1, 3]
    assert first == second.replace(b"\0\0\0\3", b"\0\0\0\1")
    assert b"Bearer token" in first


@pytest.mark.parametrize("at", range(0, len(ALLOWED + FAILED + OVER), 7))
def test_a_reply_without_a_message_is_an_error_and_over_the_limit_is_no_success(at: int) -> None:
    data = ALLOWED + FAILED + OVER
    assert replies(data[:at], data[at:]) == ["allowed", "GRPC no message", "OVER_LIMIT"]
