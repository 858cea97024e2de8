"""A real Redis with slots: a proxy in front of it that works before it passes a command on.

Its slots work for commands in order of arrival, over all connections. Answers come
from the Redis, as soon as it has the command. Nothing here is a test.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final, final

import hiredis

from tests.prove.zoo.asgi_service import Slots

WORKED: Final = frozenset({b"HMGET"})  # what a read of a row is; others are passed on at once
STALL_S: Final = 0.5
STALL_EVERY_S: Final = 2.0


@final
class SlowRedis:
    """The proxy; `inflight` is how many commands wait or are worked for."""

    def __init__(self, redis_port: int, slots: int, work_us: int) -> None:
        self.url = ""
        self.inflight = 0
        self.seen: list[int] = []  # `inflight` when each command arrived
        self._redis_port = redis_port
        self.slots = Slots(slots)
        self._count = slots
        self._work_us = work_us
        self._tasks: set[asyncio.Task[None]] = set()

    async def stall(self) -> None:
        """Stall for a quarter of the time, until cancelled: no work ends meanwhile."""
        while True:
            await asyncio.sleep(STALL_EVERY_S - STALL_S)
            self.slots.set_stalled(True)
            await asyncio.sleep(STALL_S)
            self.slots.set_stalled(False)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[SlowRedis]:
        """Serve on this loop for a block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        self.slots, self.seen, self.inflight = Slots(self._count), [], 0
        self._tasks.clear()
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: its commands are passed on in order, and answered so."""
        there, out = await asyncio.open_connection("127.0.0.1", self._redis_port)
        commands: asyncio.Queue[tuple[bytes, asyncio.Task[None] | None]] = asyncio.Queue()

        async def read() -> None:
            parser = hiredis.Reader()
            while data := await reader.read(1 << 16):
                parser.feed(data)
                while (words := parser.gets()) is not False:
                    works = words[0].upper() in WORKED
                    task = self._start() if works else None
                    commands.put_nowait((hiredis.pack_command(tuple(words)), task))

        async def pass_on() -> None:
            while True:
                command, task = await commands.get()
                if task is not None:
                    await task
                out.write(command)

        async def answer() -> None:
            while data := await there.read(1 << 16):
                writer.write(data)

        parts = [asyncio.create_task(part()) for part in (read, pass_on, answer)]
        self._tasks.update(parts)
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            part.cancel()
        for one in (writer, out):
            one.close()

    def _start(self) -> asyncio.Task[None]:
        self.inflight += 1
        self.seen.append(self.inflight)
        task = asyncio.create_task(self._work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self) -> None:
        try:
            await self.slots.work(self._work_us)
        finally:
            self.inflight -= 1
