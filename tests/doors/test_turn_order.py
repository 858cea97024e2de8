"""Order at the door: what came in one turn of the loop is served by class, over real sockets.

Callers that never pause press from hundreds of connections, and the service answers at once. Time
is by hand: what is served takes some of it. So what somebody has to wait for is counted, in
requests of the others, and does not depend on the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import cast

import pytest

from sluicegate.contracts.access import EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.testing import HandClock
from sluicegate.wire.resp import command
from tests.doors.listening import run
from tests.doors.resp.service import Tokens
from tests.doors.resp.talk import listening

READ_US = 100
TURN_US = 1_000
SLICE = TURN_US // READ_US  # reads of a turn
FLOOD = 300
GET = command("GET", "t:k")


def caller(name: str, criticality: Criticality) -> Identity:
    return Identity(name, (), {"*": EVERY_TABLE_GRANT}, criticality)


class Reads:
    """A service that answers at once, and takes its time for it."""

    def __init__(self) -> None:
        self.clock = HandClock(1_000_000)
        self.served: list[str] = []

    def get(self, table: str, partition: bytes, sort: bytes, call: CallContext) -> Row | None:
        self.served.append(call.identity.name)
        self.clock.advance(us=READ_US)
        return None


class Caller(asyncio.Protocol):
    """One connection; with `presses` it sends again as soon as it has an answer."""

    def __init__(self, token: str, *, presses: bool) -> None:
        self.token = token
        self.presses = presses
        self.lost = asyncio.Event()
        self.answered = asyncio.Event()
        self.transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(command("AUTH", self.token))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    async def end(self) -> None:
        self.transport.abort()
        await self.lost.wait()

    def data_received(self, data: bytes) -> None:
        self.answered.set()
        if self.presses:
            self.transport.write(GET)

    async def answer(self) -> None:
        self.answered.clear()
        await self.answered.wait()


async def connect(port: int, token: str, *, presses: bool) -> Caller:
    loop = asyncio.get_running_loop()
    made: Callable[[], Caller] = lambda: Caller(token, presses=presses)  # noqa: E731
    _, client = await loop.create_connection(made, "127.0.0.1", port)
    return client


@pytest.mark.parametrize("connections", [30, FLOOD])
def test_critical_waits_for_a_turn_or_two_of_the_lowest_class_however_many_press(
    connections: int,
) -> None:
    async def story() -> None:
        reads = Reads()
        callers = {name: caller(name, Criticality[name]) for name in ("BULK", "CRITICAL")}
        door = RespDoor(
            reads, Tokens(callers), RespSettings(turn_us_max=TURN_US), KEY_VALUES, reads.clock
        )
        async with listening(door) as port, AsyncExitStack() as ended:
            critical = await connect(port, "CRITICAL", presses=False)
            ended.push_async_callback(critical.end)
            await critical.answer()
            for _ in range(connections):
                one = await connect(port, "BULK", presses=True)
                ended.push_async_callback(one.end)
            waited = []
            for _ in range(50):
                while reads.served.count("BULK") < connections:  # in full swing
                    await asyncio.sleep(0)
                reads.served.clear()
                critical.transport.write(GET)
                await critical.answer()
                waited.append(reads.served.index("CRITICAL"))
            assert max(waited) <= 2 * SLICE + 2

    run(story)
