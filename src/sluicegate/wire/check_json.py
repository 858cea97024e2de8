"""The native service's questions and responses as JSON, under the names of its .proto.

For those who ask over HTTP. A field that is left out is as good as null; an unknown one is refused,
because it is a name misspelt. Where protobuf cannot tell 0 from left out JSON can, so a weight of 0
is refused here: who only wants to look asks for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from sluicegate.contracts.checks import CheckRequest, CheckResponse, LeaseResponse
from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import NO_ATTRIBUTES
from sluicegate.wire.json_objects import (
    any_text_of,
    at,
    encode_json,
    fields_of,
    list_of,
    parse_json,
    text_of,
    whole_of,
)
from sluicegate.wire.protobuf import UINT32_MAX
from sluicegate.wire.rate_limiter_messages import (
    CHECK_BOUNDS,
    CheckBounds,
    GiveBackRequest,
    LeaseRequest,
    ms_up,
)

_ASK: Final = {name: name for name in ("user_id", "resource_path", "headers", "weight", "priority")}
_BATCH: Final = {"requests": "requests"}
_LEASE: Final = {"request": "request", "units": "units"}
_GIVE_BACK: Final = {"lease_id": "lease_id", "units": "units"}


# Reading.


def check_request_from_json(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> CheckRequest:
    """`{"user_id", "resource_path", "headers": {}, "weight": 1, "priority": "BULK"}`."""
    return _check_request_from(parse_json(data), "", bounds)


def check_batch_from_json(
    data: bytes, bounds: CheckBounds = CHECK_BOUNDS
) -> Sequence[CheckRequest]:
    """`{"requests": [...]}`."""
    fields = fields_of(parse_json(data), "", _BATCH)
    sent = list_of(fields.get("requests", []), "requests", bounds.batch_max, "batch_max")
    return [
        _check_request_from(value, f"requests[{number}]", bounds)
        for number, value in enumerate(sent)
    ]


def lease_from_json(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> LeaseRequest:
    """`{"request": {...}, "units": 100}`."""
    fields = fields_of(parse_json(data), "", _LEASE)
    units = whole_of(fields.get("units"), "units", 1, UINT32_MAX)
    return LeaseRequest(_check_request_from(fields.get("request", {}), "request", bounds), units)


def give_back_from_json(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> GiveBackRequest:
    """`{"lease_id": "...", "units": 40}`."""
    fields = fields_of(parse_json(data), "", _GIVE_BACK)
    lease_id = text_of(fields.get("lease_id", ""), "lease_id", bounds.text_bytes_max)
    if not lease_id:
        raise BadValue("lease_id", lease_id, "send the lease_id that the lease was answered with")
    return GiveBackRequest(lease_id, whole_of(fields.get("units"), "units", 1, UINT32_MAX))


def _check_request_from(value: object, place: str, bounds: CheckBounds) -> CheckRequest:
    fields = fields_of(value, place, _ASK)
    bytes_max = bounds.text_bytes_max
    return CheckRequest(
        any_text_of(fields.get("user_id", ""), at(place, "user_id"), bytes_max),
        any_text_of(fields.get("resource_path", ""), at(place, "resource_path"), bytes_max),
        headers=_headers_from(fields.get("headers", {}), at(place, "headers"), bounds),
        cost=whole_of(fields.get("weight", 1), at(place, "weight"), 1, UINT32_MAX),
        priority=_priority_from(fields.get("priority"), at(place, "priority")),
    )


def _headers_from(value: object, place: str, bounds: CheckBounds) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise BadValue(place, value, "send an object of strings")
    if not value:
        return NO_ATTRIBUTES
    bytes_max = bounds.text_bytes_max
    return {
        any_text_of(name, place, bytes_max).lower(): any_text_of(text, at(place, name), bytes_max)
        for name, text in islice(value.items(), bounds.headers_max)
    }


def _priority_from(value: object, place: str) -> Criticality | None:
    if value is None:
        return None
    if not isinstance(value, str):
        names = ", ".join(Criticality.__members__)
        raise BadValue(place, value, f"give one of {names}, or leave it out")
    return parse_criticality(value, field=place)


# Writing.


def check_response_to_json(response: CheckResponse) -> bytes:
    """The fields of RateLimitResponse, all of them."""
    return encode_json(_response_fields(response))


def check_batch_to_json(responses: Sequence[CheckResponse]) -> bytes:
    """`{"responses": [...]}`."""
    return encode_json({"responses": [_response_fields(response) for response in responses]})


def lease_to_json(lease: LeaseResponse) -> bytes:
    """`{"lease_id", "units", "valid_ms", "check": {...}}`."""
    return encode_json(
        {
            "lease_id": lease.lease_id,
            "units": lease.units,
            "valid_ms": max(lease.valid_us // 1_000, 0),
            "check": _response_fields(lease.check),
        }
    )


def give_back_to_json(accepted: int) -> bytes:
    """`{"accepted": 40}`."""
    return encode_json({"accepted": accepted})


def reset_to_json(rules: int) -> bytes:
    """`{"rules": 2}`."""
    return encode_json({"rules": rules})


def _response_fields(response: CheckResponse) -> dict[str, object]:
    decision = response.decision
    return {
        "allowed": decision.allowed,
        "remaining_tokens": min(max(decision.remaining, 0), UINT32_MAX),
        "retry_after_ms": ms_up(decision.retry_after_us),
        "cluster_utilization_status": response.status,
        "reset_after_ms": max(ms_up(decision.reset_after_us), 0),
        "limit": max(response.limit, 0),
        "rule_id": decision.rule_id,
        "reason": "" if decision.reason is None else decision.reason.name,
        "without_store": decision.degraded,
        "priority": response.priority.name,
        "node_utilization_status": response.node_status,
    }
