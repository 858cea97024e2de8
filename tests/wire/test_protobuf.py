"""The pieces of protobuf's wire format, against what a protobuf compiler's classes write."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import (
    BytesValue,
    Int32Value,
    Int64Value,
    StringValue,
    UInt64Value,
)
from hypothesis import example, given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.wire import protobuf
from sluicegate.wire.key_values_messages import PlaceRequest
from sluicegate.wire.mesh_messages import MESH_BOUNDS, parse_mesh_request
from sluicegate.wire.rate_limiter_messages import (
    CHECK_BOUNDS,
    parse_check_batch,
    parse_check_request,
)

AROUND_EVERY_LENGTH = [
    value for bits in range(0, 64, 7) for value in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1)
]
UNSIGNED = st.integers(0, 2**64 - 1) | st.sampled_from(AROUND_EVERY_LENGTH)
SIGNED = st.integers(-(2**63), 2**63 - 1)


def read(data: bytes) -> int:
    value, at = protobuf.varint(data, 0, len(data), "x")
    assert at == len(data)
    return int(value)


@given(UNSIGNED)
def test_a_number_is_written_as_theirs_is(value: int) -> None:
    theirs = UInt64Value(value=value).SerializeToString()[1:]
    assert protobuf.varint_bytes(value) == (theirs or b"\x00")


@given(SIGNED)
def test_a_signed_number_is_written_and_read_as_theirs_is(value: int) -> None:
    theirs = Int64Value(value=value).SerializeToString()[1:]
    assert protobuf.varint_bytes(value) == (theirs or b"\x00")
    assert read(protobuf.varint_bytes(value)) == value


@given(UNSIGNED)
def test_an_unsigned_number_comes_back(value: int) -> None:
    assert protobuf.unsigned64(read(protobuf.varint_bytes(value))) == value


@given(SIGNED)
def test_a_32_bit_number_keeps_the_lower_half_as_theirs_does(value: int) -> None:
    message = b"\x08" + protobuf.varint_bytes(value)
    assert protobuf.signed32(value) == Int32Value.FromString(message).value


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, 2**32 - 1, 2**32, -1])
def test_the_sign_of_a_32_bit_number_is_its_highest_bit(value: int) -> None:
    message = b"\x08" + protobuf.varint_bytes(value)
    assert protobuf.signed32(value) == Int32Value.FromString(message).value


@given(st.binary(max_size=12))
def test_any_bytes_are_a_number_or_refused_and_never_another_error(data: bytes) -> None:
    try:
        value, at = protobuf.varint(data, 0, len(data), "x")
    except BadValue:
        return
    assert UInt64Value.FromString(b"\x08" + data[:at]).value == protobuf.unsigned64(value)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    assert protobuf.unsigned64(read(b"\xff" * 9 + b"\x01")) == 2**64 - 1
    for data in (b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\xff" * 11 + b"\x01"):
        with pytest.raises(BadValue, match="at most 64 bits"):
            read(data)


def test_a_number_that_is_cut_off_says_so() -> None:
    for data in (b"", b"\x80", b"\xff" * 9):
        with pytest.raises(BadValue, match="cut off"):
            protobuf.varint(data, 0, len(data), "weight")


def test_a_number_ends_where_its_message_does_even_if_there_are_more_bytes() -> None:
    with pytest.raises(BadValue, match="cut off"):
        protobuf.varint(b"\x80\x01", 0, 1, "weight")


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_text_is_written_and_read_as_theirs_is(size: int) -> None:
    word = "é" * size
    theirs = StringValue(value=word).SerializeToString()[1:] or b"\x00"
    ours = protobuf.text_bytes(word)
    assert ours == theirs == protobuf.span_bytes(word.encode())
    begin, end = protobuf.span(ours, 0, len(ours), "x")
    assert protobuf.text(ours, begin, end, "x", 2 * size) == word


def test_text_that_is_not_utf_8_is_refused() -> None:
    for data in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80"):
        with pytest.raises(BadValue, match="UTF-8"):
            protobuf.text(data, 0, len(data), "x", 10)


def test_text_that_utf_8_cannot_hold_is_written_with_question_marks() -> None:
    assert protobuf.text_bytes("a\ud800b") == b"\x03a?b"


def test_text_longer_than_its_bound_is_refused_by_the_name_of_the_bound() -> None:
    assert protobuf.text(b"abc", 0, 3, "x", 3) == "abc"
    with pytest.raises(BadValue, match="text_bytes_max"):
        protobuf.text(b"abcd", 0, 4, "x", 3)


@pytest.mark.parametrize("data", [b"\x02a", b"\xff\xff\xff\xff\x0fa", b"\xff" * 9 + b"\x01a"])
def test_a_length_beyond_the_end_is_refused(data: bytes) -> None:
    with pytest.raises(BadValue, match="cut off"):
        protobuf.span(data, 0, len(data), "x")


@pytest.mark.parametrize(
    ("kind", "body"),
    [(0, b"\xac\x02"), (1, b"12345678"), (2, b"\x03abc"), (5, b"1234")],
)
def test_an_unknown_field_is_skipped_whole_and_never_beyond_the_end(kind: int, body: bytes) -> None:
    end = len(body)
    assert protobuf.skip_field(body, 0, end, 9 << 3 | kind, ("a", "b")) == end
    for cut in range(end):
        with pytest.raises(BadValue, match="cut off"):
            protobuf.skip_field(body, 0, cut, 9 << 3 | kind, ("a", "b"))


def spread(value: int, size: int, top: int) -> bytes:
    """A number in so many bytes, needed or not; `top` is set in the last of them."""
    out = bytearray((value >> 7 * at & 127) | 128 for at in range(size))
    out[-1] = out[-1] & 127 | top
    return bytes(out)


NUMBERS = st.builds(
    spread, st.integers(0, 40) | UNSIGNED, st.integers(1, 12), st.just(0) | st.integers(0, 127)
)


def theirs_of(kind: Any, message: bytes) -> object:
    """What their reader makes of a wrapper, or None."""
    try:
        return kind.FromString(message).value
    except DecodeError:
        return None


@given(NUMBERS, NUMBERS, NUMBERS)
@example(spread(8, 6, 0), b"\x05", b"\x00")
@example(spread(8, 5, 16), b"\x05", b"\x00")
@example(b"\x08", spread(3, 10, 0), b"\x00")
@example(b"\x0a", spread(3, 5, 0), b"\x00")
@example(b"\x0a", spread(3, 6, 0), b"\x00")
@example(b"\x4a", spread(3, 6, 0), b"\x00")
@example(b"\x0a", b"\x0a", spread(0, 9, 0))
def test_a_number_of_more_bytes_than_it_takes_is_read_as_theirs_or_refused(
    tag: bytes, number: bytes, other: bytes
) -> None:
    """Two readers that take one message for two are a way past whoever reads it first."""
    for message in (tag + number + b"abc", tag + number + b"\x08" + other):
        for kind, wanted in ((BytesValue, bytes), (UInt64Value, int)):
            try:
                fields = protobuf.fields_of(message)
            except BadValue:
                continue
            if any(type(value) is not wanted for key, value in fields if key == 1):
                continue  # another schema's, which we refuse and they skip
            ours = kind().value
            for key, value in fields:
                if key == 1:
                    ours = value if isinstance(value, bytes) else value % (1 << 64)
            assert theirs_of(kind, message) == ours


@pytest.mark.parametrize("size", range(1, 6))
def test_a_tag_and_a_length_of_up_to_five_bytes_are_read(size: int) -> None:
    assert protobuf.fields_of(spread(10, size, 0) + spread(3, size, 0) + b"abc") == [(1, b"abc")]
    assert StringValue.FromString(spread(10, size, 0) + spread(3, size, 0) + b"abc").value == "abc"


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_groups_and_wire_types_that_are_none_are_refused(kind: int) -> None:
    with pytest.raises(BadValue, match=f"wire type {kind}"):
        protobuf.skip_field(b"1234", 0, 4, 9 << 3 | kind, ())


def test_a_known_field_of_another_type_is_refused_by_its_name() -> None:
    with pytest.raises(BadValue, match=r"^weight: 'a length and bytes'"):
        protobuf.skip_field(b"\x00", 0, 1, 2 << 3 | 2, ("user_id", "weight"))


@pytest.mark.parametrize("tag", [0, 7, 1 << 32, -8])
def test_a_field_number_that_is_none_is_refused(tag: int) -> None:
    with pytest.raises(BadValue, match="protobuf's format"):
        protobuf.skip_field(b"\x00", 0, 1, tag, ())


def test_bounds_leave_room_for_something() -> None:
    assert protobuf.require_positive("batch_max", 1) == 1
    with pytest.raises(BadValue, match="batch_max"):
        protobuf.require_positive("batch_max", 0)


@pytest.mark.parametrize("field", [b"\x78\x00", b"\x0a\x00"])  # an unknown one, and a known one
def test_a_message_of_more_fields_than_any_schema_has_is_refused(field: bytes) -> None:
    parse_check_request(field * protobuf.FIELDS_MAX)
    with pytest.raises(BadValue, match="send each field once"):
        parse_check_request(field * (protobuf.FIELDS_MAX + CHECK_BOUNDS.headers_max + 1))
    with pytest.raises(BadValue, match="send each field once"):
        PlaceRequest(field * (protobuf.FIELDS_MAX + 1))
    with pytest.raises(BadValue, match="send each field once"):
        parse_mesh_request(field * (protobuf.FIELDS_MAX + MESH_BOUNDS.descriptors_max + 1))


def test_what_repeats_up_to_its_own_bound_is_no_flood_of_fields() -> None:
    descriptors = b"\x12\x00" * MESH_BOUNDS.descriptors_max
    assert len(parse_mesh_request(descriptors).descriptors) == MESH_BOUNDS.descriptors_max
    assert len(parse_check_batch(b"\x0a\x00" * CHECK_BOUNDS.batch_max)) == CHECK_BOUNDS.batch_max
