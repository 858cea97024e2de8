"""One connection: order, bounds, and what becomes of garbage."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.doors.resp.limiter.commands import LIMITER
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.session import Session
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import command
from tests.doors.resp.service import Service, Tokens
from tests.doors.resp.talk import Talk
from tests.stores.redis.live import run

PING, PONG = command("PING"), b"+PONG\r\n"
ASK = command("CL.THROTTLE", "ann", 2, 1, 60)


class Slow(Service):
    """Answers CL.THROTTLE when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: list[asyncio.Future[ThrottleResponse]] = []

    def throttle(self, request: ThrottleRequest, by: Identity) -> asyncio.Future[ThrottleResponse]:
        self.owed.append(asyncio.get_running_loop().create_future())
        return self.owed[-1]

    def response(self, place: int, remaining: int = 0) -> None:
        self.owed[place].set_result(ThrottleResponse(False, 1, remaining, -1, 0))


def door_of(service: Service | None = None, **options: Any) -> RespDoor:
    return RespDoor(service or Service(), Tokens(), RespSettings(**options))


def encode_throttle(remaining: int) -> bytes:
    return b"*5\r\n:0\r\n:1\r\n:%d\r\n:-1\r\n:0\r\n" % remaining


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_replies_of_one_read_leave_in_one_write() -> None:
    async def story() -> None:
        talk = Talk(door_of())
        assert (
            talk.say(PING * 3 + command("ECHO", "a") + b"ping\r\n")
            == PONG * 3 + b"$1\r\na\r\n" + PONG
        )
        assert len(talk.wire.writes) == 1
        talk.lose()

    run(story())


def test_replies_that_come_later_keep_their_place() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service))
        assert talk.say(PING + ASK + PING + ASK + PING) == PONG
        assert talk.protocol.under_way() == 4
        service.response(1, 7)
        await turns()
        assert talk.wire.output == PONG
        service.response(0, 3)
        await turns()
        assert talk.wire.output == PONG + encode_throttle(3) + PONG + encode_throttle(7) + PONG
        assert len(talk.wire.writes) == 2
        assert talk.say(PING) == PONG
        talk.lose()

    run(story())


def test_nothing_is_read_while_too_many_replies_are_owed() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service, replies_owed_max=3))
        talk.say(ASK * 5 + PING)
        assert len(service.owed) == 3
        assert not talk.wire.is_reading()
        talk.say(ASK)  # read already when we stopped
        assert len(service.owed) == 3
        service.response(0)
        await turns()
        assert len(service.owed) == 4
        assert not talk.wire.is_reading()
        for place in (1, 2, 3):
            service.response(place)
        await turns()
        assert len(service.owed) == 6
        service.response(4)
        service.response(5)
        await turns()
        assert talk.wire.is_reading()
        assert talk.wire.output == encode_throttle(0) * 5 + PONG + encode_throttle(0)
        talk.lose()

    run(story())


def test_nothing_is_read_while_what_waits_behind_a_slow_reply_weighs_too_much() -> None:
    async def story() -> None:
        service = Slow()
        size = len(encode_throttle(0))
        talk = Talk(door_of(service, replies_bytes_max=3 * size, reply_bytes_max=1_024))
        talk.say(ASK * 3)
        for place in (1, 2):
            service.response(place)
        await turns()
        talk.say(ASK)
        assert len(service.owed) == 3
        assert not talk.wire.is_reading()
        service.response(0)
        await turns()
        assert talk.wire.output == encode_throttle(0) * 3
        assert talk.wire.is_reading()
        assert len(service.owed) == 4
        service.response(3)
        await turns()
        assert talk.wire.output == encode_throttle(0) * 4
        talk.lose()

    run(story())


def test_awaited_replies_count_by_length_of_earlier_ones() -> None:
    """A pipeline of long replies: few commands run before the first of them leave."""

    async def story() -> None:
        owed: list[asyncio.Future[bytes]] = []

        def run_later(_session: Session, _parts: list[bytes]) -> asyncio.Future[bytes]:
            owed.append(asyncio.get_running_loop().create_future())
            return owed[-1]

        door = door_of(replies_bytes_max=1 << 20)
        door.wrap_commands(lambda row: row.with_run(run_later))
        talk = Talk(door)
        talk.say(PING * 100)
        assert len(owed) == 32  # before the first reply, each counts as 32 KiB
        for place in range(100):
            owed[place].set_result(bytes(64 << 10))
            await turns()
            answered = place + 1
            # Then as its 64 KiB; those that ran before are answered first.
            assert len(owed) <= max(32, answered + 16)
        assert len(talk.wire.output) == 100 * (64 << 10)  # every reply arrives
        assert talk.protocol.held_bytes() == 0
        talk.lose()

    run(story())


