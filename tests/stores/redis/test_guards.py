"""Guards: answers are held back until they are proved, and a shift by any number is noticed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.connection import GUARDED_CALLS_MAX, GuardWords, RedisCall
from sluicegate.wire.resp import ErrorReply, command
from tests.stores.redis.hand import Wire

GUARD = re.compile(rb"\*2\r\n\$4\r\nPING\r\n\$20\r\n([0-9a-f]{8}[0-9]{12})\r\n")


@pytest.fixture
def wire() -> Iterator[Wire]:
    one = Wire(timeout_us=10_000, inflight_max=10_000)
    one.connection.guard()
    yield one
    one.close()


def asked(wire: Wire, count: int) -> list[asyncio.Future[Any]]:
    """Calls that ask for their own numbers, in one write."""
    calls = [wire.ask("ECHO", number) for number in range(count)]
    wire.loop.turn()
    return calls


def answers(wire: Wire, write: int = -1) -> list[bytes]:
    """The replies to a write, the guard's text last."""
    text = GUARD.findall(wire.transport.writes[write])[-1]
    echoes = re.findall(rb"ECHO\r\n\$\d+\r\n(\d+)\r\n", wire.transport.writes[write])
    return [b"+%b\r\n" % one for one in [*echoes, text]]


def test_answers_wait_for_guard_behind_them(wire: Wire) -> None:
    calls = asked(wire, 3)
    replies = answers(wire)
    wire.answer(b"".join(replies[:3]))
    assert not any(call.done() for call in calls)
    wire.answer(replies[3])
    assert [call.result() for call in calls] == [b"0", b"1", b"2"]
    assert wire.owner.events == ["heard"]


@pytest.mark.parametrize("lost", range(5))
def test_missing_reply_ends_connection_and_fails_calls(wire: Wire, lost: int) -> None:
    calls, replies = asked(wire, 4), []
    replies += answers(wire)
    calls += asked(wire, 4)
    replies += answers(wire)
    del replies[lost]
    wire.answer(b"".join(replies))
    assert all(isinstance(call.exception(), Unavailable) for call in calls)
    assert not wire.connection.is_open


@pytest.mark.parametrize("place", range(5))
def test_extra_reply_ends_connection_and_fails_calls(wire: Wire, place: int) -> None:
    calls = asked(wire, 4)
    replies = answers(wire)
    replies.insert(place, b"+stray\r\n")
    wire.answer(b"".join(replies))
    assert all(isinstance(call.exception(), Unavailable) for call in calls)
    assert not wire.connection.is_open


def test_reply_before_first_call_ends_connection(wire: Wire) -> None:
    wire.answer(b"+stray\r\n")
    assert not wire.connection.is_open


def test_lost_write_ends_connection_and_fails_calls(wire: Wire) -> None:
    """The effect of the flush that raised: calls in the queue but not on the wire."""
    lost = asked(wire, 4)
    wire.transport.writes.clear()
    later = asked(wire, 4)
    wire.answer(b"".join(answers(wire)))
    assert all(isinstance(call.exception(), Unavailable) for call in lost + later)
    assert not wire.connection.is_open


def test_large_write_has_guard_behind_each_32_calls(wire: Wire) -> None:
    calls = asked(wire, 2 * GUARDED_CALLS_MAX + 1)
    data = wire.transport.writes[0]
    assert len(GUARD.findall(data)) == 3
    replies = re.findall(rb"\r\n\$\d+\r\n([0-9a-f]+)\r\n(?=\*|$)", data)
    wire.answer(b"".join(b"+%b\r\n" % one for one in replies[: GUARDED_CALLS_MAX + 1]))
    assert [call.done() for call in calls].count(True) == GUARDED_CALLS_MAX
    wire.answer(b"".join(b"+%b\r\n" % one for one in replies[GUARDED_CALLS_MAX + 1 :]))
    assert [call.result() for call in calls] == [b"%d" % n for n in range(len(calls))]


@pytest.mark.parametrize("before", range(GUARDED_CALLS_MAX - 2, GUARDED_CALLS_MAX + 2))
def test_guard_never_comes_between_asking_and_its_call(wire: Wire, before: int) -> None:
    for number in range(before):
        wire.ask("ECHO", number)
    wire.ask("ASKING")
    call = RedisCall(wire.loop.create_future(), command("GET", "key"))
    call.asking = True
    wire.connection.send(call)
    wire.loop.turn()
    assert command("ASKING") + command("GET", "key") in wire.transport.writes[0]


def test_errors_of_server_that_cannot_serve_need_no_proof(wire: Wire) -> None:
    calls = asked(wire, 2)
    wire.answer(b"-LOADING wait\r\n" * 3)
    assert [type(call.exception()) for call in calls] == [ErrorReply, ErrorReply]
    assert wire.connection.is_open


def test_answer_whose_guard_fails_is_not_believed(wire: Wire) -> None:
    calls = asked(wire, 2)
    wire.answer(b"+0\r\n-ERR no\r\n-BUSY wait\r\n")
    assert all(isinstance(call.exception(), Unavailable) for call in calls)
    assert not wire.connection.is_open


def test_call_times_out_while_its_answer_is_held_back(wire: Wire) -> None:
    calls = asked(wire, 2)
    replies = answers(wire)
    wire.answer(replies[0])
    wire.loop.advance(ms=13, steps=13)
    assert all(isinstance(call.exception(), Unavailable) for call in calls)
    wire.answer(b"".join(replies[1:]))
    assert wire.connection.is_open
    later = asked(wire, 1)
    wire.answer(b"".join(answers(wire)))
    assert later[0].result() == b"0"


def test_large_answers_held_back_have_time_of_slow_link(wire: Wire) -> None:
    calls = asked(wire, 2)
    size = 1_250_000 + (256 << 10)  # 100 ms of 100 Mbit/s
    wire.answer(b"$%d\r\n%b\r\n" % (size, b"x" * size))
    wire.loop.advance(ms=105, steps=105)
    assert not calls[0].done()
    wire.answer(b"".join(answers(wire)[1:]))
    assert calls[1].result() == b"1"


def test_guard_texts_of_two_connections_differ() -> None:
    assert GuardWords().next() != GuardWords().next()
