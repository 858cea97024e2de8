"""sluicegate.v1.RateLimiter as methods: bytes to an ask, an answer to bytes.

A refusal is an answer. What is malformed is INVALID_ARGUMENT with the field's path; what else the
service raises is `call.status_of`'s to translate. Only Check, CheckBatch and Peek can be answered
at once; the others always wait for a store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, final

from sluicegate.contracts.access import Identity
from sluicegate.contracts.checks import CheckResponse, MaybeAwaitable, RateLimits
from sluicegate.doors.grpc.call import Unary
from sluicegate.wire.rate_limiter_messages import (
    CHECK_BOUNDS,
    CheckBounds,
    batch_bytes,
    batch_of,
    check_answer_bytes,
    check_ask_of,
    give_back_of,
    given_back_bytes,
    lease_ask_of,
    lease_bytes,
    reset_bytes,
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
    def unary(self) -> Mapping[str, Unary]:
        """The methods for `Methods.unary`."""
        return {
            SERVICE + "Check": self.check,
            SERVICE + "CheckBatch": self.check_batch,
            SERVICE + "Peek": self.peek,
            SERVICE + "Reset": self.reset,
            SERVICE + "Lease": self.lease,
            SERVICE + "GiveBack": self.give_back,
        }

    def check(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """RateLimitRequest to RateLimitResponse, counted."""
        return _answered(self.service.check(check_ask_of(message, self.bounds), by))

    def peek(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """RateLimitRequest to RateLimitResponse, not counted."""
        return _answered(self.service.peek(check_ask_of(message, self.bounds), by))

    def check_batch(self, message: bytes, by: Identity) -> MaybeAwaitable[bytes]:
        """CheckBatchRequest to CheckBatchResponse."""
        answers = self.service.check_each(batch_of(message, self.bounds), by)
        if isinstance(answers, Sequence):
            return batch_bytes(answers)
        return _batch_later(answers)

    async def reset(self, message: bytes, by: Identity) -> bytes:
        """RateLimitRequest to ResetResponse."""
        return reset_bytes(await self.service.reset(check_ask_of(message, self.bounds), by))

    async def lease(self, message: bytes, by: Identity) -> bytes:
        """LeaseRequest to LeaseResponse."""
        wanted = lease_ask_of(message, self.bounds)
        return lease_bytes(await self.service.lease(wanted.ask, wanted.units, by))

    async def give_back(self, message: bytes, by: Identity) -> bytes:
        """GiveBackRequest to GiveBackResponse."""
        left = give_back_of(message, self.bounds)
        return given_back_bytes(await self.service.give_back(left.lease_id, left.units, by))


def _answered(answer: MaybeAwaitable[CheckResponse]) -> MaybeAwaitable[bytes]:
    if isinstance(answer, CheckResponse):
        return check_answer_bytes(answer)
    return _later(answer)


async def _later(answer: Awaitable[CheckResponse]) -> bytes:
    return check_answer_bytes(await answer)


async def _batch_later(answers: Awaitable[Sequence[CheckResponse]]) -> bytes:
    return batch_bytes(await answers)