def test_command_that_was_read_and_waits_counts_as_held() -> None:
    async def story() -> None:
        door = door_of(connection_commands_max=16)  # one portion a turn
        talk = Talk(door)
        talk.protocol.data_received(PING * 16 + command("ECHO", "x" * 100) + PING)
        assert door.commands == 16
        assert talk.protocol.held_bytes() == len("ECHO" + "x" * 100) + len(PING)
        await turns()
        assert (door.commands, talk.protocol.held_bytes()) == (18, 0)
        talk.lose()

    run(story())


def test_nor_while_those_of_all_connections_do_and_who_is_owed_nothing_may_ask() -> None:
    async def story() -> None:
        service = Slow()
        door = door_of(service, door_bytes_max=2 * len(encode_throttle(0)))
        first, second, third = Talk(door), Talk(door), Talk(door)
        first.say(ASK * 3)
        second.say(ASK)
        for place in (1, 2):
            service.response(place)
        await turns()
        second.say(ASK * 2)
        third.say(ASK * 2)
        assert len(service.owed) == 5  # three, one, and one of the third
        first.lose()  # what it was owed weighs no more
        service.response(0)
        service.response(3)
        service.response(4)
        await turns()
        assert len(service.owed) == 8
        for place in (5, 6, 7):
            service.response(place)
        await turns()
        assert (second.wire.output, third.wire.output) == (
            encode_throttle(0) * 3,
            encode_throttle(0) * 2,
        )
        second.lose()
        third.lose()

    run(story())


def test_one_who_sends_on_and_on_meanwhile_is_ended() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service, replies_owed_max=1, unread_bytes_max=2_048))
        talk.say(ASK)
        for _ in range(3):
            talk.say(b"x" * 1_000)
        service.response(0)
        await turns()
        assert (
            talk.wire.output
            == encode_throttle(0) + b"-ERR more is sent than is read while replies are owed\r\n"
        )
        assert talk.wire.is_closing()
        talk.lose()

    run(story())


def test_nothing_is_run_while_the_client_does_not_read() -> None:
    async def story() -> None:
        talk = Talk(door_of())
        talk.protocol.pause_writing()
        assert not talk.wire.is_reading()
        assert talk.say(PING * 2) == b""
        talk.protocol.resume_writing()
        talk.turns.end()
        assert talk.wire.output == PONG * 2
        assert talk.wire.is_reading()
        talk.lose()

    run(story())


def test_what_all_connections_are_told_in_a_turn_of_the_loop_is_written_when_it_ends() -> None:
    async def story() -> None:
        door = door_of()
        talks = [Talk(door) for _ in range(3)]
        for talk in talks:
            talk.protocol.data_received(PING)
            talk.protocol.data_received(PING)
        assert [talk.wire.output for talk in talks] == [b""] * 3
        assert [talk.protocol.under_way() for talk in talks] == [2] * 3
        talks[1].lose()
        await asyncio.sleep(0)
        assert [talk.wire.writes for talk in talks] == [[PONG * 2], [], [PONG * 2]]
        for talk in talks:
            talk.lose()

    run(story())


def test_a_connection_that_is_ended_in_a_turn_is_written_to_before_it_is_closed() -> None:
    async def story() -> None:
        for end in ("drain", "eof_received"):
            talk = Talk(door_of())
            talk.protocol.data_received(PING)
            getattr(talk.protocol, end)()
            assert not talk.wire.is_closing()
            await asyncio.sleep(0)
            assert talk.wire.output == PONG
            assert talk.wire.is_closing()
            talk.lose()

    run(story())


def test_one_that_cannot_be_written_to_keeps_no_other_from_being_told() -> None:
    async def story() -> None:
        contexts: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: contexts.append(context)
        )
        door = door_of()
        talks = [Talk(door) for _ in range(2)]

        def fail(data: bytes) -> None:
            raise OSError("gone")

        talks[0].wire.write = fail  # type: ignore[method-assign]
        for talk in talks:
            talk.protocol.data_received(PING)
        await asyncio.sleep(0)
        assert talks[1].wire.output == PONG
        assert [str(context["exception"]) for context in contexts] == ["gone"]
        for talk in talks:
            talk.lose()

    run(story())


