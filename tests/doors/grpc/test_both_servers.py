"""Our server and grpcio's, asked the same by grpcio's clients, answer the same.

Status, message and bytes; grpcio's server is the oracle. Where the two may differ by nature (what
the server's own library says of a broken request) only the status is compared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.doors.grpc.servers import SERVERS, Door, Grpcio, Native, Work

CALL_S_MAX = 10.0
LIMITS = [("grpc.max_receive_message_length", 8 << 20), ("grpc.max_send_message_length", -1)]


@pytest.fixture(params=list(SERVERS))
def work(request: pytest.FixtureRequest) -> Iterator[tuple[Work, Native | Grpcio]]:
    made = Work()
    server = SERVERS[request.param](made.methods(), Door())
    yield made, server
    server.stop()


@pytest.fixture
def channel(work: tuple[Work, Native | Grpcio]) -> Iterator[Any]:
    with grpc.insecure_channel(f"127.0.0.1:{work[1].port}", options=LIMITS) as made:
        yield made


def unary(channel: Any, name: str, message: bytes = b"x", **more: Any) -> bytes:
    more.setdefault("timeout", CALL_S_MAX)
    answer: bytes = channel.unary_unary(f"/t.Test/{name}")(message, **more)
    return answer


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


@pytest.mark.parametrize("method", ["Echo", "Later", "Future"])
def test_a_thousand_answers_are_the_right_ones(channel: Any, method: str) -> None:
    call = channel.unary_unary(f"/t.Test/{method}")
    futures = [call.future(b"%d" % number, timeout=CALL_S_MAX) for number in range(1_000)]
    assert [each.result() for each in futures] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize("size", [0, 1, 16_378, 16_379, 16_380, 65_530, 300_000, 1 << 20])
@pytest.mark.parametrize("method", ["Echo", "Later"])
def test_messages_of_every_size_come_back(channel: Any, method: str, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert unary(channel, method, message) == message


def test_a_message_beyond_the_bound_is_refused(channel: Any) -> None:
    code, _ = refusal(lambda: unary(channel, "Echo", bytes((1 << 20) + 1)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert unary(channel, "Echo") == b"x"


@pytest.mark.parametrize("method", ["Fails", "FailsLater"])
@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            "bad",
            grpc.StatusCode.INVALID_ARGUMENT,
            "weight: -1 cannot be used; give a positive",
        ),
        ("away", grpc.StatusCode.UNAVAILABLE, "redis is unavailable: no answer"),
        ("refused", grpc.StatusCode.RESOURCE_EXHAUSTED, "The limit for this key is spent."),
        ("taken", grpc.StatusCode.ABORTED, "taken by another, 50% done, \u00e4\n"),
        ("bug", grpc.StatusCode.INTERNAL, "the service failed to answer; its log says why"),
    ],
)
def test_an_error_ends_a_call_with_its_status(
    channel: Any,
    caplog: pytest.LogCaptureFixture,
    method: str,
    error: str,
    code: grpc.StatusCode,
    words: str,
) -> None:
    with caplog.at_level(logging.CRITICAL, "sluicegate.grpc"):
        assert refusal(lambda: unary(channel, method, error.encode())) == (code, words)


def answers(call: Callable[[], Any]) -> list[bytes]:
    answer = call()
    return [answer] if isinstance(answer, bytes) else list(answer)


def test_an_unknown_method_is_unimplemented(channel: Any) -> None:
    for shape in (channel.unary_unary, channel.unary_stream):
        call = partial(shape("/t.Test/Nothing"), b"x", timeout=CALL_S_MAX)
        code, words = refusal(partial(answers, call))
        assert (code, words) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "there is no method /t.Test/Nothing",
        )


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ([], b"anybody"),
        ([("authorization", "Bearer ann's")], b"ann"),
        ([("authorization", "bearer  bob's")], b"bob"),
    ],
)
def test_who_speaks_is_known_by_his_token(
    channel: Any, metadata: list[tuple[str, str]], name: bytes
) -> None:
    assert unary(channel, "Name", metadata=metadata) == name


@pytest.mark.parametrize("authorization", ["Bearer of.bad.news", "Basic YTpi", "Bearer", ""])
def test_whose_token_is_nobodys_is_refused(channel: Any, authorization: str) -> None:
    code, words = refusal(
        lambda: unary(channel, "Name", metadata=[("authorization", authorization)])
    )
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "authorization: Bearer TOKEN" in words


def test_a_deadline_ends_the_call_and_the_work(
    channel: Any, work: tuple[Work, Native | Grpcio]
) -> None:
    code, _ = refusal(lambda: unary(channel, "Never", timeout=0.1))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    until(work[1], lambda: work[0].cancelled == 1)


def test_a_call_that_is_withdrawn_stops_the_work(
    channel: Any, work: tuple[Work, Native | Grpcio]
) -> None:
    call = channel.unary_unary("/t.Test/Never").future(b"", timeout=CALL_S_MAX)
    until(work[1], lambda: work[0].started == 1)
    call.cancel()
    until(work[1], lambda: work[0].cancelled == 1)


def until(server: Native | Grpcio, true: Callable[[], bool]) -> None:
    """Wait on the server's own loop."""

    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.001)

    server.running.do(wait())


