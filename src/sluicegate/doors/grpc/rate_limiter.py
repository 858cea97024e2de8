"""sluicegate.v1.RateLimiter as methods: bytes to an ask, an response to bytes.

A refusal is an response. What is malformed is INVALID_ARGUMENT with the field's path; what else the
service raises is `call.status_of`'s to translate. Only Check, CheckBatch and Peek can be answered
at once; the others always wait for a store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.checks import CheckResponse, MaybeAwaitable, RateLimits
from sluicegate.doors.grpc.methods import UnaryMethod
from sluicegate.wire.rate_limiter_messages import (
    CHECK_BOUNDS,
    CheckBounds,
    encode_check_batch,
    encode_check_response,
    encode_give_back,
    encode_lease,
    encode_reset,
    parse_check_batch,
    parse_check_request,
    parse_give_back,
    parse_lease_request,
)

SERVICE: Final = "/sluicegate.v1.RateLimiter/"


@final
class RateLimiterServicer:
    """Answers the six questions of the native service."""

    __slots__ = ("bounds", "service")

    def __init__(self, service: RateLimits, bounds: CheckBounds = CHECK_BOUNDS) -> None:
        self.service = service
        self.bounds = bounds

    @property
    def unary(self) -> Mapping[str, UnaryMethod]:
        """The methods for `Methods.unary`."""
        return {
            SERVICE + "Check": self.check,
            SERVICE + "CheckBatch": self.check_batch,
            SERVICE + "Peek": self.peek,
            SERVICE + "Reset": self.reset,
            SERVICE + "Lease": self.lease,
            SERVICE + "GiveBack": self.give_back,
        }

    @property
    def grants(self) -> Mapping[str, Grant]:
        """What the methods take, for `Methods.grants`."""
        return {
            SERVICE + "Check": Grant.CHECK,
            SERVICE + "CheckBatch": Grant.CHECK,
            SERVICE + "Peek": Grant.CHECK,
            SERVICE + "Reset": Grant.RESET,
            SERVICE + "Lease": Grant.LEASE,
            SERVICE + "GiveBack": Grant.LEASE,
        }

    def check(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """RateLimitRequest to RateLimitResponse, counted."""
        return _encode(self.service.check(parse_check_request(message, self.bounds), by))

    def peek(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """RateLimitRequest to RateLimitResponse, not counted."""
        return _encode(self.service.peek(parse_check_request(message, self.bounds), by))

    def check_batch(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """CheckBatchRequest to CheckBatchResponse."""
        responses = self.service.check_each(parse_check_batch(message, self.bounds), by)
        if isinstance(responses, Sequence):
            return encode_check_batch(responses)
        return _batch_later(responses)

    async def reset(self, message: bytes, by: Identity) -> bytes:
        """RateLimitRequest to ResetResponse."""
        return encode_reset(await self.service.reset(parse_check_request(message, self.bounds), by))

    async def lease(self, message: bytes, by: Identity) -> bytes:
        """LeaseRequest to LeaseResponse."""
        lease = parse_lease_request(message, self.bounds)
        return encode_lease(await self.service.lease(lease.request, lease.units, by))

    async def give_back(self, message: bytes, by: Identity) -> bytes:
        """GiveBackRequest to GiveBackResponse."""
        unspent = parse_give_back(message, self.bounds)
        return encode_give_back(await self.service.give_back(unspent.lease_id, unspent.units, by))


def _encode(response: MaybeAwaitable[CheckResponse]) -> MaybeAwaitable[bytes]:
    if isinstance(response, CheckResponse):
        return encode_check_response(response)
    return _later(response)


async def _later(response: Awaitable[CheckResponse]) -> bytes:
    return encode_check_response(await response)


async def _batch_later(responses: Awaitable[Sequence[CheckResponse]]) -> bytes:
    return encode_check_batch(await responses)
