"""Envoy's messages as a protobuf compiler makes them, and ours in the same words."""

from __future__ import annotations

import importlib
from typing import Any, Final

from hypothesis import strategies as st

from sluicegate.contracts.checks import MeshLimit, MeshRequest, MeshResponse, MeshStatus

# By name, because these packages bring no types.
RLS: Final[Any] = importlib.import_module("envoy.service.ratelimit.v3.rls_pb2")
RATELIMIT: Final[Any] = importlib.import_module(
    "envoy.extensions.common.ratelimit.v3.ratelimit_pb2"
)

UINT32: Final = st.integers(0, 2**32 - 1)
UINT64: Final = st.integers(0, 2**64 - 1)
TEXT: Final = st.text(max_size=12)


def fields_of(ask: MeshRequest) -> object:
    """All that an ask says, comparable."""
    return (
        ask.domain,
        ask.cost,
        [
            (
                list(descriptor.entries),
                descriptor.cost,
                None
                if descriptor.override is None
                else (descriptor.override.requests_per_unit, descriptor.override.unit),
            )
            for descriptor in ask.descriptors
        ],
    )


def their_fields_of(request: Any) -> object:
    """What their request says, in the same words."""
    return (
        request.domain,
        request.hits_addend,
        [
            (
                [(entry.key, entry.value) for entry in descriptor.entries],
                descriptor.hits_addend.value if descriptor.HasField("hits_addend") else -1,
                (descriptor.limit.requests_per_unit, descriptor.limit.unit)
                if descriptor.HasField("limit")
                else None,
            )
            for descriptor in request.descriptors
        ],
    )


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """Any request that means something."""
    request = RLS.RateLimitRequest(domain=draw(TEXT), hits_addend=draw(UINT32))
    for _ in range(draw(st.integers(0, 3))):
        descriptor = request.descriptors.add()
        for _ in range(draw(st.integers(0, 3))):
            descriptor.entries.add(key=draw(TEXT), value=draw(TEXT))
        if draw(st.booleans()):
            descriptor.hits_addend.value = draw(UINT64)
        if draw(st.booleans()):
            descriptor.limit.requests_per_unit = draw(UINT32)
            descriptor.limit.unit = draw(st.integers(1, 6))
    return request


LIMITS: Final = st.builds(MeshLimit, UINT32, st.integers(0, 7), TEXT)
STATUSES: Final = st.builds(
    MeshStatus,
    st.booleans(),
    st.none() | LIMITS,
    UINT32,
    st.just(-1) | st.integers(0, 2**53) | st.integers(0, 9).map(lambda s: s * 1_000_000),
)
HEADERS: Final = st.lists(st.tuples(TEXT, TEXT), max_size=3)
JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ANSWERS: Final = st.builds(
    MeshResponse,
    st.booleans(),
    st.lists(STATUSES, max_size=3),
    response_headers=HEADERS,
    request_headers=HEADERS,
    metadata=st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    body=st.binary(max_size=200),
)


def answered_theirs(answer: MeshResponse) -> Any:
    """Their response that says what ours does."""
    response = RLS.RateLimitResponse(overall_code=2 if answer.over else 1, raw_body=answer.body)
    for status in answer.statuses:
        made = response.statuses.add(code=2 if status.over else 1, limit_remaining=status.remaining)
        if status.limit is not None:
            made.current_limit.SetInParent()
            made.current_limit.requests_per_unit = status.limit.requests_per_unit
            made.current_limit.unit = status.limit.unit
            made.current_limit.name = status.limit.name
        if status.reset_us >= 0:
            made.duration_until_reset.FromMicroseconds(status.reset_us)
            made.duration_until_reset.SetInParent()
    for name, value in answer.response_headers:
        response.response_headers_to_add.add(key=name, value=value)
    for name, value in answer.request_headers:
        response.request_headers_to_add.add(key=name, value=value)
    if answer.metadata is not None:
        response.dynamic_metadata.SetInParent()
        response.dynamic_metadata.update(answer.metadata)
    return response