def test_many_replies_are_written_in_parts_so_that_a_slow_client_is_noticed() -> None:
    async def story() -> None:
        talk = Talk(door_of(turn_bytes=64))
        talk.say(PING * 25)
        assert [len(one) for one in talk.wire.writes] == [70, 70, 35]
        talk.lose()

    run(story())


def test_amid_a_read_it_stops_as_soon_as_the_client_does_not_keep_up() -> None:
    async def story() -> None:
        door = door_of(turn_bytes=64)
        talk = Talk(door)
        write = talk.wire.write

        def write_and_choke(data: bytes) -> None:
            write(data)
            if len(talk.wire.writes) == 1:
                talk.protocol.pause_writing()

        talk.wire.write = write_and_choke  # type: ignore[method-assign]
        talk.say(PING * 25)
        assert door.commands == 10
        talk.protocol.resume_writing()
        talk.turns.end()
        assert talk.wire.output == PONG * 25
        talk.lose()

    run(story())


def test_what_is_not_resp_is_answered_behind_what_is_owed_and_ends_the_connection() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service))
        talk.say(ASK + b"*1\r\n:5\r\n" + PING)
        assert not talk.wire.is_closing()
        service.response(0)
        await turns()
        assert (
            talk.wire.output
            == encode_throttle(0) + b"-ERR Protocol error: expected '$', got ':'\r\n"
        )
        assert talk.wire.is_closing()
        assert talk.say(PING) == b""
        talk.lose()

    run(story())


def test_quit_says_goodbye_behind_what_is_owed() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service))
        talk.say(ASK + command("QUIT") + PING)
        service.response(0)
        await turns()
        assert talk.wire.output == encode_throttle(0) + b"+OK\r\n"
        assert talk.wire.is_closing()
        talk.lose()

    run(story())


def test_what_comes_behind_the_last_command_is_not_kept() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service))
        talk.say(ASK + command("QUIT") + PING)
        unread = talk.protocol._reader.unread
        for _ in range(10):
            talk.say(PING * 1_000)
        assert talk.protocol._reader.unread == unread
        service.response(0)
        await turns()
        assert talk.wire.output == encode_throttle(0) + b"+OK\r\n"
        talk.lose()

    run(story())


def test_a_client_that_says_no_more_gets_what_it_is_owed() -> None:
    async def story() -> None:
        service = Slow()
        talk = Talk(door_of(service, replies_owed_max=1))
        talk.say(ASK * 2 + PING)
        assert talk.protocol.eof_received()
        service.response(0)
        await turns()
        service.response(1)
        await turns()
        assert talk.wire.output == encode_throttle(0) * 2 + PONG
        assert talk.wire.is_closing()
        talk.lose()
        idle = Talk(door_of())
        assert not idle.protocol.eof_received()
        idle.lose()

    run(story())


def test_a_drain_takes_nothing_new_and_finishes_what_was_taken() -> None:
    async def story() -> None:
        service = Slow()
        door = door_of(service)
        talk, idle = Talk(door), Talk(door)
        talk.say(ASK)
        talk.protocol.drain()
        idle.protocol.drain()
        assert idle.wire.is_closing()
        assert not talk.wire.is_closing()
        assert talk.say(PING) == b""
        service.response(0)
        await turns()
        assert talk.wire.output == encode_throttle(0)
        assert talk.wire.is_closing()
        talk.lose()
        idle.lose()

    run(story())


def test_what_one_who_is_gone_has_asked_goes_on_and_nobody_hears_of_it() -> None:
    async def story() -> None:
        service = Slow()
        door = door_of(service)
        talk = Talk(door)
        talk.say(ASK * 2 + command("SG.CHECK", "ann", "/"))
        assert door.connected == 1
        talk.lose()
        assert door.connected == 0
        await turns()
        assert [request.user_id for request in service.request] == ["ann"]
        service.owed[0].set_exception(RuntimeError("late"))
        service.response(1)
        await turns()
        assert talk.wire.output == b""

    run(story())


