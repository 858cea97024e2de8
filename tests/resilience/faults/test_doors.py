"""Faults at real servers and clients: ASGI, WSGI, gRPC threaded and asyncio, httpx."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import grpc
import grpc.aio
import httpx
import pytest

from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.resilient import resilient as resilient_function
from sluicegate.resilience.faults import asgi, wsgi
from sluicegate.resilience.faults.calls import faulty
from sluicegate.resilience.faults.grpc import AsyncFaultInterceptor, FaultInterceptor
from sluicegate.resilience.faults.httpx import AsyncFaultTransport, FaultTransport
from sluicegate.resilience.faults.injector import FIELD, FaultInjector
from sluicegate.resilience.faults.settings import FaultRule, FaultSettings
from tests.doors.test_frameworks import served

DELAY_US = 30_000
RULES = {
    "late": FaultRule(route="*/late", delay_us=DELAY_US),
    "full": FaultRule(route="*/full", status=503),
    "bug": FaultRule(route="*/bug", error="a planted bug"),
    "cut": FaultRule(route="*/cut", abort=True),
}


def injector() -> FaultInjector:
    return FaultInjector(FaultSettings(on=True, rules=RULES))


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"hello"})


def hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("X-Own", "1")])
    return [b"hello"]


class Silent(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def asgi_served(faults: FaultInjector) -> Iterator[int]:
    logging.getLogger("uvicorn.error").disabled = True  # planted errors have tracebacks
    try:
        with served(asgi.inject(hello, faults)) as port:
            yield port
    finally:
        logging.getLogger("uvicorn.error").disabled = False


@contextlib.contextmanager
def wsgi_served(faults: FaultInjector) -> Iterator[int]:
    app = wsgi.inject(hello_wsgi, faults)
    with make_server("127.0.0.1", 0, app, handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("serve", [asgi_served, wsgi_served])
def test_an_http_server_meets_its_faults_and_marks_each_answer(
    serve: Callable[[FaultInjector], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    faults = injector()
    with serve(faults) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        plain = client.get("/page")
        assert (plain.text, FIELD in plain.headers) == ("hello", False)
        began = time.monotonic()
        late = client.get("/late")
        assert time.monotonic() - began >= DELAY_US / 1e6
        assert (late.text, late.headers[FIELD], late.headers["x-own"]) == ("hello", "late", "1")
        full = client.get("/full")
        assert (full.status_code, full.headers[FIELD]) == (503, "full")
        assert client.get("/bug").status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/cut")
        faults.switch(on=False)
        assert client.get("/cut").text == "hello"
    assert "a planted bug" in capfd.readouterr().err or serve is asgi_served


def handlers(*, later: bool) -> Any:
    def say(message: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("x-own", "1"),))
        return b"hello"

    async def say_later(message: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("x-own", "1"),))
        return b"hello"

    def each(message: bytes, context: Any) -> Iterator[bytes]:
        yield from (b"hello", b"end")

    async def each_later(message: bytes, context: Any) -> Any:
        yield b"hello"
        yield b"end"

    one: Any = grpc.unary_unary_rpc_method_handler(say_later if later else say)
    many: Any = grpc.unary_stream_rpc_method_handler(each_later if later else each)
    methods = {"page": one, "late": one, "full": one, "bug": one, "cut": one}
    return (
        grpc.method_handlers_generic_handler("T", methods),
        grpc.method_handlers_generic_handler("S", {"late": many, "cut": many}),
    )


@contextlib.contextmanager
def threaded(faults: FaultInjector) -> Iterator[int]:
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool, interceptors=[FaultInterceptor(faults)])
    server.add_generic_rpc_handlers(handlers(later=False))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()
        pool.shutdown()


@contextlib.contextmanager
def looped(faults: FaultInjector) -> Iterator[int]:
    ports: list[int] = []
    ready, loops = threading.Event(), []
    end: list[asyncio.Event] = []

    async def serve() -> None:
        server = grpc.aio.server(interceptors=[AsyncFaultInterceptor(faults)])
        server.add_generic_rpc_handlers(handlers(later=True))
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        loops.append(asyncio.get_running_loop())
        end.append(asyncio.Event())
        ready.set()
        await end[0].wait()
        await server.stop(0)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield ports[0]
    finally:
        loops[0].call_soon_threadsafe(end[0].set)
        thread.join(60)


def ask(port: int, method: str) -> tuple[str, str, dict[str, str]]:
    """Return the code, what it says, and the trailers."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        make: Any = channel.unary_stream if method[1] == "S" else channel.unary_unary
        if method[1] == "S":
            call = make(method)(b"", timeout=30)
            try:
                text = b" ".join(call).decode()
            except grpc.RpcError:
                text = ""
        else:
            try:
                answer, call = make(method).with_call(b"", timeout=30)
                text = answer.decode()
            except grpc.RpcError as error:
                call, text = error, ""
        code = call.code().name
        return code, text or call.details(), dict(call.trailing_metadata() or ())


