"""Order at the doors: what came in one turn of the loop is served by class, over real sockets.

Callers that never pause press from hundreds of connections, and the service answers at once. Time
is by hand: what is served takes some of it. So what somebody has to wait for is counted, in
requests of the others, and does not depend on the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, cast

import pytest

from sluicegate.contracts.access import EVERY_GRANT, EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.checks import ThrottleRequest, ThrottleResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.grpc.methods import CallMetadata, Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.doors.http.message import TEXT, Finish, HttpReply, HttpRequest
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.resp.kv.commands import KEY_VALUES
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.testing import HandClock
from sluicegate.wire.resp import command
from tests.doors.grpc_calls import GREETING, GrpcCall
from tests.doors.listening import run
from tests.doors.resp.service import Tokens
from tests.prove.seeds import first

READ_US = 100
TURN_US = 1_000
SLICE = TURN_US // READ_US  # reads of a turn
PRESSING = 60
IDENTITIES = {
    name: Identity(name, EVERY_GRANT, {"*": EVERY_TABLE_GRANT}, Criticality[name])
    for name in ("BULK", "CRITICAL")
}
TOKENS = Tokens(IDENTITIES, everybody=False)


class Reads:
    """Services that answer at once, and take their time for it."""

    def __init__(self) -> None:
        self.clock = HandClock(1_000_000)
        self.served: list[str] = []
        self.waited_us: list[int] = []  # before it was served, as far as the door knows

    def serve(self, by: Identity, arrived_us: int = 0) -> None:
        self.served.append(by.name)
        self.waited_us.append(self.clock.now_us() - arrived_us)
        self.clock.advance(us=READ_US)

    def get(self, table: str, partition: bytes, sort: bytes, call: CallContext) -> Row | None:
        self.serve(call.identity, call.arrived_us)
        return None

    def throttle(self, request: ThrottleRequest, by: Identity) -> ThrottleResponse:
        self.serve(by)
        return ThrottleResponse(False, 1, 0, -1, 0)


class Resp:
    """A language: what is sent first, what asks, and how many answers there are in what comes."""

    def __init__(self, words: tuple[str, ...], table: Any = None) -> None:
        self.asks = command(*words)
        self.tables = () if table is None else (table,)

    def door(self, reads: Reads) -> Any:
        settings = RespSettings(turn_us_max=TURN_US)
        service: Any = reads
        if self.tables:
            return RespDoor(service, TOKENS, settings, self.tables[0], reads.clock).protocol
        return RespDoor(service, TOKENS, settings, clock=reads.clock).protocol

    def greeting(self, name: str) -> bytes:
        return command("AUTH", name) + self.asks

    def request(self, name: str, number: int) -> bytes:
        return self.asks

    def answers(self, data: bytes) -> int:
        return 1


class Http:
    """HTTP/1.1: who asks is in each request's head, and is served when that has its turn."""

    def door(self, reads: Reads) -> Any:
        def handle(request: HttpRequest) -> Finish:
            request.identity = IDENTITIES[request.path[1:]]
            return partial(finish, request.identity, reads.clock.now_us() - request.lag_us)

        def finish(by: Identity, arrived_us: int, body: bytes) -> HttpReply:
            reads.serve(by, arrived_us)
            return HttpReply(200, b"served", TEXT)

        door = HttpDoor(handle, reads.clock, HttpSettings(turn_us_max=TURN_US))
        return partial(door, PeerInfo("127.0.0.1", 1, Address("127.0.0.1", 80)))

    def greeting(self, name: str) -> bytes:
        return self.request(name, 0)

    def request(self, name: str, number: int) -> bytes:
        return b"GET /%b HTTP/1.1\r\nhost: a\r\n\r\n" % name.encode()

    def answers(self, data: bytes) -> int:
        return data.count(b"HTTP/1.1 200")


class Grpc:
    """gRPC: who asks is in each call's metadata, and how long ago the call came is told with it."""

    def __init__(self) -> None:
        self.calls = {name: GrpcCall("/t.Test/Get", name, b"x") for name in IDENTITIES}

    def door(self, reads: Reads) -> Any:
        def get(message: bytes, by: Identity, metadata: CallMetadata) -> bytes:
            reads.serve(by, reads.clock.now_us() - metadata.waited_us)
            return message

        settings = GrpcSettings(turn_us_max=TURN_US)
        methods = Methods({}, {}, with_metadata={"/t.Test/Get": get})
        return GrpcDoor(methods, TOKENS, reads.clock, settings)

    def greeting(self, name: str) -> bytes:
        return GREETING + self.request(name, 0)

    def request(self, name: str, number: int) -> bytes:
        return self.calls[name].on(2 * number + 1)

    def answers(self, data: bytes) -> int:
        return data.count(b"\0\0\0\0\1x")