def test_who_takes_too_long_for_a_command_is_ended() -> None:
    async def story() -> None:
        now_s = asyncio.get_running_loop().time()
        talk = Talk(door_of(command_timeout_s=10))
        talk.say(b"*1\r\n$4\r\nPI")
        for passed_s in (1, 10):
            talk.protocol.tick(now_s + passed_s)
        talk.say(b"NG\r\n" + PING[:3])  # one has come: the next has its own time
        talk.protocol.tick(now_s + 11)
        talk.protocol.tick(now_s + 20)
        assert not talk.wire.is_closing()
        talk.protocol.tick(now_s + 21)
        assert talk.wire.output == PONG + b"-ERR a command took too long to come whole\r\n"
        assert talk.wire.is_closing()
        talk.lose()
        idle = Talk(door_of(command_timeout_s=10))
        for passed_s in range(100):
            idle.protocol.tick(now_s + passed_s)
        assert not idle.wire.is_closing()
        idle.lose()

    run(story())


def test_what_a_command_raises_becomes_its_reply(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        service = Service()
        talk = Talk(door_of(service))
        outputs = []
        for error in (
            BadValue("user", "", "give one"),
            Unavailable("Redis", "gone"),
            RuntimeError("bug"),
        ):
            service.broken = error
            outputs.append(await talk.request(command("SG.CHECK", "ann", "/")))
            if not isinstance(error, BadValue):
                outputs.append(talk.say(command("CL.THROTTLE", "k", 1, 1, 1)))
        ours = b"-ERR the service failed to answer; its log says why\r\n"
        busy = b"-BUSY Redis is unavailable: gone\r\n"
        assert outputs == [b"-ERR user: '' cannot be used; give one\r\n", busy, busy, ours, ours]
        assert talk.say(PING) == PONG
        talk.lose()

    run(story())
    assert "RuntimeError: bug" in caplog.text


SENT = [
    *(command(name.decode(), "a", "b", 1) for name in LIMITER.by_name),
    *(command(name.lower()) for name in LIMITER.by_name if name != b"QUIT"),
    ASK,
    command("SG.CHECK", "ann", "/x", "WEIGHT", 2, "HEADER", "A", "b"),
    command("SG.TAKE", 1, 0, 1, "l", "gcra", 5, 1_000_000, 5, 1, "k", "", 1),
    command("HELLO", 3, "SETNAME", "me"),
    b'echo "a b"\r\n',
]


async def replies(data: bytes, cuts: list[int]) -> bytes:
    service = Service()
    talk = Talk(door_of(service))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if not talk.wire.is_closing():
            talk.protocol.data_received(data[start:end])
            await asyncio.sleep(0)
    await talk.settled()
    talk.lose()
    return talk.wire.output


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SENT), max_size=12), st.data())
def test_however_bytes_are_cut_the_replies_are_the_same(
    commands: list[bytes], data: st.DataObject
) -> None:
    sent = b"".join(commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))

    async def story() -> None:
        whole = await replies(sent, [])
        assert await replies(sent, cuts) == whole
        reader = hiredis.Reader(notEnoughData=...)
        reader.feed(whole)
        count = 0
        while reader.gets() is not ...:
            count += 1
        assert count == len(commands) or b"+OK" in whole  # a QUIT

    asyncio.run(story())


def test_every_cut_of_one_conversation_gives_the_same() -> None:
    sent = b"".join(SENT)

    async def story() -> None:
        whole = await replies(ASK + SENT[-4] + SENT[-3] + SENT[-1], [])
        short = ASK + SENT[-4] + SENT[-3] + SENT[-1]
        for cut in range(len(short)):
            assert await replies(short, [cut]) == whole
        everything = await replies(sent, [])
        assert await replies(sent, [*range(1, len(sent))]) == everything

    run(story())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=80) | st.sampled_from(SENT), max_size=8))
def test_garbage_never_raises_and_never_reaches_another_connection(pieces: list[bytes]) -> None:
    async def story() -> None:
        door = door_of(parts_max=64, bulk_bytes_max=256)
        talk, other = Talk(door), Talk(door)
        for piece in pieces:
            if not talk.wire.is_closing():
                talk.protocol.data_received(piece)
                talk.protocol.tick(asyncio.get_running_loop().time())
        await talk.settled()
        assert other.wire.output == b""
        assert other.say(PING) == PONG
        talk.lose()
        other.lose()

    asyncio.run(story())


def test_settings_are_bounded_and_named() -> None:
    with pytest.raises(BadValue, match=r"resp.parts_max: 0"):
        RespSettings(parts_max=0)
