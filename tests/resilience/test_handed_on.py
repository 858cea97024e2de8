"""An overload is handed on: of three layers that would each repeat, none does, behind any door."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias, final
from wsgiref.handlers import SimpleHandler

import grpc
import grpc.aio
import httpx
import pytest

from sluicegate.contracts.errors import Refused
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.grpc import ResilientInterceptor
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.context import served_request
from sluicegate.resilience.overload_mark import FIELD, HANDED_ON
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.server.grpc import AsyncProtectInterceptor, ProtectInterceptor
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.server.wsgi import protect as protect_wsgi
from sluicegate.resilience.settings import EndpointSettings, Resilience
from tests.doors.test_frameworks import served
from tests.resilience.client.server import FAILING, OK, refusing, serving
from tests.resilience.server.test_wsgi import served as served_wsgi

NO_MORE: Final = refusing(
    "Retry-After: 60", "X-Sluicegate-Overload: retry=0, after-ms=60000, admitted-permille=0"
)
CALMER: Final = refusing(
    "Retry-After: 60", "X-Sluicegate-Overload: retry=0, after-ms=60000, admitted-permille=500"
)
METHOD: Final = "/T/Page"
CODES: Final = grpc.StatusCode


class Asked(NamedTuple):
    """What a caller of the middle got."""

    ok: bool
    marks: list[str]


# Ask the middle once with this client.
Ask: TypeAlias = Callable[[ResilientClient], Asked]


@final
class Middle:
    """A service between: it asks the backend, with retries, and fails if that does."""

    def __init__(self, backend: str, stands_in: bool = False) -> None:
        self.url = backend
        self.asked = 0
        self.stands_in = stands_in
        self.client = made()

    def page(self) -> None:
        self.asked += 1
        with (
            contextlib.suppress(*[httpx.HTTPStatusError, Refused] if self.stands_in else []),
            by_httpx(self.client) as driver,
        ):
            driver.get(self.url).raise_for_status()

    async def apage(self) -> None:
        self.asked += 1
        with contextlib.suppress(*[httpx.HTTPStatusError, Refused] if self.stands_in else []):
            async with by_httpx_async(self.client) as driver:
                (await driver.get(self.url)).raise_for_status()


def by_httpx(client: ResilientClient) -> httpx.Client:
    below = httpx.HTTPTransport(verify=False)  # nothing is read from disk for each client
    return httpx.Client(transport=ResilientTransport(client, below))


def by_httpx_async(client: ResilientClient) -> httpx.AsyncClient:
    below = httpx.AsyncHTTPTransport(verify=False)
    return httpx.AsyncClient(transport=AsyncResilientTransport(client, below))


def made() -> ResilientClient:
    return ResilientClient(client_settings({"retry": {"base_us": 1}}))


@contextlib.contextmanager
def over_asgi(middle: Middle) -> Iterator[tuple[Ask, Protection]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = 200
        try:
            await middle.apage()
        except (httpx.HTTPStatusError, Refused):
            status = 500
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"page"})

    door = protect(app)
    with served(door) as port:
        yield asks_http(f"http://127.0.0.1:{port}/"), door.protection


@contextlib.contextmanager
def over_wsgi(middle: Middle) -> Iterator[tuple[Ask, Protection]]:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        try:
            middle.page()
            status = "200 OK"
        except (httpx.HTTPStatusError, Refused):
            status = "502 Bad Gateway"
        start_response(status, [("Content-Length", "4")])
        return [b"page"]

    door = protect_wsgi(app)
    with served_wsgi(door) as url:
        yield asks_http(url), door.protection


@contextlib.contextmanager
def over_grpc(middle: Middle) -> Iterator[tuple[Ask, Protection]]:
    def page(message: bytes, context: Any) -> bytes:
        middle.page()
        return b"page"

    door = ProtectInterceptor()
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[door])
        server.add_generic_rpc_handlers([handlers(page)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield asks_grpc(port), door.protection
        finally:
            server.stop(None).wait(60)


@contextlib.contextmanager
def over_grpc_aio(middle: Middle) -> Iterator[tuple[Ask, Protection]]:
    async def page(message: bytes, context: Any) -> bytes:
        try:
            await middle.apage()
        except (httpx.HTTPStatusError, Refused):
            await context.abort(CODES.INTERNAL, "the backend failed")
        return b"page"

    door = AsyncProtectInterceptor()
    server: Any = None

    async def start() -> int:
        nonlocal server
        server = grpc.aio.server(interceptors=[door])
        server.add_generic_rpc_handlers([handlers(page)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return int(port)

    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as pool:
        port = runner.run(start())
        ask = asks_grpc(port)

        def ask_beside(client: ResilientClient) -> Asked:
            async def beside() -> Asked:
                return await asyncio.get_running_loop().run_in_executor(pool, ask, client)

            return runner.run(beside())

        try:
            yield ask_beside, door.protection
        finally:
            runner.run(server.stop(None))


def handlers(page: Any) -> Any:
    found: Any = {"Page": grpc.unary_unary_rpc_method_handler(page)}
    return grpc.method_handlers_generic_handler("T", found)


def asks_http(url: str) -> Ask:
    def ask(client: ResilientClient) -> Asked:
        with by_httpx(client) as driver:
            found = driver.get(url)
            return Asked(found.status_code == 200, found.headers.get_list(FIELD))

    return ask


def asks_grpc(port: int) -> Ask:
    def ask(client: ResilientClient) -> Asked:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as plain:
            door = ResilientInterceptor(client, "middle", idempotent=[METHOD])
            channel: Any = grpc.intercept_channel(plain, door)
            try:
                _, call = channel.unary_unary(METHOD).with_call(b"", timeout=20)
            except grpc.RpcError as error:
                call = error
            trailers = call.trailing_metadata() or ()
            marks = [value for name, value in trailers if name == FIELD]
            return Asked(call.code() is CODES.OK, marks)

    return ask


each_door = pytest.mark.parametrize("door", [over_asgi, over_wsgi, over_grpc, over_grpc_aio])


@each_door
@pytest.mark.parametrize("answer", [NO_MORE, CALMER], ids=["full", "half"])
def test_a_backend_that_wants_no_retry_is_asked_once_whatever_is_above_it(
    door: Any, answer: bytes
) -> None:
    with serving(answer) as backend:
        middle = Middle(backend.url)
        with door(middle) as (ask, protection):
            top = made()
            found = ask(top)
            assert found == Asked(ok=False, marks=[HANDED_ON.text()])
            assert (middle.asked, backend.received) == (1, 1)
            # The middle is well, and nothing else that it does is held back.
            assert top.breaker.stats().not_closed == 0
            assert top.retry.stats().marked_final == 1
        # Its server has ended: an abort is answered before the handler has.
        stats = protection.stats().gate
        assert (stats.inflight, stats.admitted) == (0, 1)


@each_door
def test_while_the_breaker_that_it_opened_is_open_that_is_handed_on_as_well(door: Any) -> None:
    with serving(NO_MORE) as backend:
        middle = Middle(backend.url)
        with door(middle) as (ask, _):
            top = made()
            for _ in range(25):  # more than its breaker would bear of failures
                assert ask(top).marks == [HANDED_ON.text()]
            assert (middle.asked, backend.received) == (25, 1)
            assert top.breaker.stats().not_closed == 0


@each_door
def test_a_failure_that_is_none_of_overload_is_repeated_above(door: Any) -> None:
    """The control: another host of the middle may reach what this one does not."""
    with serving(FAILING) as backend:
        middle = Middle(backend.url)
        with door(middle) as (ask, _):
            found = ask(made())
            assert found == Asked(ok=False, marks=[])
            assert middle.asked > 1


@each_door
def test_whoever_has_a_stand_in_hands_nothing_on(door: Any) -> None:
    with serving(NO_MORE) as backend:
        middle = Middle(backend.url, stands_in=True)
        with door(middle) as (ask, _):
            assert ask(made()).ok
            assert middle.asked == 1


@each_door
def test_what_is_well_carries_no_mark(door: Any) -> None:
    with serving(OK) as backend, door(Middle(backend.url)) as (ask, _):
        assert ask(made()) == Asked(ok=True, marks=[])


def test_a_caller_that_is_held_off_by_one_endpoint_still_asks_the_others() -> None:
    """A hundred handed-on overloads hold nothing back: the throttle learns nothing from them."""
    text = f"X-Sluicegate-Overload: {HANDED_ON.text()}"
    with serving(*[refusing(text, status="500 Oh")] * 100, OK) as backend:
        top = made()
        with by_httpx(top) as driver:
            assert [driver.get(backend.url).status_code for _ in range(100)] == [500] * 100
            assert driver.get(backend.url).text == "ok"
        assert top.throttle.stats().throttled == 0


# --- nobody waits for it any more ---


@final
class Slow:
    """Takes longer than its caller waits, and knows whether what it returned was serialised."""

    def __init__(self) -> None:
        self.serialised = 0

    def page(self, message: bytes, context: Any) -> str:
        while context.time_remaining() > 0:
            time.sleep(0.005)
        return "page"

    async def apage(self, message: bytes, context: Any) -> str:
        while context.time_remaining() > 0:
            await asyncio.sleep(0.005)
        return "page"

    def serialise(self, text: str) -> bytes:
        self.serialised += 1
        return text.encode()


@pytest.mark.parametrize("left_ms", [50, 60_000])
def test_wsgi_sends_504_instead_of_an_answer_that_nobody_waits_for(left_ms: int) -> None:
    """Its endpoint's own time is over each time; that of its caller is what counts."""

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        time.sleep(0.1)
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"large"
        yield b"page"

    door = protect_wsgi(app, Resilience(endpoints={"/": EndpointSettings(timeout_s=0.08)}))
    with served_wsgi(door) as url:
        found = httpx.get(url, headers={"x-sluicegate-deadline-ms": str(left_ms)})
    if left_ms == 50:
        assert found.status_code == 504
        assert found.json()["reason"] == "deadline"
    else:
        assert (found.status_code, found.text) == (200, "largepage")
    assert door.protection.stats().gate.inflight == 0


