"""Floods: traffic that costs us more than its sender is refused, by the name of its bound.

Each is driven to its bound, which is well, and one beyond it, which ends the connection.
"""

from __future__ import annotations

import pytest

from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from tests.wire.h2_peer import Peer, frame, headers, request, settings, update

SMALL = H2Settings(
    resets_per_s_max=10,
    settings_per_s_max=10,
    pings_per_s_max=10,
    empty_frames_per_s_max=10,
    window_updates_per_s_max=10,
    continuations_max=10,
    header_block_bytes_max=1_024,
    rapid_reset_us=10_000,
)
CALM = f"connection {f.ENHANCE_YOUR_CALM}"
RESET = b"\0\0\0\x08"


def rapid(at: int) -> bytes:
    stream = 3 + 2 * at
    return request(stream, ends=False) + frame(f.RST_STREAM, 0, stream, RESET)


def malformed(at: int) -> bytes:
    return request(3 + 2 * at, ("te", "gzip"))


FLOODS = [
    ("resets_per_s_max", rapid),
    ("resets_per_s_max", malformed),  # to be made to reset is no better
    ("settings_per_s_max", lambda _at: settings()),
    ("pings_per_s_max", lambda _at: frame(f.PING, 0, 0, bytes(8))),
    ("empty_frames_per_s_max", lambda _at: frame(f.DATA, 0, 1)),
    ("empty_frames_per_s_max", lambda _at: frame(f.DATA, f.PADDED, 1, b"\x05" + bytes(5))),
    ("empty_frames_per_s_max", lambda _at: frame(f.PRIORITY, 0, 1, bytes(5))),
    ("empty_frames_per_s_max", lambda _at: frame(0x77, 0, 0, b"?")),
    ("empty_frames_per_s_max", lambda _at: f.SETTINGS_ACK),
    ("empty_frames_per_s_max", lambda _at: frame(f.PING, f.ACK, 0, bytes(8))),
    ("empty_frames_per_s_max", lambda _at: frame(f.GOAWAY, 0, 0, bytes(8))),
    ("window_updates_per_s_max", lambda _at: update(0, 1)),
    ("window_updates_per_s_max", lambda _at: update(1, 1)),
]
NAMES = [f"{name} {number}" for number, (name, _) in enumerate(FLOODS)]


def flooded(count: int, flood: object, us_between: int = 0) -> Peer:
    assert callable(flood)
    peer = Peer(SMALL, answers=False)
    peer.say(request(1, ends=False))
    peer.sent.clear()
    peer.now_us += 2_000_000  # the greeting's own SETTINGS are forgotten
    for at in range(count):
        peer.say(flood(at))
        peer.now_us += us_between
    return peer


@pytest.mark.parametrize(("bound", "flood"), FLOODS, ids=NAMES)
def test_a_flood_ends_the_connection_just_beyond_its_bound(bound: str, flood: object) -> None:
    assert "connection" not in flooded(10, flood).verdict
    peer = flooded(11, flood)
    goaway = peer.of(f.GOAWAY)[0]
    assert f"connection {goaway.code}" == CALM
    assert bound in goaway.payload.decode("latin-1")
    assert peer.h2.fault is not None
    assert peer.h2.fault.flood == bound


@pytest.mark.parametrize(("bound", "flood"), FLOODS, ids=NAMES)
def test_the_same_over_a_longer_time_is_none(bound: str, flood: object) -> None:
    assert bound
    assert "connection" not in flooded(100, flood, us_between=100_000).verdict


def test_a_block_in_too_many_frames_is_a_flood() -> None:
    peer = Peer(SMALL)
    block = headers()
    peer.say(frame(f.HEADERS, f.END_STREAM, 1, block), *[frame(f.CONTINUATION, 0, 1)] * 10)
    assert peer.verdict == "fine"
    peer.say(frame(f.CONTINUATION, 0, 1))
    assert peer.verdict == CALM
    assert peer.h2.fault is not None
    assert peer.h2.fault.flood == "continuations_max"


def test_a_block_of_too_many_bytes_is_a_flood() -> None:
    peer = Peer(SMALL)
    peer.say(frame(f.HEADERS, 0, 1, bytes(1_000)), frame(f.CONTINUATION, 0, 1, bytes(24)))
    assert peer.verdict == "fine"
    peer.say(frame(f.CONTINUATION, 0, 1, b"x"))
    assert peer.verdict == CALM
    assert peer.h2.fault is not None
    assert peer.h2.fault.flood == "header_block_bytes_max"


