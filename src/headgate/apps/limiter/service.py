"""Service: what the doors ask, put together from its halves. It asks who may, and passes on.

The mesh's half and the native half decide by the rulebook in force, `Throttling` by the rates that
come along. Whatever is decided at once is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from headgate.apps.limiter.ledger import ServiceLedger
from headgate.apps.limiter.throttling import Throttling
from headgate.contracts.access import Grant, Identity
from headgate.contracts.checks import (
    CheckAnswer,
    CheckAsk,
    LeaseAnswer,
    MeshAnswer,
    MeshAsk,
    Soon,
    ThrottleAnswer,
    ThrottleAsk,
)
from headgate.contracts.criticality import DEFAULT_CRITICALITY
from headgate.contracts.decision import Decision
from headgate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED, STORE_UNAVAILABLE
from headgate.contracts.store import Store
from headgate.rules.mesh.service import Mesh
from headgate.rules.resources.service import Checker
from headgate.system import now_us

THROTTLE_RULE = "CL.THROTTLE"
_S_US = 1_000_000


@final
class LimiterService:
    """A `contracts.checks.RateLimits`."""

    __slots__ = (
        "_checker",
        "_ledger",
        "_mesh",
        "_serving",
        "_store",
        "_throttling",
    )

    def __init__(
        self,
        mesh: Mesh,
        checker: Checker,
        throttling: Throttling,
        store: Store,
        ledger: ServiceLedger,
        serving: Callable[[], bool],
    ) -> None:
        self._mesh = mesh
        self._checker = checker
        self._throttling = throttling
        self._store = store
        self._ledger = ledger
        self._serving = serving

    def check(self, ask: CheckAsk, by: Identity) -> Soon[CheckAnswer]:
        """Decide and count."""
        if not by.checks:
            by.must(Grant.CHECK)
        return self._checker.check(ask, now_us())

    def check_each(self, asks: Sequence[CheckAsk], by: Identity) -> Soon[Sequence[CheckAnswer]]:
        """Decide several, each by itself, in order."""
        by.must(Grant.CHECK)
        return self._checker.check_each(asks, now_us())

    def peek(self, ask: CheckAsk, by: Identity) -> Soon[CheckAnswer]:
        """What `check` would answer; nothing is counted."""
        by.must(Grant.CHECK)
        return self._checker.peek(ask, now_us())

    async def reset(self, ask: CheckAsk, by: Identity) -> int:
        """Forget what the rules for this ask have counted; how many rules."""
        by.must(Grant.RESET)
        return await self._checker.reset(ask)

    async def lease(self, ask: CheckAsk, units: int, by: Identity) -> LeaseAnswer:
        """Take up to so many units in advance."""
        by.must(Grant.LEASE)
        return await self._checker.lease(ask, units, now_us(), holder=by.name)

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        """Give back what was not spent; how much was accepted."""
        by.must(Grant.LEASE)
        return await self._checker.give_back(lease_id, units, now_us(), holder=by.name)

    def should_rate_limit(self, ask: MeshAsk, by: Identity) -> Soon[MeshAnswer]:
        """Envoy's question."""
        if not by.checks:
            by.must(Grant.CHECK)
        return self._mesh.should_rate_limit(ask, now_us())

    def throttle(self, ask: ThrottleAsk, by: Identity) -> Soon[ThrottleAnswer]:
        """CL.THROTTLE's question."""
        if not by.checks:
            by.must(Grant.CHECK)
        began_us = now_us()
        answer = self._throttling.ask(ask, began_us)
        if isinstance(answer, ThrottleAnswer):
            self._note(ask, answer, began_us)
            return answer
        return self._throttled(ask, answer, began_us)

    async def _throttled(
        self, ask: ThrottleAsk, answer: Soon[ThrottleAnswer], began_us: int
    ) -> ThrottleAnswer:
        told = answer if isinstance(answer, ThrottleAnswer) else await answer
        self._note(ask, told, began_us)
        return told

    def _note(self, ask: ThrottleAsk, answer: ThrottleAnswer, began_us: int) -> None:
        reason = None
        retry_us = 0
        if answer.limited:
            retry_us = answer.retry_after_s * _S_US
            if answer.degraded:
                reason = STORE_UNAVAILABLE
            elif retry_us < 0:
                reason, retry_us = COST_ABOVE_LIMIT, -1
            else:
                reason = RATE_LIMITED
        reset_us = answer.reset_after_s * _S_US
        decision = Decision(
            not answer.limited, answer.remaining, retry_us, reset_us, reason, THROTTLE_RULE
        )
        decision.degraded = answer.degraded
        self._ledger.decided(
            ask.key, THROTTLE_RULE, ask.quantity, DEFAULT_CRITICALITY, decision, began_us
        )

    def store(self, by: Identity) -> Store:
        """The store itself."""
        by.must(Grant.LEASE)
        return self._store

    def serving(self) -> bool:
        """Whether new work is welcome."""
        return self._serving()
