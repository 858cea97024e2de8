"""The interceptors on real grpcio servers; messages are bare bytes, so no code is generated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.guard import Judgement
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, DEADLINE, RATE_LIMITED, Reason
from sluicegate.doors.headers import refusal
from sluicegate.doors.interceptors import (
    AsyncLimitInterceptor,
    LimitInterceptor,
    code_of,
    message_of,
    peer_address,
    refusal_metadata,
)
from tests.doors.guards import Broken, ByAddress, ByHeader, ByUser

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def unary(message: bytes, context: Any) -> bytes:
    context.set_trailing_metadata((("own", "1"),))
    return message.upper()


def stream(message: bytes, context: Any) -> Iterator[bytes]:
    for n in range(3):
        yield b"%s%d" % (message, n)


def joined(messages: Iterator[bytes], context: Any) -> bytes:
    return b"".join(messages)


def echoed(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
    yield from messages


async def aunary(message: bytes, context: Any) -> bytes:
    context.set_trailing_metadata((("own", "1"),))
    return message.upper()


async def astream(message: bytes, context: Any) -> AsyncIterator[bytes]:
    for n in range(3):
        yield b"%s%d" % (message, n)


async def ajoined(messages: AsyncIterator[bytes], context: Any) -> bytes:
    return b"".join([one async for one in messages])


async def aechoed(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for one in messages:
        yield one


async def awritten(message: bytes, context: Any) -> None:
    for n in range(3):
        await context.write(b"%s%d" % (message, n))


def failing(message: bytes, context: Any) -> bytes:
    raise ZeroDivisionError


def handlers(*four: Callable[..., Any], **more: Callable[..., Any]) -> Any:
    made = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(behaviour)
        for kind, behaviour in zip(KINDS, four, strict=True)
    }
    made |= {name: grpc.unary_unary_rpc_method_handler(one) for name, one in more.items()}
    return grpc.method_handlers_generic_handler("t.S", made)


@contextmanager
def threaded(guard: Any, **more: Any) -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[LimitInterceptor(guard, **more)])
    server.add_generic_rpc_handlers(
        (handlers(unary, stream, joined, echoed, free=unary, failing=failing),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        server.stop(None).wait()


@asynccontextmanager
async def looped(
    guard: Any, *four: Callable[..., Any], **more: Any
) -> AsyncIterator[grpc.aio.Channel]:
    threads = ThreadPoolExecutor(4)
    server = grpc.aio.server(
        interceptors=[AsyncLimitInterceptor(guard, **more)], migration_thread_pool=threads
    )
    behaviours = four or (aunary, astream, ajoined, aechoed)
    server.add_generic_rpc_handlers((handlers(*behaviours, free=aunary, failing=failing),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)
        # A thread's last word comes through the loop, which must be there to hear it.
        await asyncio.to_thread(threads.shutdown)


def unary_of(channel: Any, name: str = "unary_unary") -> Any:
    return channel.unary_unary(f"/t.S/{name}")


def calls(channel: grpc.Channel) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Each kind of call, made to its end; its answer and its trailing metadata."""

    def one(kind: str, payload: Any) -> tuple[Any, Any]:
        answer, call = getattr(channel, kind)(f"/t.S/{kind}").with_call(payload)
        return answer, call.trailing_metadata()

    def many(kind: str, payload: Any) -> tuple[Any, Any]:
        call = getattr(channel, kind)(f"/t.S/{kind}")(payload)
        return list(call), call.trailing_metadata()

    return {
        "unary_unary": lambda: one("unary_unary", b"a"),
        "unary_stream": lambda: many("unary_stream", b"a"),
        "stream_unary": lambda: one("stream_unary", iter([b"a", b"b"])),
        "stream_stream": lambda: many("stream_stream", iter([b"a", b"b"])),
    }