@pytest.mark.parametrize("serve", [threaded, looped])
def test_a_grpc_server_meets_its_faults_and_marks_each_answer(
    serve: Callable[[FaultInjector], Any],
) -> None:
    mark = FIELD.lower()
    with serve(injector()) as port:
        assert ask(port, "/T/page") == ("OK", "hello", {"x-own": "1"})
        began = time.monotonic()
        assert ask(port, "/T/late") == ("OK", "hello", {"x-own": "1", mark: "late"})
        assert time.monotonic() - began >= DELAY_US / 1e6
        assert ask(port, "/S/late")[1:] == ("hello end", {mark: "late"})
        code, _, trailers = ask(port, "/T/full")
        assert (code, trailers[mark]) == ("UNAVAILABLE", "full")
        assert ask(port, "/T/bug")[:2] == ("UNKNOWN", "a planted bug")
        for method in ("/T/cut", "/S/cut"):
            code, _, trailers = ask(port, method)
            assert (code, trailers[mark]) == ("UNAVAILABLE", "cut")


def test_a_client_meets_faults_of_the_network() -> None:
    with served(hello) as port, httpx.Client(transport=FaultTransport(injector())) as client:
        base = f"http://127.0.0.1:{port}"
        assert FIELD not in client.get(f"{base}/page").headers
        assert client.get(f"{base}/late").headers[FIELD] == "late"
        with pytest.raises(httpx.ReadTimeout):
            client.get(f"{base}/late", timeout=DELAY_US / 2e6)
        assert client.get(f"{base}/full").status_code == 503
        with pytest.raises(httpx.ConnectError, match="a planted bug"):
            client.get(f"{base}/bug")
        with pytest.raises(httpx.ReadError):
            client.get(f"{base}/cut")


def one_in_three() -> FaultInjector:
    rules = {"flaky": FaultRule(share=1 / 3, abort=True)}
    return FaultInjector(FaultSettings(on=True, seed=5, rules=rules))


@pytest.mark.parametrize("resilient", [True, False])
def test_a_resilient_client_above_it_mends_what_a_bare_one_shows(resilient: bool) -> None:
    faults = one_in_three()
    inner: httpx.BaseTransport = FaultTransport(faults)
    transport = ResilientTransport(ResilientClient(), inner) if resilient else inner
    with served(hello) as port, httpx.Client(transport=transport) as client:
        failed = 0
        for _ in range(4):
            try:
                client.get(f"http://127.0.0.1:{port}/page")
            except httpx.HTTPError:
                failed += 1
    assert faults.families()[1].samples[0].value > 0
    assert (failed == 0) is resilient


def test_the_async_transport_does_the_same() -> None:
    async def ask_both(base: str) -> None:
        inner = AsyncFaultTransport(injector())
        transport = AsyncResilientTransport(ResilientClient(), inner)
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get(f"{base}/late")).headers[FIELD] == "late"
            with pytest.raises(httpx.ReadError):
                await client.post(f"{base}/cut")

    with served(hello) as port:
        asyncio.run(ask_both(f"http://127.0.0.1:{port}"))


def test_any_function_meets_its_faults_below_its_retries() -> None:
    faults = one_in_three()
    client = ResilientClient()

    @resilient_function(client, "a", idempotent=True)
    @faulty(faults, "/a")
    def fetch(number: int) -> int:
        return number

    @resilient_function(client, "b", idempotent=True)
    @faulty(faults, "/b")
    async def fetch_later(number: int) -> int:
        return number

    assert [fetch(number) for number in range(4)] == [0, 1, 2, 3]
    assert [asyncio.run(fetch_later(number)) for number in range(2)] == [0, 1]
    assert faults.families()[1].samples[0].value > 0

    @faulty(injector(), "/a/cut")
    def cut() -> None:
        raise AssertionError("it is not called")

    @faulty(injector(), "/a/bug")
    def bug() -> None:
        raise AssertionError("it is not called")

    with pytest.raises(ConnectionResetError):
        cut()
    with pytest.raises(ConnectionError, match="a planted bug"):
        bug()
