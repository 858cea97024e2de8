"""Service: what the doors ask of a limiter, passed to the part that decides it.

Envoy's requests and our own go by the rules in force, CL.THROTTLE by the rates that come along.
What is decided at once is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, final

from sluicegate.apps.limiter.ledger import ServiceLedger
from sluicegate.apps.limiter.throttle import Throttle
from sluicegate.apps.limiter.trial_rules import Trial
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
from sluicegate.limits.glass.break_glass import Glass
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.resources.service import Checker
from sluicegate.system import now_us

THROTTLE_RULE = "CL.THROTTLE"
_S_US = 1_000_000


class TrafficRecorder(Protocol):
    """Keeps requests and whether they were refused. It never waits, and never raises."""

    def note_check(self, request: CheckRequest, now_us: int, refused: bool) -> None:
        """Record a check."""

    def note_mesh(self, request: MeshRequest, now_us: int, refused: bool) -> None:
        """Record a request of Envoy's."""


@final
class LimiterService:
    """A `contracts.checks.RateLimits`.

    `trial` decides for a share of the callers, and `recorder` keeps requests, where there is one.
    `trial_checker` has what was leased under trials, also under those that have ended.
    """

    __slots__ = (
        "_checker",
        "_glass",
        "_ledger",
        "_mesh",
        "_serving",
        "_store",
        "_throttle_limits",
        "recorder",
        "trial",
        "trial_checker",
    )

    def __init__(
        self,
        mesh: Mesh,
        checker: Checker,
        throttle: Throttle,
        store: Store,
        ledger: ServiceLedger,
        serving: Callable[[], bool],
        glass: Glass | None = None,
    ) -> None:
        self._glass = glass
        self._mesh = mesh
        self._checker = checker
        self._throttle_limits = throttle
        self._store = store
        self._ledger = ledger
        self._serving = serving
        self.trial: Trial | None = None
        self.trial_checker: Checker | None = None
        self.recorder: TrafficRecorder | None = None

    def check(self, request: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """Decide and count."""
        if not by.may_check:
            by.require(Grant.CHECK)
        at_us = now_us()
        response = self._checker_for(request).check(request, at_us)
        return response if self.recorder is None else self._record_check(request, response, at_us)

    def check_each(
        self, requests: Sequence[CheckRequest], by: Identity
    ) -> MaybeAwaitable[Sequence[CheckResponse]]:
        """Decide several, each by itself, in order."""
        by.require(Grant.CHECK)
        if self.trial is None and self.recorder is None:
            return self._checker.check_each(requests, now_us())
        return self._check_each(requests, now_us())

    def peek(self, request: CheckRequest, by: Identity) -> MaybeAwaitable[CheckResponse]:
        """What `check` would response; nothing is counted."""
        by.require(Grant.CHECK)
        return self._checker_for(request).peek(request, now_us())

    async def reset(self, request: CheckRequest, by: Identity) -> int:
        """Forget what the rules for this request have counted; how many rules."""
        by.require(Grant.RESET)
        return await self._checker_for(request).reset(request)

    async def lease(self, request: CheckRequest, units: int, by: Identity) -> LeaseResponse:
        """Take up to so many units in advance."""
        by.require(Grant.LEASE)
        at_us = now_us()
        response = await self._checker_for(request).lease(request, units, at_us, holder=by.name)
        if self.recorder is not None and response.units:
            # One request for all of its cost: what is spent of it is not seen here.
            lease_request = CheckRequest(
                request.user_id,
                request.resource_path,
                headers=request.headers,
                cost=response.units,
                priority=request.priority,
            )
            self.recorder.note_check(lease_request, at_us, refused=False)
        return response

    async def give_back(self, lease_id: str, units: int, by: Identity) -> int:
        """Give back what was not spent; how much was accepted."""
        by.require(Grant.LEASE)
        accepted = await self._checker.give_back(lease_id, units, now_us(), holder=by.name)
        if not accepted and self.trial_checker is not None:
            accepted = await self.trial_checker.give_back(lease_id, units, now_us(), holder=by.name)
        return accepted

    def should_rate_limit(self, request: MeshRequest, by: Identity) -> MaybeAwaitable[MeshResponse]:
        """Envoy's question."""
        if not by.may_check:
            by.require(Grant.CHECK)
        at_us = now_us()
        trial = self.trial
        mesh = trial.mesh if trial is not None and trial.takes_mesh(request) else self._mesh
        response = mesh.should_rate_limit(request, at_us)
        return response if self.recorder is None else self._record_mesh(request, response, at_us)

    def throttle(self, request: ThrottleRequest, by: Identity) -> MaybeAwaitable[ThrottleResponse]:
        """CL.THROTTLE's question."""
        if not by.may_check:
            by.require(Grant.CHECK)
        began_us = now_us()
        glass = self._glass
        if glass and glass.broken and glass.opening_for(THROTTLE_RULE, request.key, began_us):
            limit = request.max_burst + 1
            response = ThrottleResponse(False, limit, limit, -1, 0)
            self._record_throttle(request, response, began_us, overridden=True)
            return response
        decided = self._throttle_limits.decide(request, began_us)
        if isinstance(decided, ThrottleResponse):
            self._record_throttle(request, decided, began_us)
            return decided
        return self._throttle_later(request, decided, began_us)

    async def _throttle_later(
        self, request: ThrottleRequest, response: MaybeAwaitable[ThrottleResponse], began_us: int
    ) -> ThrottleResponse:
        settled = response if isinstance(response, ThrottleResponse) else await response
        self._record_throttle(request, settled, began_us)
        return settled

    def _record_throttle(
        self,
        request: ThrottleRequest,
        response: ThrottleResponse,
        began_us: int,
        *,
        overridden: bool = False,
    ) -> None:
        reason = None
        retry_us = 0
        if response.limited:
            retry_us = response.retry_after_s * _S_US
            if response.degraded:
                reason = STORE_UNAVAILABLE
            elif retry_us < 0:
                reason, retry_us = COST_ABOVE_LIMIT, -1
            else:
                reason = RATE_LIMITED
        reset_us = response.reset_after_s * _S_US
        decision = Decision(
            not response.limited,
            response.remaining,
            retry_us,
            reset_us,
            reason,
            THROTTLE_RULE,
            response.degraded,
            overridden=overridden,
        )
        self._ledger.record_decision(
            request.key, THROTTLE_RULE, request.cost, DEFAULT_CRITICALITY, decision, began_us
        )

    def store(self, by: Identity) -> Store:
        """The store itself."""
        by.require(Grant.LEASE)
        return self._store

    def serving(self) -> bool:
        """Whether new work is welcome."""
        return self._serving()

    def _checker_for(self, request: CheckRequest) -> Checker:
        trial = self.trial
        return trial.checker if trial is not None and trial.takes_check(request) else self._checker

    async def _check_each(
        self, requests: Sequence[CheckRequest], at_us: int
    ) -> Sequence[CheckResponse]:
        """As the checker does it, where some are decided by the trial, or all are recorded."""
        self._checker.examine(requests)
        responses = [
            self._record_check(request, self._checker_for(request).check(request, at_us), at_us)
            for request in requests
        ]
        return await asyncio.gather(*[_settled(response) for response in responses])

    def _record_check(
        self, request: CheckRequest, response: MaybeAwaitable[CheckResponse], at_us: int
    ) -> MaybeAwaitable[CheckResponse]:
        if not isinstance(response, CheckResponse):
            return self._record_check_later(request, response, at_us)
        if self.recorder is not None and request.cost:
            self.recorder.note_check(request, at_us, not response.decision.allowed)
        return response

    async def _record_check_later(
        self, request: CheckRequest, response: Awaitable[CheckResponse], at_us: int
    ) -> CheckResponse:
        settled = await response
        self._record_check(request, settled, at_us)
        return settled

    def _record_mesh(
        self, request: MeshRequest, response: MaybeAwaitable[MeshResponse], at_us: int
    ) -> MaybeAwaitable[MeshResponse]:
        if not isinstance(response, MeshResponse):
            return self._record_mesh_later(request, response, at_us)
        if self.recorder is not None:
            self.recorder.note_mesh(request, at_us, response.over)
        return response

    async def _record_mesh_later(
        self, request: MeshRequest, response: Awaitable[MeshResponse], at_us: int
    ) -> MeshResponse:
        settled = await response
        self._record_mesh(request, settled, at_us)
        return settled


async def _settled(response: MaybeAwaitable[CheckResponse]) -> CheckResponse:
    return response if isinstance(response, CheckResponse) else await response