ANSWERS = {
    "unary_unary": b"A",
    "unary_stream": [b"a0", b"a1", b"a2"],
    "stream_unary": b"ab",
    "stream_stream": [b"a", b"b"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_four_kinds_pass_or_are_refused_with_all_that_a_client_can_use(kind: str) -> None:
    with threaded(ByAddress("1/minute")) as channel:
        answer, trailing = calls(channel)[kind]()
        fields = dict(trailing)
        assert answer == ANSWERS[kind]
        assert fields["ratelimit"] == '"pages";r=0;t=60'
        assert fields["ratelimit-policy"] == '"pages";q=1;w=60'
        assert "retry-after" not in fields
        assert ("own" in fields) == (kind == "unary_unary"), "the handler's own metadata stands"
        with pytest.raises(grpc.RpcError) as refused:
            calls(channel)[kind]()
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "The limit for this key is spent. Ask again in 60.000 s."
        fields = dict(error.trailing_metadata())
        assert fields["retry-after"] == "60"
        assert fields["grpc-retry-pushback-ms"] == "60000"
        assert fields["sluicegate-reason"] == "rate_limited"
        assert fields["sluicegate-rule"] == "pages"
        assert fields["ratelimit"] == '"pages";r=0;t=60'


async def acall(
    channel: grpc.aio.Channel, kind: str, streamed: tuple[bytes, ...] = (b"a", b"b")
) -> tuple[Any, dict[str, Any]]:
    payload: Any = b"a" if kind.startswith("unary") else iter(streamed)
    call = getattr(channel, kind)(f"/t.S/{kind}")(payload)
    answer = [one async for one in call] if kind.endswith("stream") else await call
    return answer, dict(await call.trailing_metadata())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_threads", [False, True])
def test_the_same_on_an_asyncio_server_whatever_its_handlers_are(
    kind: str, in_threads: bool
) -> None:
    four = (unary, stream, joined, echoed) if in_threads else ()

    async def story() -> None:
        async with looped(ByAddress("1/minute"), *four) as channel:
            answer, fields = await acall(channel, kind)
            assert answer == ANSWERS[kind]
            assert fields["ratelimit"] == '"pages";r=0;t=60'
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                # An asyncio client that is still sending when it is refused may report its own
                # failure to send in place of the refusal, so this one sends nothing.
                await acall(channel, kind, ())
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            fields = dict(refused.value.trailing_metadata())
            assert fields["grpc-retry-pushback-ms"] == "60000"
            assert fields["retry-after"] == "60"

    asyncio.run(story())


def test_a_handler_that_writes_by_itself_is_limited_too() -> None:
    async def story() -> None:
        guard = ByAddress("1/minute")
        async with looped(guard, aunary, awritten, ajoined, aechoed) as channel:
            answer, fields = await acall(channel, "unary_stream")
            assert answer == ANSWERS["unary_stream"]
            assert "ratelimit" in fields
            with pytest.raises(grpc.aio.AioRpcError):
                await acall(channel, "unary_stream")

    asyncio.run(story())


def test_methods_metadata_proxies_and_users_are_what_rules_can_be_about() -> None:
    guard = ByAddress("1/minute")
    with threaded(guard, trust_proxies=1) as channel:
        call = unary_of(channel)
        for n, ok in ((1, True), (2, True), (1, False)):
            lines = (("x-forwarded-for", "9.9.9.9"), ("x-forwarded-for", f"10.0.0.{n}"))
            assert passes(call, *lines) == ok
        assert guard.lines[0] == "GRPC /t.S/unary_unary"
    with threaded(ByHeader("1/minute")) as channel:
        call = unary_of(channel)
        for key, ok in (("a", True), ("b", True), ("a", False)):
            assert passes(call, ("x-api-key", key)) == ok

    def who(context: grpc.ServicerContext) -> str:
        return str(dict(context.invocation_metadata())["who"])

    with threaded(ByUser("1/minute"), user=who) as channel:
        call = unary_of(channel)
        for key, ok in (("ann", True), ("bob", True), ("ann", False)):
            assert passes(call, ("who", key)) == ok


def passes(call: Any, *metadata: tuple[str, str]) -> bool:
    try:
        call(b"a", metadata=metadata)
    except grpc.RpcError as error:
        status: Any = error
        assert status.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return False
    return True


def test_a_guard_without_an_answer_is_unavailable() -> None:
    with threaded(Broken(), exempt=["/t.S/free"]) as channel:
        assert unary_of(channel, "free")(b"a") == b"A"
        with pytest.raises(grpc.RpcError) as refused:
            unary_of(channel)(b"a")
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(error.trailing_metadata())["x-ratelimit-error"] == "store_unavailable"

    async def story() -> None:
        async with looped(Broken(), exempt=["/t.S/free"]) as channel:
            assert await unary_of(channel, "free")(b"a") == b"A"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unary_of(channel)(b"a")
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(story())


def test_methods_that_do_not_exist_and_handlers_that_fail_are_the_servers_business() -> None:
    with threaded(ByAddress("9/minute")) as channel:
        for name, code in (("none", "UNIMPLEMENTED"), ("failing", "UNKNOWN")):
            with pytest.raises(grpc.RpcError) as failed:
                unary_of(channel, name)(b"a")
            error: Any = failed.value
            assert error.code() is grpc.StatusCode[code]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[::1]:4711", "::1"),
        ("unix:", ""),
        ("unix:/tmp/s", ""),
        ("", ""),
    ],
)
def test_what_grpc_calls_a_peer_has_an_address(peer: str, address: str) -> None:
    assert peer_address(peer) == address


def test_a_refusal_that_no_wait_will_turn_asks_for_no_retry() -> None:
    never = Judgement(Decision(False, 5, -1, 0, COST_ABOVE_LIMIT, "caf\u00e9"), ())
    fields = dict(refusal_metadata(never, ()))
    assert fields["grpc-retry-pushback-ms"] == "-1"
    assert fields["sluicegate-rule"] == "caf\\xe9"
    assert message_of(never) == COST_ABOVE_LIMIT.sentence


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (RATE_LIMITED, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (DEADLINE, grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
def test_the_code_is_the_reasons(reason: Reason, code: grpc.StatusCode) -> None:
    assert code_of(refusal(reason)) is code
