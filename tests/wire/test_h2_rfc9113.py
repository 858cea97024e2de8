"""RFC 9113 and RFC 7541, case by case: what a peer does, and how it must be answered.

The verdict is `fine`, `stream ID CODE` for a stream that is reset, or `connection CODE`.
"""

from __future__ import annotations

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from tests.wire.h2_peer import (
    GREETING,
    REQUEST,
    Peer,
    frame,
    headers,
    request,
    settings,
    update,
)

EH, ES = f.END_HEADERS, f.END_STREAM
BLOCK = headers()
OPEN = request(1, ends=False)
BIG = 16_385


def head(*fields: tuple[str, str], flags: int = EH | ES, stream: int = 1) -> bytes:
    return frame(f.HEADERS, flags, stream, headers(fields))


def raw(block: bytes, stream: int = 1) -> bytes:
    return frame(f.HEADERS, EH | ES, stream, block)


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


METHOD, SCHEME, PATH, HOST = REQUEST
LENGTH_3 = ("content-length", "3")

CASES: list[tuple[str, bytes, str]] = [
    # 3.4 The preface.
    ("a preface of something else", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "connection 1"),
    ("a preface with a wrong end", f.PREFACE[:-1] + b"x", "connection 1"),
    ("no SETTINGS after the preface", f.PREFACE + request(1), "connection 1"),
    ("an acknowledgement before any SETTINGS", f.PREFACE + f.SETTINGS_ACK, "connection 1"),
    # 4.1 and 4.2 Frames.
    ("a frame of an unknown kind", GREETING + frame(0x16, 0, 0, b"?") + request(1), "fine"),
    ("flags that nothing means", GREETING + frame(f.PING, 0x16, 0, bytes(8)), "fine"),
    ("the reserved bit", GREETING + frame(f.PING, 0, 1 << 31, bytes(8)), "fine"),
    ("DATA of the largest size", GREETING + OPEN + frame(f.DATA, ES, 1, bytes(16_384)), "fine"),
    ("DATA beyond it", GREETING + OPEN + frame(f.DATA, ES, 1, bytes(BIG)), "connection 6"),
    ("HEADERS beyond it", GREETING + frame(f.HEADERS, EH, 1, bytes(BIG)), "connection 6"),
    ("SETTINGS beyond it", GREETING + frame(f.SETTINGS, 0, 0, bytes(16_386)), "connection 6"),
    # 4.3 Field blocks.
    ("a block that ends amid a field", GREETING + raw(BLOCK[:-1]), "connection 9"),
    (
        "PRIORITY amid a block",
        GREETING + frame(f.HEADERS, ES, 1, BLOCK) + frame(f.PRIORITY, 0, 1, bytes(5)),
        "connection 1",
    ),
    (
        "HEADERS of another stream amid a block",
        GREETING + frame(f.HEADERS, ES, 1, BLOCK) + request(3),
        "connection 1",
    ),
    (
        "a frame of an unknown kind amid a block",
        GREETING + frame(f.HEADERS, ES, 1, BLOCK) + frame(0x16, 0, 0, b""),
        "connection 1",
    ),
    # 5.1 Stream states.
    ("DATA on an idle stream", GREETING + frame(f.DATA, ES, 1, b"x"), "connection 1"),
    ("RST_STREAM on an idle stream", GREETING + frame(3, 0, 1, bytes(4)), "connection 1"),
    ("WINDOW_UPDATE on an idle stream", GREETING + update(1, 1), "connection 1"),
    ("CONTINUATION on an idle stream", GREETING + frame(9, EH, 1, BLOCK), "connection 1"),
    ("PRIORITY on an idle stream", GREETING + frame(2, 0, 1, bytes(5)) + request(3), "fine"),
    ("DATA after END_STREAM", GREETING + request(1) + frame(f.DATA, ES, 1, b"x"), "stream 1 5"),
    ("HEADERS after END_STREAM", GREETING + request(1) + request(1), "connection 5"),
    ("PRIORITY after END_STREAM", GREETING + request(1) + frame(2, 0, 1, bytes(5)), "fine"),
    ("WINDOW_UPDATE after END_STREAM", GREETING + request(1) + update(1, 1), "fine"),
    ("RST_STREAM after END_STREAM", GREETING + request(1) + frame(3, 0, 1, bytes(4)), "fine"),
    (
        "DATA after RST_STREAM",
        GREETING + OPEN + frame(3, 0, 1, bytes(4)) + frame(f.DATA, ES, 1, b"x"),
        "stream 1 5",
    ),
    (
        "HEADERS after RST_STREAM",
        GREETING + OPEN + frame(3, 0, 1, bytes(4)) + request(1),
        "connection 5",
    ),
    ("a stream with an even number", GREETING + request(2), "connection 1"),
    ("HEADERS on stream 0", GREETING + request(0), "connection 1"),
    ("a number below one in use", GREETING + request(5) + request(3), "connection 1"),
    ("numbers that are left out", GREETING + request(5) + request(11), "fine"),
    # 5.3.1 A stream that depends on itself.
    (
        "HEADERS that depend on themselves",
        GREETING + frame(f.HEADERS, EH | ES | f.WEIGHTED, 1, b"\0\0\0\x01\x10" + BLOCK),
        "stream 1 1",
    ),
    (
        "PRIORITY that depends on itself",
        GREETING + frame(f.PRIORITY, 0, 1, b"\0\0\0\x01\x10"),
        "stream 1 1",
    ),
    (
        "HEADERS with a priority",
        GREETING + frame(f.HEADERS, EH | ES | f.WEIGHTED, 1, b"\x80\0\0\x03\x10" + BLOCK),
        "fine",
    ),
    # 6.1 DATA.
    ("DATA on stream 0", GREETING + frame(f.DATA, 0, 0, b"x"), "connection 1"),
    ("padded DATA", GREETING + OPEN + frame(f.DATA, ES | 8, 1, b"\x02abc\0\0"), "fine"),
    ("nothing but padding", GREETING + OPEN + frame(f.DATA, ES | 8, 1, b"\x02\0\0"), "fine"),
    ("padding of the payload's size", GREETING + OPEN + frame(0, 9, 1, b"\x03ab"), "connection 1"),
    ("padded DATA without a length", GREETING + OPEN + frame(0, 9, 1, b""), "connection 1"),
    # 6.2 HEADERS.
    ("padded HEADERS", GREETING + frame(1, EH | ES | 8, 1, b"\x02" + BLOCK + b"\0\0"), "fine"),
    (
        "padding beyond the block",
        GREETING + frame(1, EH | ES | 8, 1, b"\xff" + BLOCK),
        "connection 1",
    ),
    ("padded HEADERS without a length", GREETING + frame(1, EH | ES | 8, 1), "connection 6"),
    ("HEADERS too short for a priority", GREETING + frame(1, 0x25, 1, bytes(4)), "connection 6"),
    # 6.3 PRIORITY.
    ("PRIORITY on stream 0", GREETING + frame(2, 0, 0, bytes(5)), "connection 1"),
    ("PRIORITY of 4 bytes", GREETING + OPEN + frame(2, 0, 1, bytes(4)), "stream 1 6"),
    # 6.4 RST_STREAM.
    ("RST_STREAM on stream 0", GREETING + frame(3, 0, 0, bytes(4)), "connection 1"),
    ("RST_STREAM of 3 bytes", GREETING + OPEN + frame(3, 0, 1, bytes(3)), "connection 6"),
    ("an unknown code", GREETING + OPEN + frame(3, 0, 1, b"\0\0\xff\0") + request(3), "fine"),
    # 6.5 SETTINGS.
    ("SETTINGS on a stream", GREETING + frame(4, 0, 1), "connection 1"),
    ("an acknowledgement with a payload", GREETING + frame(4, 1, 0, bytes(6)), "connection 6"),
    ("SETTINGS of 5 bytes", GREETING + frame(4, 0, 0, bytes(5)), "connection 6"),
    ("ENABLE_PUSH of 2", GREETING + settings((2, 2)), "connection 1"),
    ("ENABLE_PUSH of 1", GREETING + settings((2, 1)), "fine"),
    ("a first window of 2^31", GREETING + settings((4, 1 << 31)), "connection 3"),
    ("a first window of 2^31-1", GREETING + settings((4, (1 << 31) - 1)), "fine"),
    ("frames below 16,384", GREETING + settings((5, 16_383)), "connection 1"),
    ("frames beyond 2^24-1", GREETING + settings((5, 1 << 24)), "connection 1"),
    ("frames of 2^24-1", GREETING + settings((5, (1 << 24) - 1)), "fine"),
    ("a setting nobody knows", GREETING + settings((0x99, 7)), "fine"),
    ("SETTINGS with the same key twice", GREETING + settings((4, 9), (4, 10)), "fine"),
    # 6.6 PUSH_PROMISE.
    ("a push from a client", GREETING + frame(5, EH, 1, bytes(4) + BLOCK), "connection 1"),
    # 6.7 PING.
    ("PING of 6 bytes", GREETING + frame(6, 0, 0, bytes(6)), "connection 6"),
    ("PING on a stream", GREETING + frame(6, 0, 1, bytes(8)), "connection 1"),
    ("an echo nobody asked for", GREETING + frame(6, 1, 0, bytes(8)), "fine"),
    # 6.8 GOAWAY.
    ("GOAWAY on a stream", GREETING + frame(7, 0, 1, bytes(8)), "connection 1"),
    ("GOAWAY of 4 bytes", GREETING + frame(7, 0, 0, bytes(4)), "connection 6"),
    ("GOAWAY with an unknown code", GREETING + frame(7, 0, 0, b"\0\0\0\0\0\0\xff\0"), "fine"),
    # 6.9 WINDOW_UPDATE.
    ("WINDOW_UPDATE of 0 on stream 0", GREETING + update(0, 0), "connection 1"),
    ("WINDOW_UPDATE of 0 on a stream", GREETING + OPEN + update(1, 0), "stream 1 1"),
    ("WINDOW_UPDATE of 3 bytes", GREETING + frame(8, 0, 0, bytes(3)), "connection 6"),
    ("a window beyond 2^31-1", GREETING + update(0, (1 << 31) - 1), "connection 3"),
    ("a stream's beyond it", GREETING + OPEN + update(1, (1 << 31) - 1), "stream 1 3"),
    (
        "SETTINGS that push a stream's window beyond it",
        GREETING + OPEN + update(1, (1 << 31) - 65_536) + settings((4, 65_536)),
        "connection 3",
    ),
    # 6.10 CONTINUATION.
    (
        "a block in three frames",
        GREETING
        + frame(1, ES, 1, BLOCK[:3])
        + frame(9, 0, 1, BLOCK[3:7])
        + frame(9, EH, 1, BLOCK[7:]),
        "fine",
    ),
    (
        "CONTINUATION on stream 0",
        GREETING + frame(1, ES, 1, BLOCK) + frame(9, EH, 0),
        "connection 1",
    ),
    ("CONTINUATION after the end", GREETING + OPEN + frame(9, EH, 1, BLOCK), "connection 1"),
    (
        "CONTINUATION after DATA",
        GREETING + OPEN + frame(0, 0, 1, b"x") + frame(9, EH, 1),
        "connection 1",
    ),
    # 8.1 Messages.
    ("trailers", GREETING + OPEN + head(("x-checksum", "1")), "fine"),
    ("a second HEADERS without an end", GREETING + OPEN + head(("x", "1"), flags=EH), "stream 1 1"),
    ("a pseudo-header among trailers", GREETING + OPEN + head(METHOD), "stream 1 1"),
    ("trailers with an upper-case name", GREETING + OPEN + raw(literal(b"X", b"1")), "stream 1 1"),
    # 8.2 Fields.
    ("an upper-case name", GREETING + raw(BLOCK + literal(b"X-Up", b"1")), "stream 1 1"),
    ("a name with a space", GREETING + raw(BLOCK + literal(b"a b", b"1")), "stream 1 1"),
    ("a name with a colon", GREETING + raw(BLOCK + literal(b"a:b", b"1")), "stream 1 1"),
    ("an empty name", GREETING + raw(BLOCK + literal(b"", b"1")), "stream 1 1"),
    ("a value with a line feed", GREETING + raw(BLOCK + literal(b"a", b"b\nc")), "stream 1 1"),
    ("a value with a NUL", GREETING + raw(BLOCK + literal(b"a", b"b\0c")), "stream 1 1"),
    (
        "a value that begins with a space",
        GREETING + raw(BLOCK + literal(b"a", b" b")),
        "stream 1 1",
    ),
    ("a value that ends with a tab", GREETING + raw(BLOCK + literal(b"a", b"b\t")), "stream 1 1"),
    ("an empty value", GREETING + raw(BLOCK + literal(b"a", b"")), "fine"),
    ("connection", GREETING + request(1, ("connection", "close")), "stream 1 1"),
    ("proxy-connection", GREETING + request(1, ("proxy-connection", "x")), "stream 1 1"),
    ("keep-alive", GREETING + request(1, ("keep-alive", "x")), "stream 1 1"),
    ("transfer-encoding", GREETING + request(1, ("transfer-encoding", "chunked")), "stream 1 1"),
    ("upgrade", GREETING + request(1, ("upgrade", "h2c")), "stream 1 1"),
    ("te of gzip", GREETING + request(1, ("te", "gzip")), "stream 1 1"),
    ("te of trailers", GREETING + request(1, ("te", "trailers")), "fine"),
    # 8.3 Pseudo-headers.
    ("an unknown one", GREETING + head((":test", "1"), *REQUEST), "stream 1 1"),
    ("one of answers", GREETING + head((":status", "200"), *REQUEST), "stream 1 1"),
    ("one after a field", GREETING + head(METHOD, SCHEME, ("a", "b"), PATH), "stream 1 1"),
    ("no method", GREETING + head(SCHEME, PATH), "stream 1 1"),
    ("no scheme", GREETING + head(METHOD, PATH), "stream 1 1"),
    ("no path", GREETING + head(METHOD, SCHEME), "stream 1 1"),
    ("an empty path", GREETING + head(METHOD, SCHEME, (":path", "")), "stream 1 1"),
    ("two methods", GREETING + head(METHOD, *REQUEST), "stream 1 1"),
    ("two schemes", GREETING + head(SCHEME, *REQUEST), "stream 1 1"),
    ("two paths", GREETING + head(PATH, *REQUEST), "stream 1 1"),
    ("no authority", GREETING + head(METHOD, SCHEME, PATH), "fine"),
    ("CONNECT with a path", GREETING + head((":method", "CONNECT"), SCHEME, PATH), "stream 1 1"),
    ("CONNECT with an authority alone", GREETING + head((":method", "CONNECT"), HOST), "fine"),
    # 8.1.1 content-length.
    (
        "less than the content-length",
        GREETING + request(1, LENGTH_3, ends=False) + frame(0, ES, 1, b"ab"),
        "stream 1 1",
    ),
    (
        "more than it, in two frames",
        GREETING + request(1, LENGTH_3, ends=False) + frame(0, 0, 1, b"ab") + frame(0, 0, 1, b"cd"),
        "stream 1 1",
    ),
    (
        "just as much",
        GREETING + request(1, LENGTH_3, ends=False) + frame(0, 0, 1, b"ab") + frame(0, ES, 1, b"c"),
        "fine",
    ),
    ("a content-length and no body", GREETING + request(1, LENGTH_3), "stream 1 1"),
    (
        "less than it, and trailers",
        GREETING + request(1, LENGTH_3, ends=False) + head(("a", "b")),
        "stream 1 1",
    ),
    ("two that differ", GREETING + request(1, LENGTH_3, ("content-length", "4")), "stream 1 1"),
    ("one that is no number", GREETING + request(1, ("content-length", "-1")), "stream 1 1"),
    # RFC 7541.
    ("an index that is nowhere", GREETING + raw(BLOCK + b"\xc6"), "connection 9"),
    ("index 0", GREETING + raw(BLOCK + b"\x80"), "connection 9"),
    ("a size update after a field", GREETING + raw(BLOCK + b"\x20"), "connection 9"),
    ("a size update at the front", GREETING + raw(b"\x20" + BLOCK), "fine"),
    ("a size beyond ours", GREETING + raw(b"\x3f\xe2\x1f" + BLOCK), "connection 9"),
    ("Huffman with 8 bits of padding", GREETING + raw(BLOCK + b"\0\x81\xff\x00"), "connection 9"),
    ("an integer without an end", GREETING + raw(BLOCK + b"\xff" + b"\x80" * 20), "connection 9"),
]


