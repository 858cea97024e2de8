"""The native questions and answers as JSON: they say what the protobuf messages say."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckResponse, LeaseResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.protos import rate_limiter_pb2 as pb
from sluicegate.wire import check_json as ours
from sluicegate.wire.rate_limiter_messages import CheckBounds
from sluicegate.wire.text import shorten
from tests.wire.check_oracle import (
    ANSWERS,
    LEASES,
    REQUESTS,
    answered_theirs,
    fields_of,
    leased_theirs,
    their_fields_of,
)


def as_json(theirs: pb.RateLimitRequest) -> dict[str, object]:
    fields: dict[str, object] = json_format.MessageToDict(theirs, preserving_proto_field_name=True)
    return fields


# Reading.


@given(REQUESTS)
def test_an_ask_says_what_their_request_says(theirs: pb.RateLimitRequest) -> None:
    assert fields_of(
        ours.check_request_from_json(json.dumps(as_json(theirs)).encode())
    ) == their_fields_of(theirs)


@given(st.lists(REQUESTS, max_size=3), st.integers(1, 2**32 - 1))
def test_a_batch_and_a_lease_say_what_theirs_say(
    theirs: list[pb.RateLimitRequest], units: int
) -> None:
    data = json.dumps({"requests": [as_json(one) for one in theirs]}).encode()
    assert [fields_of(ask) for ask in ours.check_batch_from_json(data)] == [
        their_fields_of(one) for one in theirs
    ]
    for one in theirs:
        wish = ours.lease_from_json(json.dumps({"request": as_json(one), "units": units}).encode())
        assert (fields_of(wish.request), wish.units) == (their_fields_of(one), units)


def test_what_is_given_back_is_read() -> None:
    left = ours.give_back_from_json(b'{"lease_id": "a", "units": 40}')
    assert (left.lease_id, left.units) == ("a", 40)


def test_what_is_left_out_or_null_claims_nothing() -> None:
    nothing: object = ("", "", {}, 1, None)
    assert fields_of(ours.check_request_from_json(b"{}")) == nothing
    data = b'{"user_id": null, "headers": null, "weight": null, "priority": null}'
    assert fields_of(ours.check_request_from_json(data)) == nothing
    assert fields_of(ours.lease_from_json(b'{"units": 1}').request) == nothing
    assert ours.check_batch_from_json(b"{}") == []


def test_names_of_headers_are_lower_case_and_a_priority_may_be_too() -> None:
    ask = ours.check_request_from_json(b'{"headers": {"X-A": "B"}, "priority": "best-effort"}')
    assert ask.headers == {"x-a": "B"}
    assert ask.priority is Criticality.BEST_EFFORT


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "body"),
        ("[]", "body"),
        ('{"userId": "a"}', "userId"),
        ('{"user_id": 5}', "user_id"),
        ('{"headers": []}', "headers"),
        ('{"headers": {"a": 1}}', "headers.a"),
        ('{"weight": 0}', "weight"),
        ('{"weight": "1"}', "weight"),
        ('{"weight": 1.0}', "weight"),
        ('{"weight": true}', "weight"),
        ('{"weight": 4294967296}', "weight"),
        ('{"priority": "URGENT"}', "priority"),
        ('{"priority": 4}', "priority"),
    ],
)
def test_what_is_malformed_is_refused_by_the_path_of_the_field(text: str, field: str) -> None:
    with pytest.raises(BadValue) as caught:
        ours.check_request_from_json(text.encode())
    assert caught.value.field == field
    if field != "body":
        with pytest.raises(BadValue) as caught:
            ours.check_batch_from_json(b'{"requests": [{}, %b]}' % text.encode())
        assert caught.value.field == f"requests[1].{field}"
        with pytest.raises(BadValue) as caught:
            ours.lease_from_json(b'{"units": 1, "request": %b}' % text.encode())
        assert caught.value.field == f"request.{field}"


@pytest.mark.parametrize("units", ["null", "0", "-1", "1.5", '"1"', "true", "4294967296"])
def test_a_lease_of_nothing_and_giving_back_nothing_are_refused(units: str) -> None:
    with pytest.raises(BadValue, match=r"^units: "):
        ours.lease_from_json(b'{"units": %b}' % units.encode())
    with pytest.raises(BadValue, match=r"^units: "):
        ours.give_back_from_json(b'{"lease_id": "a", "units": %b}' % units.encode())


def test_a_lease_without_a_name_cannot_be_given_back() -> None:
    with pytest.raises(BadValue, match=r"^lease_id: "):
        ours.give_back_from_json(b'{"units": 1}')


def test_every_bound_is_reached_and_not_passed_and_named() -> None:
    bounds = CheckBounds(headers_max=1, batch_max=2, text_bytes_max=4)
    most = b'{"user_id": "four", "resource_path": "four", "headers": {"four": "four"}}'
    assert len(ours.check_batch_from_json(b'{"requests": [%b, %b]}' % (most, most), bounds)) == 2
    for text, bound in ((b'{"requests": [{}, {}, {}]}', "batch_max"),):
        with pytest.raises(BadValue, match=bound):
            ours.check_batch_from_json(text, bounds)
    # A caller's own text is no reason to fail.
    long = b'{"user_id": "fives", "resource_path": "fives", "headers": {"fives": "fives", "b": ""}}'
    found = ours.check_request_from_json(long, bounds)
    short = shorten("fives", 4)
    assert (found.user_id, found.resource_path, found.headers) == (short, short, {short: short})


# Writing.


@given(ANSWERS)
def test_an_answer_says_what_their_response_says(answer: CheckResponse) -> None:
    data = ours.check_response_to_json(answer)
    assert json_format.Parse(data, pb.RateLimitResponse()) == answered_theirs(answer)
    assert list(json.loads(data)) == [
        field.name for field in pb.RateLimitResponse.DESCRIPTOR.fields
    ]


@given(st.lists(ANSWERS, max_size=3), LEASES)
def test_answers_and_leases_say_what_theirs_say(
    answers: list[CheckResponse], lease: LeaseResponse
) -> None:
    batch = json_format.Parse(ours.check_batch_to_json(answers), pb.CheckBatchResponse())
    assert list(batch.responses) == [answered_theirs(answer) for answer in answers]
    assert json_format.Parse(ours.lease_to_json(lease), pb.LeaseResponse()) == leased_theirs(lease)


def test_counts_are_written() -> None:
    assert ours.give_back_to_json(40) == b'{"accepted":40}'
    assert ours.reset_to_json(2) == b'{"rules":2}'


def test_without_a_rule_there_is_no_limit_and_never_stays_never() -> None:
    answer = CheckResponse(Decision(False, -1, -1, -1, None, ""), -1, Criticality.DEGRADED)
    body = json.loads(ours.check_response_to_json(answer))
    assert body["limit"] == body["remaining_tokens"] == body["reset_after_ms"] == 0
    assert body["retry_after_ms"] == -1
