"""Envoy's rate-limit messages as protobuf's JSON: names in camelCase or as in the .proto.

For those who ask over HTTP. The tests hold this against the JSON of the classes that a protobuf
compiler makes. It is as strict as that is: an unknown field is refused, not skip_field.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

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
from sluicegate.wire.json_objects import (
    any_text_of,
    at,
    encode_json,
    fields_of,
    list_of,
    loose_whole_of,
    parse_json,
    text_of,
)
from sluicegate.wire.mesh_messages import (
    MESH_BOUNDS,
    UNIT_FIRST,
    UNIT_LAST,
    UNITS_REMEDY,
    MeshBounds,
)
from sluicegate.wire.protobuf import UINT32_MAX

UINT64_MAX: Final = (1 << 64) - 1

UNITS: Final = ("UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK")

_ASK: Final = {
    "domain": "domain",
    "descriptors": "descriptors",
    "hitsAddend": "hits_addend",
    "hits_addend": "hits_addend",
}
_DESCRIPTOR: Final = {
    "entries": "entries",
    "limit": "limit",
    "hitsAddend": "hits_addend",
    "hits_addend": "hits_addend",
}
_ENTRY: Final = {"key": "key", "value": "value"}
_OVERRIDE: Final = {
    "requestsPerUnit": "requests_per_unit",
    "requests_per_unit": "requests_per_unit",
    "unit": "unit",
}


# Reading.


def mesh_request_from_json(data: bytes, bounds: MeshBounds = MESH_BOUNDS) -> MeshRequest:
    """RateLimitRequest."""
    fields = fields_of(parse_json(data), "", _ASK)
    sent = list_of(
        fields.get("descriptors", []), "descriptors", bounds.descriptors_max, "descriptors_max"
    )
    return MeshRequest(
        text_of(fields.get("domain", ""), "domain", bounds.text_bytes_max),
        tuple(
            _descriptor_from(value, f"descriptors[{number}]", bounds)
            for number, value in enumerate(sent)
        ),
        loose_whole_of(fields.get("hits_addend", 0), "hits_addend", 0, UINT32_MAX),
    )


def _descriptor_from(value: object, place: str, bounds: MeshBounds) -> Descriptor:
    fields = fields_of(value, place, _DESCRIPTOR)
    sent = list_of(
        fields.get("entries", []), at(place, "entries"), bounds.entries_max, "entries_max"
    )
    entries = [
        _entry_from(entry, f"{place}.entries[{number}]", bounds)
        for number, entry in enumerate(sent)
    ]
    cost = COST_UNSET
    if "hits_addend" in fields:
        cost = loose_whole_of(fields["hits_addend"], at(place, "hits_addend"), 0, UINT64_MAX)
    override = None
    if "limit" in fields:
        override = _override_from(fields["limit"], at(place, "limit"))
    return Descriptor(tuple(entries), override=override, cost=cost)


def _entry_from(value: object, place: str, bounds: MeshBounds) -> tuple[str, str]:
    fields = fields_of(value, place, _ENTRY)
    return (
        any_text_of(fields.get("key", ""), at(place, "key"), bounds.text_bytes_max),
        any_text_of(fields.get("value", ""), at(place, "value"), bounds.text_bytes_max),
    )


def _override_from(value: object, place: str) -> Override:
    fields = fields_of(value, place, _OVERRIDE)
    count = fields.get("requests_per_unit", 0)
    unit = fields.get("unit", 0)
    if isinstance(unit, str) and unit in UNITS:
        unit = UNITS.index(unit)
    if not isinstance(unit, int) or isinstance(unit, bool) or not UNIT_FIRST <= unit <= UNIT_LAST:
        raise BadValue(at(place, "unit"), unit, UNITS_REMEDY)
    return Override(loose_whole_of(count, at(place, "requests_per_unit"), 0, UINT32_MAX), unit)


# Writing.


def mesh_response_to_json(response: MeshResponse) -> bytes:
    """RateLimitResponse; what is zero or empty is left out."""
    out: dict[str, object] = {"overallCode": _code(response.over)}
    if response.statuses:
        out["statuses"] = [_status_fields(status) for status in response.statuses]
    if response.response_headers:
        out["responseHeadersToAdd"] = _headers(response.response_headers)
    if response.request_headers:
        out["requestHeadersToAdd"] = _headers(response.request_headers)
    if response.body:
        out["rawBody"] = b64encode(response.body).decode("ascii")
    if response.metadata is not None:
        out["dynamicMetadata"] = response.metadata
    return encode_json(out)


def _code(over: bool) -> str:
    return "OVER_LIMIT" if over else "OK"


def _status_fields(status: MeshStatus) -> dict[str, object]:
    out: dict[str, object] = {"code": _code(status.over)}
    if status.limit is not None:
        out["currentLimit"] = _limit_fields(status.limit)
    if status.remaining > 0:
        out["limitRemaining"] = min(status.remaining, UINT32_MAX)
    if status.reset_us >= 0:
        out["durationUntilReset"] = _duration(status.reset_us)
    return out


def _limit_fields(limit: MeshLimit) -> dict[str, object]:
    out: dict[str, object] = {}
    if limit.requests_per_unit > 0:
        out["requestsPerUnit"] = min(limit.requests_per_unit, UINT32_MAX)
    if limit.unit != 0:
        out["unit"] = UNITS[limit.unit]
    if limit.name:
        out["name"] = limit.name
    return out


def _duration(distance_us: int) -> str:
    seconds, rest_us = divmod(distance_us, 1_000_000)
    if rest_us == 0:
        return f"{seconds}s"
    if rest_us % 1_000 == 0:
        return f"{seconds}.{rest_us // 1_000:03}s"
    return f"{seconds}.{rest_us:06}s"


def _headers(headers: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    made = []
    for name, value in headers:
        header = {"key": name} if name else {}
        if value:
            header["value"] = value
        made.append(header)
    return made
