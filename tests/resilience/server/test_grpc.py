"""Protected gRPC servers, threaded and asyncio, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

from sluicegate.policies.admission.settings import WAITER_BYTES
from sluicegate.resilience.context import remaining_us, served_request
from sluicegate.resilience.overload_mark import parse_overload_mark
from sluicegate.resilience.server.grpc import AsyncProtectInterceptor, ProtectInterceptor
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import EndpointSettings, Resilience
from sluicegate.system import now_us
from tests.engines.child import until

SETTINGS = Resilience(
    slots=1, queue_length=1, endpoints={"/T/Late": EndpointSettings(timeout_s=0.05)}
)
BULK = (("x-sluicegate-criticality", "bulk"),)


class Service:
    def __init__(self) -> None:
        self.begun = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    def text(self) -> bytes:
        self.begun += 1
        found = served_request()
        return b"none" if found is None else found.criticality.name.encode()

    def wait(self) -> None:
        self.entered.release()
        self.gate.wait(60)


def handlers(service: Service, later: bool) -> Any:
    def page(message: bytes, context: Any) -> bytes:
        return service.text()

    def hold(message: bytes, context: Any) -> bytes:
        service.wait()
        return service.text()

    def left(message: bytes, context: Any) -> bytes:
        return str(remaining_us(now_us())).encode()

    def late(message: bytes, context: Any) -> bytes:
        while remaining_us(now_us()):
            time.sleep(0.005)
        return service.text()

    def stream(message: bytes, context: Any) -> Iterator[bytes]:
        yield from (service.text(), b"end")

    def endless(message: bytes, context: Any) -> Iterator[bytes]:
        while True:
            yield service.text()

    async def endless_later(message: bytes, context: Any) -> Any:
        while True:
            yield service.text()

    async def page_later(message: bytes, context: Any) -> bytes:
        return service.text()

    async def hold_later(message: bytes, context: Any) -> bytes:
        await asyncio.to_thread(service.wait)
        return service.text()

    async def left_later(message: bytes, context: Any) -> bytes:
        return left(message, context)

    async def late_later(message: bytes, context: Any) -> bytes:
        return await asyncio.to_thread(late, message, context)

    async def stream_later(message: bytes, context: Any) -> Any:
        yield service.text()
        yield b"end"

    return grpc.method_handlers_generic_handler(
        "T",
        {
            "Page": grpc.unary_unary_rpc_method_handler(page_later if later else page),
            "Left": grpc.unary_unary_rpc_method_handler(left_later if later else left),
            "Late": grpc.unary_unary_rpc_method_handler(late_later if later else late),
            "Hold": grpc.unary_unary_rpc_method_handler(hold_later if later else hold),
            "Endless": grpc.unary_stream_rpc_method_handler(endless_later if later else endless),
            "Stream": grpc.unary_stream_rpc_method_handler(stream_later if later else stream),
        },
    )


@contextlib.contextmanager
def threaded(service: Service, settings: Resilience = SETTINGS) -> Iterator[tuple[int, Protection]]:
    door = ProtectInterceptor(settings)
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, interceptors=[door])
        server.add_generic_rpc_handlers((handlers(service, later=False),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port, door.protection
        finally:
            server.stop(None).wait(60)


@contextlib.contextmanager
def looped(service: Service, settings: Resilience = SETTINGS) -> Iterator[tuple[int, Protection]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[Any, int, Protection]:
        door = AsyncProtectInterceptor(settings)
        server = grpc.aio.server(interceptors=[door])
        server.add_generic_rpc_handlers((handlers(service, later=True),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port, door.protection

    server, port, protection = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield port, protection
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@pytest.mark.parametrize("serve", [threaded, looped])
def test_a_call_is_served_with_its_claims_and_streams_pass(serve: Any) -> None:
    channel: Any
    with serve(Service()) as (port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        claim = (("x-sluicegate-criticality", "bulk"),)
        assert channel.unary_unary("/T/Page")(b"", metadata=claim, timeout=10) == b"BULK"
        assert list(channel.unary_stream("/T/Stream")(b"", timeout=10)) == [b"DEGRADED", b"end"]
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/T/Page")(
                b"", metadata=(("x-sluicegate-criticality", "most"),), timeout=10
            )
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("serve", [threaded, looped])
def test_call_without_end_has_no_deadline_and_is_answered_however_late(
    serve: Any,
) -> None:
    """An endpoint's own time stops what it calls; only that of the caller makes an answer vain."""
    channel: Any
    with serve(Service()) as (port, _), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/T/Left")(b"") == b"None"
        for timeout in (None, 60):
            assert channel.unary_unary("/T/Late")(b"", timeout=timeout) == b"DEGRADED"


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("serve", [threaded, looped])
def test_a_stream_that_its_caller_leaves_gives_its_place_back_in_silence(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is closed outside of the context it began in; the only place is free again each time."""
    channel: Any
    with (
        serve(Service()) as (port, protection),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        for _ in range(5):
            stream = channel.unary_stream("/T/Endless")(b"", timeout=30)
            assert next(stream) == b"DEGRADED"
            stream.cancel()
            until(lambda: protection.gate.stats().inflight == 0, "its place is free")
        assert channel.unary_unary("/T/Page")(b"", timeout=10) == b"DEGRADED"
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("serve", [threaded, looped])
def test_overload_is_unavailable_with_a_mark_in_the_trailers(serve: Any) -> None:
    """One works; of an asyncio server one more waits; the next is refused."""
    service = Service()
    with serve(service) as (port, protection), contextlib.ExitStack() as stack:
        channel: Any = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
        hold, page = channel.unary_unary("/T/Hold"), channel.unary_unary("/T/Page")
        held = [hold.future(b"", timeout=30)]
        try:
            assert service.entered.acquire(timeout=60)
            if serve is looped:
                held.append(hold.future(b"", timeout=30))
                while protection.gate.queued == 0:
                    assert not held[1].done()
            with pytest.raises(grpc.RpcError) as caught:
                page(b"", metadata=BULK, timeout=10)
        finally:
            service.gate.set()
        assert [one.result() for one in held] == [b"DEGRADED"] * len(held)
        assert page(b"", timeout=10) == b"DEGRADED"
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        failed: Any = caught.value
        trailers = dict(failed.trailing_metadata())
        assert trailers["grpc-retry-pushback-ms"] == "-1"
        assert parse_overload_mark([trailers["x-sluicegate-overload"]]) is not None


@pytest.mark.parametrize(("length", "waiting"), [(0, 2), (100_000, 1)])
def test_messages_that_wait_are_bounded_in_bytes(length: int, waiting: int) -> None:
    """The queue has room for a message and a half of the long ones, and for many empty ones."""
    settings = replace(SETTINGS, queue_length=10, queue_bytes=150_000)
    service = Service()
    with looped(service, settings) as (port, protection), contextlib.ExitStack() as stack:
        channel: Any = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
        hold = channel.unary_unary("/T/Hold")
        held = [hold.future(b"", timeout=30)]
        try:
            assert service.entered.acquire(timeout=60)
            for _ in range(2):
                held.append(hold.future(b"m" * length, timeout=30, metadata=BULK[: len(held) - 1]))
                while protection.gate.queued < len(held) - 1 and not held[-1].done():
                    pass
            assert protection.gate.queued_bytes == waiting * (WAITER_BYTES + length)
            if waiting == 1:
                assert held.pop().code() is grpc.StatusCode.UNAVAILABLE
        finally:
            service.gate.set()
        assert [one.result() for one in held] == [b"DEGRADED", b"DEGRADED", b"BULK"][: 1 + waiting]
