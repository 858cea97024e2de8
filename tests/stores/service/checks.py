"""A service for tests: one limit for each user, leases of it, and a store for limiters elsewhere.

It is what stands behind the RESP door in these tests. A lease is units taken from the user's limit
in advance, with an end by the service's clock; the limit is a fixed window, and a lease ends with
the window it was taken in. Everything is written down, so that a test can ask afterwards who was
granted what, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Store
from sluicegate.stores.memory.store import MemoryStore
from sluicegate.stores.memory.table import KeyTable


@dataclass
class Lent:
    """A lease as the service knows it."""

    user: str
    units: int
    at_us: int
    ends_us: int
    back: int = 0


@dataclass
class Checks:
    """A `contracts.checks.RateLimits`."""

    clock: Callable[[], int]
    limit: Limit = field(
        default_factory=lambda: Limit(100, period_us=60_000_000, algorithm=Algorithm.FIXED_WINDOW)
    )
    rule_id: str = "per-user"
    status: str = ""
    leasable: bool = True
    returns_leases: bool = True  # leases can be given back
    degraded: bool = False  # its own store is away, and its policy refuses for five seconds
    leases: dict[str, Lent] = field(default_factory=dict)
    asks: list[CheckRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = MemoryStore(self.clock)

    @property
    def table(self) -> KeyTable[object]:
        """What is counted."""
        return self.counts.table(self.rule_id, self.limit)

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        by.require(Grant.CHECK)
        self.asks.append(ask)
        return self._response(self.table.take(ask.user_id, ask.cost, self.clock()))

    def check_each(
        self, asks: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        raise Unavailable("this", "it is not for these tests")

    def peek(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        by.require(Grant.CHECK)
        return self._response(self.table.peek(ask.user_id, ask.cost, self.clock()))

    async def reset(self, ask: CheckRequest, by: Identity) -> int:
        by.require(Grant.RESET)
        self.table.reset(ask.user_id)
        return 1

    async def lease(self, ask: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        by.require(Grant.LEASE)
        now_us, user = self.clock(), ask.user_id
        if not self.leasable:
            return LeaseResponse("", 0, 0, self._response(self.table.peek(user, 0, now_us)))
        while True:
            decision = self.table.take(user, units, now_us)
            if decision.allowed or units == 1:
                break
            units //= 2
        if not decision.allowed:
            return LeaseResponse("", 0, 0, self._response(decision))
        lease_id = f"lease-{len(self.leases) + 1}"
        valid_us = self.limit.period_us - now_us % self.limit.period_us
        self.leases[lease_id] = Lent(user, units, now_us, now_us + valid_us)
        return LeaseResponse(
            lease_id if self.returns_leases else "", units, valid_us, self._response(decision)
        )

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        by.require(Grant.LEASE)
        lent, now_us = self.leases.get(lease_id), self.clock()
        if lent is None or now_us >= lent.ends_us:
            return 0
        units = min(units, lent.units - lent.back)
        lent.back += units
        self.table.settle(lent.user, -units, now_us, lent.at_us)
        return units

    def should_rate_limit(self, ask: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        raise Unavailable("this", "it is not for these tests")

    def throttle(self, ask: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        raise Unavailable("this", "it is not for these tests")

    def store(self, by: Identity) -> Store:
        by.require(Grant.LEASE)
        return self.counts

    def serving(self) -> bool:
        return True

    def _response(self, decision: Decision) -> CheckResponse:
        if self.degraded:
            decision = Decision(
                False,
                decision.remaining,
                5_000_000,
                decision.reset_after_us,
                decision.reason,
                decision.rule_id,
                degraded=True,
            )
        return CheckResponse(decision, self.limit.burst, DEFAULT_CRITICALITY, self.status)


@dataclass
class Doorman:
    """A `contracts.access.Access`: one token, or anybody."""

    token: str = ""
    grants: frozenset[Grant] = EVERY_GRANT

    @property
    def anonymous(self) -> Identity | None:
        return None if self.token else Identity("anybody", self.grants)

    def by_token(self, token: str) -> Identity | None:
        return Identity("the holder", self.grants) if token and token == self.token else None

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return None