def test_too_many_settings_in_one_frame_are_a_flood() -> None:
    peer = Peer()
    peer.say(settings(*[(f.INITIAL_WINDOW_SIZE, at) for at in range(32)]))
    assert peer.verdict == "fine"
    peer.say(settings(*[(f.INITIAL_WINDOW_SIZE, at) for at in range(33)]))
    assert peer.verdict == CALM
    assert peer.h2.fault is not None
    assert peer.h2.fault.flood == "settings_entries_max"


def test_streams_refused_beyond_the_bound_are_resets_too() -> None:
    peer = Peer(H2Settings(streams_max=1, resets_per_s_max=10), answers=False)
    for at in range(11):
        peer.say(request(1 + 2 * at))
    assert peer.verdict == f"stream 3 {f.REFUSED_STREAM}"
    peer.say(request(31))
    assert peer.h2.fault is not None


def test_a_caller_that_gives_up_after_waiting_is_no_flood() -> None:
    peer = Peer(SMALL, answers=False)
    for at in range(100):
        stream = 1 + 2 * at
        peer.say(request(stream))
        peer.now_us += 10_000 if at % 2 else 20_000
        peer.say(frame(f.RST_STREAM, 0, stream, RESET))
        peer.now_us -= 9_000
    assert peer.verdict == "fine"
    assert len(peer.owner.ended) == 100


def test_a_ping_with_every_call_is_no_flood() -> None:
    peer = Peer(SMALL)
    for at in range(100):
        peer.say(request(1 + 2 * at), frame(f.PING, 0, 0, bytes(8)), update(0, 5))
    assert peer.verdict == "fine"


def test_answered_calls_do_not_pay_for_resets() -> None:
    peer = Peer(SMALL)
    for at in range(20):
        peer.say(request(1 + 4 * at), rapid(2 * at))
    assert peer.verdict == CALM


def test_a_flood_leaves_no_stream_behind() -> None:
    peer = flooded(11, rapid)
    assert peer.h2.streams == {}
    assert peer.owner.ended[-1] == 1  # the one that was honest is told, too


def test_no_settings_in_time_end_it() -> None:
    peer = Peer(greets=False)
    peer.say(f.PREFACE)
    peer.h2.sweep(peer.now_us + 9_999_999)
    assert peer.verdict == "fine"
    peer.h2.sweep(peer.now_us + 10_000_000)
    peer.take()
    assert peer.verdict == f"connection {f.SETTINGS_TIMEOUT}"


def test_a_request_that_does_not_come_whole_in_time_is_ended_and_others_are_not() -> None:
    peer = Peer(answers=False)
    peer.say(request(1, ends=False), request(3))
    peer.h2.sweep(peer.now_us + 29_999_999)
    assert peer.take() == []
    peer.h2.sweep(peer.now_us + 30_000_000)
    peer.take()
    assert peer.verdict == f"stream 1 {f.CANCEL}"
    assert list(peer.h2.streams) == [3]


def test_half_a_frame_for_too_long_ends_the_connection() -> None:
    for half in (request(1)[:5], frame(f.HEADERS, f.END_STREAM, 1, headers())):
        peer = Peer()
        peer.say(half)
        peer.h2.sweep(peer.now_us + 30_000_000)
        peer.take()
        assert peer.verdict == CALM


@pytest.mark.parametrize("begun", [b"", request(1), frame(f.HEADERS, f.END_STREAM, 3, b"")])
def test_a_frame_or_a_block_that_drips_is_not_waited_for_longer(begun: bytes) -> None:
    peer = Peer(answers=False)
    peer.say(begun)
    drips = (
        frame(f.CONTINUATION, 0, 3, bytes(100)) if len(begun) == 9 else request(5, ("a", "b" * 90))
    )
    for at in range(3):
        assert peer.verdict == "fine"
        peer.say(drips[10 * at : 10 * at + 10])
        peer.now_us += 10_000_000
        peer.h2.sweep(peer.now_us)
    peer.take()
    assert peer.verdict == CALM


def test_an_idle_connection_is_ended_in_peace() -> None:
    peer = Peer()
    done = []
    for idle_us in (3_599_999_999, 3_600_000_000):
        peer.h2.sweep(peer.now_us + idle_us)
        done.append(peer.h2.done)
    assert done == [False, True]
    assert peer.take()[0].code == f.NO_ERROR


def test_a_connection_with_a_stream_is_not_idle() -> None:
    peer = Peer(answers=False)
    peer.say(request(1))
    peer.h2.sweep(peer.now_us + 4_000_000_000)
    assert not peer.h2.done