def test_wsgi_sends_504_where_an_application_begins_its_answer_anew_too_late() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        time.sleep(0.05)
        try:
            int("a bug")
        except ValueError:
            start_response("500 Sorry", [("Content-Type", "text/plain")], sys.exc_info())
        return [b"sorry"]

    for left_ms, status in ((20, b"504 Gateway Timeout"), (60_000, b"500 Sorry")):
        answer = io.BytesIO()
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_X_SLUICEGATE_DEADLINE_MS": str(left_ms),
        }
        handler = SimpleHandler(io.BytesIO(), answer, io.StringIO(), environ)
        handler.run(protect_wsgi(app))
        assert answer.getvalue().split(b" ", 1)[1].startswith(status)


def test_what_a_grpc_handler_has_set_stays_beside_the_mark() -> None:
    def page(message: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("x-own", "1"),))
        served = served_request()
        assert served is not None
        served.record_overload(0)
        return b"of a stand-in"

    async def apage(message: bytes, context: Any) -> bytes:
        return page(message, context)

    def ask(port: int) -> dict[str, str]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as plain:
            channel: Any = plain
            _, call = channel.unary_unary(METHOD).with_call(b"", timeout=20)
            return dict(call.trailing_metadata())

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[ProtectInterceptor()])
        server.add_generic_rpc_handlers([handlers(page)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        found = [ask(port)]
        server.stop(None).wait(60)

    async def story() -> dict[str, str]:
        server = grpc.aio.server(interceptors=[AsyncProtectInterceptor()])
        server.add_generic_rpc_handlers([handlers(apage)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        trailers = await asyncio.to_thread(ask, port)
        await server.stop(None)
        return trailers

    found.append(asyncio.run(story()))
    for trailers in found:
        assert trailers["x-own"] == "1"
        assert FIELD in trailers


def test_grpc_does_not_serialise_what_nobody_waits_for() -> None:
    slow = Slow()

    def handler(behaviour: Any) -> Any:
        one: Any = grpc.unary_unary_rpc_method_handler(
            behaviour, response_serializer=slow.serialise
        )
        return grpc.method_handlers_generic_handler("T", {"Page": one})

    door = ProtectInterceptor()
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[door])
        server.add_generic_rpc_handlers([handler(slow.page)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        channel: Any
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(METHOD)(b"", timeout=0.05)
        while door.protection.stats().gate.inflight:
            time.sleep(0.005)
        server.stop(None).wait(60)

    async def later() -> None:
        door = AsyncProtectInterceptor()
        server = grpc.aio.server(interceptors=[door])
        server.add_generic_rpc_handlers([handler(slow.apage)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"", timeout=0.05)
        while door.protection.stats().gate.inflight:
            await asyncio.sleep(0.005)
        await server.stop(None)

    asyncio.run(later())
    assert slow.serialised == 0
