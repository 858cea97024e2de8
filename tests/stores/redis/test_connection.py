"""A connection on a loop and a transport moved by hand: order, bounds, lateness, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.wire.resp import ErrorReply, command
from tests.stores.redis.hand import Wire

Wires = Callable[..., Wire]


@pytest.fixture
def wires() -> Iterator[Wires]:
    made: list[Wire] = []

    def make(**settings: Any) -> Wire:
        made.append(Wire(**settings))
        return made[-1]

    yield make
    for wire in made:
        wire.close()


def detail_of(future: asyncio.Future[Any]) -> str:
    error = future.exception()
    assert isinstance(error, Unavailable), error
    return error.detail


def test_calls_of_one_turn_leave_in_one_write_and_in_order(wires: Wires) -> None:
    wire = wires()
    for number in range(100):
        wire.ask("ECHO", number)
    assert wire.transport.writes == []
    wire.loop.turn()
    assert wire.transport.writes == [b"".join(command("ECHO", n) for n in range(100))]


@pytest.mark.parametrize("size", range(1, 60))
def test_answers_find_their_calls_wherever_the_bytes_are_split(wires: Wires, size: int) -> None:
    wire = wires()
    calls = [wire.ask("ANY") for _ in range(6)]
    wire.loop.turn()
    data = b"+OK\r\n:12\r\n$3\r\na\r\n\r\n*2\r\n$1\r\nx\r\n_\r\n"
    data += b">2\r\n+pushed\r\n+aside\r\n#f\r\n-ERR no\r\n"
    for place in range(0, len(data), size):
        wire.answer(data[place : place + size])
    assert [one.result() for one in calls[:5]] == [b"OK", 12, b"a\r\n", [b"x", None], False]
    assert isinstance(calls[5].exception(), ErrorReply)
    assert wire.connection.inflight == 0


def test_a_cancelled_call_still_takes_its_answer(wires: Wires) -> None:
    wire = wires()
    first, second, third = wire.ask("A"), wire.ask("B"), wire.ask("C")
    first.cancel()  # before it was written
    wire.loop.turn()
    second.cancel()  # after
    wire.answer(b"+a\r\n+b\r\n+c\r\n")
    assert third.result() == b"c"


def test_an_error_reply_fails_its_call_alone(wires: Wires) -> None:
    wire = wires()
    first, second = wire.ask("A"), wire.ask("B")
    wire.loop.turn()
    wire.answer(b"-WRONGTYPE no\r\n+b\r\n")
    assert isinstance(first.exception(), ErrorReply)
    assert second.result() == b"b"
    assert wire.connection.is_open
    assert wire.owner.events == ["refused: WRONGTYPE", "heard"]


def test_what_is_not_resp_ends_the_connection_and_says_what_it_may_be(wires: Wires) -> None:
    wire = wires()
    call = wire.ask("PING")
    wire.loop.turn()
    wire.answer(b"HTTP/1.1 400 Bad Request\r\n")
    assert "is this the port of a Redis?" in detail_of(call)
    assert wire.transport.ended
    assert detail_of(wire.ask("PING")) == detail_of(call)


def test_an_answer_to_no_question_ends_the_connection(wires: Wires) -> None:
    wire = wires()
    call = wire.ask("PING")
    wire.loop.turn()
    wire.answer(b"+PONG\r\n+PONG\r\n")
    assert call.result() == b"PONG"
    assert not wire.connection.is_open


def test_more_calls_than_inflight_max_fail_at_once_until_answers_come(wires: Wires) -> None:
    wire = wires(inflight_max=3)
    calls = [wire.ask("PING") for _ in range(3)]
    assert "inflight_max" in detail_of(wire.ask("PING"))
    calls[0].cancel()  # its answer is still owed, and so its place is taken
    assert "inflight_max" in detail_of(wire.ask("PING"))
    wire.loop.turn()
    wire.answer(b"+PONG\r\n")
    again = wire.ask("PING")
    wire.loop.turn()
    wire.answer(b"+1\r\n+2\r\n+3\r\n")
    assert again.result() == b"3"


def test_a_socket_that_takes_nothing_holds_no_more_than_its_bound(wires: Wires) -> None:
    wire = wires(unsent_bytes_max=4_096)
    wire.connection.pause_writing()
    calls = [wire.ask("SET", "key", "x" * 1_000) for _ in range(4)]
    wire.loop.turn()
    assert wire.transport.writes == []
    assert "unsent_bytes_max" in detail_of(calls[-1])
    wire.connection.resume_writing()
    assert len(wire.transport.writes) == 1
    wire.answer(b"+1\r\n+2\r\n+3\r\n")
    assert [one.result() for one in calls[:3]] == [b"1", b"2", b"3"]
    again = wire.ask("SET", "key", "x" * 1_000)
    wire.loop.turn()
    wire.answer(b"+4\r\n")
    assert again.result() == b"4"


def test_a_command_that_can_never_be_sent_is_the_askers_fault(wires: Wires) -> None:
    error = wires(unsent_bytes_max=4_096).ask("SET", "key", "x" * 5_000).exception()
    assert isinstance(error, BadValue)


def test_a_reply_without_end_ends_the_connection(wires: Wires) -> None:
    wire = wires(reply_bytes_max=1_024)
    call = wire.ask("GET", "key")
    wire.loop.turn()
    wire.answer(b"$100000\r\n" + b"x" * 2_000)
    assert not wire.connection.is_open
    assert "reply_bytes_max" in detail_of(call)


def test_a_call_fails_between_one_and_one_and_a_quarter_time_outs(wires: Wires) -> None:
    wire = wires(timeout_us=10_000)
    call = wire.ask("PING")
    wire.loop.turn()
    wire.loop.advance(ms=9.9, steps=99)
    assert not call.done()
    wire.loop.advance(ms=2.6, steps=26)
    assert detail_of(call) == "no answer in 10 ms"
    assert wire.owner.events == ["missed: no answer in 10 ms"]


def answered_after(wire: Wire, ms: float) -> bool:
    """Ask, let the answer arrive after `ms`, and return whether that was in time."""
    call = wire.ask("PING")
    wire.loop.turn()
    wire.loop.advance(ms=ms, steps=max(int(ms), 1))
    wire.answer(b"+PONG\r\n")
    return call.exception() is None


def test_slower_path_is_learned_from_late_answers(wires: Wires) -> None:
    wire = wires()
    for _ in range(3_000):
        assert answered_after(wire, 0.5)
    in_time = [answered_after(wire, 69) for _ in range(6)]
    assert in_time == [False, *[True] * 5]
    assert wire.path.late == 1


def test_path_that_was_never_measured_has_the_longest_timeout(wires: Wires) -> None:
    wire = wires()
    assert answered_after(wire, 140)
    assert not answered_after(wire, 190)


def test_late_answers_of_fixed_timeout_are_counted_and_change_nothing(wires: Wires) -> None:
    wire = wires(timeout_us=10_000)
    assert [answered_after(wire, 30) for _ in range(5)] == [False] * 5
    assert wire.path.late == 5


def test_silence_after_quick_path_fails_calls_at_floor(wires: Wires) -> None:
    wire = wires()
    for _ in range(3_000):
        assert answered_after(wire, 0.5)
    call = wire.ask("PING")
    wire.loop.turn()
    wire.loop.advance(ms=13, steps=13)
    assert detail_of(call) == "no answer in 10 ms"


def test_a_large_command_and_a_large_reply_have_the_time_of_a_slow_link(wires: Wires) -> None:
    wire = wires(timeout_us=10_000, unsent_bytes_max=64 << 20, reply_bytes_max=64 << 20)
    size = 1_250_000 + (256 << 10)  # 100 ms of 100 Mbit/s, and what takes none
    write = wire.ask("SET", "key", "x" * size)
    wire.loop.turn()
    wire.loop.advance(ms=105, steps=105)
    assert not write.done()
    wire.answer(b"+OK\r\n")
    assert write.result() == b"OK"
    read = wire.ask("GET", "key")
    wire.loop.turn()
    wire.answer(b"$%d\r\n" % size + b"x" * size)
    wire.loop.advance(ms=105, steps=105)
    assert not read.done()
    wire.loop.advance(ms=10, steps=10)  # and no more of it comes
    assert detail_of(read) == "no answer in 10 ms"


def test_a_late_answer_goes_to_nobody_and_the_next_to_its_call(wires: Wires) -> None:
    wire = wires(timeout_us=10_000)
    late = wire.ask("A")
    wire.loop.turn()
    wire.loop.advance(ms=8)
    in_time = wire.ask("B")
    wire.loop.turn()
    wire.loop.advance(ms=5)
    assert late.exception() is not None
    wire.answer(b"+a\r\n")
    assert wire.owner.events == ["missed: no answer in 10 ms"]  # too late to be a good sign
    wire.answer(b"+b\r\n")
    assert in_time.result() == b"b"
    assert wire.owner.events[-1] == "heard"


def test_a_program_that_was_late_itself_reads_before_it_complains(wires: Wires) -> None:
    wire = wires(timeout_us=10_000)
    call = wire.ask("PING")
    wire.loop.turn()
    wire.loop.now += 5  # something held the loop for five seconds
    wire.loop.turn()
    assert not call.done()
    wire.answer(b"+PONG\r\n")
    wire.loop.turn()
    assert call.result() == b"PONG"
    assert wire.owner.events == ["heard"]


def test_ten_thousand_calls_over_a_second_cost_a_timer_each_few_milliseconds(wires: Wires) -> None:
    wire = wires(timeout_us=10_000)
    for _ in range(1_000):
        for _ in range(10):
            wire.ask("PING")
        wire.loop.advance(ms=1, steps=1)
        wire.answer(b"+PONG\r\n" * 10)
    assert wire.loop.timers_made <= 1_000 / 10 + 2


def test_a_timer_set_for_silence_does_not_delay_the_next_time_out(wires: Wires) -> None:
    wire = wires(timeout_us=10_000, silence_us_max=1_000_000)
    first = wire.ask("A")
    wire.loop.turn()
    wire.loop.advance(ms=100)
    assert first.exception() is not None
    second = wire.ask("B")
    wire.loop.turn()
    wire.loop.advance(ms=13, steps=13)
    assert second.exception() is not None
    assert wire.connection.is_open


def test_a_server_that_stays_silent_loses_its_connection(wires: Wires) -> None:
    wire = wires(timeout_us=10_000, silence_us_max=200_000)
    call = wire.ask("PING")
    wire.loop.turn()
    wire.loop.advance(ms=190, steps=190)
    assert call.exception() is not None
    still_open = wire.connection.is_open
    wire.loop.advance(ms=20, steps=20)
    assert (still_open, wire.connection.is_open) == (True, False)
    assert wire.owner.events[-1].startswith("lost: it has said nothing for 200 ms")


def test_a_server_that_answered_late_owes_nothing_any_more(wires: Wires) -> None:
    wire = wires(timeout_us=10_000, silence_us_max=200_000)
    late = wire.ask("PING")
    wire.loop.turn()
    wire.loop.advance(ms=100, steps=100)
    assert late.exception() is not None
    wire.answer(b"+PONG\r\n")
    wire.loop.advance(ms=1_000, steps=100)
    assert wire.connection.is_open
    assert wire.loop.timers == []


def test_an_idle_connection_is_not_silent(wires: Wires) -> None:
    wire = wires(timeout_us=10_000, silence_us_max=200_000)
    wire.ask("PING")
    wire.loop.turn()
    wire.answer(b"+PONG\r\n")
    wire.loop.advance(ms=60_000, steps=1_000)
    assert wire.connection.is_open
    assert wire.loop.timers == []


def test_whoever_waits_when_it_ends_is_told_why(wires: Wires) -> None:
    wire = wires()
    written = wire.ask("A")
    wire.loop.turn()
    unsent = wire.ask("B")
    wire.connection.connection_lost(ConnectionResetError("reset by peer"))
    assert "reset by peer" in detail_of(written)
    assert detail_of(unsent) == detail_of(written)
    assert len(wire.owner.events) == 1
    wire.loop.turn()
    assert len(wire.transport.writes) == 1
