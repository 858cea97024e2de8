"""Speaking to a protocol without a socket, and to a server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread
from typing import Any, cast

import uvloop

from sluicegate.doors.resp.protocol import RespDoor, RespProtocol


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self._closed = False
        self._reading = True

    def write(self, data: Any) -> None:
        assert not self._closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self._closed = True

    def is_closing(self) -> bool:
        return self._closed

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    @property
    def output(self) -> bytes:
        return b"".join(self.writes)


class Talk:
    """A protocol and its wire."""

    def __init__(self, door: RespDoor, names: tuple[str, ...] = ()) -> None:
        self.protocol = cast("RespProtocol", door.protocol("here:1", names))
        self.wire = Wire()
        self.turns = door.turns
        self.protocol.connection_made(self.wire)

    def say(self, data: bytes) -> bytes:
        """What is written to these bytes when the turn of the loop ends."""
        before = len(self.wire.writes)
        self.protocol.data_received(data)
        self.turns.end()
        return b"".join(self.wire.writes[before:])

    async def request(self, data: bytes) -> bytes:
        """What is written to these bytes until nothing is owed."""
        before = len(self.wire.writes)
        self.protocol.data_received(data)
        await self.settled()
        return b"".join(self.wire.writes[before:])

    async def settled(self) -> None:
        """Until nothing is owed."""
        while self.protocol.under_way():
            await asyncio.sleep(0)

    def lose(self) -> None:
        self.protocol.connection_lost(None)


@asynccontextmanager
async def listening(door: RespDoor) -> AsyncIterator[int]:
    """A server on a free port of loopback."""
    server = await asyncio.get_running_loop().create_server(door.protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextmanager
def served(make: Any) -> Iterator[int]:
    """A server in a thread of its own, on uvloop; `make` is called there and gives the door."""
    port: list[int] = []
    ready, failed = Event(), []
    ends: list[Any] = []

    async def serve() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        ends.append(lambda: loop.call_soon_threadsafe(over.set))
        async with listening(await make()) as number:
            port.append(number)
            ready.set()
            await over.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    if failed:
        raise failed[0]
    try:
        yield port[0]
    finally:
        ends[0]()
        thread.join(60)
    assert not failed, failed