@pytest.mark.parametrize("method", ["Echo", "Twice"])
def test_packed_requests_are_read(channel: Any, method: str) -> None:
    message = b"again and " * 1_000
    packed: Any = {"compression": grpc.Compression.Gzip, "timeout": CALL_S_MAX}
    if method == "Echo":
        assert unary(channel, method, message, **packed) == message
    else:
        call = channel.stream_stream("/t.Test/Twice")
        assert list(call(iter([message]), **packed)) == [message] * 2


def test_a_packed_message_that_unpacks_beyond_the_bound_is_refused(channel: Any) -> None:
    bomb = bytes((1 << 20) + 1)
    code, _ = refusal(lambda: unary(channel, "Echo", bomb, compression=grpc.Compression.Gzip))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_stream_answers_each_message(channel: Any) -> None:
    call = channel.stream_stream("/t.Test/Twice")
    sent = [b"%d" % number for number in range(200)]
    got = list(call(iter(sent), timeout=CALL_S_MAX))
    assert got == [each for each in sent for _ in range(2)]


def test_a_stream_carries_more_than_its_windows(channel: Any) -> None:
    call = channel.stream_stream("/t.Test/Twice")
    sent = [bytes((number,)) * 400_000 for number in range(5)]
    got = list(call(iter(sent), timeout=CALL_S_MAX))
    assert got == [each for each in sent for _ in range(2)]


def test_a_stream_without_a_message_ends_well(channel: Any) -> None:
    assert list(channel.stream_stream("/t.Test/Twice")(iter(()), timeout=CALL_S_MAX)) == []


def test_a_stream_that_fails_amid_its_answer_says_so_in_its_trailers(channel: Any) -> None:
    call = channel.stream_stream("/t.Test/Breaks")(iter([b"one"]), timeout=CALL_S_MAX)
    got = []
    code, words = refusal(lambda: got.extend(call))
    assert got == [b"one"]
    assert (code, words) == (grpc.StatusCode.ABORTED, "taken by another, 50% done, \u00e4\n")


@pytest.mark.parametrize("how", ["withdrawn", "late"])
def test_an_endless_stream_ends_with_its_caller(
    channel: Any, work: tuple[Work, Native | Grpcio], how: str
) -> None:
    timeout = 0.2 if how == "late" else CALL_S_MAX
    call = channel.stream_stream("/t.Test/Endless")(iter([b"x" * 1_000]), timeout=timeout)
    assert next(call) == b"x" * 1_000
    if how == "withdrawn":
        call.cancel()
    until(work[1], lambda: work[0].cancelled == 1)


def test_a_reader_that_stops_holds_up_nobody_else(channel: Any) -> None:
    call = channel.stream_stream("/t.Test/Endless")(iter([bytes(50_000)]), timeout=CALL_S_MAX)
    next(call)
    for number in range(50):
        assert unary(channel, "Later", b"%d" % number) == b"%d" % number
    call.cancel()


def test_health_is_told_without_credentials(
    channel: Any, work: tuple[Work, Native | Grpcio]
) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    wrong = [("authorization", "Bearer nobody")]
    for name in ("", "ratelimit", "sluicegate.v1.RateLimiter"):
        ask = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(ask, metadata=wrong).status == health_pb2.HealthCheckResponse.SERVING
    work[0].up = False
    assert stub.Check(ask).status == health_pb2.HealthCheckResponse.NOT_SERVING
    ask = health_pb2.HealthCheckRequest(service="other")
    assert refusal(lambda: stub.Check(ask)) == (
        grpc.StatusCode.NOT_FOUND,
        "there is no service other",
    )


def test_a_watch_follows_the_service(channel: Any, work: tuple[Work, Native | Grpcio]) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=CALL_S_MAX)
    statuses = [next(watch).status]
    for up in (False, True):
        work[0].up = up
        statuses.append(next(watch).status)
    assert statuses == [1, 2, 1]
    watch.cancel()
    other = stub.Watch(health_pb2.HealthCheckRequest(service="other"), timeout=CALL_S_MAX)
    assert next(other).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    other.cancel()


def test_an_asyncio_client_is_served_many_at_a_time(work: tuple[Work, Native | Grpcio]) -> None:
    async def ask() -> list[bytes]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{work[1].port}") as channel:
            later: Any = channel.unary_unary("/t.Test/Later")
            calls = [later(b"%d" % n, timeout=CALL_S_MAX) for n in range(1_000)]
            return [await call for call in calls]

    assert asyncio.run(ask()) == [b"%d" % n for n in range(1_000)]


@pytest.mark.parametrize("server", list(SERVERS))
def test_where_nobody_is_anybody_one_must_say_who_one_is(server: str) -> None:
    made = SERVERS[server](Work().methods(), Door(anonymous=None))
    try:
        with grpc.insecure_channel(f"127.0.0.1:{made.port}") as channel:
            code, words = refusal(lambda: unary(channel, "Name"))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert words.startswith("the caller is not known here; send metadata")
            metadata = [("authorization", "Bearer bob's")]
            assert unary(channel, "Name", metadata=metadata) == b"bob"
            stub = health_pb2_grpc.HealthStub(channel)
            assert stub.Check(health_pb2.HealthCheckRequest()).status == 1
    finally:
        made.stop()
