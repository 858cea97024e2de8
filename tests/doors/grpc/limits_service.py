"""A small service behind the servicers: every user may have three a minute, on a real limiter.

It answers at once, or later, as it is told. Rules and shedding are not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from sluicegate import Limiter
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.checks import (
    STATUS_DEGRADED,
    CheckRequest,
    CheckResponse,
    LeaseResponse,
    MaybeAwaitable,
    MeshLimit,
    MeshRequest,
    MeshResponse,
    MeshStatus,
    ThrottleRequest,
    ThrottleResponse,
)
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import Algorithm
from sluicegate.contracts.store import Store
from sluicegate.testing import HandClock

T = TypeVar("T")

LIMIT = 3
MINUTE = 2  # as a unit of the mesh's protocol


class SmallService:
    """Keeps the promise of `RateLimits`, for one rule."""

    def __init__(self, *, later: bool = False) -> None:
        self.later = later
        self.limiter = Limiter(
            f"{LIMIT}/minute", algorithm=Algorithm.FIXED_WINDOW, clock=HandClock()
        )
        self.leases: dict[str, tuple[str, int]] = {}

    def _soon(self, answer: T) -> MaybeAwaitable[T]:
        return _in_a_moment(answer) if self.later else answer

    def _answer(self, ask: CheckRequest, decision: Decision) -> CheckResponse:
        priority = DEFAULT_CRITICALITY if ask.priority is None else ask.priority
        status = STATUS_DEGRADED if ask.headers.get("x-stress") else ""
        return CheckResponse(decision, LIMIT, priority, status)

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        by.require(Grant.CHECK)
        return self._soon(self._answer(ask, self.limiter.take(ask.user_id, ask.cost)))

    def check_each(
        self, asks: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        by.require(Grant.CHECK)
        taken = [self.limiter.take(ask.user_id, ask.cost) for ask in asks]
        pairs = zip(asks, taken, strict=True)
        return self._soon([self._answer(ask, decision) for ask, decision in pairs])

    def peek(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        by.require(Grant.CHECK)
        return self._soon(self._answer(ask, self.limiter.peek(ask.user_id, ask.cost)))

    async def reset(self, ask: CheckRequest, by: Identity) -> int:
        by.require(Grant.RESET)
        self.limiter.reset(ask.user_id)
        return 1

    async def lease(self, ask: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        by.require(Grant.LEASE)
        units = min(units, self.limiter.peek(ask.user_id, 0).remaining)
        decision = self.limiter.take(ask.user_id, max(units, 1))
        lease_id = f"lease {len(self.leases)}" if units else ""
        self.leases[lease_id] = (ask.user_id, units)
        return LeaseResponse(lease_id, units, 60_000_000, self._answer(ask, decision))

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        by.require(Grant.LEASE)
        user, left = self.leases.pop(lease_id, ("", 0))
        self.limiter.refund(user, min(units, left))
        return min(units, left)

    def should_rate_limit(self, ask: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        by.require(Grant.CHECK)
        if self.later:
            return self._mesh_later(ask)
        return self._mesh(ask)

    async def _mesh_later(self, ask: MeshRequest) -> MeshResponse:
        return self._mesh(await _in_a_moment(ask))

    def _mesh(self, ask: MeshRequest) -> MeshResponse:
        if not ask.domain:
            raise BadValue("domain", ask.domain, "name the domain")
        if not ask.descriptors:
            raise BadValue("descriptors", ask.descriptors, "send a descriptor")
        if ask.domain == "nowhere":
            raise BadValue("domain", ask.domain, "name one that there is")
        statuses = []
        for descriptor in ask.descriptors:
            cost = (ask.cost or 1) if descriptor.cost < 0 else descriptor.cost
            decision = self.limiter.take(repr(descriptor.entries), cost)
            limit = MeshLimit(LIMIT, MINUTE, "three")
            statuses.append(
                MeshStatus(not decision.allowed, limit, decision.remaining, decision.reset_after_us)
            )
        return MeshResponse(any(status.over for status in statuses), statuses)

    def throttle(self, ask: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        raise NotImplementedError

    def store(self, by: Identity) -> Store:
        raise NotImplementedError

    def serving(self) -> bool:
        return True


async def _in_a_moment(answer: T) -> T:
    await asyncio.sleep(0)
    return answer


async def bytes_of(answer: MaybeAwaitable[bytes]) -> bytes:
    """The bytes, whenever they come."""
    return await answer if isinstance(answer, Awaitable) else answer
