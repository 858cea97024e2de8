"""A service that does what a shape says, in real time, under real uvicorn. Nothing here is a test.

Its slots are a pool that requests wait for in order of arrival, as for connections to a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, final

from sluicegate.doors.asgi import App
from sluicegate.lab.zoo.service import HEALTH
from sluicegate.lab.zoo.shape import SECOND_US, ShapeTraffic, ZooShape
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.http import CALLER, END, PARTS, WORK_US, http_caller
from tests.prove.zoo.load import Candidate

UNLIMITED: Final = 1_000_000


@final
class Slots:
    """A number of pieces of work at a time; a piece that was begun ends even if its caller left."""

    def __init__(self, count: int) -> None:
        self._ended = 0
        self._free = asyncio.Semaphore(count or UNLIMITED)
        self._stalled = False
        self._held: list[asyncio.Future[None]] = []  # work that would have ended in the stall

    async def work(self, work_us: int) -> None:
        """Wait for a slot, and work."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        loop.call_later(work_us / SECOND_US, self._end, done)
        await done

    def get_ended(self) -> int:
        """Return how many pieces of work have ended."""
        return self._ended

    def set_stalled(self, stalled: bool) -> None:
        """End no work until this is over."""
        self._stalled = stalled
        if not stalled:
            held, self._held = self._held, []
            for done in held:
                self._end(done)

    def _end(self, done: asyncio.Future[None]) -> None:
        if self._stalled:
            self._held.append(done)
            return
        self._ended += 1
        self._free.release()
        if not done.done():
            done.set_result(None)


def application(shape: ZooShape, slots: Slots) -> App:
    """Return the application; the paths are the names of the traffic."""
    kinds = {f"/{kind.name}": kind for kind in shape.traffic}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == HEALTH:
            await respond(send)
            return
        kind: ShapeTraffic = kinds[scope["path"]]
        work_us = int(dict(scope["headers"])[WORK_US.encode()])
        if kind.socket:
            await receive()
            await send({"type": "websocket.accept"})
            await slots.work(work_us)
            await asyncio.sleep(kind.stream_us / SECOND_US)
            await send({"type": "websocket.send", "bytes": END})
            await send({"type": "websocket.close"})
            return
        while (await receive()).get("more_body"):
            pass
        await slots.work(work_us)
        await respond(send, kind.stream_us / SECOND_US)
        await asyncio.sleep(kind.background_us / SECOND_US)

    return app


async def respond(send: Any, stream_s: float = 0.0) -> None:
    """Answer, in parts if it is to stream."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(PARTS if stream_s else 0):
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await asyncio.sleep(stream_s / PARTS)
    await send({"type": "http.response.body", "body": END})


@contextlib.asynccontextmanager
async def on_uvicorn(shape: ZooShape, settings: Resilience | None) -> AsyncIterator[Candidate]:
    """Serve a shape on this loop for a block, without settings bare."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:  # they are pytest's
            yield

    def caller(scope: Any) -> str:
        return str(dict(scope["headers"]).get(CALLER.encode(), b"").decode())

    slots = Slots(shape.slots)
    app = application(shape, slots)
    if settings is not None:
        app = protect(app, settings, caller=caller)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = listening.getsockname()[1]
        yield Candidate(http_caller(port), slots.get_ended, port)
    finally:
        server.should_exit = server.force_exit = True
        await serving
