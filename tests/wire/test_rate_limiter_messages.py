"""The native messages: what we read and write is what the generated classes read and write."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckResponse, LeaseResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.protos import rate_limiter_pb2 as pb
from sluicegate.wire import rate_limiter_messages as ours
from sluicegate.wire.protobuf import span_bytes, varint_bytes
from sluicegate.wire.text import shorten
from tests.wire.check_oracle import (
    ANSWERS,
    LEASES,
    REQUESTS,
    UINT32,
    answered_theirs,
    fields_of,
    leased_theirs,
    their_fields_of,
)

# Reading.


@given(REQUESTS)
def test_an_ask_says_what_their_request_says(theirs: pb.RateLimitRequest) -> None:
    assert fields_of(ours.parse_check_request(theirs.SerializeToString())) == their_fields_of(
        theirs
    )


@given(st.lists(REQUESTS, max_size=4))
def test_a_batch_says_what_theirs_says_in_order(theirs: list[pb.RateLimitRequest]) -> None:
    data = pb.CheckBatchRequest(requests=theirs).SerializeToString()
    assert [fields_of(ask) for ask in ours.parse_check_batch(data)] == [
        their_fields_of(one) for one in theirs
    ]


@given(REQUESTS, st.integers(1, 2**32 - 1))
def test_a_wish_for_a_lease_says_what_theirs_says(request: pb.RateLimitRequest, units: int) -> None:
    data = pb.LeaseRequest(request=request, units=units).SerializeToString()
    wish = ours.parse_lease_request(data)
    assert fields_of(wish.request) == their_fields_of(request)
    assert wish.units == units


@given(st.text(min_size=1, max_size=12), st.integers(1, 2**32 - 1))
def test_what_is_given_back_says_what_theirs_says(lease_id: str, units: int) -> None:
    data = pb.GiveBackRequest(lease_id=lease_id, units=units).SerializeToString()
    left = ours.parse_give_back(data)
    assert (left.lease_id, left.units) == (lease_id, units)


@given(REQUESTS, REQUESTS)
def test_what_is_said_twice_counts_as_theirs_has_it(
    one: pb.RateLimitRequest, other: pb.RateLimitRequest
) -> None:
    first, second = one.SerializeToString(), other.SerializeToString()
    merged = pb.RateLimitRequest.FromString(first + second)
    assert fields_of(ours.parse_check_request(first + second)) == their_fields_of(merged)
    wish = b"\x10\x01" + b"\x0a" + span_bytes(first) + b"\x0a" + span_bytes(second)
    assert fields_of(ours.parse_lease_request(wish).request) == their_fields_of(merged)


def test_a_weight_that_is_not_said_is_one() -> None:
    assert ours.parse_check_request(b"").cost == 1
    assert ours.parse_check_request(b"\x20\x00").cost == 1
    assert ours.parse_check_request(b"\x20\x05").cost == 5
    assert ours.parse_check_request(b"\x20" + varint_bytes(2**32 + 5)).cost == 5


def test_names_of_headers_are_lower_case_and_the_last_of_a_name_counts() -> None:
    data = b""
    for name, value in (("X-Netflix.Request-Name", "a"), ("x-netflix.request-name", "b")):
        data += b"\x1a" + span_bytes(
            b"\x0a" + span_bytes(name.encode()) + b"\x12" + span_bytes(value.encode())
        )
    assert ours.parse_check_request(data).headers == {"x-netflix.request-name": "b"}


@pytest.mark.parametrize("number", [5, -1, 2**31])
def test_a_priority_that_is_none_is_refused(number: int) -> None:
    data = b"\x28" + varint_bytes(number)
    with pytest.raises(BadValue, match=r"^priority: .*BULK"):
        ours.parse_check_request(data)
    with pytest.raises(BadValue, match=r"^requests\[1\]\.priority: "):
        ours.parse_check_batch(b"\x0a\x00\x0a" + span_bytes(data))
    with pytest.raises(BadValue, match=r"^request\.priority: "):
        ours.parse_lease_request(b"\x10\x01\x0a" + span_bytes(data))


@given(REQUESTS)
def test_a_message_cut_anywhere_is_read_or_refused_and_never_another_error(
    theirs: pb.RateLimitRequest,
) -> None:
    data = theirs.SerializeToString()
    for end in range(len(data)):
        try:
            ask = ours.parse_check_request(data[:end])
        except BadValue:
            continue
        assert fields_of(ask) == their_fields_of(pb.RateLimitRequest.FromString(data[:end]))


@given(st.binary(max_size=30))
def test_any_bytes_are_read_as_theirs_read_them_or_refused(data: bytes) -> None:
    for read in (ours.parse_check_batch, ours.parse_lease_request, ours.parse_give_back):
        try:
            read(data)
        except BadValue as error:
            assert error.remedy  # noqa: PT017 - either is right; that nothing else comes is not
    try:
        ask = ours.parse_check_request(data)
    except BadValue:
        return
    try:
        theirs = pb.RateLimitRequest.FromString(data)
    except DecodeError as error:
        if "bad UTF-8" not in str(error):  # what callers say of themselves is any bytes to us
            pytest.fail("we read what they refuse")
        return
    assert fields_of(ask) == their_fields_of(theirs)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"\x08\x01", "user_id"),
        (b"\x12\x05", "resource_path"),
        (b"\x1a\x02\x12\x05", "headers.value"),
        (b"\x1a\x02\x08\x01", "headers.key"),
        (b"\x1a\x01\x80", "headers"),
        (b"\x20", "weight"),
        (b"\x22\x00", "weight"),
        (b"\x28\x80", "priority"),
        (b"\x80", "message"),
        (b"\x7b", "field 15"),
    ],
)
def test_what_is_malformed_is_refused_by_the_path_of_the_field(data: bytes, path: str) -> None:
    with pytest.raises(BadValue) as caught:
        ours.parse_check_request(data)
    assert caught.value.field == path
    with pytest.raises(BadValue) as caught:
        ours.parse_check_batch(b"\x0a\x00\x0a" + span_bytes(data))
    assert caught.value.field == f"requests[1].{path}"
    with pytest.raises(BadValue) as caught:
        ours.parse_lease_request(b"\x0a" + span_bytes(data))
    assert caught.value.field == f"request.{path}"


def test_a_lease_of_nothing_and_giving_back_nothing_are_refused() -> None:
    for data in (b"", b"\x10\x00", b"\x0a\x00"):
        with pytest.raises(BadValue, match=r"^units: "):
            ours.parse_lease_request(data)
    with pytest.raises(BadValue, match=r"^lease_id: "):
        ours.parse_give_back(b"\x10\x01")
    with pytest.raises(BadValue, match=r"^units: "):
        ours.parse_give_back(b"\x0a\x01a")


def test_every_bound_is_reached_and_not_passed_and_named() -> None:
    bounds = ours.CheckBounds(headers_max=2, batch_max=3, text_bytes_max=4)
    theirs = pb.RateLimitRequest(
        user_id="four", resource_path="four", headers={"four": "four", "b": ""}
    )
    data = pb.CheckBatchRequest(requests=[theirs] * 3).SerializeToString()
    assert len(ours.parse_check_batch(data, bounds)) == 3
    with pytest.raises(BadValue, match=r"^requests: .*batch_max"):
        ours.parse_check_batch(data + b"\x0a\x00", bounds)
    # A caller's own text is no reason to fail.
    long = pb.RateLimitRequest(user_id="fives", resource_path="fives", headers={"fives": "fives"})
    found = ours.parse_check_request(long.SerializeToString(), bounds)
    short = shorten("fives", 4)
    assert (found.user_id, found.resource_path, found.headers) == (short, short, {short: short})
    with pytest.raises(BadValue, match=r"^lease_id: .*text_bytes_max"):
        ours.parse_give_back(b"\x0a\x05fives\x10\x01", bounds)
    theirs.headers["c"] = ""
    assert len(ours.parse_check_request(theirs.SerializeToString(), bounds).headers) == 2


@pytest.mark.parametrize("name", ["headers_max", "batch_max", "text_bytes_max"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match=name):
        ours.CheckBounds(**{name: 0})


# Writing.


@given(ANSWERS)
def test_an_answer_says_what_their_response_says(answer: CheckResponse) -> None:
    theirs = pb.RateLimitResponse.FromString(ours.encode_check_response(answer))
    assert theirs == answered_theirs(answer)


@given(st.lists(ANSWERS, max_size=3))
def test_answers_say_what_their_responses_say_in_order(answers: list[CheckResponse]) -> None:
    theirs = pb.CheckBatchResponse.FromString(ours.encode_check_batch(answers))
    assert list(theirs.responses) == [answered_theirs(answer) for answer in answers]


@given(LEASES)
def test_a_lease_says_what_theirs_says(lease: LeaseResponse) -> None:
    assert pb.LeaseResponse.FromString(ours.encode_lease(lease)) == leased_theirs(lease)


@given(UINT32)
def test_counts_say_what_theirs_say(count: int) -> None:
    assert pb.ResetResponse.FromString(ours.encode_reset(count)).rules == count
    assert pb.GiveBackResponse.FromString(ours.encode_give_back(count)).accepted == count


@pytest.mark.parametrize(
    ("distance_us", "ms"),
    [(-1, -1), (0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000_000, 60_000)],
)
def test_to_come_back_is_never_said_too_early_and_never_stays_never(
    distance_us: int, ms: int
) -> None:
    decision = Decision(False, 0, distance_us, 0, None, "r")
    answer = CheckResponse(decision, 5, Criticality.BULK)
    theirs = pb.RateLimitResponse.FromString(ours.encode_check_response(answer))
    assert theirs.retry_after_ms == ms


def test_a_lease_is_never_said_to_hold_longer_than_it_does() -> None:
    check = CheckResponse(Decision(True, 0, 0, 0, None, "r"), 5, Criticality.BULK)
    data = ours.encode_lease(LeaseResponse("a", 5, 1_999, check))
    assert pb.LeaseResponse.FromString(data).valid_ms == 1


def test_counts_too_great_for_the_field_say_the_greatest_it_holds() -> None:
    answer = CheckResponse(Decision(True, 2**53, 0, 0, None, "r"), 2**53, Criticality.BULK)
    theirs = pb.RateLimitResponse.FromString(ours.encode_check_response(answer))
    assert theirs.remaining_tokens == 2**32 - 1
    assert theirs.limit == 2**53
    lease = pb.LeaseResponse.FromString(ours.encode_lease(LeaseResponse("a", 2**40, 0, answer)))
    assert lease.units == 2**32 - 1
    assert pb.ResetResponse.FromString(ours.encode_reset(2**40)).rules == 2**32 - 1


def test_without_a_rule_there_is_no_limit_and_no_rule() -> None:
    answer = CheckResponse(Decision(True, -1, 0, -1, None, ""), -1, Criticality.DEGRADED)
    theirs = pb.RateLimitResponse.FromString(ours.encode_check_response(answer))
    assert theirs == pb.RateLimitResponse(allowed=True, priority=pb.DEGRADED)
