"""Every frame on a stream in every state does what the table says, on a real connection."""

from __future__ import annotations

import pytest

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.stream_states import TABLE, FrameVerdict, StreamState
from tests.wire.h2_peer import Peer, frame, headers, request, update

STREAM = 3
FRAMES = {
    f.HEADERS: frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, STREAM, headers((("a", "b"),))),
    f.DATA: frame(f.DATA, f.END_STREAM, STREAM, b"x"),
    f.RST_STREAM: frame(f.RST_STREAM, 0, STREAM, bytes(4)),
    f.WINDOW_UPDATE: update(STREAM, 1),
}
VERDICTS = {
    FrameVerdict.BEGIN: "fine",
    FrameVerdict.ACCEPT: "fine",
    FrameVerdict.LATE: "fine",
    FrameVerdict.STREAM_CLOSED: f"stream {STREAM} {f.STREAM_CLOSED}",
    FrameVerdict.CONNECTION_CLOSED: f"connection {f.STREAM_CLOSED}",
    FrameVerdict.PROTOCOL_ERROR: f"connection {f.PROTOCOL_ERROR}",
}


def peer_with_stream(state: StreamState) -> Peer:
    peer = Peer(answers=state is StreamState.CLOSED)
    if state in {StreamState.OPEN, StreamState.RESET}:
        peer.say(request(STREAM, ends=False))
    elif state in {StreamState.HALF_CLOSED, StreamState.CLOSED}:
        peer.say(request(STREAM))
    elif state is StreamState.SKIPPED:
        peer.say(request(STREAM + 2))
    elif state is StreamState.REFUSED:
        peer.h2.refuse_new()
    if state is StreamState.RESET:
        peer.h2.reset(peer.h2.streams[STREAM], f.CANCEL)
    peer.take()
    peer.sent.clear()
    return peer


@pytest.mark.parametrize(("state", "kind"), TABLE, ids=lambda one: str(getattr(one, "value", one)))
def test_a_frame_does_what_the_table_says(state: StreamState, kind: int) -> None:
    peer = peer_with_stream(state)
    sent = FRAMES[kind]
    if TABLE[state, kind] is FrameVerdict.BEGIN:
        sent = request(STREAM)
    peer.say(sent)
    verdict = VERDICTS[TABLE[state, kind]]
    if peer.verdict.startswith("connection") and verdict == "fine":
        assert peer.of(f.GOAWAY)[0].code == f.NO_ERROR
    else:
        assert peer.verdict == verdict
    assert peer.say(frame(f.PING, 0, 0, bytes(8))) != [] or verdict.startswith("connection")


def test_the_table_has_every_frame_in_every_state() -> None:
    assert set(TABLE) == {(state, kind) for state in StreamState for kind in FRAMES}