LANGUAGES: dict[str, Resp | Http | Grpc] = {
    "HTTP": Http(),
    "gRPC": Grpc(),
    "kv RESP": Resp(("GET", "t:k"), KEY_VALUES),
    "limiter RESP": Resp(("CL.THROTTLE", "k", "10", "10", "60")),
}


class Caller(asyncio.Protocol):
    """One connection; with `presses` it asks again as soon as it has an answer."""

    def __init__(self, language: Resp | Http | Grpc, name: str, *, presses: bool) -> None:
        self.language = language
        self.name = name
        self.presses = presses
        self.asked = 0
        self.answered = asyncio.Event()
        self.lost = asyncio.Event()
        self.transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.language.greeting(self.name))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        if self.language.answers(data):
            self.answered.set()
            if self.presses:
                self.ask()

    def ask(self) -> None:
        self.answered.clear()
        self.asked += 1
        self.transport.write(self.language.request(self.name, self.asked))

    async def end(self) -> None:
        self.transport.abort()
        await self.lost.wait()


@pytest.mark.parametrize("connections", first(1, [30, 300]))
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_critical_waits_for_a_turn_or_two_of_the_lowest_class_however_many_press(
    language: Resp | Http | Grpc, connections: int
) -> None:
    async def story() -> None:
        reads = Reads()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(language.door(reads), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def connect(name: str, *, presses: bool) -> Caller:
            make: Callable[[], Caller] = lambda: Caller(language, name, presses=presses)  # noqa: E731
            _, caller = await loop.create_connection(make, "127.0.0.1", port)
            ended.push_async_callback(caller.end)
            return caller

        async with AsyncExitStack() as ended:
            # Also where the story fails: uvloop ends no loop that has a server.
            ended.push_async_callback(server.wait_closed)
            ended.callback(server.close)
            critical = await connect("CRITICAL", presses=False)
            await critical.answered.wait()
            for _ in range(connections):
                await connect("BULK", presses=True)
            waited = []
            for _ in range(30):
                while reads.served.count("BULK") < connections:  # in full swing
                    await asyncio.sleep(0)
                reads.served.clear()
                critical.ask()
                await critical.answered.wait()
                waited.append(reads.served.index("CRITICAL"))
            assert max(waited) <= 2 * SLICE + 2

    run(story)


# Checks by RESP are not told when they came.
@pytest.mark.parametrize("language", ["HTTP", "gRPC", "kv RESP"])
def test_what_stands_in_socket_and_line_counts_as_waited_though_the_service_answers_at_once(
    language: str,
) -> None:
    """A round of all who press takes `PRESSING` reads; what was in the socket is reckoned."""

    async def story() -> None:
        reads = Reads()
        loop = asyncio.get_running_loop()
        speaks = LANGUAGES[language]
        server = await loop.create_server(speaks.door(reads), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with AsyncExitStack() as ended:
            # Also where the story fails: uvloop ends no loop that has a server.
            ended.push_async_callback(server.wait_closed)
            ended.callback(server.close)
            for _ in range(PRESSING):
                make = partial(Caller, speaks, "BULK", presses=True)
                _, caller = await loop.create_connection(make, "127.0.0.1", port)
                ended.push_async_callback(caller.end)
            while len(reads.served) < 5 * PRESSING:
                await asyncio.sleep(0)
            reads.waited_us.clear()
            while len(reads.waited_us) < 5 * PRESSING:
                await asyncio.sleep(0)
            round_us = PRESSING * READ_US
            mean_us = sum(reads.waited_us) / len(reads.waited_us)
            assert abs(mean_us - round_us) <= 2 * TURN_US

    run(story)


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_protocol_names_caller_of_its_bytes(language: Resp | Http | Grpc) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        made: list[Any] = []

        def protocol() -> Any:
            made.append(door())
            return made[-1]

        door = language.door(Reads())
        server = await loop.create_server(protocol, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with AsyncExitStack() as ended:
            ended.push_async_callback(server.wait_closed)
            ended.callback(server.close)
            for number, name in enumerate(IDENTITIES):
                make = partial(Caller, language, name, presses=False)
                _, caller = await loop.create_connection(make, "127.0.0.1", port)
                ended.push_async_callback(caller.end)
                await caller.answered.wait()
                assert made[number].caller() == name

    run(story)
