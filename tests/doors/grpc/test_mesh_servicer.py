"""Envoy's question: the servicer translates, at once or later, and knows the words of the peers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.errors import BadValue, Forbidden
from sluicegate.doors.grpc.mesh import ANSWERED, SHOULD_RATE_LIMIT, MeshServicer
from sluicegate.doors.grpc.methods import GrpcError, GrpcStatus, status_of
from sluicegate.wire.mesh_messages import MeshBounds
from tests.doors.grpc.limits_service import SmallService, bytes_of
from tests.wire.mesh_oracle import RLS

SOMEBODY = Identity("envoy", EVERY_GRANT)


def request(user: str = "ann", domain: str = "shop") -> Any:
    made = RLS.RateLimitRequest(domain=domain)
    made.descriptors.add().entries.add(key="user", value=user)
    return made


def ask(servicer: MeshServicer, made: Any, by: Identity = SOMEBODY) -> Any:
    method = servicer.unary[SHOULD_RATE_LIMIT]

    async def call() -> bytes:
        return await bytes_of(method(made.SerializeToString(), by))

    return RLS.RateLimitResponse.FromString(asyncio.run(call()))


def test_the_path_is_the_one_that_envoy_calls() -> None:
    service = RLS.DESCRIPTOR.services_by_name["RateLimitService"]
    assert f"/{service.full_name}/{service.methods[0].name}" == SHOULD_RATE_LIMIT
    assert list(MeshServicer(SmallService()).unary) == [SHOULD_RATE_LIMIT]


def test_what_is_decided_at_once_is_answered_at_once() -> None:
    servicer = MeshServicer(SmallService())
    assert isinstance(servicer.should_rate_limit(request().SerializeToString(), SOMEBODY), bytes)


@pytest.mark.parametrize("later", [False, True])
def test_three_pass_and_the_fourth_is_over_its_limit(later: bool) -> None:
    servicer = MeshServicer(SmallService(later=later))
    answers = [ask(servicer, request()) for _ in range(4)]
    assert [answer.overall_code for answer in answers] == [1, 1, 1, 2]
    assert [answer.statuses[0].limit_remaining for answer in answers] == [2, 1, 0, 0]
    assert answers[0].statuses[0].current_limit.name == "three"
    assert answers[0].statuses[0].current_limit.requests_per_unit == 3
    assert ask(servicer, request("bob")).overall_code == 1


def test_hits_count_and_hits_of_zero_only_look() -> None:
    servicer = MeshServicer(SmallService())
    made = request()
    made.hits_addend = 2
    assert ask(servicer, made).statuses[0].limit_remaining == 1
    made.descriptors[0].hits_addend.value = 0
    assert ask(servicer, made).statuses[0].limit_remaining == 1


@pytest.mark.parametrize("later", [False, True])
def test_a_domain_or_descriptors_that_are_missing_end_with_the_words_that_clients_know(
    later: bool,
) -> None:
    servicer = MeshServicer(SmallService(later=later))
    for made, words in (
        (request(domain=""), "rate limit domain must not be empty"),
        (RLS.RateLimitRequest(domain="shop"), "rate limit descriptor list must not be empty"),
    ):
        with pytest.raises(GrpcError) as caught:
            ask(servicer, made)
        assert status_of(caught.value) == (GrpcStatus.UNKNOWN, words)


@pytest.mark.parametrize("later", [False, True])
def test_another_complaint_about_the_same_field_stays_what_it_is(later: bool) -> None:
    with pytest.raises(BadValue, match="name one that there is"):
        ask(MeshServicer(SmallService(later=later)), request(domain="nowhere"))


def test_what_is_malformed_is_an_invalid_argument_by_its_path() -> None:
    servicer = MeshServicer(SmallService())
    for message, path in ((b"\x0a\x01\xff", "domain"), (b"\x12\x02\x0a\x07", "descriptors[0].")):
        with pytest.raises(BadValue) as caught:
            servicer.should_rate_limit(message, SOMEBODY)
        status, words = status_of(caught.value)
        assert status is GrpcStatus.INVALID_ARGUMENT
        assert words.startswith(path)


def test_bounds_are_the_servicers_own() -> None:
    servicer = MeshServicer(SmallService(), MeshBounds(text_bytes_max=3))
    with pytest.raises(BadValue, match="text_bytes_max"):
        ask(servicer, request())


def test_who_may_not_check_is_told_so() -> None:
    assert MeshServicer(SmallService()).grants == {SHOULD_RATE_LIMIT: Grant.CHECK}
    with pytest.raises(Forbidden):
        ask(MeshServicer(SmallService()), request(), Identity("nobody", ()))


@pytest.mark.parametrize("later", [False, True])
def test_each_answer_that_lets_pass_carries_the_mark_and_a_refusal_does_not(later: bool) -> None:
    marking = MeshServicer(SmallService(later=later), marks=True)
    answers = [ask(marking, request()) for _ in range(4)]
    marks = [[(it.key, it.value) for it in one.request_headers_to_add] for one in answers]
    assert marks == [[ANSWERED]] * 3 + [[]]
    assert not ask(MeshServicer(SmallService()), request()).request_headers_to_add
