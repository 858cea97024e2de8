"""Attacks on RESP: what one client may keep everybody else waiting for."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.resp import command
from tests.doors.listening import LOOPS, run
from tests.doors.resp.service import Service, Tokens
from tests.doors.resp.talk import Talk, listening

both = pytest.mark.parametrize("loop", sorted(LOOPS))

PING = command("PING")
PONG = b"+PONG\r\n"
THROTTLE = command("CL.THROTTLE", "k", 100, 1_000_000, 1, 1)
FLOODS = {"arrays": PING, "lines": b"PING\r\n", "CL.THROTTLE": THROTTLE}
ANN = Identity("ann", EVERY_GRANT)
SETTINGS = RespSettings()
EACH, ALL = SETTINGS.connection_commands_max, SETTINGS.turn_commands_max

floods = pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS)


def door_of(*, everybody: bool = True) -> RespDoor:
    return RespDoor(Service(), Tokens(everybody=everybody), SETTINGS)


@floods
def test_one_read_is_worked_on_in_shares_of_a_turn(unit: bytes) -> None:
    async def story() -> None:
        door = door_of()
        flood, honest = Talk(door), Talk(door)
        count = (1 << 18) // len(unit)
        flood.protocol.data_received(unit * count)
        assert door.commands <= EACH
        assert not flood.wire.is_reading()
        before = door.commands
        assert honest.say(PING) == PONG  # in the same turn
        turns = 0
        while door.commands < count + 1:
            ran, before = door.commands - before, door.commands
            assert ran <= EACH + 1
            await asyncio.sleep(0)
            turns += 1
        assert turns >= count // EACH
        door.turns.end()
        await asyncio.sleep(0)
        assert flood.wire.is_reading()
        assert flood.wire.output.count(b"\r\n") >= count
        for talk in (flood, honest):
            talk.lose()

    run(story)


def test_many_who_flood_together_share_the_turn_and_who_is_new_goes_first() -> None:
    async def story() -> None:
        door = door_of()
        flood = [Talk(door) for _ in range(2 * ALL // EACH - 1)]
        for talk in flood:
            talk.protocol.data_received(PING * 10_000)
        assert door.commands <= ALL
        honest = Talk(door)
        assert honest.say(PING) == b""  # this turn is spent
        await asyncio.sleep(0)
        door.turns.end()
        assert honest.wire.output == PONG
        assert door.commands <= 2 * ALL + EACH
        for talk in [*flood, honest]:
            talk.lose()
        await asyncio.sleep(0)

    run(story)


def test_who_has_not_said_who_they_are_stands_behind_everybody() -> None:
    async def story() -> None:
        door = RespDoor(Service(), Tokens({"secret": ANN}, everybody=False), SETTINGS)
        strangers = [Talk(door) for _ in range(ALL // EACH)]
        known = Talk(door)
        assert known.say(command("AUTH", "secret")) == b"+OK\r\n"
        await asyncio.sleep(0)
        for talk in strangers:
            talk.protocol.data_received(PING * 10_000)
        known.protocol.data_received(PING * EACH)
        assert known.wire.output.count(PONG) == 0
        await asyncio.sleep(0)
        door.turns.end()
        assert known.wire.output.count(PONG) == EACH
        for talk in [*strangers, known]:
            talk.lose()
        await asyncio.sleep(0)

    run(story)


@both
@floods
def test_an_honest_caller_waits_for_few_commands_beside_a_flood(loop: str, unit: bytes) -> None:
    """On real sockets; counted, not timed: how many commands are run between ask and answer."""

    async def story() -> None:
        door = door_of()
        async with listening(door) as port:
            flood_in, flood_out = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(PING)
            assert await reader.readexactly(len(PONG)) == PONG
            rounds = 40

            async def send() -> None:
                while True:
                    flood_out.write(unit * ((1 << 18) // len(unit)))
                    await flood_out.drain()

            async def read() -> None:
                while await flood_in.read(1 << 20):
                    pass

            tasks = [asyncio.create_task(one()) for one in (send, read)]
            while door.commands < 5_000:
                await asyncio.sleep(0)
            waits = []
            for _ in range(rounds):
                before = door.commands
                writer.write(PING)
                assert await reader.readexactly(len(PONG)) == PONG
                waits.append(door.commands - before)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in (flood_out, writer):
                one.transport.abort()
            # The way through both sockets takes some turns of a loop that has four ends on it.
            assert sorted(waits)[rounds // 2] <= 8 * 2 * EACH
            assert max(waits) <= 32 * 2 * EACH

    run(story, loop)


@pytest.mark.parametrize(
    "cut",
    [
        lambda said: [said],
        lambda said: [said[at : at + 7_001] for at in range(0, len(said), 7_001)],
    ],
    ids=["whole", "cut"],
)
def test_a_long_pipeline_is_answered_whole_and_in_order(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    """The control: nothing of a pipeline is lost at the border of a turn, nor its end."""

    async def story() -> None:
        door = door_of()
        async with listening(door) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            count = 5_000
            said = b"".join(command("ECHO", f"{number}") for number in range(count))
            for piece in cut(said):
                writer.write(piece)
                await asyncio.sleep(0)
            writer.write_eof()
            expected = b"".join(b"$%d\r\n%d\r\n" % (len(str(n)), n) for n in range(count))
            assert await reader.read(-1) == expected
            writer.close()

    run(story)


def test_long_keys_are_bounded_by_their_bytes_and_counted_apart() -> None:
    """60 KB a key was 350 MB with 6,000 of them; what counts is kept, and not the key."""

    async def story() -> None:
        door = door_of()
        talk = Talk(door)

        async def throttle(key: bytes) -> list[bytes]:
            await asyncio.sleep(0)
            return talk.say(command("CL.THROTTLE", key, 0, 1, 3_600, 1)).split(b"\r\n")

        first = await throttle(b"k" * 60_000)
        assert first[1] == b":0"
        tracemalloc.start()
        try:
            for number in range(300):
                assert (await throttle(b"k" * 60_000 + b"%d" % number))[1] == b":0"
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert held < 300 * 4_096
        for number in range(300):  # the control: each is limited by itself
            assert (await throttle(b"k" * 60_000 + b"%d" % number))[1] == b":1"
        assert (await throttle(b"k" * 60_000))[1] == b":1"
        talk.lose()

    run(story)
