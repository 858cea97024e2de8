"""Both servers on loopback, with the same methods, and who may speak to them.

A server runs on a loop of its own in a thread, as an application would run it; a test talks to it
with real clients.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from benchmarks.grpcio_server import GrpcioServer
from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.reasons import RATE_LIMITED
from sluicegate.doors.grpc.health import GrpcHealth
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus, Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.grpc.settings import GrpcSettings
from sluicegate.system import SystemClock

T = TypeVar("T")
ANN: Final = Identity("ann", EVERY_GRANT)
BOB: Final = Identity("bob", [Grant.CHECK])
PEER: Final = Identity("by certificate", [Grant.CHECK])
ANYBODY: Final = Identity("anybody", [Grant.CHECK])
WAIT_S_MAX: Final = 60.0  # patience with a busy machine


class Door:
    """Who may speak."""

    def __init__(self, anonymous: Identity | None = ANYBODY) -> None:
        self.anonymous = anonymous
        self.tokens = {"ann's": ANN, "bob's": BOB}

    def by_token(self, token: str) -> Identity | None:
        return self.tokens.get(token)

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return PEER if "client.test" in names else None


class Work:
    """Methods of every kind, which write down what became of them."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.started = 0
        self.up = True

    def echo(self, message: bytes, _by: Identity) -> bytes:
        return message

    def name(self, _message: bytes, by: Identity) -> bytes:
        return by.name.encode()

    async def later(self, message: bytes, _by: Identity) -> bytes:
        await asyncio.sleep(0)
        return message

    def future(self, message: bytes, _by: Identity) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()
        loop.call_soon(answer.set_result, message)
        return answer

    async def never(self, _message: bytes, _by: Identity) -> bytes:
        self.started += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b""

    def fails(self, message: bytes, by: Identity) -> bytes:
        raise made(message.decode())

    async def fails_later(self, message: bytes, by: Identity) -> bytes:
        await asyncio.sleep(0)
        return self.fails(message, by)

    async def twice(self, messages: AsyncIterator[bytes], _by: Identity) -> AsyncIterator[bytes]:
        async for message in messages:
            yield message
            yield message

    async def breaks(self, messages: AsyncIterator[bytes], by: Identity) -> AsyncIterator[bytes]:
        async for message in messages:
            yield message
            raise made("taken")

    async def endless(self, messages: AsyncIterator[bytes], _by: Identity) -> AsyncIterator[bytes]:
        self.started += 1
        try:
            async for message in messages:
                while True:
                    yield message
                    await asyncio.sleep(0)
        finally:
            self.cancelled += 1

    def methods(self) -> Methods:
        health = GrpcHealth(lambda: self.up, settings=SETTINGS)
        return Methods(
            {
                "/t.Test/Echo": self.echo,
                "/t.Test/Name": self.name,
                "/t.Test/Later": self.later,
                "/t.Test/Future": self.future,
                "/t.Test/Never": self.never,
                "/t.Test/Fails": self.fails,
                "/t.Test/FailsLater": self.fails_later,
                **health.unary,
            },
            {
                "/t.Test/Twice": self.twice,
                "/t.Test/Breaks": self.breaks,
                "/t.Test/Endless": self.endless,
                **health.streams,
            },
            health.open,
        )


SETTINGS: Final = GrpcSettings(message_bytes_max=1 << 20, watch_us=20_000)
ERRORS: Final[dict[str, Callable[[], Exception]]] = {
    "bad": lambda: BadValue("weight", -1, "give a positive"),
    "away": lambda: Unavailable("redis", "no answer"),
    "refused": lambda: Refused(Decision(False, 0, 1_000_000, 1_000_000, RATE_LIMITED, "r1")),
    "taken": lambda: GrpcError(GrpcStatus.ABORTED, "taken by another, 50% done, \u00e4\n"),
    "bug": lambda: ZeroDivisionError("secret"),
}


def made(error: str) -> Exception:
    """One of the errors."""
    return ERRORS[error]()


class Running:
    """A loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S_MAX)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S_MAX)
        self.loop.close()


class Native:
    """Our own server, listening."""

    def __init__(
        self, methods: Methods, access: Door, settings: GrpcSettings = SETTINGS, tls: Any = None
    ) -> None:
        self.running = Running()
        self.door: GrpcDoor = GrpcDoor(methods, access, SystemClock(), settings)
        self._server = self.running.do(self._listen(tls))
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self, tls: Any) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        door = cast("Callable[[], asyncio.Protocol]", self.door)
        return await loop.create_server(door, "127.0.0.1", 0, ssl=tls)

    def stop(self) -> None:
        self.running.do(self._stop())
        self.running.stop()

    async def _stop(self) -> None:
        self._server.close()
        await self.door.drain(0.2)
        for _ in range(3):
            await asyncio.sleep(0)


class Grpcio:
    """grpcio's server, listening."""

    def __init__(
        self, methods: Methods, access: Door, settings: GrpcSettings = SETTINGS, tls: Any = None
    ) -> None:
        self.running = Running()
        self.server, self.port = self.running.do(self._listen(methods, access, settings, tls))

    async def _listen(
        self, methods: Methods, access: Door, settings: GrpcSettings, tls: Any
    ) -> tuple[GrpcioServer, int]:
        server = GrpcioServer(methods, access, settings)
        return server, await server.start("127.0.0.1:0", tls)

    def stop(self) -> None:
        self.running.do(self.server.drain(0.2))
        self.running.stop()


SERVERS: Final[dict[str, type[Native] | type[Grpcio]]] = {"native": Native, "grpcio": Grpcio}


@contextmanager
def native(
    methods: Methods, access: Door | None = None, settings: GrpcSettings = SETTINGS, tls: Any = None
) -> Iterator[Native]:
    """Our own server for as long as the block lasts."""
    server = Native(methods, Door() if access is None else access, settings, tls)
    try:
        yield server
    finally:
        server.stop()
