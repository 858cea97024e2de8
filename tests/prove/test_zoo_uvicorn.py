"""Ordinary shapes of the zoo on real uvicorn: protected, they serve what they serve bare."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import pytest

from sluicegate.lab.zoo.services import services
from sluicegate.lab.zoo.shape import SECOND_US, ShapeTraffic, ZooRequest, ZooShape, draw_load
from sluicegate.resilience.server.asgi import protect

pytestmark = pytest.mark.prove

SEED: Final = 11
ARRIVE_US: Final = 4 * SECOND_US
PATIENCE_S: Final = 60.0
PARTS: Final = 4
NAMES: Final = ("io 500 ms", "stream", "background", "upload", "llm 3 s")
SHAPES: Final = {shape.name: shape for shape in services(SEED)}


@pytest.mark.parametrize("name", NAMES)
def test_protected_uvicorn_serves_what_bare_uvicorn_serves(name: str) -> None:
    shape = SHAPES[name]
    bare = asyncio.run(served_share(shape, protected=False))
    assert bare == 1
    assert asyncio.run(served_share(shape, protected=True)) >= 0.99 * bare


async def served_share(shape: ZooShape, *, protected: bool) -> float:
    """Play the first seconds of the shape in real time; return the share that was answered."""
    import uvicorn

    (kind,) = shape.traffic
    app: Any = application(kind)
    if protected:
        app = protect(app)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    asks = [ask for ask in draw_load(shape, SEED) if ask.at_us < ARRIVE_US]
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        answered = await asyncio.gather(*(call(ask, kind, port) for ask in asks))
    finally:
        server.should_exit = True
        await serving
    return sum(answered) / len(answered)


def application(kind: ShapeTraffic) -> Any:
    """Return an application that does what the shape says, in real time."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(int(dict(scope["headers"])[b"x-work-us"]) / SECOND_US)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(PARTS if kind.stream_us else 0):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(kind.stream_us / PARTS / SECOND_US)
        await send({"type": "http.response.body", "body": b"end"})
        await asyncio.sleep(kind.background_us / SECOND_US)

    return app


async def call(ask: ZooRequest, kind: ShapeTraffic, port: int) -> bool:
    """Send one request when it is due; return whether a whole answer came."""
    await asyncio.sleep(ask.at_us / SECOND_US)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    method = "POST" if kind.upload_us else "GET"
    head = f"{method} /{kind.name} HTTP/1.1\r\nhost: a\r\nx-work-us: {ask.work_us}\r\n"
    head += "connection: close\r\n"
    try:
        if kind.upload_us:
            writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
            for _ in range(PARTS):
                await asyncio.sleep(kind.upload_us / PARTS / SECOND_US)
                writer.write(b"1\r\nx\r\n")
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(f"{head}\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionError:  # it was rejected before its body was sent
        return False
    finally:
        writer.close()
    return answer.startswith(b"HTTP/1.1 200") and b"end" in answer
