"""Envoy's rate-limit messages, from bytes and to bytes: RateLimitRequest, RateLimitResponse.

Of package envoy.service.ratelimit.v3; the tests hold this against the classes that a protobuf
compiler makes. What a message says twice counts as protobuf has it: the last number or string wins,
and the same nested message twice is one, merged.

What a caller can reach by a header must not make the question fail, for a proxy that lets traffic
pass when the question fails is then open. So keys and values are any bytes, and beyond
`text_bytes_max` they are a digest.

Asks are not remembered by their bytes. Compiled, reading one with one descriptor takes half a
microsecond; a memo saves most of that where few keys ask, costs twice that where many do, and the
second is what an attack looks like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, final

from sluicegate.contracts.checks import (
    COST_UNSET,
    Descriptor,
    MeshLimit,
    MeshRequest,
    MeshResponse,
    MeshStatus,
    Override,
)
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.native import i64
from sluicegate.wire.protobuf import (
    FIELDS_MAX,
    UINT32_MAX,
    any_text,
    count_field,
    require_positive,
    signed32,
    skip_field,
    span,
    span_bytes,
    tag_at,
    text,
    text_bytes,
    too_many,
    under_field,
    unsigned64,
    varint,
    varint_bytes,
)

DESCRIPTORS_MAX_DEFAULT: Final = 256
ENTRIES_MAX_DEFAULT: Final = 64
TEXT_BYTES_MAX_DEFAULT: Final = 131_072

UNIT_FIRST: Final = 1  # SECOND
UNIT_LAST: Final = 7  # WEEK
UNITS_REMEDY: Final = "give SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or WEEK (1 to 7)"

_ASK: Final = ("domain", "descriptors", "hits_addend")
_DESCRIPTOR: Final = ("entries", "limit", "hits_addend")
_ENTRY: Final = ("key", "value")
_OVERRIDE: Final = ("requests_per_unit", "unit")
_WRAPPER: Final = ("value",)

_DOUBLE: Final = Struct("<d")


@final
class MeshBounds:
    """How much a proxy may ask at once."""

    __slots__ = ("descriptors_max", "entries_max", "text_bytes_max")

    def __init__(
        self,
        *,
        descriptors_max: int = DESCRIPTORS_MAX_DEFAULT,
        entries_max: int = ENTRIES_MAX_DEFAULT,
        text_bytes_max: int = TEXT_BYTES_MAX_DEFAULT,
    ) -> None:
        self.descriptors_max = require_positive("descriptors_max", descriptors_max)
        self.entries_max = require_positive("entries_max", entries_max)
        self.text_bytes_max = require_positive("text_bytes_max", text_bytes_max)


MESH_BOUNDS: Final = MeshBounds()


# Reading.


def parse_mesh_request(data: bytes, bounds: MeshBounds = MESH_BOUNDS) -> MeshRequest:
    """RateLimitRequest."""
    end: i64 = len(data)
    at: i64 = 0
    domain = ""
    cost: i64 = 0
    descriptors: list[Descriptor] = []
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX + bounds.descriptors_max)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "domain")
            domain = text(data, begin, at, "domain", bounds.text_bytes_max)
        elif tag == 0x12:
            begin, at = span(data, at, end, "descriptors")
            count = len(descriptors)
            if count >= bounds.descriptors_max:
                raise too_many("descriptors", bounds.descriptors_max, "descriptors_max")
            try:
                descriptors.append(_descriptor_of(data, begin, at, bounds))
            except BadValue as error:
                raise under_field(error, f"descriptors[{count}]") from None
        elif tag == 0x18:
            cost, at = varint(data, at, end, "hits_addend")
        else:
            at = skip_field(data, at, end, tag, _ASK)
    return MeshRequest(domain, tuple(descriptors), cost & UINT32_MAX)


def _descriptor_of(data: bytes, at: i64, end: i64, bounds: MeshBounds) -> Descriptor:
    entries: list[tuple[str, str]] = []
    cost = COST_UNSET
    limited = False
    count: i64 = 0
    unit: i64 = 0
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX + bounds.entries_max)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "entries")
            number = len(entries)
            if number >= bounds.entries_max:
                raise too_many("entries", bounds.entries_max, "entries_max")
            try:
                entries.append(_entry_of(data, begin, at, bounds.text_bytes_max))
            except BadValue as error:
                raise under_field(error, f"entries[{number}]") from None
        elif tag == 0x12:
            begin, at = span(data, at, end, "limit")
            limited = True
            try:
                count, unit = _override_of(data, begin, at, count, unit)
            except BadValue as error:
                raise under_field(error, "limit") from None
        elif tag == 0x1A:
            begin, at = span(data, at, end, "hits_addend")
            cost = _wrapped(data, begin, at, max(cost, 0))
        else:
            at = skip_field(data, at, end, tag, _DESCRIPTOR)
    if not limited:
        return Descriptor(tuple(entries), cost=cost)
    if unit < UNIT_FIRST or unit > UNIT_LAST:
        raise BadValue("limit.unit", unit, UNITS_REMEDY)
    return Descriptor(tuple(entries), override=Override(count, unit), cost=cost)


def _entry_of(data: bytes, at: i64, end: i64, bytes_max: i64) -> tuple[str, str]:
    key = ""
    value = ""
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "key")
            key = any_text(data, begin, at, bytes_max)
        elif tag == 0x12:
            begin, at = span(data, at, end, "value")
            value = any_text(data, begin, at, bytes_max)
        else:
            at = skip_field(data, at, end, tag, _ENTRY)
    return key, value


def _override_of(data: bytes, at: i64, end: i64, count: i64, unit: i64) -> tuple[i64, i64]:
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x08:
            count, at = varint(data, at, end, "requests_per_unit")
            count &= UINT32_MAX
        elif tag == 0x10:
            unit, at = varint(data, at, end, "unit")
            unit = signed32(unit)
        else:
            at = skip_field(data, at, end, tag, _OVERRIDE)
    return count, unit


def _wrapped(data: bytes, at: i64, end: i64, cost: int) -> int:
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "hits_addend")
        if tag == 0x08:
            value, at = varint(data, at, end, "hits_addend.value")
            cost = unsigned64(value)
        else:
            try:
                at = skip_field(data, at, end, tag, _WRAPPER)
            except BadValue as error:
                raise under_field(error, "hits_addend") from None
    return cost


# Writing.


def encode_mesh_response(response: MeshResponse, mark: bytes = b"") -> bytes:
    """RateLimitResponse. Its code is OK or OVER_LIMIT, never UNKNOWN: Envoy takes that for OK.

    `mark` is what `encode_mark` made: headers of each request that goes on to the upstream.
    """
    parts = [b"\x08\x02" if response.over else b"\x08\x01"]
    for status in response.statuses:
        body = _status_bytes(status)
        parts.append(b"\x12")
        parts.append(varint_bytes(len(body)))
        parts.append(body)
    if response.response_headers:
        _add_headers(parts, b"\x1a", response.response_headers)
    if response.request_headers:
        _add_headers(parts, b"\x22", response.request_headers)
    if mark and not response.over:
        parts.append(mark)
    if response.body:
        parts.append(b"\x2a")
        parts.append(span_bytes(response.body))
    if response.metadata is not None:
        parts.append(b"\x32")
        parts.append(span_bytes(_struct_bytes(response.metadata)))
    return b"".join(parts)


def encode_mark(headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers for the upstream, to be part of responses."""
    parts: list[bytes] = []
    _add_headers(parts, b"\x22", headers)
    return b"".join(parts)


