"""The native service: the generated client asks it over grpcio, and each question is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.errors import BadValue, Forbidden
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.rate_limiter import RateLimiterServicer
from sluicegate.protos import rate_limiter_pb2 as pb
from sluicegate.protos.rate_limiter_pb2_grpc import RateLimiterStub
from sluicegate.wire.rate_limiter_messages import CheckBounds
from tests.doors.grpc.grpcio_thread import serve
from tests.doors.grpc.limits_service import SmallService, bytes_of

SOMEBODY = Identity("gateway", EVERY_GRANT)


@pytest.fixture(params=[False, True], ids=["at once", "later"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    servicer = RateLimiterServicer(SmallService(later=request.param))
    with serve(Methods(servicer.unary, {})) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[RateLimiterStub]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield RateLimiterStub(channel)


def request(user: str = "ann", weight: int = 0) -> pb.RateLimitRequest:
    return pb.RateLimitRequest(user_id=user, resource_path="/api", weight=weight)


def test_every_method_of_the_published_service_is_there() -> None:
    service = pb.DESCRIPTOR.services_by_name["RateLimiter"]
    names = {f"/{service.full_name}/{method.name}" for method in service.methods}
    assert set(RateLimiterServicer(SmallService()).unary) == names


def test_three_pass_and_the_fourth_is_refused_with_a_reason(client: RateLimiterStub) -> None:
    answers = [client.Check(request()) for _ in range(4)]
    assert [answer.allowed for answer in answers] == [True, True, True, False]
    assert [answer.remaining_tokens for answer in answers] == [2, 1, 0, 0]
    assert answers[3].reason == "rate_limited"
    assert answers[3].limit == 3
    assert 0 < answers[3].retry_after_ms <= 60_000
    assert answers[0].retry_after_ms == 0
    assert answers[0].priority == pb.DEGRADED


def test_weight_headers_and_priority_arrive(client: RateLimiterStub) -> None:
    made = request(weight=2)
    made.headers["X-Stress"] = "yes"
    made.priority = pb.BULK
    answer = client.Check(made)
    assert answer.remaining_tokens == 1
    assert answer.cluster_utilization_status == "DEGRADED_MODE"
    assert answer.priority == pb.BULK


def test_what_can_never_pass_is_told_never(client: RateLimiterStub) -> None:
    answer = client.Check(request(weight=4))
    assert not answer.allowed
    assert answer.retry_after_ms == -1
    assert answer.reason == "cost_above_limit"


def test_to_peek_counts_nothing(client: RateLimiterStub) -> None:
    assert client.Peek(request(weight=3)).allowed
    assert client.Peek(request(weight=3)).allowed
    client.Check(request())
    assert not client.Peek(request(weight=3)).allowed


def test_a_batch_is_decided_each_by_itself_in_order(client: RateLimiterStub) -> None:
    requests = [request(weight=2), request(weight=2), request("bob"), request()]
    answer = client.CheckBatch(pb.CheckBatchRequest(requests=requests))
    assert [one.allowed for one in answer.responses] == [True, False, True, True]
    assert not client.CheckBatch(pb.CheckBatchRequest()).responses


def test_to_reset_forgets(client: RateLimiterStub) -> None:
    client.Check(request(weight=3))
    assert not client.Check(request()).allowed
    assert client.Reset(request()).rules == 1
    assert client.Check(request()).allowed


def test_a_lease_is_taken_in_advance_and_what_is_left_given_back(client: RateLimiterStub) -> None:
    lease = client.Lease(pb.LeaseRequest(request=request(), units=10))
    assert lease.units == 3
    assert lease.valid_ms == 60_000
    assert lease.check.allowed
    assert not client.Check(request()).allowed
    back = client.GiveBack(pb.GiveBackRequest(lease_id=lease.lease_id, units=2))
    assert back.accepted == 2
    assert client.Check(request(weight=2)).allowed
    late = client.GiveBack(pb.GiveBackRequest(lease_id=lease.lease_id, units=1))
    assert late.accepted == 0


def test_a_lease_is_of_no_more_than_was_wished_for(client: RateLimiterStub) -> None:
    assert client.Lease(pb.LeaseRequest(request=request(), units=2)).units == 2


def test_a_lease_that_is_refused_says_when_to_ask_again(client: RateLimiterStub) -> None:
    client.Check(request(weight=3))
    lease = client.Lease(pb.LeaseRequest(request=request(), units=10))
    assert lease.units == 0
    assert lease.check.retry_after_ms > 0


def test_what_is_malformed_is_an_invalid_argument_by_its_path(client: RateLimiterStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.Lease(pb.LeaseRequest(request=request()))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(caught.value.details()).startswith("units: ")


def test_an_asyncio_client_gets_the_same(port: int) -> None:
    async def ask() -> list[bool]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = RateLimiterStub(channel)
            return [(await stub.Check(request())).allowed for _ in range(4)]

    assert asyncio.run(ask()) == [True, True, True, False]


def test_what_is_decided_at_once_is_answered_at_once() -> None:
    servicer = RateLimiterServicer(SmallService())
    message = request().SerializeToString()
    batch = pb.CheckBatchRequest(requests=[request()]).SerializeToString()
    assert isinstance(servicer.check(message, SOMEBODY), bytes)
    assert isinstance(servicer.peek(message, SOMEBODY), bytes)
    assert isinstance(servicer.check_batch(batch, SOMEBODY), bytes)


@pytest.mark.parametrize(
    ("name", "grant"),
    [
        ("Check", Grant.CHECK),
        ("CheckBatch", Grant.CHECK),
        ("Peek", Grant.CHECK),
        ("Reset", Grant.RESET),
        ("Lease", Grant.LEASE),
        ("GiveBack", Grant.LEASE),
    ],
)
def test_every_method_is_asked_by_who_speaks(name: str, grant: Grant) -> None:
    messages = {
        "Lease": pb.LeaseRequest(units=1).SerializeToString(),
        "GiveBack": pb.GiveBackRequest(lease_id="a", units=1).SerializeToString(),
    }
    path = f"/sluicegate.v1.RateLimiter/{name}"
    servicer = RateLimiterServicer(SmallService())
    assert servicer.grants[path] is grant
    method = servicer.unary[path]

    async def call(by: Identity) -> bytes:
        return await bytes_of(method(messages.get(name, b""), by))

    with pytest.raises(Forbidden, match=grant.value):
        asyncio.run(call(Identity("nobody", EVERY_GRANT - {grant})))
    assert isinstance(asyncio.run(call(SOMEBODY)), bytes)


def test_bounds_are_the_servicers_own() -> None:
    servicer = RateLimiterServicer(SmallService(), CheckBounds(text_bytes_max=3, batch_max=1))
    with pytest.raises(BadValue, match="text_bytes_max"):
        asyncio.run(servicer.give_back(b"\x0a\x05fives\x10\x01", SOMEBODY))
    with pytest.raises(BadValue, match="batch_max"):
        servicer.check_batch(b"\x0a\x00\x0a\x00", SOMEBODY)
