"""Envoy's messages: what we read and write is what a protobuf compiler's classes read and write."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.checks import MeshLimit, MeshResponse, MeshStatus
from sluicegate.contracts.errors import BadValue
from sluicegate.wire.mesh_messages import (
    MESH_BOUNDS,
    MeshBounds,
    encode_mesh_response,
    parse_mesh_request,
)
from sluicegate.wire.protobuf import span_bytes, varint_bytes
from sluicegate.wire.text import shorten
from tests.wire.mesh_oracle import (
    ANSWERS,
    RATELIMIT,
    RLS,
    answered_theirs,
    fields_of,
    requests,
    their_fields_of,
)


def request(**entries: str) -> Any:
    made = RLS.RateLimitRequest(domain="shop")
    descriptor = made.descriptors.add()
    for key, value in entries.items():
        descriptor.entries.add(key=key, value=value)
    return made


# Reading.


@given(requests())
def test_an_ask_says_what_their_request_says(theirs: Any) -> None:
    assert fields_of(parse_mesh_request(theirs.SerializeToString())) == their_fields_of(theirs)


@given(requests(), requests())
def test_what_is_said_twice_counts_as_theirs_has_it(one: Any, other: Any) -> None:
    data = one.SerializeToString() + other.SerializeToString()
    assert fields_of(parse_mesh_request(data)) == their_fields_of(
        RLS.RateLimitRequest.FromString(data)
    )


def test_a_nested_message_said_twice_is_one_merged() -> None:
    # Of `limit` first the count, then the unit; of `hits_addend` a number, then nothing.
    parts = b"\x12\x02\x08\x05" + b"\x12\x02\x10\x02" + b"\x1a\x02\x08\x07" + b"\x1a\x00"
    data = b"\x12" + span_bytes(parts)
    ask = parse_mesh_request(data)
    assert fields_of(ask) == their_fields_of(RLS.RateLimitRequest.FromString(data))
    assert fields_of(ask) == ("", 0, [([], 7, (5, 2))])


@given(requests(), st.binary(max_size=8))
def test_unknown_fields_are_skipped_on_every_level(theirs: Any, noise: bytes) -> None:
    unknown = b"\x7a" + span_bytes(noise) + b"\x80\x01\x05" + b"\x89\x01" + b"8" * 8
    unknown += b"\x95\x01" + b"4" * 4
    entry = theirs.SerializeToString()
    inner = b"\x0a" + span_bytes(b"\x0a\x01k" + unknown) + b"\x12"
    inner += span_bytes(b"\x10\x01" + unknown) + b"\x1a" + span_bytes(b"\x08\x01" + unknown)
    data = unknown + entry + b"\x12" + span_bytes(inner + unknown)
    assert fields_of(parse_mesh_request(data)) == their_fields_of(
        RLS.RateLimitRequest.FromString(data)
    )


def test_no_hits_hits_of_zero_and_hits_are_told_apart() -> None:
    theirs = request(a="b")
    theirs.descriptors.add().hits_addend.value = 0
    theirs.descriptors.add().hits_addend.value = 2**64 - 1
    ask = parse_mesh_request(theirs.SerializeToString())
    assert [descriptor.cost for descriptor in ask.descriptors] == [-1, 0, 2**64 - 1]
    assert ask.cost == 0


def test_nothing_at_all_is_an_ask_without_domain_and_descriptors() -> None:
    assert fields_of(parse_mesh_request(b"")) == ("", 0, [])


@given(requests())
def test_a_message_cut_anywhere_is_read_or_refused_and_never_another_error(theirs: Any) -> None:
    data = theirs.SerializeToString()
    for end in range(len(data)):
        try:
            ours = fields_of(parse_mesh_request(data[:end]))
        except BadValue:
            continue
        assert ours == their_fields_of(RLS.RateLimitRequest.FromString(data[:end]))


@given(requests(), st.data())
def test_garbage_is_read_as_theirs_read_it_or_refused(theirs: Any, data: st.DataObject) -> None:
    bent = bytearray(theirs.SerializeToString() or b"\x00")
    for _ in range(data.draw(st.integers(1, 3))):
        bent[data.draw(st.integers(0, len(bent) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(bent))


@given(st.binary(max_size=30))
def test_any_bytes_are_read_as_theirs_read_them_or_refused(data: bytes) -> None:
    agree(data)


def agree(data: bytes) -> None:
    try:
        ours = fields_of(parse_mesh_request(data))
    except BadValue:
        return  # we are stricter: groups, other wire types, units that are none
    try:
        theirs = RLS.RateLimitRequest.FromString(data)
    except DecodeError as error:
        if "bad UTF-8" not in str(error):  # keys and values are any bytes to us
            pytest.fail("we read what they refuse")
        return
    assert ours == their_fields_of(theirs)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"\x0a\x01\xff", "domain"),
        (b"\x0a\x05ab", "domain"),
        (b"\x08\x01", "domain"),
        (b"\x18", "hits_addend"),
        (b"\x1a\x00", "hits_addend"),
        (b"\x12\x05", "descriptors"),
        (b"\x12\x00\x12\x02\x0a\x07", "descriptors[1].entries"),
        (b"\x12\x06\x0a\x00\x0a\x02\x0a\x07", "descriptors[0].entries[1].key"),
        (b"\x12\x04\x0a\x02\x08\x01", "descriptors[0].entries[0].key"),
        (b"\x12\x05\x12\x03\x08\x01\x10", "descriptors[0].limit.unit"),
        (b"\x12\x04\x12\x02\x08\x80", "descriptors[0].limit.requests_per_unit"),
        (b"\x12\x03\x1a\x01\x08", "descriptors[0].hits_addend.value"),
        (b"\x12\x04\x1a\x02\x0a\x00", "descriptors[0].hits_addend.value"),
        (b"\x12\x02\x18\x01", "descriptors[0].hits_addend"),
        (b"\x7b\x7c", "field 15"),
        (b"\x7a\x05", "field 15"),
    ],
)
def test_what_is_malformed_is_refused_by_the_path_of_the_field(data: bytes, path: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_mesh_request(data)
    assert caught.value.field == path
    assert caught.value.remedy


@pytest.mark.parametrize("unit", [0, 8, -1, 2**31])
def test_a_limit_in_a_unit_that_is_none_is_refused(unit: int) -> None:
    body = b"\x12" + span_bytes(b"\x08\x05\x10" + varint_bytes(unit))
    with pytest.raises(BadValue, match=r"^descriptors\[0\]\.limit\.unit: .*WEEK"):
        parse_mesh_request(b"\x12" + span_bytes(body))


def test_a_week_is_a_unit_though_their_enum_of_overrides_has_none() -> None:
    units = RATELIMIT.RateLimitDescriptor.RateLimitOverride.DESCRIPTOR.fields_by_name["unit"]
    assert "WEEK" not in units.enum_type.values_by_name
    ask = parse_mesh_request(b"\x12" + span_bytes(b"\x12\x04\x08\x05\x10\x07"))
    assert fields_of(ask) == ("", 0, [([], -1, (5, 7))])


def test_a_number_longer_than_its_field_keeps_its_lower_half_as_theirs_does() -> None:
    long = varint_bytes(2**32 + 2)
    body = b"\x12" + span_bytes(b"\x08" + long + b"\x10" + long)
    data = b"\x12" + span_bytes(body) + b"\x18" + long
    assert fields_of(parse_mesh_request(data)) == their_fields_of(
        RLS.RateLimitRequest.FromString(data)
    )
    assert fields_of(parse_mesh_request(data)) == ("", 2, [([], -1, (2, 2))])


def test_every_bound_is_reached_and_not_passed_and_named() -> None:
    bounds = MeshBounds(descriptors_max=2, entries_max=3, text_bytes_max=4)
    theirs = RLS.RateLimitRequest(domain="four")
    for _ in range(2):
        descriptor = theirs.descriptors.add()
        for _ in range(3):
            descriptor.entries.add(key="four", value="four")
    assert fields_of(parse_mesh_request(theirs.SerializeToString(), bounds)) == their_fields_of(
        theirs
    )
    theirs.descriptors[1].entries.add(key="k")
    with pytest.raises(BadValue, match=r"^descriptors\[1\]\.entries: .*entries_max"):
        parse_mesh_request(theirs.SerializeToString(), bounds)
    theirs.descriptors[1].ClearField("entries")
    theirs.descriptors[1].entries.add(value="fives")
    (found,) = parse_mesh_request(theirs.SerializeToString(), bounds).descriptors[1].entries
    assert found == ("", shorten("fives", 4))  # a caller's own text is no reason to fail
    theirs.descriptors.add()
    del theirs.descriptors[1]
    theirs.descriptors.add()
    with pytest.raises(BadValue, match=r"^descriptors: .*descriptors_max"):
        parse_mesh_request(theirs.SerializeToString(), bounds)
    theirs.domain = "fives"
    with pytest.raises(BadValue, match=r"^domain: "):
        parse_mesh_request(theirs.SerializeToString(), bounds)


@pytest.mark.parametrize("name", ["descriptors_max", "entries_max", "text_bytes_max"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match=name):
        MeshBounds(**{name: 0})


def test_a_header_as_long_as_a_proxy_takes_does_not_make_the_question_fail() -> None:
    # It would pass where the proxy lets pass what it could not ask about.
    theirs = request(cookie="c" * 96 * 1024)
    assert fields_of(parse_mesh_request(theirs.SerializeToString())) == their_fields_of(theirs)
    assert MESH_BOUNDS.text_bytes_max >= 96 * 1024


# Writing.


@given(ANSWERS)
def test_an_answer_says_what_their_response_says(answer: MeshResponse) -> None:
    theirs = RLS.RateLimitResponse.FromString(encode_mesh_response(answer))
    assert theirs == answered_theirs(answer)


def test_the_code_is_never_unknown() -> None:
    assert (
        RLS.RateLimitResponse.FromString(encode_mesh_response(MeshResponse(False, []))).overall_code
        == 1
    )
    assert (
        RLS.RateLimitResponse.FromString(encode_mesh_response(MeshResponse(True, []))).overall_code
        == 2
    )


def test_a_status_without_a_limit_carries_none() -> None:
    unlimited = MeshStatus(False, None, 2**32 - 1)
    response = RLS.RateLimitResponse.FromString(
        encode_mesh_response(MeshResponse(False, [unlimited]))
    )
    assert not response.statuses[0].HasField("current_limit")
    assert not response.statuses[0].HasField("duration_until_reset")
    assert response.statuses[0].limit_remaining == 2**32 - 1


def test_a_limit_of_nothing_is_told_from_none() -> None:
    closed = MeshStatus(True, MeshLimit(0, 0), 0, 0)
    response = RLS.RateLimitResponse.FromString(encode_mesh_response(MeshResponse(True, [closed])))
    assert response.statuses[0].HasField("current_limit")
    assert response.statuses[0].HasField("duration_until_reset")


def test_counts_too_great_for_the_field_say_the_greatest_it_holds() -> None:
    status = MeshStatus(False, MeshLimit(2**40, 1), 2**40)
    response = RLS.RateLimitResponse.FromString(encode_mesh_response(MeshResponse(False, [status])))
    assert response.statuses[0].limit_remaining == 2**32 - 1
    assert response.statuses[0].current_limit.requests_per_unit == 2**32 - 1


def test_text_that_utf_8_cannot_hold_still_makes_an_answer() -> None:
    answer = MeshResponse(False, [MeshStatus(False, MeshLimit(1, 1, "\ud800"))])
    response = RLS.RateLimitResponse.FromString(encode_mesh_response(answer))
    assert response.statuses[0].current_limit.name == "?"


def test_metadata_that_json_cannot_hold_is_our_own_bug() -> None:
    with pytest.raises(TypeError, match="metadata holds bytearray"):
        encode_mesh_response(MeshResponse(False, [], metadata={"a": [{"b": bytearray()}]}))
