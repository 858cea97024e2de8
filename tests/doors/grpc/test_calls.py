"""gRPC on one connection, without a socket: bytes in, bytes out, and a host that is a list."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import Unavailable
from sluicegate.doors.grpc.calls import GrpcCalls, GrpcCounts
from sluicegate.doors.grpc.framing import gunzip, percent_encoded, prefix, timeout_us
from sluicegate.doors.grpc.methods import CallMetadata, GrpcError, GrpcStatus, Methods
from sluicegate.doors.grpc.route import GrpcRoute
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from sluicegate.wire.h2.stream import H2Stream
from tests.doors.grpc.servers import Door, Work
from tests.wire.h2_peer import GREETING, Frame, frame, headers, parsed, update
from tests.wire.h2_peer import settings as settings_frame

NOW = 5_000_000
GRPC = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t.Test/Echo"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Listed:
    """A host that waits for nothing: it keeps what it is handed."""

    def __init__(self) -> None:
        self.waiting: list[tuple[H2Stream, Any, int]] = []
        self.running: list[H2Stream] = []
        self.ended: list[int] = []
        self.bugs: list[BaseException] = []
        self.woken = 0

    def wait(self, stream: H2Stream, answer: object, deadline_us: int) -> None:
        self.waiting.append((stream, answer, deadline_us))

    def run(self, stream: H2Stream, route: GrpcRoute, deadline_us: int) -> None:
        assert route.stream is not None
        assert deadline_us >= -1
        self.running.append(stream)

    def wake(self, stream: H2Stream) -> None:
        assert stream is not None
        self.woken += 1

    def stop(self, stream: H2Stream) -> None:
        self.ended.append(stream.id)

    def log_bug(self, error: BaseException) -> None:
        self.bugs.append(error)


class Line:
    """One connection, told bytes."""

    def __init__(self, settings: GrpcSettings | None = None, access: Door | None = None) -> None:
        self.host = Listed()
        self.counts = GrpcCounts()
        self.now_us = NOW
        self.work = Work()
        chosen = GrpcSettings(message_bytes_max=100_000) if settings is None else settings
        door = Door() if access is None else access
        methods: Methods = self.work.methods()
        self.calls = GrpcCalls(methods, door, chosen, self.counts, self.host, (), NOW)
        self.sent: list[Frame] = []
        self.say(GREETING, settings_frame((f.INITIAL_WINDOW_SIZE, 1 << 20)), update(0, 1 << 20))
        self.sent.clear()

    def say(self, *head_sent: bytes) -> None:
        self.calls.receive(b"".join(head_sent), self.now_us)
        while self.calls.work_waits:
            self.calls.work_on(self.now_us)
        self.take()

    def take(self) -> None:
        self.sent += parsed(self.calls.h2.take())

    def ask(self, stream: int, body: bytes = b"", *, changed: Any = (), parts: int = 1) -> None:
        """A call, its body in so many frames."""
        fields = {**dict(GRPC), **dict(changed)}
        self.say(frame(f.HEADERS, f.END_HEADERS, stream, headers(list(fields.items()))))
        step = -(-len(body) // parts) or 1
        for at in range(0, len(body) or 1, step):
            last = f.END_STREAM if at + step >= len(body) else 0
            self.say(frame(f.DATA, last, stream, body[at : at + step]))

    def answer(self, stream: int) -> tuple[bytes, dict[str, str]]:
        """The body and all fields of an answer."""
        from hpack import Decoder

        fields: dict[str, str] = {}
        body = b""
        for each in self.sent:
            if each.stream == stream and each.kind == f.DATA:
                body += each.payload
            elif each.stream == stream and each.kind == f.HEADERS:
                fields |= {str(k): str(v) for k, v in Decoder().decode(each.payload)}
        return body, fields

    def status(self, stream: int) -> int:
        return int(self.answer(stream)[1].get("grpc-status", -1))


def test_an_answer_that_is_there_at_once_is_three_frames() -> None:
    line = Line()
    line.ask(1, prefix(b"hello"))
    assert [(x.kind, x.flags) for x in line.sent] == [(1, 4), (0, 0), (1, 5)]
    body, fields = line.answer(1)
    assert body == prefix(b"hello")
    assert (fields[":status"], fields["content-type"]) == ("200", "application/grpc")
    assert fields["grpc-status"] == "0"
    assert line.calls.h2.streams == {}


def test_heads_that_are_the_same_are_understood_once() -> None:
    line = Line()
    for number in range(50):
        line.ask(1 + 2 * number, prefix(b"x"))
    assert line.calls.h2.decodes == 1
    assert line.counts.calls == 50


def test_a_token_that_is_withdrawn_is_believed_no_longer_than_the_memo_lasts() -> None:
    access = Door(anonymous=None)
    line = Line(access=access)
    fields = [("authorization", "Bearer ann's"), (":path", "/t.Test/Name")]
    line.ask(1, prefix(b""), changed=fields)
    del access.tokens["ann's"]
    line.now_us += 999_999
    line.ask(3, prefix(b""), changed=fields)
    line.now_us += 1
    line.ask(5, prefix(b""), changed=fields)
    assert [line.status(each) for each in (1, 3, 5)] == [0, 0, GrpcStatus.UNAUTHENTICATED]
    access.tokens["ann's"] = access.tokens["bob's"]
    line.calls.h2.forget()
    line.ask(7, prefix(b""), changed=fields)
    assert line.answer(7)[0] == prefix(b"bob")


@pytest.mark.parametrize("parts", [1, 2, 3, 10])
def test_a_body_in_any_number_of_frames_is_the_same(parts: int) -> None:
    line = Line()
    line.ask(1, prefix(b"0123456789"), parts=parts)
    assert line.answer(1)[0] == prefix(b"0123456789")
    assert line.calls._partial_bytes == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", GrpcStatus.INTERNAL),
        (b"\0\0\0", GrpcStatus.INTERNAL),
        (prefix(b"a") + prefix(b"b"), GrpcStatus.INTERNAL),
        (prefix(b"abc")[:-1], GrpcStatus.INTERNAL),
        (b"\x02\0\0\0\x01x", GrpcStatus.INTERNAL),
        (b"\x01\0\0\0\x01x", GrpcStatus.INTERNAL),
        (b"\0" + (100_001).to_bytes(4, "big") + b"x", GrpcStatus.RESOURCE_EXHAUSTED),
        (b"\0\xff\xff\xff\xff", GrpcStatus.RESOURCE_EXHAUSTED),
        (prefix(bytes(100_001)), GrpcStatus.RESOURCE_EXHAUSTED),
        (prefix(bytes(100_000)), GrpcStatus.OK),
    ],
)
@pytest.mark.parametrize("parts", [1, 7])
def test_a_body_that_is_not_one_message_is_refused(body: bytes, status: int, parts: int) -> None:
    line = Line()
    line.ask(1, body, parts=max(parts, len(body) // 16_000 + 1))
    assert line.status(1) == status
    assert line.calls.h2.streams == {}
    assert line.calls._partial_bytes == 0


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ([(":method", "GET")], "405", -1),
        ([("content-type", "application/json")], "415", -1),
        ([("content-type", "application/grpc-web")], "415", -1),
        ([("content-type", "application/grpc+proto")], "200", 0),
        ([("content-type", "application/grpc;charset=utf-8")], "200", 0),
        ([(":path", "/t.Test/No")], "200", GrpcStatus.UNIMPLEMENTED),
        ([("grpc-encoding", "identity")], "200", 0),
        ([("grpc-encoding", "gzip")], "200", 0),
        ([("grpc-encoding", "snappy")], "200", GrpcStatus.UNIMPLEMENTED),
        ([("grpc-timeout", "1x")], "200", GrpcStatus.INTERNAL),
        ([("grpc-timeout", "0m")], "200", GrpcStatus.DEADLINE_EXCEEDED),
        ([("authorization", "Bearer wrong")], "200", GrpcStatus.UNAUTHENTICATED),
    ],
)
def test_a_head_decides_how_a_call_is_taken(changed: Any, status: str, code: int) -> None:
    line = Line()
    line.ask(1, prefix(b"x"), changed=changed)
    body, fields = line.answer(1)
    assert fields[":status"] == status
    assert line.status(1) == code
    if code == GrpcStatus.UNIMPLEMENTED:
        assert fields["grpc-accept-encoding"] == "identity,gzip"
    if code == -1:
        assert body.startswith(b"this port serves gRPC")
        assert len(body) == int(fields["content-length"])


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        (GRPC[:3], "415", -1),
        ([*GRPC, ("content-type", "application/grpc")], "415", -1),
        ([*GRPC, ("authorization", "Bearer ann's")], "200", 0),
        ([*GRPC, *[("authorization", "Bearer ann's")] * 2], "200", GrpcStatus.UNAUTHENTICATED),
        ([*GRPC, *[("grpc-timeout", "1S")] * 2], "200", GrpcStatus.INTERNAL),
        ([*GRPC, *[("grpc-encoding", "gzip")] * 2], "200", GrpcStatus.UNIMPLEMENTED),
    ],
)
def test_what_is_said_twice_or_not_at_all_is_not_guessed_at(
    fields: list[tuple[str, str]], status: str, code: int
) -> None:
    line = Line()
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(fields)))
    line.say(frame(f.DATA, f.END_STREAM, 1, prefix(b"x")) if line.status(1) < 0 else b"")
    assert line.answer(1)[1][":status"] == status
    assert line.status(1) == code
    assert line.host.bugs == []


def test_a_bomb_is_not_unpacked_beyond_the_bound() -> None:
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(GrpcError, match="more than 1000 bytes"):
            gunzip(bomb, 1_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_message_beyond_the_bound_is_refused_also_in_a_single_frame() -> None:
    line = Line(GrpcSettings(message_bytes_max=1_024))
    for stream, size in ((1, 1_024), (3, 1_025)):
        line.ask(stream, prefix(bytes(size)))
    assert [line.status(each) for each in (1, 3)] == [0, GrpcStatus.RESOURCE_EXHAUSTED]


def test_more_than_one_message_is_refused_before_the_rest_of_it_comes() -> None:
    line = Line()
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(GRPC)))
    line.say(frame(f.DATA, 0, 1, prefix(b"one")))
    assert line.status(1) == -1
    line.say(frame(f.DATA, 0, 1, b"x"))
    assert line.status(1) == GrpcStatus.INTERNAL


def test_too_many_headers_are_431() -> None:
    line = Line(GrpcSettings(h2=H2Settings(header_list_bytes_max=1_024)))
    line.ask(1, prefix(b"x"), changed=[("x-long", "y" * 2_000)])
    assert line.answer(1)[1][":status"] == "431"


def test_a_refusal_that_no_body_could_save_does_not_wait_for_one() -> None:
    line = Line()
    fields = {**dict(GRPC), ":path": "/t.Test/No"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    assert line.status(1) == GrpcStatus.UNIMPLEMENTED
    assert [x.kind for x in line.sent] == [f.HEADERS, f.RST_STREAM]


def test_a_body_without_end_for_no_grpc_is_answered_amid_it() -> None:
    line = Line()
    fields = {**dict(GRPC), "content-type": "text/plain"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    for _ in range(5):
        line.say(frame(f.DATA, 0, 1, bytes(16_000)))
    assert line.answer(1)[1][":status"] == "415"


def ask_packed(line: Line, stream: int, message: bytes, *changed: tuple[str, str]) -> None:
    small = gzip.compress(message)
    line.ask(
        stream,
        b"\x01" + len(small).to_bytes(4, "big") + small,
        changed=[("grpc-encoding", "gzip"), *changed],
        parts=len(small) // 16_000 + 1,
    )


def test_a_packed_message_is_read_and_a_bomb_is_not() -> None:
    line = Line()
    lines = b"".join([b"line %d\n" % number for number in range(20_000)])
    for stream, size in ((1, 100_000), (3, 100_001)):
        ask_packed(line, stream, lines[:size])
    assert line.answer(1)[0] == prefix(lines[:100_000])
    ask_packed(line, 5, bytes(50_000_000))
    assert [line.status(each) for each in (3, 5)] == [GrpcStatus.RESOURCE_EXHAUSTED] * 2


def test_a_packed_message_may_hold_a_hundred_times_its_size_or_16_kib() -> None:
    line = Line(GrpcSettings(gunzip_ratio_max=100, gunzip_free_bytes=16_384))
    for stream, size in ((1, 16_384), (3, 16_385)):
        ask_packed(line, stream, bytes(size))
    assert line.answer(1)[0] == prefix(bytes(16_384))
    assert line.status(3) == GrpcStatus.RESOURCE_EXHAUSTED
    noise = random.Random(1).randbytes(400)
    for stream, zeros in ((5, 40_000), (7, 80_000)):
        ask_packed(line, stream, noise + bytes(zeros))
    assert [line.status(each) for each in (5, 7)] == [0, GrpcStatus.RESOURCE_EXHAUSTED]


def test_a_method_that_anybody_may_call_takes_small_messages_and_few_at_a_time() -> None:
    line = Line(GrpcSettings(open_message_bytes_max=64, open_streams_max=2), Door(None))
    health = [(":path", "/grpc.health.v1.Health/Check")]
    for stream, size in ((1, 64), (3, 65)):
        line.ask(stream, prefix(b"\x0a" + bytes((size - 2,)) + b"x" * (size - 2)), changed=health)
    assert [line.status(each) for each in (1, 3)] == [
        GrpcStatus.NOT_FOUND,
        GrpcStatus.RESOURCE_EXHAUSTED,
    ]
    ask_packed(line, 5, b"\x78\0" * 33, *health)
    assert line.status(5) == GrpcStatus.RESOURCE_EXHAUSTED
    begun = headers(list({**dict(GRPC), **dict(health)}.items()))
    for stream in (7, 9, 11):
        line.say(frame(f.HEADERS, f.END_HEADERS, stream, begun))
    assert [line.status(each) for each in (7, 9, 11)] == [-1, -1, GrpcStatus.RESOURCE_EXHAUSTED]
    line.say(frame(f.DATA, f.END_STREAM, 7, prefix(b"")))  # one ends, another may begin
    line.ask(13, prefix(b""), changed=health)
    assert [line.status(each) for each in (7, 13)] == [0, 0]


def test_who_sends_on_to_a_watch_fills_no_buffer() -> None:
    line = Line(access=Door(None))
    watch = [(":path", "/grpc.health.v1.Health/Watch")]
    line.say(
        frame(f.HEADERS, f.END_HEADERS, 1, headers(list({**dict(GRPC), **dict(watch)}.items()))),
        frame(f.DATA, 0, 1, prefix(b"")),
    )
    assert line.status(1) == -1
    line.say(frame(f.DATA, 0, 1, bytes(1_025)))
    assert line.status(1) == GrpcStatus.RESOURCE_EXHAUSTED
    assert line.host.ended == [1]


def test_a_packed_message_of_which_no_head_told_is_refused() -> None:
    line = Line()
    small = gzip.compress(b"x")
    line.ask(1, b"\x01" + len(small).to_bytes(4, "big") + small)
    assert line.status(1) == GrpcStatus.INTERNAL


def test_an_answer_later_is_waited_for_until_its_deadline() -> None:
    line = Line()
    line.ask(1, prefix(b"x"), changed=[(":path", "/t.Test/Later")])
    line.ask(3, prefix(b"x"), changed=[(":path", "/t.Test/Later"), ("grpc-timeout", "20m")])
    (one, work, none), (other, more, deadline) = line.host.waiting
    work.close()
    more.close()
    assert (none, deadline) == (-1, NOW + 20_000)
    line.calls.respond(one, b"here")
    line.calls.expire(other)
    line.calls.respond(other, b"too late")
    line.take()
    assert line.answer(1)[0] == prefix(b"here")
    assert line.status(3) == GrpcStatus.DEADLINE_EXCEEDED
    assert line.host.ended == [3]
    assert (line.counts.expired, line.counts.failed) == (1, 1)


def test_a_call_without_a_deadline_has_ours() -> None:
    line = Line(GrpcSettings(call_us_max=1_000_000))
    line.ask(1, prefix(b"x"), changed=[(":path", "/t.Test/Later")])
    line.host.waiting[0][1].close()
    line.calls.sweep(NOW + 999_999)
    assert line.host.ended == []
    line.calls.sweep(NOW + 1_000_000)
    line.take()
    assert line.status(1) == GrpcStatus.DEADLINE_EXCEEDED


def test_unfinished_requests_hold_no_more_than_their_bound() -> None:
    line = Line(GrpcSettings(partial_bytes_max=20_000))
    start = b"\0" + (90_000).to_bytes(4, "big")
    for stream in (1, 3):
        line.say(frame(f.HEADERS, f.END_HEADERS, stream, headers(GRPC)))
        line.say(frame(f.DATA, 0, stream, start + bytes(10_000)))
    assert (line.status(1), line.status(3)) == (-1, GrpcStatus.RESOURCE_EXHAUSTED)
    line.say(frame(f.RST_STREAM, 0, 1, bytes(4)))
    assert line.calls._partial_bytes == 0
    line.ask(5, prefix(bytes(15_000)), parts=2)
    assert line.status(5) == 0


def test_a_stream_hands_out_its_messages_as_they_are_asked_for() -> None:
    line = Line()
    fields = {**dict(GRPC), ":path": "/t.Test/Twice"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    stream = line.host.running[0]
    body = prefix(b"one") + prefix(b"") + prefix(b"three")
    for at in range(len(body)):
        line.say(frame(f.DATA, 0, 1, body[at : at + 1]))
    head_sent = [line.calls.next_message(stream) for _ in range(4)]
    assert head_sent == [b"one", b"", b"three", None]
    line.say(frame(f.DATA, f.END_STREAM, 1, b"\0\0"))
    with pytest.raises(GrpcError, match="amid a message"):
        line.calls.next_message(stream)
    assert stream.unread_bytes == 0


def test_a_stream_that_is_not_read_holds_no_more_than_its_window() -> None:
    line = Line()
    fields = {**dict(GRPC), ":path": "/t.Test/Twice"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    part = prefix(bytes(15_995))
    for _ in range(16):
        line.say(frame(f.DATA, 0, 1, part))
    updates = [x for x in line.sent if x.kind == f.WINDOW_UPDATE and x.stream == 1]
    assert updates == []
    stream = line.host.running[0]
    while line.calls.next_message(stream) is not None:
        pass
    line.take()
    updates = [x for x in line.sent if x.kind == f.WINDOW_UPDATE and x.stream == 1]
    assert sum(int.from_bytes(x.payload, "big") for x in updates) > 128_000


def test_a_message_larger_than_the_window_still_comes_through() -> None:
    line = Line(GrpcSettings(message_bytes_max=1 << 20))
    fields = {**dict(GRPC), ":path": "/t.Test/Twice"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    body = prefix(bytes(900_000))
    for at in range(0, len(body), 16_000):
        line.say(frame(f.DATA, 0, 1, body[at : at + 16_000]))
    assert line.calls.next_message(line.host.running[0]) == bytes(900_000)


def test_a_bug_is_told_to_the_host_and_not_to_the_peer() -> None:
    line = Line()
    line.ask(1, prefix(b"bug"), changed=[(":path", "/t.Test/Fails")])
    assert line.status(1) == GrpcStatus.INTERNAL
    assert "secret" not in str(line.answer(1))
    assert [type(each) for each in line.host.bugs] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("error", "status", "bugs"),
    [
        (Unavailable("vault", "silent"), GrpcStatus.UNAVAILABLE, 0),
        (KeyError("x"), GrpcStatus.INTERNAL, 1),
    ],
    ids=["away", "bug"],
)
def test_a_call_whose_speaker_cannot_be_looked_up_is_refused(
    error: Exception, status: int, bugs: int
) -> None:
    class Broken(Door):
        def by_token(self, token: str) -> Identity | None:
            raise error

    line = Line(access=Broken())
    line.ask(1, prefix(b"x"), changed=[("authorization", "Bearer ann's")])
    line.ask(3, prefix(b"x"))
    assert (line.status(1), line.status(3)) == (status, 0)
    assert len(line.host.bugs) == bugs


def test_a_flood_is_counted_once_by_its_name() -> None:
    line = Line(GrpcSettings(h2=H2Settings(pings_per_s_max=2)))
    for _ in range(5):
        line.say(frame(f.PING, 0, 0, bytes(8)))
    assert line.counts.floods == {"pings_per_s_max": 1}


@pytest.mark.parametrize(
    ("spelled", "us"),
    [
        (b"1H", 3_600_000_000),
        (b"2M", 120_000_000),
        (b"3S", 3_000_000),
        (b"20m", 20_000),
        (b"7u", 7),
        (b"1n", 1),
        (b"1001n", 2),
        (b"99999999H", 359_999_996_400_000_000),
        (b"100000000m", -1),
        (b"m", -1),
        (b"", -1),
        (b"-1m", -1),
        (b"1 m", -1),
        (b"1", -1),
    ],
)
def test_a_timeout_is_never_shorter_than_it_says(spelled: bytes, us: int) -> None:
    assert timeout_us(spelled) == us


@given(st.text(max_size=200))
def test_a_status_message_is_plain_and_comes_back(message: str) -> None:
    from urllib.parse import unquote_to_bytes

    encoded = percent_encoded(message)
    assert all(0x20 <= each < 0x7F for each in encoded)
    assert unquote_to_bytes(encoded) == message.encode("utf-8", "replace")


@given(st.binary(max_size=300))
def test_what_is_no_gzip_is_refused(garbage: bytes) -> None:
    with pytest.raises(GrpcError):
        gunzip(garbage, 1_000)


def test_gzip_of_more_than_one_part_or_less_is_refused() -> None:
    one = gzip.compress(b"one")
    assert gunzip(one, 3) == b"one"
    for wrong in (one + one, one[:-1], b""):
        with pytest.raises(GrpcError, match="not one whole gzip"):
            gunzip(wrong, 1_000)


@given(
    st.lists(st.tuples(st.binary(max_size=50), st.integers(1, 4)), min_size=1, max_size=5),
    st.lists(st.integers(0, 3_000), max_size=10),
)
def test_any_split_of_the_bytes_gives_the_same_answers(
    messages: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    whole, split = Line(), Line()
    head_sent = b""
    for number, (message, kind) in enumerate(messages):
        stream = 1 + 2 * number
        path = {1: "/t.Test/Echo", 2: "/t.Test/No", 3: "/t.Test/Fails", 4: "/t.Test/Name"}[kind]
        fields = {**dict(GRPC), ":path": path}
        head_sent += frame(f.HEADERS, f.END_HEADERS, stream, headers(list(fields.items())))
        head_sent += frame(f.DATA, f.END_STREAM, stream, prefix(b"bad" if kind == 3 else message))
    whole.say(head_sent)
    places = [0, *sorted({cut % len(head_sent) for cut in cuts}), len(head_sent)]
    for begin, end in pairwise(places):
        split.say(head_sent[begin:end])
    assert split.sent == whole.sent


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=6))
def test_bent_calls_never_raise_and_never_see_each_other(bends: list[tuple[int, int]]) -> None:
    head_sent = b""
    for number in range(6):
        stream = 1 + 2 * number
        head_sent += frame(f.HEADERS, f.END_HEADERS, stream, headers(GRPC))
        head_sent += frame(f.DATA, f.END_STREAM, stream, prefix(b"mine"))
    bent = bytearray(head_sent)
    for place, value in bends:
        bent[place % len(bent)] = value
    line, other = Line(), Line()
    line.say(bytes(bent))
    other.ask(1, prefix(b"another"))
    assert other.answer(1)[0] == prefix(b"another")
    assert b"another" not in b"".join(x.payload for x in line.sent)
    assert not line.host.bugs


def test_a_method_that_is_told_learns_how_long_the_call_has_waited_and_what_is_left() -> None:
    calls: list[tuple[int, int, list[bytes]]] = []

    def method(message: bytes, _by: Identity, head_sent: CallMetadata) -> bytes:
        calls.append((head_sent.waited_us, head_sent.left_us, head_sent.values(b"x-word")))
        return message

    line = Line()
    methods = Methods({}, {}, with_metadata={"/t.Test/CallMetadata": method})
    line.calls = GrpcCalls(methods, Door(), GrpcSettings(), line.counts, line.host, (), NOW)
    line.say(GREETING, settings_frame())
    body = prefix(b"hello")
    for number, timeout in ((1, "20m"), (3, "")):
        fields = {**dict(GRPC), ":path": "/t.Test/CallMetadata", "x-word": "tea"}
        if timeout:
            fields["grpc-timeout"] = timeout
        line.say(frame(f.HEADERS, f.END_HEADERS, number, headers(list(fields.items()))))
        line.now_us += 3_000
        line.say(frame(f.DATA, 0, number, body[:6]))
        line.say(frame(f.DATA, f.END_STREAM, number, body[6:]))
    assert calls == [(3_000, 17_000, [b"tea"]), (3_000, -1, [b"tea"])]
    assert line.answer(3)[0] == body


def test_a_call_that_is_told_and_never_whole_is_ended_by_the_sweep() -> None:
    line = Line()
    methods = Methods(
        {}, {}, with_metadata={"/t.Test/CallMetadata": lambda message, _by, _metadata: message}
    )
    bounds = GrpcSettings(call_us_max=1_000_000)
    line.calls = GrpcCalls(methods, Door(), bounds, line.counts, line.host, (), NOW)
    line.say(GREETING, settings_frame())
    fields = {**dict(GRPC), ":path": "/t.Test/CallMetadata"}
    line.say(frame(f.HEADERS, f.END_HEADERS, 1, headers(list(fields.items()))))
    line.calls.sweep(NOW + 1_000_000)
    line.take()
    assert line.answer(1)[1]["grpc-status"] == str(int(GrpcStatus.DEADLINE_EXCEEDED))


def test_calls_wait_in_line_for_room_and_are_answered_in_order() -> None:
    line = Line(GrpcSettings(h2=H2Settings(backlog_bytes_max=1 << 18), message_bytes_max=100_000))
    h2 = line.calls.h2
    body = prefix(bytes(70_000))
    pieces = [body[at : at + 16_000] for at in range(0, len(body), 16_000)]
    for stream in (1, 3, 5, 7):
        line.calls.receive(frame(f.HEADERS, f.END_HEADERS, stream, headers(GRPC)), NOW)
        for piece in pieces:
            last = f.END_STREAM if piece is pieces[-1] else 0
            line.calls.receive(frame(f.DATA, last, stream, piece), NOW)
            while h2.waiting:
                line.calls.work_on(NOW)
    assert line.counts.calls == 2  # 128 KiB are the half of it
    assert not line.calls.work_waits
    line.say(frame(f.RST_STREAM, 0, 5, b"\0\0\0\x08"))
    line.say()
    assert line.counts.calls == 3
    assert [line.status(each) for each in (1, 3, 5, 7)] == [0, 0, -1, 0]


def test_results_beyond_the_room_are_refused_and_not_kept() -> None:
    line = Line(GrpcSettings(h2=H2Settings(backlog_bytes_max=1 << 20)))
    later = [(":path", "/t.Test/Later")]
    line.ask(1, prefix(b"x"), changed=later)
    for stream in range(3, 9, 2):
        line.ask(stream, prefix(b"x"), changed=later)
    # One result of a megabyte was expected, so the others were not begun.
    assert len(line.host.waiting) == 1
    first, answer, _ = line.host.waiting[0]
    answer.close()
    line.calls.respond(first, bytes((1 << 20) + 1))  # the first may always be sent
    assert line.calls.h2.backlog_bytes > 1 << 20
    late = H2Stream(99, first.meaning, 1 << 20, 1 << 20, NOW)
    line.calls.h2.streams[99] = late
    line.calls.respond(late, bytes(100_000))
    line.take()
    assert line.status(99) == GrpcStatus.RESOURCE_EXHAUSTED


def test_all_connections_share_a_bound_and_each_has_a_little() -> None:
    line = Line(GrpcSettings(backlog_bytes_max=1 << 20))
    line.counts.backlog_bytes = 1 << 20  # others hold it
    line.ask(1, prefix(bytes(60_000)), parts=5)
    assert line.status(1) == 0
    line.ask(3, prefix(bytes(70_000)), parts=5)
    assert line.status(3) == GrpcStatus.RESOURCE_EXHAUSTED
