"""The messages of sluicegate.v1.RateLimiter, from bytes and to bytes.

The published `protos/sluicegate/v1/rate_limiter.proto` says what they mean; the tests hold this
against the classes that a protobuf compiler makes of it. Milliseconds that say when to come back
are rounded up, those that say how long something may be used are rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.checks import CheckRequest, CheckResponse, LeaseResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import NO_ATTRIBUTES
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
    varint,
    varint_bytes,
)

HEADERS_MAX_DEFAULT: Final = 128
# Headers beyond `headers_max` are passed over, so that no caller makes its own check fail by
# sending more. No HTTP server takes a head that has more than these.
HEADER_FIELDS_MAX: Final = 16_384
BATCH_MAX_DEFAULT: Final = 1_000
TEXT_BYTES_MAX_DEFAULT: Final = 131_072

_ASK: Final = ("user_id", "resource_path", "headers", "weight", "priority")
_HEADER: Final = ("key", "value")
_BATCH: Final = ("requests",)
_LEASE: Final = ("request", "units")
_GIVE_BACK: Final = ("lease_id", "units")

_CLAIMS: Final[list[Criticality | None]] = [None, *Criticality]


@final
class CheckBounds:
    """How much may be asked at once."""

    __slots__ = ("batch_max", "headers_max", "text_bytes_max")

    def __init__(
        self,
        *,
        headers_max: int = HEADERS_MAX_DEFAULT,
        batch_max: int = BATCH_MAX_DEFAULT,
        text_bytes_max: int = TEXT_BYTES_MAX_DEFAULT,
    ) -> None:
        self.headers_max = require_positive("headers_max", headers_max)
        self.batch_max = require_positive("batch_max", batch_max)
        self.text_bytes_max = require_positive("text_bytes_max", text_bytes_max)


CHECK_BOUNDS: Final = CheckBounds()


@final
class LeaseRequest:
    """Units wanted in advance, for this user on this resource."""

    __slots__ = ("request", "units")

    def __init__(self, request: CheckRequest, units: int) -> None:
        self.request = request
        self.units = units


@final
class GiveBackRequest:
    """Units of a lease that were not spent."""

    __slots__ = ("lease_id", "units")

    def __init__(self, lease_id: str, units: int) -> None:
        self.lease_id = lease_id
        self.units = units


# Reading.


@final
class _Draft:
    """A request while it is read: the same message twice is one, merged."""

    __slots__ = ("cost", "headers", "priority", "resource_path", "user_id")

    def __init__(self) -> None:
        self.user_id = ""
        self.resource_path = ""
        self.headers: dict[str, str] | None = None
        self.cost: i64 = 0
        self.priority: i64 = 0

    def read(self, data: bytes, at: i64, end: i64, bounds: CheckBounds) -> None:
        """Add what lies between the two positions."""
        field_count: i64 = 0
        header_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "message")
            if tag == 0x0A:
                begin, at = span(data, at, end, "user_id")
                self.user_id = any_text(data, begin, at, bounds.text_bytes_max)
            elif tag == 0x12:
                begin, at = span(data, at, end, "resource_path")
                self.resource_path = any_text(data, begin, at, bounds.text_bytes_max)
            elif tag == 0x1A:
                begin, at = span(data, at, end, "headers")
                header_count = count_field(header_count, HEADER_FIELDS_MAX)
                field_count -= 1
                self.read_header(data, begin, at, bounds)
            elif tag == 0x20:
                cost, at = varint(data, at, end, "weight")
                self.cost = cost & UINT32_MAX
            elif tag == 0x28:
                priority, at = varint(data, at, end, "priority")
                self.priority = signed32(priority)
            else:
                at = skip_field(data, at, end, tag, _ASK)

    def read_header(self, data: bytes, at: i64, end: i64, bounds: CheckBounds) -> None:
        """Add one pair of the map; those beyond `headers_max` are not read."""
        if self.headers is not None and len(self.headers) >= bounds.headers_max:
            return
        name = ""
        value = ""
        field_count: i64 = 0
        while at < end:
            field_count = count_field(field_count, FIELDS_MAX)
            tag, at = tag_at(data, at, end, "headers")
            if tag == 0x0A:
                begin, at = span(data, at, end, "headers.key")
                name = any_text(data, begin, at, bounds.text_bytes_max)
            elif tag == 0x12:
                begin, at = span(data, at, end, "headers.value")
                value = any_text(data, begin, at, bounds.text_bytes_max)
            else:
                try:
                    at = skip_field(data, at, end, tag, _HEADER)
                except BadValue as error:
                    raise under_field(error, "headers") from None
        if self.headers is None:
            self.headers = {}
        self.headers[name.lower()] = value

    def request(self) -> CheckRequest:
        """The request, now that it is whole."""
        priority = self.priority
        if priority < 0 or priority >= len(_CLAIMS):
            raise BadValue("priority", priority, "give 1 (CRITICAL) to 4 (BULK), or 0 for no claim")
        headers: Mapping[str, str] = NO_ATTRIBUTES if self.headers is None else self.headers
        return CheckRequest(
            self.user_id,
            self.resource_path,
            headers=headers,
            cost=self.cost if self.cost > 0 else 1,
            priority=_CLAIMS[priority],
        )


def parse_check_request(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> CheckRequest:
    """RateLimitRequest."""
    draft = _Draft()
    draft.read(data, 0, len(data), bounds)
    return draft.request()


def parse_check_batch(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> Sequence[CheckRequest]:
    """CheckBatchRequest."""
    end: i64 = len(data)
    at: i64 = 0
    requests: list[CheckRequest] = []
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX + bounds.batch_max)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "requests")
            count = len(requests)
            if count >= bounds.batch_max:
                raise too_many("requests", bounds.batch_max, "batch_max")
            draft = _Draft()
            try:
                draft.read(data, begin, at, bounds)
                requests.append(draft.request())
            except BadValue as error:
                raise under_field(error, f"requests[{count}]") from None
        else:
            at = skip_field(data, at, end, tag, _BATCH)
    return requests


def parse_lease_request(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> LeaseRequest:
    """LeaseRequest."""
    end: i64 = len(data)
    at: i64 = 0
    units: i64 = 0
    draft = _Draft()
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "request")
            try:
                draft.read(data, begin, at, bounds)
            except BadValue as error:
                raise under_field(error, "request") from None
        elif tag == 0x10:
            units, at = varint(data, at, end, "units")
            units &= UINT32_MAX
        else:
            at = skip_field(data, at, end, tag, _LEASE)
    if units < 1:
        raise BadValue("units", units, "say how many units to take; at least 1")
    try:
        return LeaseRequest(draft.request(), units)
    except BadValue as error:
        raise under_field(error, "request") from None


def parse_give_back(data: bytes, bounds: CheckBounds = CHECK_BOUNDS) -> GiveBackRequest:
    """GiveBackRequest."""
    end: i64 = len(data)
    at: i64 = 0
    units: i64 = 0
    lease_id = ""
    field_count: i64 = 0
    while at < end:
        field_count = count_field(field_count, FIELDS_MAX)
        tag, at = tag_at(data, at, end, "message")
        if tag == 0x0A:
            begin, at = span(data, at, end, "lease_id")
            lease_id = text(data, begin, at, "lease_id", bounds.text_bytes_max)
        elif tag == 0x10:
            units, at = varint(data, at, end, "units")
            units &= UINT32_MAX
        else:
            at = skip_field(data, at, end, tag, _GIVE_BACK)
    if not lease_id:
        raise BadValue("lease_id", lease_id, "give the lease_id that Lease answered with")
    if units < 1:
        raise BadValue("units", units, "say how many units were not spent; at least 1")
    return GiveBackRequest(lease_id, units)


# Writing.


def ms_up(distance_us: int) -> int:
    """Milliseconds until something, never too early; -1 stays never."""
    return -1 if distance_us < 0 else (distance_us + 999) // 1_000


def encode_check_response(response: CheckResponse) -> bytes:
    """RateLimitResponse."""
    decision = response.decision
    parts = [b"\x08\x01"] if decision.allowed else []
    if decision.remaining > 0:
        parts.append(b"\x10")
        parts.append(varint_bytes(min(decision.remaining, UINT32_MAX)))
    if decision.retry_after_us != 0:
        parts.append(b"\x18")
        parts.append(varint_bytes(ms_up(decision.retry_after_us)))
    if response.status:
        parts.append(b"\x22")
        parts.append(text_bytes(response.status))
    if decision.reset_after_us > 0:
        parts.append(b"\x28")
        parts.append(varint_bytes(ms_up(decision.reset_after_us)))
    if response.limit > 0:
        parts.append(b"\x30")
        parts.append(varint_bytes(response.limit))
    if decision.rule_id:
        parts.append(b"\x3a")
        parts.append(text_bytes(decision.rule_id))
    if decision.reason is not None:
        parts.append(b"\x42")
        parts.append(text_bytes(decision.reason.name))
    if decision.degraded:
        parts.append(b"\x48\x01")
    parts.append(b"\x50")
    parts.append(varint_bytes(int(response.priority) + 1))
    if response.node_status:
        parts.append(b"\x5a")
        parts.append(text_bytes(response.node_status))
    return b"".join(parts)


def encode_check_batch(responses: Sequence[CheckResponse]) -> bytes:
    """CheckBatchResponse."""
    parts: list[bytes] = []
    for response in responses:
        body = encode_check_response(response)
        parts.append(b"\x0a")
        parts.append(varint_bytes(len(body)))
        parts.append(body)
    return b"".join(parts)


def encode_reset(rules: int) -> bytes:
    """ResetResponse."""
    return _first_number(rules)


def encode_lease(lease: LeaseResponse) -> bytes:
    """LeaseResponse."""
    out = b"\x0a" + text_bytes(lease.lease_id) if lease.lease_id else b""
    if lease.units > 0:
        out += b"\x10" + varint_bytes(min(lease.units, UINT32_MAX))
    valid_ms = lease.valid_us // 1_000
    if valid_ms > 0:
        out += b"\x18" + varint_bytes(valid_ms)
    return out + b"\x22" + span_bytes(encode_check_response(lease.check))


def encode_give_back(accepted: int) -> bytes:
    """GiveBackResponse."""
    return _first_number(accepted)


def _first_number(value: int) -> bytes:
    return b"\x08" + varint_bytes(min(value, UINT32_MAX)) if value > 0 else b""
