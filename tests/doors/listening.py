"""Small protocols and raw clients for the tests of the listener, on either loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, cast

import uvloop

from sluicegate.doors.listener import Language, Listener, ListenerSettings, PeerInfo
from sluicegate.doors.tls import Tls

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
WAIT_S = 60.0  # patience with a busy machine


def run(
    story: Callable[[], Awaitable[None]],
    loop: str = "uvloop",
) -> None:
    """Live the story on that loop; what nobody handled fails it."""
    unhandled: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
        try:
            await asyncio.wait_for(story(), WAIT_S * 3)
        finally:
            for caller in Caller.made:  # so that a story that fails is told without an echo
                caller.writer.transport.abort()
            Caller.made.clear()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(watched())
    assert not unhandled, unhandled


class Echo(asyncio.Protocol):
    """Says its kind and who is there, then everything back."""

    def __init__(self, kind: Language, peer: PeerInfo) -> None:
        self.kind = kind
        self.peer = peer
        self.transport = cast("asyncio.Transport", None)
        self.input = b""
        self.lost = 0
        self.drains = 0
        self.busy = 0
        self.held = 0
        self.name = ""
        self.ticks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(f"{self.kind.name}:".encode())

    def data_received(self, data: bytes) -> None:
        self.input += data
        if b"bug" in data:
            raise ZeroDivisionError
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1

    def drain(self) -> None:
        self.drains += 1
        if not self.busy:
            self.transport.close()

    def under_way(self) -> int:
        return self.busy

    def held_bytes(self) -> int:
        return self.held

    def caller(self) -> str:
        return self.name

    def tick(self, now_s: float) -> None:
        self.ticks += 1

    def finish(self) -> None:
        """What was under way is done."""
        self.busy = 0
        self.transport.close()


class Hall:
    """A listener of echoes, and all that it has made."""

    def __init__(
        self,
        addresses: Sequence[Any] = ("127.0.0.1:0",),
        kinds: Sequence[Language] = (Language.HTTP2, Language.HTTP1, Language.RESP),
        *,
        tls: Tls | None = None,
        **settings: Any,
    ) -> None:
        self.made: list[Echo] = []

        def factory(kind: Language) -> Callable[[PeerInfo], asyncio.Protocol]:
            def make(peer: PeerInfo) -> asyncio.Protocol:
                self.made.append(Echo(kind, peer))
                return self.made[-1]

            return make

        protocols: Mapping[Language, Callable[[PeerInfo], asyncio.Protocol]] = {
            kind: factory(kind) for kind in kinds
        }
        self.listener = Listener(
            addresses,
            protocols,
            settings=ListenerSettings(**{"look_s": 0.02, **settings}),
            tls=tls,
        )

    @property
    def port(self) -> int:
        """Of the first address."""
        return self.listener.addresses[0].port

    async def call(self, data: bytes = b"") -> Caller:
        """Connect, and say this."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        caller = Caller(reader, writer)
        if data:
            writer.write(data)
        return caller


class Caller:
    """A raw client."""

    made: ClassVar[list[Caller]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.made.append(self)

    async def hears(self, expected: bytes) -> None:
        """These bytes, exactly, next."""
        data = await asyncio.wait_for(self.reader.readexactly(len(expected)), WAIT_S)
        assert data == expected

    async def rest(self) -> bytes:
        """All that comes until the end; a reset is an end."""
        try:
            return await asyncio.wait_for(self.reader.read(), WAIT_S)
        except ConnectionError:
            return b""

    async def leave(self) -> None:
        """Close."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()
        if self in self.made:
            self.made.remove(self)


@asynccontextmanager
async def hall(*args: Any, **kwargs: Any) -> AsyncIterator[Hall]:
    """A hall that is open, and closed afterwards."""
    made = Hall(*args, **kwargs)
    async with made.listener:
        yield made
    assert made.listener.stats().open == 0
    assert all(echo.lost == 1 for echo in made.made), "each protocol is told once"


async def until(true: Callable[[], bool]) -> None:
    """Wait for what is about to be true."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.005)


def reset(writer: asyncio.StreamWriter) -> None:
    """Go away with a reset."""
    transport = cast("asyncio.Transport", writer.transport)
    sock = cast("socket.socket | None", transport.get_extra_info("socket"))
    if transport.is_closing() or sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    transport.abort()
