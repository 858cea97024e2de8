"""Flow control, both ways: nothing beyond the peer's windows, and ours open again as we take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from tests.wire.h2_peer import END, OK_200, Peer, frame, request, settings, update

NARROW = H2Settings(stream_window_bytes=65_535, connection_window_bytes=65_535)


def body(peer: Peer, stream: int) -> bytes:
    return b"".join([x.payload for x in peer.of(f.DATA, stream)])


def test_our_windows_are_told_at_once() -> None:
    peer = Peer(greets=False)
    frames = peer.take()
    assert frames[0].kind == f.SETTINGS
    window = H2Settings().stream_window_bytes
    assert b"\0\x04" + window.to_bytes(4, "big") in frames[0].payload
    more = H2Settings().connection_window_bytes - 65_535
    assert frames[1] == (f.WINDOW_UPDATE, 0, 0, more.to_bytes(4, "big"))


def test_an_answer_waits_for_the_streams_window() -> None:
    peer = Peer(body=b"0123456789")
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 4)), request(1))
    assert body(peer, 1) == b"0123"
    peer.say(update(1, 3))
    assert body(peer, 1) == b"0123456"
    assert not peer.of(f.HEADERS, 1)[-1].flags & f.END_STREAM
    peer.say(update(1, 3))
    assert body(peer, 1) == b"0123456789"
    assert peer.of(f.HEADERS, 1)[-1].flags & f.END_STREAM
    assert peer.h2.streams == {}


def test_an_answer_waits_for_the_connections_window() -> None:
    peer = Peer(body=bytes(40_000))
    peer.say(request(1), request(3))
    assert len(body(peer, 1)) + len(body(peer, 3)) == 65_535
    peer.say(update(0, 20_000))
    assert len(body(peer, 3)) == 40_000
    assert peer.of(f.HEADERS, 3)[-1].flags & f.END_STREAM


def test_many_small_answers_use_the_connections_window_up() -> None:
    peer = Peer(body=bytes(16_000))
    for stream in (1, 3, 5, 7, 9):
        peer.say(request(stream))
    assert sum(len(x.payload) for x in peer.of(f.DATA)) == 65_535
    peer.say(update(0, 100_000))
    assert sum(len(x.payload) for x in peer.of(f.DATA)) == 80_000


def test_an_answer_of_nothing_needs_no_window() -> None:
    peer = Peer(body=b"")
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 0)), request(1))
    assert peer.h2.streams == {}


def test_a_new_first_window_applies_to_streams_that_are_open_also_below_nothing() -> None:
    peer = Peer(body=b"0123456789")
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 4)), request(1))
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 2)))  # the stream's is now -2
    peer.say(update(1, 2))
    assert body(peer, 1) == b"0123"
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 3)))
    assert body(peer, 1) == b"01234"


def test_of_several_first_windows_in_one_frame_the_last_counts() -> None:
    peer = Peer(body=b"0123456789")
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 4)), request(1))
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 9), (f.INITIAL_WINDOW_SIZE, 6)))
    assert body(peer, 1) == b"012345"
    peer.say(request(3))
    assert body(peer, 3) == b"012345"


def test_a_large_answer_is_cut_into_the_peers_frames() -> None:
    peer = Peer(body=bytes(40_000))
    peer.say(request(1))
    assert [len(x.payload) for x in peer.of(f.DATA)] == [16_384, 16_384, 7_232]
    wide = Peer(body=bytes(40_000))
    wide.say(settings((f.MAX_FRAME_SIZE, 50_000)), request(1))
    assert [len(x.payload) for x in wide.of(f.DATA)] == [40_000]


def test_the_backlog_is_bounded_and_the_stream_beyond_it_is_reset() -> None:
    peer = Peer(H2Settings(backlog_bytes_max=65_536), body=bytes(40_000))
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 0)), request(1), request(3))
    assert peer.verdict == f"stream 3 {f.ENHANCE_YOUR_CALM}"
    assert peer.owner.ended == [3]
    peer.say(update(1, 40_000))
    peer.say(request(5))  # and what has left makes room
    assert list(peer.h2.streams) == [5]
    assert [x.stream for x in peer.of(f.RST_STREAM)] == [3]


def test_what_was_queued_for_a_reset_stream_is_forgotten() -> None:
    peer = Peer(H2Settings(backlog_bytes_max=65_536), body=bytes(60_000))
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 0)), request(1))
    peer.say(frame(f.RST_STREAM, 0, 1, b"\0\0\0\x08"), request(3))
    assert peer.verdict == "fine"
    peer.say(update(0, 1_000))
    assert body(peer, 1) == b""


def test_the_connections_window_opens_again_at_half() -> None:
    peer = Peer(NARROW)
    peer.say(request(1, ends=False))
    part = frame(f.DATA, 0, 1, bytes(16_000))
    peer.say(part, part)
    assert not peer.of(f.WINDOW_UPDATE)
    peer.say(part)
    assert {x.stream: int.from_bytes(x.payload, "big") for x in peer.of(f.WINDOW_UPDATE)} == {
        0: 48_000,
        1: 48_000,
    }


def test_padding_counts_and_comes_back() -> None:
    peer = Peer(NARROW)
    peer.say(request(1, ends=False))
    for _ in range(200):
        peer.say(frame(f.DATA, f.PADDED, 1, b"\xff" + bytes(255) + b"x"))
    for stream in (0, 1):
        more = sum(int.from_bytes(x.payload, "big") for x in peer.of(f.WINDOW_UPDATE, stream))
        assert more >= 200 * 257 - 32_768
    assert peer.verdict == "fine"


def test_a_peer_beyond_the_streams_window_loses_the_stream() -> None:
    peer = Peer(H2Settings(stream_window_bytes=65_535), answers=False)
    peer.say(request(1, ends=False))
    peer.owner.streams[1].consumes = False
    peer.say(*[frame(f.DATA, 0, 1, bytes(16_384))] * 4)
    assert peer.verdict == f"stream 1 {f.FLOW_CONTROL_ERROR}"


def test_a_peer_beyond_the_connections_window_loses_the_connection() -> None:
    peer = Peer(NARROW, answers=False)
    peer.h2._receive_window = 10  # it opens as fast as any honest peer can fill it
    peer.say(request(1, ends=False), frame(f.DATA, 0, 1, bytes(11)))
    assert peer.verdict == f"connection {f.FLOW_CONTROL_ERROR}"


def test_a_stream_whose_bytes_are_held_opens_only_as_they_are_taken() -> None:
    peer = Peer(NARROW, answers=False)
    peer.say(request(1, ends=False))
    stream = peer.owner.streams[1]
    stream.consumes = False
    peer.say(*[frame(f.DATA, 0, 1, bytes(16_000))] * 3)
    assert not peer.of(f.WINDOW_UPDATE, 1)
    peer.h2.consume(stream, 40_000)
    peer.take()
    assert [x.payload for x in peer.of(f.WINDOW_UPDATE, 1)] == [(40_000).to_bytes(4, "big")]


def test_a_stream_is_told_when_what_it_said_has_left() -> None:
    peer = Peer(answers=False)
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 3)), request(1))
    stream = peer.owner.streams[1]
    peer.h2.start(stream, OK_200)
    peer.h2.send(stream, b"abcd")
    assert peer.owner.flowed == []
    peer.say(update(1, 1))
    assert peer.owner.flowed == [1]
    peer.h2.finish(stream, END)
    assert peer.take()[-1].flags & f.END_STREAM


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=5),
    st.integers(0, 50),
    st.lists(
        st.one_of(
            st.tuples(st.just("stream"), st.integers(0, 4), st.integers(1, 60)),
            st.tuples(st.just("settings"), st.just(0), st.integers(0, 60)),
        ),
        max_size=30,
    ),
)
def test_no_byte_leaves_beyond_a_window_and_none_is_lost_or_changed(
    bodies: list[bytes], first: int, steps: list[tuple[str, int, int]]
) -> None:
    peer = Peer(answers=False)
    peer.say(settings((f.INITIAL_WINDOW_SIZE, first)))
    windows: dict[int, int] = {}
    for number, each in enumerate(bodies):
        at = 2 * number + 1
        peer.say(request(at))
        peer.h2.reply(peer.owner.streams[at], OK_200, each, END)
        windows[at] = first
    peer.take()
    sent = {at: len(body(peer, at)) for at in windows}
    for kind, which, more in steps:
        at = 2 * which + 1
        if kind == "settings":
            windows = {key: value + more - first for key, value in windows.items()}
            first = more
            peer.say(settings((f.INITIAL_WINDOW_SIZE, more)))
        elif at in windows:
            windows[at] += more
            peer.say(update(at, more))
        for key, each in zip(windows, bodies, strict=True):
            sent[key] = max(sent[key], min(len(each), windows[key]))
            assert len(body(peer, key)) == sent[key]
    for number, each in enumerate(bodies):
        at = 2 * number + 1
        if at in peer.h2.streams:
            peer.say(update(at, 10_000))
        assert body(peer, at) == each
        assert peer.of(f.HEADERS, at)[-1].flags & f.END_STREAM
    assert peer.h2.streams == {}


def test_what_is_to_be_sent_may_be_taken_in_pieces() -> None:
    whole, pieces = Peer(body=bytes(40_000)), Peer(body=bytes(40_000))
    for peer in (whole, pieces):
        peer.h2.receive(request(1) + request(3), peer.now_us)
        peer.h2.read_on(peer.now_us)
    taken = []
    while pieces.h2.out:
        taken.append(pieces.h2.take(10_000))
    assert pieces.h2.backlog_bytes == 80_000 - 65_535
    assert b"".join(taken) == whole.h2.take()
    assert {len(piece) for piece in taken[:-1]} == {10_000}


def test_a_portion_ends_after_its_frames_and_its_bytes() -> None:
    peer = Peer(H2Settings(portion_frames_max=2, portion_bytes_max=1_024), body=b"")
    peer.h2.receive(b"".join([request(1 + 2 * at) for at in range(5)]), peer.now_us)
    assert peer.owner.whole == [1, 3]
    assert peer.h2.waiting
    peer.h2.hold(request(11))
    peer.h2.read_on(peer.now_us)
    assert peer.owner.whole == [1, 3, 5, 7]
    peer.say()
    assert peer.owner.whole == [1, 3, 5, 7, 9, 11]
    peer.owner.body = bytes(2_000)  # what is sent is work too
    peer.h2.receive(request(13) + request(15), peer.now_us)
    assert peer.owner.whole[-1] == 13


def test_a_whole_response_that_does_not_move_is_given_up() -> None:
    peer = Peer(body=b"0123456789")
    peer.say(settings((f.INITIAL_WINDOW_SIZE, 4)), request(1))
    peer.now_us += 29_000_000
    peer.say(update(1, 1))
    peer.h2.sweep(peer.now_us + 29_999_999)
    assert list(peer.h2.streams) == [1]
    peer.h2.sweep(peer.now_us + 30_000_000)
    peer.take()
    assert peer.verdict == f"stream 1 {f.CANCEL}"
    assert peer.h2.backlog_bytes == 0
