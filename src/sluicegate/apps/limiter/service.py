"""Service: what the doors ask, put together from its halves. It asks who may, and passes on.

The mesh's half and the native half decide by the rulebook in force, `Throttling` by the rates that
come along. Whatever is decided at once is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, final

from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.apps.limiter.throttling import Throttling
from sluicegate.apps.limiter.trial import Trial
from sluicegate.contracts.access import Grant, Identity
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
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, RATE_LIMITED, STORE_UNAVAILABLE
from sluicegate.contracts.store import Store
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.service import Checker
from sluicegate.system import now_us

THROTTLE_RULE = "CL.THROTTLE"
_S_US = 1_000_000


class Witness(Protocol):
    """One who keeps what was asked, and what came of it. It never waits, and never raises."""

    def note_check(self, ask: CheckRequest, now_us: int, refused: bool) -> None:
        """Somebody asked for a resource."""

    def note_mesh(self, ask: MeshRequest, now_us: int, refused: bool) -> None:
        """A mesh asked."""


@final
class LimiterService:
    """A `contracts.checks.RateLimits`.

    `trial` decides for a share of the callers, and `witness` keeps what is asked, if there is one.
    `beside` has what was leased under trials, also those that have ended.
    """

    __slots__ = (
        "_checker",
        "_ledger",
        "_mesh",
        "_serving",
        "_store",
        "_throttling",
        "beside",
        "trial",
        "witness",
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
        self.trial: Trial | None = None
        self.beside: Checker | None = None
        self.witness: Witness | None = None

    def check(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """Decide and count."""
        if not by.checks:
            by.must(Grant.CHECK)
        at_us = now_us()
        answer = self._checker_for(ask).check(ask, at_us)
        return answer if self.witness is None else self._seen(ask, answer, at_us)

    def check_each(
        self, asks: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        """Decide several, each by itself, in order."""
        by.must(Grant.CHECK)
        if self.trial is None and self.witness is None:
            return self._checker.check_each(asks, now_us())
        return self._check_each(asks, now_us())

    def peek(self, ask: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """What `check` would answer; nothing is counted."""
        by.must(Grant.CHECK)
        return self._checker_for(ask).peek(ask, now_us())

    async def reset(self, ask: CheckRequest, by: Identity) -> int:
        """Forget what the rules for this ask have counted; how many rules."""
        by.must(Grant.RESET)
        return await self._checker_for(ask).reset(ask)

    async def lease(self, ask: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        """Take up to so many units in advance."""
        by.must(Grant.LEASE)
        at_us = now_us()
        answer = await self._checker_for(ask).lease(ask, units, at_us, holder=by.name)
        if self.witness is not None and answer.units:
            # One ask of all its units: what is spent of them is not seen here.
            weighed = CheckRequest(
                ask.user_id,
                ask.resource_path,
                headers=ask.headers,
                cost=answer.units,
                priority=ask.priority,
            )
            self.witness.note_check(weighed, at_us, refused=False)
        return answer

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        """Give back what was not spent; how much was accepted."""
        by.must(Grant.LEASE)
        back = await self._checker.give_back(lease_id, units, now_us(), holder=by.name)
        if not back and self.beside is not None:
            back = await self.beside.give_back(lease_id, units, now_us(), holder=by.name)
        return back

    def should_rate_limit(self, ask: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        """Envoy's question."""
        if not by.checks:
            by.must(Grant.CHECK)
        at_us = now_us()
        trial = self.trial
        mesh = trial.mesh if trial is not None and trial.takes_mesh(ask) else self._mesh
        answer = mesh.should_rate_limit(ask, at_us)
        return answer if self.witness is None else self._seen_mesh(ask, answer, at_us)

    def throttle(self, ask: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        """CL.THROTTLE's question."""
        if not by.checks:
            by.must(Grant.CHECK)
        began_us = now_us()
        answer = self._throttling.ask(ask, began_us)
        if isinstance(answer, ThrottleResponse):
            self._note(ask, answer, began_us)
            return answer
        return self._throttled(ask, answer, began_us)

    async def _throttled(
        self, ask: ThrottleRequest, answer: MaybeAwaitable[ThrottleResponse], began_us: int
    ) -> ThrottleResponse:
        told = answer if isinstance(answer, ThrottleResponse) else await answer
        self._note(ask, told, began_us)
        return told

    def _note(self, ask: ThrottleRequest, answer: ThrottleResponse, began_us: int) -> None:
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
            not answer.limited,
            answer.remaining,
            retry_us,
            reset_us,
            reason,
            THROTTLE_RULE,
            answer.degraded,
        )
        self._ledger.record_decision(
            ask.key, THROTTLE_RULE, ask.cost, DEFAULT_CRITICALITY, decision, began_us
        )

    def store(self, by: Identity) -> Store:
        """The store itself."""
        by.must(Grant.LEASE)
        return self._store

    def serving(self) -> bool:
        """Whether new work is welcome."""
        return self._serving()

    def _checker_for(self, ask: CheckRequest) -> Checker:
        trial = self.trial
        return trial.checker if trial is not None and trial.takes_check(ask) else self._checker

    async def _check_each(
        self, asks: Sequence[CheckRequest], at_us: int
    ) -> Sequence[CheckResponse]:
        """As the checker does it, where some are decided by the trial, or all are witnessed."""
        self._checker.examine(asks)
        answers = [self._seen(ask, self._checker_for(ask).check(ask, at_us), at_us) for ask in asks]
        return await asyncio.gather(*[_told(answer) for answer in answers])

    def _seen(
        self, ask: CheckRequest, answer: MaybeAwaitable[CheckResponse], at_us: int
    ) -> MaybeAwaitable[CheckResponse]:
        if not isinstance(answer, CheckResponse):
            return self._seen_later(ask, answer, at_us)
        if self.witness is not None and ask.cost:
            self.witness.note_check(ask, at_us, not answer.decision.allowed)
        return answer

    async def _seen_later(
        self, ask: CheckRequest, answer: Awaitable[CheckResponse], at_us: int
    ) -> CheckResponse:
        told = await answer
        self._seen(ask, told, at_us)
        return told

    def _seen_mesh(
        self, ask: MeshRequest, answer: MaybeAwaitable[MeshResponse], at_us: int
    ) -> MaybeAwaitable[MeshResponse]:
        if not isinstance(answer, MeshResponse):
            return self._seen_mesh_later(ask, answer, at_us)
        if self.witness is not None:
            self.witness.note_mesh(ask, at_us, answer.over)
        return answer

    async def _seen_mesh_later(
        self, ask: MeshRequest, answer: Awaitable[MeshResponse], at_us: int
    ) -> MeshResponse:
        told = await answer
        self._seen_mesh(ask, told, at_us)
        return told


async def _told(answer: MaybeAwaitable[CheckResponse]) -> CheckResponse:
    return answer if isinstance(answer, CheckResponse) else await answer
