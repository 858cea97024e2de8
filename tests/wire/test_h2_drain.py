"""GOAWAY in two steps: nothing that was sent before the peer could know is lost."""

from __future__ import annotations

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.connection import DRAINING
from tests.wire.h2_peer import END, OK_200, Peer, frame, headers, request

ECHO = frame(f.PING, f.ACK, 0, DRAINING)
LAST = (1 << 31) - 1


def last_id(goaway: bytes) -> int:
    return int.from_bytes(goaway[:4], "big")


def test_the_first_step_takes_no_stream_away() -> None:
    peer = Peer()
    peer.h2.drain()
    goaway, ping = peer.take()
    assert (goaway.kind, last_id(goaway.payload), goaway.code) == (f.GOAWAY, LAST, f.NO_ERROR)
    assert (ping.kind, ping.flags, ping.payload) == (f.PING, 0, DRAINING)
    peer.say(request(1))
    assert peer.owner.whole == [1]
    assert not peer.h2.done


def test_the_echo_brings_the_second_step_and_the_end() -> None:
    peer = Peer()
    peer.say(request(1))
    peer.h2.drain()
    back = peer.say(ECHO)
    assert [last_id(x.payload) for x in back if x.kind == f.GOAWAY][-1] == 1
    assert peer.h2.done


def test_what_is_under_way_is_answered_and_what_comes_after_is_not() -> None:
    peer = Peer(answers=False)
    peer.say(request(1))
    peer.h2.drain()
    peer.say(ECHO)
    assert not peer.h2.done
    peer.say(request(3))
    assert peer.owner.whole == [1]
    assert peer.verdict == "connection 0"
    peer.h2.reply(peer.owner.streams[1], OK_200, b"late", END)
    assert [x.payload for x in peer.take() if x.kind == f.DATA] == [b"late"]
    assert peer.h2.done


def test_the_head_of_a_stream_that_comes_too_late_still_counts_for_the_table() -> None:
    peer = Peer(answers=False)
    peer.say(request(1, ends=False))
    peer.h2.drain()
    peer.say(ECHO)
    adding = b"\x40\x01x\x011"
    flags = f.END_HEADERS | f.END_STREAM
    peer.say(frame(f.HEADERS, flags, 3, headers() + adding))
    peer.say(frame(f.HEADERS, flags, 1, b"\xbe"))  # trailers that name what was added
    assert peer.verdict == "connection 0"
    assert peer.owner.whole == [1]


def test_another_echo_is_not_the_one() -> None:
    peer = Peer()
    peer.h2.drain()
    peer.say(frame(f.PING, f.ACK, 0, b"somebody"))
    assert len(peer.of(f.GOAWAY)) == 1


def test_a_drain_is_begun_once_and_can_be_ended_without_its_echo() -> None:
    peer = Peer()
    peer.h2.drain()
    peer.h2.drain()
    peer.h2.refuse_new()
    peer.h2.refuse_new()
    assert [x.kind for x in peer.take()] == [f.GOAWAY, f.PING, f.GOAWAY]
    assert peer.h2.done


def test_a_peer_that_goes_is_answered_first() -> None:
    peer = Peer(answers=False)
    peer.say(request(1), frame(f.GOAWAY, 0, 0, bytes(8)))
    assert not peer.h2.done
    peer.h2.reply(peer.owner.streams[1], OK_200, b"", END)
    assert peer.h2.done


def test_streams_of_a_lost_connection_are_told_once() -> None:
    peer = Peer(answers=False)
    peer.say(request(1), request(3, ends=False))
    peer.h2.close()
    peer.h2.close()
    assert sorted(peer.owner.ended) == [1, 3]
    peer.h2.reply(peer.owner.streams[1], OK_200, b"too late", END)
    assert peer.take() == []


def test_an_answer_before_the_request_is_whole_ends_it() -> None:
    peer = Peer(answers=False)
    peer.say(request(1, ends=False))
    peer.h2.start(peer.owner.streams[1], OK_200, last=True)
    answer, reset = peer.take()
    assert answer.flags & f.END_STREAM
    assert (reset.kind, reset.code) == (f.RST_STREAM, f.NO_ERROR)
    peer.say(frame(f.DATA, f.END_STREAM, 1, b"late"))
    assert peer.verdict == "fine"
    assert peer.owner.ended == []
