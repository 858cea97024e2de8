"""Calls of the client over gRPC, sync and asyncio, to real servers: scripted and protected."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias, final

import grpc
import pytest

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.reasons import BREAKER_OPEN, DEADLINE
from sluicegate.policies.client.call_result import ResultKind
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.grpc import (
    AsyncResilientInterceptor,
    ResilientInterceptor,
)
from sluicegate.resilience.client.grpc_results import result_of_code
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.context import ServedRequest, serve
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.overload_mark import FIELD, PUSHBACK
from sluicegate.testing import HandClock
from tests.resilience.server.test_grpc import Service, looped, threaded

GET: Final = "/T/Get"
CODE: Final = grpc.StatusCode
S: Final = 1_000_000


class Script(NamedTuple):
    """One answer of a scripted server; OK answers with the metadata that came, and the time."""

    code: Any = CODE.OK
    trailers: Sequence[tuple[str, str]] = ()


def mark(*, retry: int, after_ms: int) -> Script:
    text = f"retry={retry}, after-ms={after_ms}, admitted-permille=0"
    return Script(CODE.UNAVAILABLE, [(FIELD, text)])


def pushback(text: str) -> Script:
    return Script(CODE.UNAVAILABLE, [(PUSHBACK, text)])


FAILING = Script(CODE.UNAVAILABLE)


@final
class Scripted:
    def __init__(self, script: Sequence[Script]) -> None:
        self._script = script
        self.received = 0
        self.claims: list[dict[str, Any]] = []
        self.left_s: list[float | None] = []

    def answer(self, message: bytes, context: Any) -> bytes:
        found = self._script[min(self.received, len(self._script) - 1)]
        self.received += 1
        self.claims.append(dict(context.invocation_metadata()))
        self.left_s.append(context.time_remaining())
        if found.code is not CODE.OK:
            context.set_trailing_metadata(tuple(found.trailers))
            context.abort(found.code, "scripted")
        return b"ok"

    def stream(self, message: bytes, context: Any) -> Iterator[bytes]:
        yield self.answer(message, context)


@contextlib.contextmanager
def serving(*script: Script) -> Iterator[tuple[int, Scripted]]:
    scripted = Scripted(script)
    handlers: dict[str, Any] = {
        "Get": grpc.unary_unary_rpc_method_handler(scripted.answer),
        "Other": grpc.unary_unary_rpc_method_handler(scripted.answer),
        "Stream": grpc.unary_stream_rpc_method_handler(scripted.stream),
    }
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("T", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port, scripted
        finally:
            server.stop(None).wait(10)


Ask: TypeAlias = Callable[..., Any]


def ask_sync(
    client: ResilientClient, port: int, method: str = GET, timeout: float | None = None, **more: Any
) -> Any:
    interceptor = ResilientInterceptor(client, "b", idempotent=[GET])
    channel: Any
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        watched: Any = grpc.intercept_channel(channel, interceptor)
        if method.endswith("Stream"):
            return list(watched.unary_stream(method)(b"", timeout=timeout, **more))
        return watched.unary_unary(method)(b"", timeout=timeout, **more)


def ask_async(
    client: ResilientClient, port: int, method: str = GET, timeout: float | None = None, **more: Any
) -> Any:
    async def ask() -> Any:
        interceptors = AsyncResilientInterceptor(client, "b", idempotent=[GET]).all
        channel: Any
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", interceptors=interceptors
        ) as channel:
            if method.endswith("Stream"):
                call = channel.unary_stream(method)(b"", timeout=timeout, **more)
                return [message async for message in call]
            return await channel.unary_unary(method)(b"", timeout=timeout, **more)

    return asyncio.run(ask())


both = pytest.mark.parametrize("ask", [ask_sync, ask_async])


def made(**table: object) -> ResilientClient:
    return ResilientClient(client_settings({"retry": {"base_us": 1}} | table))


def code_of(ask: Ask, *args: Any, **more: Any) -> Any:
    with pytest.raises(grpc.RpcError) as error:
        ask(*args, **more)
    return error.value.code()


def holds_nothing(client: ResilientClient) -> bool:
    return client.retry.stats().inflight == client.breaker.stats().inflight == 0


@both
def test_what_is_named_idempotent_is_repeated_and_nothing_else(ask: Ask) -> None:
    client = made()
    with serving(FAILING, Script()) as (port, server):
        assert ask(client, port) == b"ok"
        assert server.received == 2
    with serving(FAILING, Script()) as (port, server):
        assert code_of(ask, made(), port, "/T/Other") is CODE.UNAVAILABLE
        assert server.received == 1
    assert client.retry.stats().mended == 1
    assert holds_nothing(client)


@both
def test_a_mark_that_says_no_stops_this_call_and_the_next_ones(ask: Ask) -> None:
    client = made()
    with serving(mark(retry=0, after_ms=60_000), Script()) as (port, server):
        assert code_of(ask, client, port) is CODE.UNAVAILABLE
        with pytest.raises(Refused) as refused:
            ask(client, port)
        assert server.received == 1
    assert refused.value.decision.reason is BREAKER_OPEN
    assert holds_nothing(client)


@both
def test_a_mark_or_a_push_back_with_a_time_is_heeded(ask: Ask) -> None:
    for told in (mark(retry=1, after_ms=30), pushback("30")):
        client = made()
        with serving(told, Script()) as (port, server):
            assert ask(client, port) == b"ok"
            assert server.received == 2
    for final_word in (pushback("-1"), pushback("soon"), mark(retry=0, after_ms=1)):
        with serving(final_word, Script()) as (port, server):
            assert code_of(ask, made(), port) is CODE.UNAVAILABLE
            assert server.received == 1


@both
def test_a_push_back_of_anybody_opens_no_breaker_at_once(ask: Ask) -> None:
    client = made()
    with serving(pushback("60000"), Script()) as (port, server):
        assert code_of(ask, client, port) is CODE.UNAVAILABLE
        assert ask(client, port) == b"ok"
        assert server.received == 2
    assert client.breaker.stats().opened == 0


@both
def test_the_last_hop_has_what_is_left_and_the_class_of_what_is_served(ask: Ask) -> None:
    clock = HandClock()
    long = {"timeout_us": 100 * S, "attempt_us": 100 * S}
    client = ResilientClient(client_settings(long), clock=clock)
    served = ServedRequest(deadline_us=clock.now_us() + 30 * S, criticality=Criticality.BEST_EFFORT)
    with serving(Script()) as (port, server):
        with serve(served):
            ask(client, port)
            ask(client, port, timeout=10.0)
            assert ask(client, port, "/T/Stream") == [b"ok"]
            clock.advance(us=30 * S)
            with pytest.raises(Refused) as refused:
                ask(client, port)
            with pytest.raises(Refused):
                ask(client, port, "/T/Stream")
        assert server.received == 3
        assert ask(client, port, "/T/Stream") == [b"ok"], "a stream is bound by nothing of ours"
    assert refused.value.decision.reason is DEADLINE
    first_s, second_s, stream_s, unbound_s = server.left_s
    # The library rounds what it sends up.
    assert first_s is not None
    assert 15 < first_s < 35
    assert second_s is not None
    assert second_s < 15
    assert stream_s is not None
    assert stream_s < 35
    assert unbound_s is None or unbound_s > 1e6
    classes = [claims.get("x-sluicegate-criticality") for claims in server.claims]
    assert classes == ["best-effort", "best-effort", "best-effort", None]


@both
def test_an_attempt_that_takes_too_long_ends_as_one_of_grpc(ask: Ask) -> None:
    gate = threading.Event()

    def hold(message: bytes, context: Any) -> bytes:
        gate.wait(30)
        return b"late"

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        handlers: dict[str, Any] = {"Hold": grpc.unary_unary_rpc_method_handler(hold)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("T", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        client = made(attempt_us=100_000)
        assert code_of(ask, client, port, "/T/Hold") is CODE.DEADLINE_EXCEEDED
        gate.set()
        server.stop(None).wait(10)
    assert holds_nothing(client)


@both
@pytest.mark.parametrize("serve_protected", [threaded, looped])
def test_a_protected_service_without_a_place_is_asked_once(ask: Ask, serve_protected: Any) -> None:
    service = Service()
    client = made()
    with serve_protected(service) as (port, protection), ThreadPoolExecutor(2) as pool:
        try:
            held = [pool.submit(ask, made(), port, "/T/Hold")]
            assert service.entered.acquire(timeout=10)
            if serve_protected is looped:
                held.append(pool.submit(ask, made(), port, "/T/Hold"))
                while protection.gate.queued < 1:
                    time.sleep(0.005)
            with serve(ServedRequest(criticality=Criticality.BULK)):
                assert code_of(ask, client, port, "/T/Page") is CODE.UNAVAILABLE
            assert service.begun == 0
            assert protection.stats().gate.refused_full == 1
        finally:
            service.gate.set()
        assert {one.result(30) for one in held} == {b"DEGRADED"}


def test_what_cannot_be_sent_is_the_callers_own_fault() -> None:
    client = made()
    with serving(Script()) as (port, _), pytest.raises(TypeError):
        ask_sync(client, port, metadata=[("x", object())])
    assert holds_nothing(client)


def test_a_group_of_hosts_is_refused_since_nothing_would_go_to_them() -> None:
    with pytest.raises(BadValue, match=r"client\.hosts"):
        ResilientInterceptor(ResilientClient(None, HostGroup(lambda: ["a:1"])), "b")


@pytest.mark.parametrize(
    ("code", "trailers", "kind", "after_us", "final_word"),
    [
        (CODE.UNAVAILABLE, [(PUSHBACK, "5"), (PUSHBACK, "5")], ResultKind.OVERLOADED, 0, True),
        (CODE.UNAVAILABLE, [(PUSHBACK, "0")], ResultKind.FAILED, 0, False),
        (CODE.UNAVAILABLE, [(PUSHBACK, "9" * 9)], ResultKind.OVERLOADED, 600 * S, False),
        (CODE.UNAVAILABLE, [(PUSHBACK, "9" * 99)], ResultKind.OVERLOADED, 0, True),
        (CODE.UNAVAILABLE, [(FIELD, "retry=2")], ResultKind.FAILED, 0, False),
        (CODE.UNAVAILABLE, [(FIELD, b"\xff")], ResultKind.FAILED, 0, False),
        (CODE.RESOURCE_EXHAUSTED, [(PUSHBACK, "70")], ResultKind.LIMITED, 70_000, False),
        (CODE.RESOURCE_EXHAUSTED, None, ResultKind.LIMITED, 0, False),
        (CODE.NOT_FOUND, [(PUSHBACK, "70")], ResultKind.REJECTED, 0, False),
        (CODE.INTERNAL, [], ResultKind.FAILED, 0, False),
        # A write of unknown outcome: only an idempotent call is repeated.
        (CODE.UNKNOWN, [(PUSHBACK, "-1")], ResultKind.FAILED, 0, False),
        (CODE.CANCELLED, [], ResultKind.CANCELLED, 0, False),
    ],
)
def test_codes_and_trailers_are_read_as_the_table_says(
    code: Any, trailers: Any, kind: ResultKind, after_us: int, final_word: bool
) -> None:
    found = result_of_code("it", code.name, trailers)
    assert (found.kind, found.retry_after_us, found.dont_retry) == (kind, after_us, final_word)
