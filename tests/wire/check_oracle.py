"""The native messages as a protobuf compiler makes them, and ours in the same words."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from sluicegate.contracts.checks import CheckRequest, CheckResponse, LeaseResponse
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.reasons import REASONS
from sluicegate.protos import rate_limiter_pb2 as pb

UINT32: Final = st.integers(0, 2**32 - 1)
TEXT: Final = st.text(max_size=12)


def fields_of(ask: CheckRequest) -> object:
    """All that an ask says, comparable."""
    return ask.user_id, ask.resource_path, dict(ask.headers), ask.cost, ask.priority


def their_fields_of(request: pb.RateLimitRequest) -> object:
    """What their request says, in the same words."""
    return (
        request.user_id,
        request.resource_path,
        {name.lower(): value for name, value in request.headers.items()},
        request.weight or 1,
        None if request.priority == 0 else Criticality(request.priority - 1),
    )


REQUESTS: Final = st.builds(
    pb.RateLimitRequest,
    user_id=TEXT,
    resource_path=TEXT,
    # Of names that differ only in case the last counts, and a map has no order.
    headers=st.dictionaries(TEXT.map(str.lower).filter(lambda name: name == name.lower()), TEXT),
    weight=UINT32,
    priority=st.sampled_from(pb.PriorityBucket.values()),
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any decision."""
    reason = draw(st.none() | st.sampled_from(list(REASONS.values())))
    distances = st.just(-1) | st.integers(0, 2**53)
    decision = Decision(
        draw(st.booleans()), draw(UINT32), draw(distances), draw(distances), reason, draw(TEXT)
    )
    return decision.with_marks(degraded=draw(st.booleans()))


ANSWERS: Final = st.builds(
    CheckResponse,
    decisions(),
    st.just(-1) | st.integers(1, 2**53),
    st.sampled_from(Criticality),
    TEXT,
    TEXT,
)
LEASES: Final = st.builds(LeaseResponse, TEXT, UINT32, st.integers(0, 2**53), ANSWERS)


def ms_up(distance_us: int) -> int:
    """The milliseconds that are certainly enough."""
    return -1 if distance_us < 0 else -(-distance_us // 1_000)


def answered_theirs(answer: CheckResponse) -> pb.RateLimitResponse:
    """Their response that says what ours does."""
    decision = answer.decision
    return pb.RateLimitResponse(
        allowed=decision.allowed,
        remaining_tokens=decision.remaining,
        retry_after_ms=ms_up(decision.retry_after_us),
        cluster_utilization_status=answer.status,
        reset_after_ms=max(ms_up(decision.reset_after_us), 0),
        limit=max(answer.limit, 0),
        rule_id=decision.rule_id,
        reason="" if decision.reason is None else decision.reason.name,
        without_store=decision.degraded,
        priority=pb.PriorityBucket.Value(answer.priority.name),
        node_utilization_status=answer.node_status,
    )


def leased_theirs(lease: LeaseResponse) -> pb.LeaseResponse:
    """Likewise, of a lease."""
    return pb.LeaseResponse(
        lease_id=lease.lease_id,
        units=lease.units,
        valid_ms=lease.valid_us // 1_000,
        check=answered_theirs(lease.check),
    )
