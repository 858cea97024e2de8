"""Service: a shape played through `protect(app)`, the ASGI composition that ships.

`app` does what the shape says: it reads the upload, awaits the resource, sends the first byte,
streams, ends the answer, works on in the background. Clients send their deadline, or they
disconnect: `receive` then returns `http.disconnect`, and later messages are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.doors.asgi import App
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS
from sluicegate.lab.world import World, run
from sluicegate.lab.zoo.outcome import Record
from sluicegate.lab.zoo.player import LOOP_IO_US, burn, make_resources, starve
from sluicegate.lab.zoo.shape import DEADLINE, HANGUP, ShapeTraffic, ZooRequest, ZooShape
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience

HEALTH_US: Final = 200_000
HEALTH: Final = "/healthz"
_CHUNKS: Final = 4  # of an upload or a stream
_GIL_US: Final = 5_000  # what each thread keeps the interpreter, while the loop waits for it


def settings_of(shape: ZooShape, known: bool) -> Resilience:
    """Return the settings of a service: the defaults, and its slots where they are known."""
    callers = {
        caller_of(kind, number): kind.criticality
        for kind in shape.traffic
        if kind.criticality is Criticality.CRITICAL
        for number in range(kind.callers)
    }
    if not known or not shape.known:
        return Resilience(callers=callers)
    return Resilience(callers=callers, slots=shape.known)


def play_service(
    shape: ZooShape, load: Sequence[ZooRequest], seed: int, *, known: bool, protected: bool = True
) -> Record:
    """Play the load on the application, protected or bare."""
    record = Record(shape, load)

    async def main(world: World) -> None:
        service = _Service(world, record)
        app: App = service.app
        if protected:
            protection = Protection(
                settings_of(shape, known), clock=world.clock, chance=world.chance("protect")
            )
            app = protect(app, protection=protection, caller=lambda scope: str(scope["caller"]))
        starve(world, shape)
        for ask in load:
            world.call_at_us(ask.at_us, service.arrive, ask, app)
        for at_us in range(HEALTH_US, shape.until_us, HEALTH_US):
            world.call_at_us(at_us, service.check, at_us, app)
        await world.until_us(shape.span_us)
        await world.cancel_others()

    run(main, seed)
    return record


@final
class _Service:
    """The application, and its clients."""

    def __init__(self, world: World, record: Record) -> None:
        self._world = world
        self._record = record
        self._shape = record.shape
        self._resources = make_resources(world, record.shape)

    def arrive(self, ask: ZooRequest, app: App) -> None:
        """Begin a request."""
        kind = self._shape.traffic[ask.kind]
        client = _Client(self._world, self._record, ask)
        work = _serve(app, _scope(ask, kind), client.receive, client.send)
        task = self._world.spawn(work, kind.name)
        if kind.tells == HANGUP and kind.patience_us:
            client.leaves_at(ask.at_us + kind.patience_us)
        task.add_done_callback(client.forget)

    def check(self, due_us: int, app: App) -> None:
        """Ask for health."""

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                self._record.health_us.append(self._world.elapsed_us - due_us)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": HEALTH, "headers": []}
        self._world.spawn(_serve(app, scope, receive, send), "health")

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        if scope["path"] == HEALTH:
            if self._shape.gil:
                await self._world.sleep_us(_GIL_US * sum(one.busy for one in self._resources))
            await _respond(send)
            return
        ask: ZooRequest = scope["ask"]
        kind = self._shape.traffic[ask.kind]
        self._record.begun[ask.number] = True
        if kind.socket:
            await receive()
            await send({"type": "websocket.accept"})
        elif kind.upload_us:
            while (await receive()).get("more_body"):
                pass
        await self._work(ask)
        if kind.socket:
            await self._world.sleep_us(kind.stream_us)
            await send({"type": "websocket.close"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(_CHUNKS if kind.stream_us else 0):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await self._world.sleep_us(kind.stream_us // _CHUNKS)
        await send({"type": "http.response.body", "body": b"x"})
        if kind.background_us:
            await self._world.sleep_us(kind.background_us)

    async def _work(self, ask: ZooRequest) -> None:
        if self._shape.in_loop:
            burn(ask.work_us // 2)
            await self._world.sleep_us(LOOP_IO_US)
            burn(ask.work_us - ask.work_us // 2)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended() -> None:
            if not done.done():
                done.set_result(None)

        self._resources[self._shape.resource_of(ask.shard)].submit(ask.work_us, ended)
        await done


@final
class _Client:
    """One caller, as a server shows it to an application."""

    __slots__ = ("_ask", "_gone", "_kind", "_parts", "_record", "_status", "_world")

    def __init__(self, world: World, record: Record, ask: ZooRequest) -> None:
        self._world = world
        self._record = record
        self._ask = ask
        self._kind = record.shape.traffic[ask.kind]
        self._parts = _CHUNKS if self._kind.upload_us else 1
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._status = 0

    def leaves_at(self, at_us: int) -> None:
        """Hang up then, if there is no answer."""
        self._world.call_at_us(at_us, self._leave)

    def forget(self, _: object) -> None:
        """Note that the application has returned."""
        if not self._gone.done():
            self._gone.set_result(None)

    def _leave(self) -> None:
        if self._record.leave(self._ask) and not self._gone.done():
            self._gone.set_result(None)

    async def receive(self) -> Any:
        """Return the next part of the request, then the disconnect."""
        if self._kind.socket:
            if self._parts:
                self._parts = 0
                return {"type": "websocket.connect"}
            await asyncio.shield(self._gone)
            return {"type": "websocket.disconnect", "code": 1006}
        if self._parts and not self._gone.done():
            if self._kind.upload_us:
                await self._world.sleep_us(self._kind.upload_us // _CHUNKS)
            self._parts -= 1
            return {"type": "http.request", "body": b"x", "more_body": self._parts > 0}
        await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Read a part of the answer."""
        record, ask, now_us = self._record, self._ask, self._world.elapsed_us
        what = message["type"]
        if what == "http.response.start":
            self._status = message["status"]
            if self._status == 200:
                record.answer(ask, now_us)
            else:
                record.refuse(ask, now_us)
        elif what == "websocket.accept":
            record.answer(ask, now_us)
        elif what == "websocket.close" or not message.get("more_body"):
            record.end(ask)


async def _serve(app: App, scope: Any, receive: Any, send: Any) -> None:
    await app(scope, receive, send)


async def _respond(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def _scope(ask: ZooRequest, kind: ShapeTraffic) -> dict[str, Any]:
    headers = [(CRITICALITY, kind.criticality.name.lower().replace("_", "-").encode())]
    if kind.tells == DEADLINE and kind.patience_us:
        headers.append((DEADLINE_MS, str(kind.patience_us // 1_000).encode()))
    if kind.upload_us:
        headers.append((b"transfer-encoding", b"chunked"))
    return {
        "type": "websocket" if kind.socket else "http",
        "method": "POST" if kind.upload_us else "GET",
        "path": f"/{kind.name}",
        "headers": headers,
        "caller": caller_of(kind, ask.caller),
        "ask": ask,
    }


def caller_of(kind: ShapeTraffic, number: int) -> str:
    """Return the name of a caller."""
    return f"{kind.name}-{kind.criticality.name}-{number}"
