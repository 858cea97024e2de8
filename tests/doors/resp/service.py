"""A rate-limit service as small as it can be, over the real stores; and who may ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluicegate.contracts.access import EVERY_GRANT, Grant, Identity
from sluicegate.contracts.checks import (
    CheckRequest,
    CheckResponse,
    LeaseResponse,
    MaybeAwaitable,
    MeshRequest,
    MeshResponse,
    ThrottleRequest,
    ThrottleResponse,
)
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Limit
from sluicegate.contracts.store import Charge, Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.memory.throttle import MemoryThrottle
from sluicegate.stores.redis.throttle import RedisThrottle
from sluicegate.testing import HandClock

LIMIT = Limit(5, period_us=60_000_000)
RULE = "encode_throttle a minute"


class Tokens:
    """Access by a table; `anonymous` is nobody, or everybody."""

    def __init__(
        self, tokens: Mapping[str, Identity] | None = None, *, everybody: bool = True
    ) -> None:
        self.tokens = dict(tokens or {})
        self.anonymous = Identity("", EVERY_GRANT) if everybody else None

    def by_token(self, token: str) -> Identity | None:
        return self.tokens.get(token)

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return Identity(names[0], EVERY_GRANT) if names and names[0] == "known" else None


class Service:
    """One rule for every user and resource, and CL.THROTTLE: here, or in a Redis."""

    def __init__(self, far: RedisThrottle | None = None) -> None:
        self.clock = HandClock()
        self.counts = MemoryStore(self.clock.now_us)
        self.near = MemoryThrottle(self.clock.now_us)
        self.far = far
        self.broken: BaseException | None = None
        self.request: list[CheckRequest] = []

    def throttle(self, request: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        by.require(Grant.CHECK)
        if self.broken is not None:
            raise self.broken
        if self.far is not None:
            return self.far.throttle(request)
        return self.near.throttle(request)

    async def check(self, request: CheckRequest, by: Identity) -> CheckResponse:
        by.require(Grant.CHECK)
        return await self._decided(request, True)

    async def peek(self, request: CheckRequest, by: Identity) -> CheckResponse:
        return await self._decided(request, False)

    def check_each(
        self, requests: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        raise NotImplementedError

    async def reset(self, request: CheckRequest, by: Identity) -> int:
        by.require(Grant.RESET)
        await self.counts.reset([self._charge(request)])
        return 1

    async def lease(self, request: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        by.require(Grant.LEASE)
        grant = await self.counts.take_some(self._charge(request), [units, 1])
        response = CheckResponse(grant.decision, LIMIT.count, Criticality.DEGRADED)
        return LeaseResponse("lease-1" if grant.units else "", grant.units, 1_999_999, response)

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        by.require(Grant.LEASE)
        return units if lease_id == "lease-1" else 0

    def should_rate_limit(self, request: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        raise NotImplementedError

    def store(self, by: Identity) -> Store:
        by.require(Grant.LEASE)
        if self.broken is not None:
            raise Unavailable("Redis", "it is gone")
        return self.counts

    def serving(self) -> bool:
        return True

    def _charge(self, request: CheckRequest) -> Charge:
        return Charge(RULE, LIMIT, request.user_id + request.resource_path, request.cost)

    async def _decided(self, request: CheckRequest, keep: bool) -> CheckResponse:
        self.request.append(request)
        if self.broken is not None:
            raise self.broken
        ruling = await self.counts.take([self._charge(request)], keep=keep)
        decision = ruling.decisions[0]
        status = "DEGRADED_MODE" if request.user_id == "shed" else ""
        return CheckResponse(
            decision, LIMIT.count, request.priority or Criticality.DEGRADED, status
        )
