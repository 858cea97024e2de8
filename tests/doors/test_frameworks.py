"""The ASGI middleware in front of real frameworks, and behind a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import litestar
import pytest
import uvicorn
import websockets.asyncio.client
from fastapi import APIRouter, FastAPI
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus

from sluicegate.doors.asgi import App, LimitMiddleware
from tests.doors.guards import ByAddress


async def starlette_page(request: Request) -> Response:
    return PlainTextResponse("hello")


async def starlette_stream(request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        for n in range(3):
            yield f"{n};".encode()

    return StreamingResponse(chunks(), headers={"x-own": "1"})


async def starlette_ws(socket: WebSocket) -> None:
    await socket.accept(subprotocol="chat")
    await socket.send_text(await socket.receive_text())
    await socket.close()


def starlette_app(guard: ByAddress) -> Starlette:
    return Starlette(
        routes=[
            Route("/page", starlette_page),
            Route("/stream", starlette_stream),
            Mount("/sub", routes=[Route("/page", starlette_page)]),
            WebSocketRoute("/ws", starlette_ws),
        ],
        middleware=[Middleware(LimitMiddleware, guard=guard)],
    )


def fastapi_app(guard: ByAddress) -> FastAPI:
    app, router = FastAPI(), APIRouter()
    app.add_middleware(LimitMiddleware, guard=guard)

    @router.get("/page")
    async def page() -> str:
        return "hello"

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            for n in range(3):
                yield f"{n};".encode()

        return StreamingResponse(chunks())

    app.include_router(router)
    app.include_router(router, prefix="/sub")
    return app


def litestar_app(guard: ByAddress) -> litestar.Litestar:
    @litestar.get("/page")
    async def page() -> str:
        return "hello"

    @litestar.get("/stream")
    async def stream() -> litestar.response.Stream:
        async def chunks() -> AsyncIterator[bytes]:
            for n in range(3):
                yield f"{n};".encode()

        return litestar.response.Stream(chunks())

    sub = litestar.Router("/sub", route_handlers=[page])
    return litestar.Litestar(
        [page, stream, sub], middleware=[DefineMiddleware(LimitMiddleware, guard=guard)]
    )


FRAMEWORKS: dict[str, Callable[[ByAddress], Any]] = {
    "starlette": starlette_app,
    "fastapi": fastapi_app,
    "litestar": litestar_app,
}


@pytest.fixture(params=list(FRAMEWORKS.values()), ids=list(FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> Callable[[ByAddress], Any]:
    return request.param  # type: ignore[no-any-return]


def got(app: App, *paths: str) -> list[httpx.Response]:
    async def story() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(story())


def test_every_route_counts_and_says_so(framework: Callable[[ByAddress], Any]) -> None:
    app = framework(ByAddress("3/minute"))
    page, stream, sub, refused = got(app, "/page", "/stream", "/sub/page", "/page")
    assert [one.status_code for one in (page, stream, sub, refused)] == [200, 200, 200, 429]
    assert "hello" in page.text
    assert stream.text == "0;1;2;"
    lefts = [one.headers["ratelimit"].split(";")[1] for one in (page, stream, sub, refused)]
    assert lefts == ["r=2", "r=1", "r=0", "r=0"]
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "20"
    assert not any("retry-after" in one.headers for one in (page, stream, sub))


def test_what_is_not_found_counts_too(framework: Callable[[ByAddress], Any]) -> None:
    guard = ByAddress("1/minute")
    app = framework(guard)
    if isinstance(app, litestar.Litestar):
        # Its own middleware runs after routing: who wants these counted stands in front of it.
        app = LimitMiddleware(litestar.Litestar(), guard)
    missing, refused = got(app, "/no/such", "/no/such")
    assert (missing.status_code, refused.status_code) == (404, 429)
    assert guard.lines == ["GET /no/such"] * 2


@contextlib.contextmanager
def served(app: Any) -> Iterator[int]:
    """A real uvicorn on a free port of the loopback, until the block ends."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)  # who connects before the server runs waits for it
        port: int = listening.getsockname()[1]
        config = uvicorn.Config(app, log_level="error", ws="websockets-sansio", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def test_a_real_server_streams_and_opens_websockets() -> None:
    with served(starlette_app(ByAddress("2/minute"))) as port:
        base = f"http://127.0.0.1:{port}"
        with httpx.stream("GET", f"{base}/stream") as response:
            assert response.headers["ratelimit"] == '"pages";r=1;t=30'
            assert response.headers["transfer-encoding"] == "chunked"
            assert response.headers["x-own"] == "1"
            assert response.read() == b"0;1;2;"

        async def story() -> None:
            connect = websockets.asyncio.client.connect
            address = f"ws://127.0.0.1:{port}/ws"
            async with connect(address, subprotocols=["chat"], proxy=None) as opened:  # type: ignore[list-item]
                assert opened.response is not None
                assert opened.response.headers["ratelimit"] == '"pages";r=0;t=30'
                assert opened.subprotocol == "chat"
                await opened.send("echo")
                assert await opened.recv() == "echo"
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, proxy=None).__aenter__()
            answer = refused.value.response
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "30"
            assert answer.body is not None
            assert json.loads(answer.body)["reason"] == "rate_limited"

        asyncio.run(story())
        refused = httpx.get(f"{base}/page")
        assert refused.status_code == 429
        assert refused.json()["rule"] == "pages"
        head = httpx.head(f"{base}/page")
        assert (head.status_code, head.content) == (429, b"")
        assert head.headers["content-length"] == refused.headers["content-length"]
