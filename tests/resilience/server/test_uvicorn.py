"""Starlette under a real uvicorn behind `protect`: nothing that reads `receive` is disturbed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.inbox import YOUNG_S
from sluicegate.resilience.settings import Resilience
from tests.doors.test_frameworks import served
from tests.engines.child import until

LONG_S = 3 * YOUNG_S  # so long that a request in flight is watched
PART = b"x" * 50_000


@final
class Shop:
    """A service with each way to read `receive`, and what its handlers saw."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.disconnected = threading.Event()
        self.stopped = threading.Event()
        self.cleaned = threading.Event()

    async def upload(self, request: Request) -> Response:
        await asyncio.sleep(float(request.query_params.get("after", "0")))
        return PlainTextResponse(str(len(await request.body())))

    async def hold(self, request: Request) -> Response:
        self.entered.release()
        await asyncio.to_thread(self.gate.wait, 30)
        return PlainTextResponse("held")

    async def polls(self, request: Request) -> Response:
        self.entered.release()
        while not await request.is_disconnected():
            await asyncio.sleep(0.02)
        self.disconnected.set()
        return PlainTextResponse("nobody")

    async def stream(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            try:
                for number in range(1_000):
                    yield b"%d;" % number
                    await asyncio.sleep(0.02)
            finally:
                self.stopped.set()

        return StreamingResponse(parts())

    async def background(self, request: Request) -> Response:
        return PlainTextResponse("done", background=BackgroundTask(self.clean))

    async def clean(self) -> None:
        await asyncio.to_thread(self.gate.wait, 30)
        self.cleaned.set()

    def app(self, settings: Resilience | None, base: bool = False) -> ProtectedApp:
        async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
            return await call_next(request)

        routes = [
            Route("/upload", self.upload, methods=["POST"]),
            Route("/hold", self.hold),
            Route("/polls", self.polls),
            Route("/stream", self.stream),
            Route("/background", self.background),
        ]
        middleware = [Middleware(BaseHTTPMiddleware, dispatch=pass_on)] if base else []
        return protect(Starlette(routes=routes, middleware=middleware), settings)


def levels(app: ProtectedApp) -> tuple[int, int, int]:
    stats = app.protection.stats()
    return stats.gate.inflight, stats.streams, stats.background


def hang_up(port: int, path: str, then: Callable[[], object]) -> None:
    """Send a request, and close its connection after `then`."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET %s HTTP/1.1\r\nhost: shop\r\n\r\n" % path.encode())
        then()


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("after_s", [0.0, LONG_S])
def test_upload_arrives_whole_even_if_read_late(after_s: float, base: bool) -> None:
    app = Shop().app(None, base)
    with served(app) as port:
        url = f"http://127.0.0.1:{port}/upload?after={after_s}"
        chunks = httpx.post(url, content=iter([PART] * 40), timeout=30)
        whole = httpx.post(url, content=PART, timeout=30)
    assert (chunks.text, whole.text) == (str(40 * len(PART)), str(len(PART)))
    assert levels(app) == (0, 0, 0)


@pytest.mark.parametrize("size", [0, 1_000, 1_000_000])
def test_upload_that_waited_in_queue_arrives_whole(size: int) -> None:
    shop = Shop()
    app = shop.app(Resilience(slots=1))
    with served(app) as port, ThreadPoolExecutor(2) as pool:
        url = f"http://127.0.0.1:{port}"
        held = pool.submit(httpx.get, f"{url}/hold", timeout=30)
        try:
            assert shop.entered.acquire(timeout=10)
            waits = pool.submit(httpx.post, f"{url}/upload", content=b"x" * size, timeout=30)
            until(lambda: app.protection.gate.queued == 1, "it waits")
        finally:
            shop.gate.set()
        assert (held.result().text, waits.result().text) == ("held", str(size))


def test_closed_connection_leaves_queue_while_slot_is_taken() -> None:
    shop = Shop()
    app = shop.app(Resilience(slots=1))
    with served(app) as port, ThreadPoolExecutor(1) as pool:
        held = pool.submit(httpx.get, f"http://127.0.0.1:{port}/hold", timeout=30)
        try:
            assert shop.entered.acquire(timeout=10)
            hang_up(
                port,
                "/stream",
                lambda: until(lambda: app.protection.gate.queued == 1, "it waits"),
            )
            until(lambda: app.protection.gate.queued == 0, "it has left")
            assert not held.done()
        finally:
            shop.gate.set()
        assert held.result().text == "held"
    assert app.protection.stats().gate.hung_up == 1
    assert not shop.stopped.is_set()


def test_handler_that_polls_for_disconnect_sees_it() -> None:
    shop = Shop()
    app = shop.app(None)
    with served(app) as port:
        hang_up(port, "/polls", lambda: shop.entered.acquire(timeout=10))
        assert shop.disconnected.wait(10)
        until(lambda: levels(app) == (0, 0, 0), "it has ended")


@pytest.mark.parametrize("base", [False, True])
def test_stream_stops_when_its_client_leaves_and_holds_no_slot(base: bool) -> None:
    shop = Shop()
    app = shop.app(Resilience(slots=1), base)
    with served(app) as port:
        with httpx.stream("GET", f"http://127.0.0.1:{port}/stream") as response:
            received = response.iter_bytes()
            assert next(received).startswith(b"0;")
            assert levels(app)[:2] == (0, 1)
            assert httpx.post(f"http://127.0.0.1:{port}/upload", content=b"a").text == "1"
        assert shop.stopped.wait(10)
        until(lambda: levels(app) == (0, 0, 0), "it has ended")


def test_hang_up_in_flight_teaches_how_long_callers_wait() -> None:
    shop = Shop()
    app = shop.app(None)
    with served(app) as port:
        try:
            hang_up(port, "/hold", lambda: shop.entered.acquire(timeout=10))

            def learned() -> bool:
                found = app.protection.gate.resources[""].found
                return found is not None and found.patience_us > 0

            until(learned, "the hang-up is recorded")
            assert levels(app) == (1, 0, 0)  # its work goes on
        finally:
            shop.gate.set()
        until(lambda: levels(app) == (0, 0, 0), "it has ended")


def test_background_task_lets_the_next_request_work() -> None:
    shop = Shop()
    app = shop.app(Resilience(slots=1))
    with served(app) as port, httpx.Client() as client:
        try:
            assert client.get(f"http://127.0.0.1:{port}/background").text == "done"
            until(lambda: levels(app) == (0, 0, 1), "only the task goes on")
            assert httpx.post(f"http://127.0.0.1:{port}/upload", content=b"a").text == "1"
            assert not shop.cleaned.is_set()
        finally:
            shop.gate.set()
        assert shop.cleaned.wait(10)