@pytest.mark.parametrize(
    ("sent", "verdict"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_each_case_is_answered_as_the_rfc_says(sent: bytes, verdict: str) -> None:
    peer = Peer(greets=False)
    peer.say(sent)
    assert peer.verdict == verdict


@pytest.mark.parametrize("sent", [case[1] for case in CASES], ids=[c[0] for c in CASES])
def test_each_case_is_answered_the_same_when_it_comes_in_single_bytes(sent: bytes) -> None:
    whole, single = Peer(greets=False), Peer(greets=False)
    whole.say(sent)
    for at in range(len(sent)):
        single.say(sent[at : at + 1])
    assert single.sent == whole.sent


def test_a_fault_of_one_stream_leaves_the_others_alone() -> None:
    peer = Peer()
    peer.say(raw(BLOCK + literal(b"X", b"1")), request(3))
    assert peer.verdict == "stream 1 1"
    assert peer.owner.whole == [3]


def test_after_a_fault_of_the_connection_nothing_is_read() -> None:
    peer = Peer()
    peer.say(frame(f.DATA, 0, 0, b"x"), request(1))
    assert peer.say(request(3)) == []
    assert peer.owner.whole == []
    assert peer.h2.done


def test_a_goaway_names_the_last_stream_that_was_taken() -> None:
    peer = Peer()
    peer.say(request(7), frame(f.DATA, 0, 0, b"x"))
    assert int.from_bytes(peer.of(f.GOAWAY)[0].payload[:4], "big") == 7


def test_settings_are_acknowledged_and_pings_echoed_in_order() -> None:
    peer = Peer()
    back = peer.say(settings(), frame(f.PING, 0, 0, b"12345678"))
    assert [(x.kind, x.flags, x.payload) for x in back] == [(4, 1, b""), (6, 1, b"12345678")]


def test_streams_beyond_the_bound_are_refused_and_may_be_tried_again() -> None:
    peer = Peer(H2Settings(streams_max=2), answers=False)
    peer.say(request(1), request(3), request(5))
    assert peer.verdict == f"stream 5 {f.REFUSED_STREAM}"
    peer.h2.reset(peer.owner.streams[1], f.CANCEL)
    peer.say(request(7))
    assert peer.owner.whole == [1, 3, 7]


def test_late_frames_of_a_stream_that_we_have_reset_are_no_fault() -> None:
    peer = Peer()
    peer.say(raw(BLOCK + literal(b"X", b"1")))
    peer.sent.clear()
    peer.say(frame(f.DATA, 0, 1, b"x"), head(("a", "b")), request(3))
    assert peer.verdict == "fine"
    assert peer.owner.whole == [3]


def test_a_header_list_beyond_the_bound_is_told_to_the_application() -> None:
    peer = Peer(H2Settings(header_list_bytes_max=1_024), answers=False)
    peer.say(request(1, ("a", "b" * 1_024)))
    assert peer.owner.meanings[1] == "too large"


def test_a_peer_that_shrinks_its_table_is_told_once_that_we_use_none() -> None:
    peer = Peer()
    peer.say(settings((f.HEADER_TABLE_SIZE, 0)), request(1), request(3))
    first, second = (peer.of(f.HEADERS, stream) for stream in (1, 3))
    assert first[0].payload == b"\x20\x88"
    assert second[0].payload == b"\x88"


def test_what_is_set_wrongly_is_refused_by_its_name() -> None:
    with pytest.raises(BadValue, match=r"h2\.stream_window_bytes"):
        H2Settings(stream_window_bytes=65_534)