def _status_bytes(status: MeshStatus) -> bytes:
    parts = [b"\x08\x02" if status.over else b"\x08\x01"]
    limit = status.limit
    if limit is not None:
        parts.append(b"\x12")
        parts.append(span_bytes(_limit_bytes(limit)))
    if status.remaining > 0:
        parts.append(b"\x18")
        parts.append(varint_bytes(min(status.remaining, UINT32_MAX)))
    if status.reset_us >= 0:
        parts.append(b"\x22")
        parts.append(span_bytes(_duration_bytes(status.reset_us)))
    return b"".join(parts)


def _limit_bytes(limit: MeshLimit) -> bytes:
    out = b""
    if limit.requests_per_unit > 0:
        out = b"\x08" + varint_bytes(min(limit.requests_per_unit, UINT32_MAX))
    if limit.unit != 0:
        out += b"\x10" + varint_bytes(limit.unit)
    if limit.name:
        out += b"\x1a" + text_bytes(limit.name)
    return out


def _duration_bytes(distance_us: int) -> bytes:
    seconds = distance_us // 1_000_000
    nanos = distance_us % 1_000_000 * 1_000
    out = b""
    if seconds:
        out = b"\x08" + varint_bytes(seconds)
    if nanos:
        out += b"\x10" + varint_bytes(nanos)
    return out


def _add_headers(parts: list[bytes], tag: bytes, headers: Sequence[tuple[str, str]]) -> None:
    for name, value in headers:
        body = b"\x0a" + text_bytes(name) if name else b""
        if value:
            body += b"\x12" + text_bytes(value)
        parts.append(tag)
        parts.append(span_bytes(body))


def _struct_bytes(fields: Mapping[str, object]) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        entry = b"\x0a" + text_bytes(name) + b"\x12" + span_bytes(_value_bytes(value))
        parts.append(b"\x0a")
        parts.append(span_bytes(entry))
    return b"".join(parts)


def _value_bytes(value: object) -> bytes:
    """One of JSON's values; numbers are doubles there."""
    if value is None:
        return b"\x08\x00"
    if isinstance(value, bool):
        return b"\x20\x01" if value else b"\x20\x00"
    if isinstance(value, int | float):
        return b"\x11" + _DOUBLE.pack(value)
    if isinstance(value, str):
        return b"\x1a" + text_bytes(value)
    if isinstance(value, Mapping):
        return b"\x2a" + span_bytes(_struct_bytes(value))
    if isinstance(value, list | tuple):
        items = [b"\x0a" + span_bytes(_value_bytes(item)) for item in value]
        return b"\x32" + span_bytes(b"".join(items))
    raise TypeError(f"metadata holds {type(value).__name__}, which JSON has not")
