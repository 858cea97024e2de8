"""gRPC: what one client that calls without end may keep everybody else waiting for."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.grpc.protocol import GrpcDoor, GrpcProtocol
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.testing import HandClock
from sluicegate.wire.h2 import frames as f
from sluicegate.wire.h2.settings import H2Settings
from tests.attacks.h2_socket import HEALTH, message, request_fields
from tests.doors.grpc.servers import Door, Work
from tests.doors.listening import LOOPS, run
from tests.wire.h2_peer import GREETING, frame, headers, parsed, update

SETTINGS = GrpcSettings()
CALLS = SETTINGS.h2.portion_frames_max // 2  # in a portion: HEADERS and DATA
EACH = CALLS * SETTINGS.connection_portions_max
ALL = CALLS * SETTINGS.turn_portions_max
WIDE = f.settings_frame([(f.INITIAL_WINDOW_SIZE, f.WINDOW_MAX)]) + update(0, 1 << 30)
ECHO = request_fields("/t.Test/Echo")
HELLO = message(b"hello")


class Wire(asyncio.Transport):
    """Keeps what is written, and whether anything is read."""

    def __init__(self) -> None:
        super().__init__()
        self.output = b""
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.output += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True


class Caller:
    """A client without a socket: what it sends is read at once, in one read."""

    def __init__(self, door: GrpcDoor, token: str = "") -> None:
        self.wire = Wire()
        self.protocol: GrpcProtocol = door()
        self.protocol.connection_made(self.wire)
        self.protocol.data_received(GREETING + WIDE)
        more = [("authorization", f"Bearer {token}")] if token else []
        self.block = headers([*ECHO, *more])
        self.streams = 0
        self._answered = 0
        self.wire.output = b""

    def call(self, times: int = 1, *blocks: bytes) -> None:
        pieces = []
        for number in range(times):
            stream = 2 * self.streams + 1
            self.streams += 1
            block = blocks[number] if blocks else self.block
            pieces.append(frame(f.HEADERS, f.END_HEADERS, stream, block))
            pieces.append(frame(f.DATA, f.END_STREAM, stream, HELLO))
        self.protocol.data_received(b"".join(pieces))

    @property
    def answered(self) -> int:
        output, self.wire.output = self.wire.output, b""
        for one in parsed(output):
            if one.kind == f.HEADERS and one.flags & f.END_STREAM:
                assert one.stream == 2 * self._answered + 1
                self._answered += 1
        return self._answered

    def lose(self) -> None:
        self.protocol.connection_lost(None)


def door_of(settings: GrpcSettings = SETTINGS, access: Door | None = None) -> GrpcDoor:
    # The clock stands still: portions alone are counted.
    access = Door() if access is None else access
    return GrpcDoor(Work().methods(), access, HandClock(0), settings)


def test_one_read_is_worked_on_in_shares_of_a_turn() -> None:
    async def story() -> None:
        door = door_of()
        flood, honest = Caller(door), Caller(door)
        count = 10 * EACH
        flood.call(count)
        assert door.counts.calls <= CALLS + EACH
        assert not flood.wire.is_reading()
        honest.call()
        assert honest.answered == 1  # in the same turn
        before, turns = door.counts.calls, 0
        while door.counts.calls < count + 1:
            await asyncio.sleep(0)
            assert door.counts.calls - before <= EACH
            before = door.counts.calls
            turns += 1
        assert turns >= 9
        assert flood.answered == count  # the control: each of them, in order
        assert flood.wire.is_reading()
        for caller in (flood, honest):
            caller.lose()
        await asyncio.sleep(0)

    run(story)


def test_many_who_flood_together_share_the_turn_and_who_asks_little_waits_for_one_or_two() -> None:
    async def story() -> None:
        door = door_of()
        flood = [Caller(door) for _ in range(2 * ALL // EACH)]
        for caller in flood:
            caller.call(10 * EACH)
        free = len(flood) * CALLS
        assert door.counts.calls <= ALL + free
        honest = Caller(door)
        before = door.counts.calls
        honest.call()  # the first thing that it says, as a health check
        assert (honest.answered, door.counts.calls) == (1, before + 1)
        for number in range(2, 7):
            before = door.counts.calls
            honest.call()
            while honest.answered < number:
                await asyncio.sleep(0)
            assert door.counts.calls - before <= 2 * ALL + 1
        while any(caller.answered < 10 * EACH for caller in flood):
            await asyncio.sleep(0)
        for caller in [*flood, honest]:
            caller.lose()
        await asyncio.sleep(0)

    run(story)


def test_who_was_given_a_higher_class_goes_first_and_who_is_nobody_last() -> None:
    async def story() -> None:
        access = Door(anonymous=None)
        access.tokens["critical"] = Identity("c", EVERY_GRANT, criticality=Criticality.CRITICAL)
        door = door_of(GrpcSettings(turn_portions_max=4), access)
        critical, bob = Caller(door, "critical"), Caller(door, "bob's")
        nobody = Caller(door)
        nobody.block = headers(HEALTH)
        for caller in (nobody, bob, critical):
            caller.call(16 * CALLS)
        order: list[Caller] = []
        while len(order) < 3:
            await asyncio.sleep(0)
            order += [
                caller
                for caller in (nobody, bob, critical)
                if caller not in order and caller.answered == 16 * CALLS
            ]
        assert order == [critical, bob, nobody]
        for caller in (critical, bob, nobody):
            caller.lose()
        await asyncio.sleep(0)

    run(story)


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_an_honest_caller_waits_for_few_calls_beside_a_flood(loop: str) -> None:
    """On real sockets; counted, not timed: how many calls are served between ask and answer."""

    async def story() -> None:
        door = door_of()
        running = asyncio.get_running_loop()
        make = cast("type[asyncio.Protocol]", door)
        server = await running.create_server(make, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        flood_in, flood_out = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        block = headers(ECHO)
        for each in (flood_out, writer):
            each.write(GREETING + WIDE)

        def calls(first: int, count: int) -> bytes:
            return b"".join(
                frame(f.HEADERS, f.END_HEADERS, stream, block)
                + frame(f.DATA, f.END_STREAM, stream, HELLO)
                for stream in range(first, first + 2 * count, 2)
            )

        async def send() -> None:
            stream = 1
            while True:
                flood_out.write(calls(stream, 2_000))
                stream += 4_000
                await flood_out.drain()

        async def read() -> None:
            while await flood_in.read(1 << 20):
                pass

        async def answer(stream: int) -> None:
            while True:
                head = await reader.readexactly(f.HEAD_BYTES)
                await reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[4] & f.END_STREAM and int.from_bytes(head[5:], "big") == stream:
                    return

        tasks = [asyncio.create_task(one()) for one in (send, read)]
        while door.counts.calls < 5_000:
            await asyncio.sleep(0)
        waits = []
        rounds = 100
        for number in range(rounds):
            before = door.counts.calls
            writer.write(calls(2 * number + 1, 1))
            await answer(2 * number + 1)
            waits.append(door.counts.calls - before)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (flood_out, writer):
            each.transport.abort()
        server.close()
        while door.open:
            await asyncio.sleep(0)
        # The way through both sockets takes some turns of a loop that has four ends on it.
        assert sorted(waits)[rounds // 2] <= 8 * 2 * EACH
        assert max(waits) <= 32 * 2 * EACH

    run(story, loop)


# Header blocks that are decoded each time.


def traced(count: int) -> list[bytes]:
    """Blocks as an honest client makes them: another deadline and another trace in each."""
    return [
        headers(
            [
                *ECHO,
                ("grpc-timeout", f"{9_000_000 - number}u"),
                ("traceparent", f"00-{number:032x}-{number:016x}-01"),
            ]
        )
        for number in range(count)
    ]


def test_who_sends_ever_new_headers_gives_way_and_is_answered_whole() -> None:
    async def story() -> None:
        h2 = H2Settings(header_bytes_per_s_max=2_048)
        door = door_of(GrpcSettings(h2=h2))
        honest, steady = Caller(door), Caller(door)
        count = 500
        honest.call(count, *traced(count))
        begun = door.counts.calls
        assert begun < 2 * CALLS  # one portion, as it is beyond its second's bytes by then
        steady.call(EACH)  # whose block is found
        assert steady.answered == EACH  # in the same turn
        while honest.answered < count:
            before = honest.answered
            await asyncio.sleep(0)
            assert honest.answered - before <= CALLS
        assert door.counts.floods == {}
        assert honest.wire.is_reading()
        for caller in (honest, steady):
            caller.lose()
        await asyncio.sleep(0)

    run(story)


def test_ever_new_headers_within_the_bound_have_a_whole_share() -> None:
    async def story() -> None:
        door = door_of()
        honest = Caller(door)
        blocks = traced(100)
        assert sum(len(block) for block in blocks) < SETTINGS.h2.header_bytes_per_s_max
        honest.call(100, *blocks)
        # A byte decoded is much work, so a portion holds few of them; of those it has its share.
        portions = SETTINGS.connection_portions_max + 1
        assert honest.answered >= portions
        while honest.answered < 100:
            await asyncio.sleep(0)
        honest.lose()
        await asyncio.sleep(0)

    run(story)
