"""Whole sessions with the kept `h2` package as the peer, cut anywhere and bent anyhow."""

from __future__ import annotations

from itertools import pairwise

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, StreamEnded, TrailersReceived
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from tests.wire.h2_peer import GREETING, REQUEST, Peer, frame, request, update

BODY = b"the answer" * 20


def client() -> H2Connection:
    made = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    made.initiate_connection()
    return made


def exchange(h2_client: H2Connection, peer: Peer) -> list[Event]:
    """Let both talk until neither has anything to say."""
    events: list[Event] = []
    while data := h2_client.data_to_send():
        peer.h2.receive(data, peer.now_us)
        events += h2_client.receive_data(peer.h2.take())
    return events


def session(bodies: list[bytes]) -> tuple[bytes, Peer]:
    """All that a client says in so many calls, and the server as it was left."""
    h2_client, peer = client(), Peer(body=BODY, greets=False)
    data = b""
    for number, body in enumerate(bodies):
        stream = h2_client.get_next_available_stream_id()
        fields = [*REQUEST, ("x-number", str(number % 3))]
        h2_client.send_headers(stream, fields, end_stream=not body)
        if body:
            h2_client.send_data(stream, body[:50])
            h2_client.send_data(stream, body[50:], end_stream=True)
        data += h2_client.data_to_send()
    peer.say(data)
    return data, peer


def test_the_kept_client_is_served() -> None:
    h2_client, peer = client(), Peer(body=BODY, greets=False)
    answers = {}
    for number in range(50):
        stream = h2_client.get_next_available_stream_id()
        h2_client.send_headers(stream, [*REQUEST, ("x-number", str(number))])
        h2_client.send_data(stream, b"%d" % number, end_stream=True)
        events = exchange(h2_client, peer)
        answers[stream] = b"".join(x.data for x in events if isinstance(x, DataReceived))
        trailers = [dict(x.headers) for x in events if isinstance(x, TrailersReceived)]
        assert [list(map(str, each.items())) for each in trailers] == [["('grpc-status', '0')"]]
        assert any(isinstance(x, StreamEnded) for x in events)
    assert set(answers.values()) == {BODY}
    assert [peer.owner.bodies[s] for s in answers] == [b"%d" % n for n in range(50)]


def test_a_large_body_and_a_large_answer_pass_through_the_windows() -> None:
    h2_client, peer = client(), Peer(body=bytes(300_000), greets=False)
    got = sent = 0
    h2_client.send_headers(1, REQUEST)
    exchange(h2_client, peer)
    while sent < 1_000_000:
        size = min(1_000_000 - sent, h2_client.local_flow_control_window(1), 16_384)
        assert size
        h2_client.send_data(1, bytes(size), end_stream=sent + size == 1_000_000)
        sent += size
        for event in exchange(h2_client, peer):
            if isinstance(event, DataReceived):
                got += len(event.data)
    while got < 300_000:
        h2_client.increment_flow_control_window(20_000)
        h2_client.increment_flow_control_window(20_000, 1)
        more = [x for x in exchange(h2_client, peer) if isinstance(x, DataReceived)]
        assert more
        got += sum(len(x.data) for x in more)
    assert len(peer.owner.bodies[1]) == 1_000_000
    assert got == 300_000
    assert peer.h2.streams == {}


def test_a_client_with_another_table_size_understands_us() -> None:
    for size in (0, 100, 65_536):
        h2_client, peer = client(), Peer(greets=False)
        h2_client.update_settings({1: size})
        h2_client.send_headers(1, REQUEST, end_stream=True)
        assert any(isinstance(x, StreamEnded) for x in exchange(h2_client, peer))


@given(
    st.lists(st.binary(max_size=120), min_size=1, max_size=6),
    st.lists(st.integers(0, 2_000), max_size=12),
)
def test_any_split_of_the_bytes_gives_the_same_result(bodies: list[bytes], cuts: list[int]) -> None:
    data, whole = session(bodies)
    split = Peer(body=BODY, greets=False)
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    for begin, end in pairwise(places):
        split.say(data[begin:end])
    assert split.sent == whole.sent
    assert split.owner.bodies == whole.owner.bodies
    assert split.owner.whole == whole.owner.whole


SMALL = H2Settings(streams_max=4, backlog_bytes_max=65_536, continuations_max=2)


def unharmed(peer: Peer) -> None:
    """What must hold whatever was said."""
    assert len(peer.h2.streams) <= peer.h2.settings.streams_max
    for sent in peer.sent:
        assert len(sent.payload) <= f.FRAME_BYTES_MAX
    goaways = [each for each, x in enumerate(peer.sent) if x.kind == f.GOAWAY]
    if goaways:
        assert goaways == [len(peer.sent) - 1]
        assert peer.h2.streams == {}
    else:
        assert peer.h2.out == []


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(garbage: bytes) -> None:
    peer = Peer(SMALL, greets=False)
    peer.say(GREETING, garbage)
    unharmed(peer)


@settings(max_examples=80)
@given(
    st.lists(
        st.builds(
            frame,
            st.integers(0, 10),
            st.integers(0, 63),
            st.integers(0, 9),
            st.binary(max_size=40) | st.sampled_from([bytes(4), bytes(8), b"\0\0\x00\x05"]),
        )
        | st.builds(request, st.integers(0, 20), ends=st.booleans())
        | st.builds(update, st.integers(0, 9), st.integers(0, 100)),
        max_size=30,
    )
)
def test_any_frames_are_taken_or_refused(frames: list[bytes]) -> None:
    peer = Peer(SMALL)
    for each in frames:
        peer.say(each)
    unharmed(peer)


@settings(max_examples=80)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_bent_session_is_taken_or_refused(
    bodies: list[bytes], bends: list[tuple[int, int]]
) -> None:
    data, _ = session(bodies)
    bent = bytearray(data)
    for place, value in bends:
        bent[24 + place % (len(bent) - 24)] = value
    peer = Peer(SMALL, greets=False)
    peer.say(bytes(bent))
    unharmed(peer)


def test_two_connections_share_nothing() -> None:
    one, other = Peer(), Peer()
    adding = b"\x40\x06secret\x03one"
    block = b"\x83\x86\x84"
    flags = f.END_HEADERS | f.END_STREAM
    for _ in range(2):
        stream = 1 + 2 * len(one.owner.whole)
        one.say(frame(f.HEADERS, flags, stream, block + adding))
    one.say(frame(f.HEADERS, flags, 5, block + b"\xbe"))
    assert one.owner.heads[-1].values(b"secret") == [b"one"]
    other.say(frame(f.HEADERS, flags, 1, block + b"\xbe"))
    assert other.verdict == f"connection {f.COMPRESSION_ERROR}"


@pytest.mark.parametrize("size", [1, 9, 100, 16_384])
def test_a_frame_that_comes_slowly_is_not_copied_for_each_piece(size: int) -> None:
    peer = Peer(answers=False)
    peer.say(request(1, ends=False))
    whole = frame(f.DATA, f.END_STREAM, 1, bytes(range(256)) * (size // 256) + bytes(size % 256))
    for at in range(len(whole)):
        peer.say(whole[at : at + 1])
    assert peer.owner.bodies[1] == whole[9:]
