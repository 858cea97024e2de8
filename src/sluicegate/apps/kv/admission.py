"""Admission: how work enters the policies of a dispatcher, and how its permit ends.

A permit ends exactly once: SUCCESS if the work was done, DROPPED if the engine did not answer,
IGNORE if the caller is gone or made a mistake. A caller whose budget is empty, while the store may
have more of its quota, waits a moment for it (`quota_leases.py`). Else only the queue makes anyone
wait.

The time of work is that of the engine: what our event loop was late while the engine worked is
taken off it (`loop_lateness.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar, final

from sluicegate.apps.kv.chain import PolicyChain
from sluicegate.apps.kv.loop_lateness import LoopLateness
from sluicegate.apps.kv.refusals import RefusalRing
from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT
from sluicegate.contracts.request import NO_ATTRIBUTES, Measured, Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.quota.work_shape import ROWS, SIZE
from sluicegate.policies.stack import StackPermit, StackStats, outcome_of

T = TypeVar("T")
# The block that was on its way may be of the epoch that has just ended; the next is of this one.
BLOCKS_AWAITED: Final = 2
LOST_S: Final = 60.0  # no engine works for so long on what nobody waits for
_TOO_LATE: Final = Decision(False, 0, NEVER, 0, DEADLINE, "deadline")


class Supply(Protocol):
    """Where more of a quota may come from; `quota_leases.QuotaLeases` is one."""

    def before(self, caller: str, now_us: int) -> Awaitable[bool] | None:
        """What to wait for before a request is judged; None, mostly, is nothing."""

    def more(self, caller: str) -> Awaitable[bool] | None:
        """What to wait for before one is judged once more; None: the refusal stands."""


class AdmissionSpans(Protocol):
    """Shows traced requests what became of them; `spans.WorkSpans` is one. It may not raise."""

    def refuse(self, request: Request, decision: Decision) -> None:
        """It was refused."""

    def refuse_cached(self, decision: Decision) -> None:
        """So was one that would have been answered from memory."""

    def serve_cached(self) -> None:
        """It was answered from memory."""


class AskedQuotas(Protocol):
    """Keeps what callers ask of their quotas; `quota_capture.CapturedBudget` is one."""

    def refuse(self, request: Request, decision: Decision, now_us: int) -> None:
        """It was refused, by whichever stage."""

    def refuse_cached(self, caller: str, mru: int, now_us: int) -> None:
        """So was one that would have been answered from memory."""


class AnswerMemory(Protocol):
    """What answers are served from."""

    def refuse(self, key: str) -> None:
        """Who has just found its answer here was refused it."""
        ...


@final
class Admission:
    """The way into one chain."""

    __slots__ = (
        "_abandoned",
        "_asked",
        "_chain",
        "_clock",
        "_lateness",
        "_mended",
        "_refusals",
        "_spans",
        "_stack",
        "_supply",
        "_watch",
    )

    def __init__(
        self,
        chain: PolicyChain,
        clock: Clock,
        supply: Supply | None,
        watch: StoreWatch | None = None,
        refusals: RefusalRing | None = None,
        spans: AdmissionSpans | None = None,
        asked: AskedQuotas | None = None,
        lateness: LoopLateness | None = None,
    ) -> None:
        """`watch` is told which operations the engine has answered, and which not."""
        self._refusals = refusals
        self._spans = spans
        self._asked = asked
        self._abandoned: set[StackPermit] = set()  # given up, while the engine goes on with it
        self._mended = 0  # refusals that did not stand, since more of the quota was on its way
        self._chain = chain
        self._lateness = lateness
        self._stack = chain.stack
        self._clock = clock
        self._supply = supply
        self._watch = watch

    def request(
        self,
        operation: str,
        table: str,
        key: str,
        shard: str,
        call: CallContext,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> Request:
        """Return the request as the policies see it."""
        deadline_us, default_us = call.deadline_us, self._chain.deadline_us
        if deadline_us is None and default_us:
            deadline_us = (call.arrived_us or self._clock.now_us()) + default_us
        claim = call.criticality if self._chain.classed else None
        return Request(
            key,
            caller=call.identity.name,
            criticality=DEFAULT_CRITICALITY if claim is None else claim,
            arrived_us=call.arrived_us,
            deadline_us=deadline_us,
            operation=operation,
            shard=shard,
            table=table,
            attributes=attributes,
        )

    def load(self, shard: str) -> float:
        """Return how busy a shard is: 1 if requests wait for it, or the engine does not answer.

        An engine in this process is as busy as the event loop, at least.
        """
        watch, chain = self._watch, self._chain
        if watch is not None and watch.down:
            return 1.0
        gate, pool = chain.gate, chain.pool
        if pool is not None:
            limit, inflight, queued = pool.slots, pool.inflight, pool.queued
        else:
            resource = None if gate is None else gate.resources.get(shard)
            if resource is None:
                return chain.busy_share
            limit, inflight, queued = resource.limit, resource.inflight, resource.queue.waiting
        if queued or inflight >= limit:
            return 1.0
        return max(inflight / limit, chain.busy_share)

    def at_once(self, request: Request, now_us: int) -> StackPermit | None:
        """Return a permit; None if the request has to wait, or it may pay; raises `Refused`."""
        supply = self._supply
        if supply is not None and supply.before(request.caller, now_us) is not None:
            return None
        if not self._stack.ready(request, now_us):
            return None
        verdict = self._stack.admit_now(request, now_us)
        if isinstance(verdict, StackPermit):
            return verdict
        if self._more(verdict, request.caller) is not None:
            self._mended += 1
            return None
        raise self._refused(request, verdict, now_us)

    async def later(self, request: Request) -> StackPermit:
        """The permit, after whatever has to be waited for; raises `Refused`."""
        supply = self._supply
        if supply is not None:
            coming = supply.before(request.caller, self._clock.now_us())
            if coming is not None:
                await self._pause(request, coming)
        verdict = await self._stack.admit(request, self._clock)
        for _ in range(BLOCKS_AWAITED):
            if not isinstance(verdict, Decision):
                break
            more = self._more(verdict, request.caller)
            if more is None or not await self._pause(request, more):
                break
            self._mended += 1
            verdict = await self._stack.admit(request, self._clock)
        if isinstance(verdict, Decision):
            raise self._refused(request, verdict, self._clock.now_us())
        return verdict

    async def _pause(self, request: Request, coming: Awaitable[bool]) -> bool:
        """Wait for what is no queue: it counts as arriving so much later."""
        began_us = self._clock.now_us()
        comes = await coming
        if request.arrived_us:
            request.arrived_us += self._clock.now_us() - began_us
        return comes

    def stats(self) -> StackStats:
        """The stack's counts, without the refusals that did not stand."""
        stats, mended = self._stack.stats(), self._mended
        return stats._replace(entered=stats.entered - mended, refused=stats.refused - mended)

    def _refused(self, request: Request, decision: Decision, now_us: int) -> Refused:
        """Count a refusal that stands."""
        self._chain.usage.refuse(request, decision)
        if self._asked is not None:
            self._asked.refuse(request, decision, now_us)
        return self._shown(request, decision, now_us)

    def _shown(self, request: Request, decision: Decision, now_us: int) -> Refused:
        if self._refusals is not None:
            self._refusals.record(request, decision, now_us)
        if self._spans is not None:
            self._spans.refuse(request, decision)
        return Refused(decision)

    def _more(self, verdict: Decision, caller: str) -> Awaitable[bool] | None:
        supply = self._supply
        if supply is None or verdict.reason is not QUOTA_SPENT:
            return None
        return supply.more(caller)

    # How it ends.

    async def at_work(self, permit: StackPermit, work: Awaitable[T]) -> T:
        """Await the work of a permit; end the permit if it fails, else the caller calls `done`."""
        before_us = self._late_us()
        try:
            result = await work
        except BaseException as error:
            self.failed(permit, error)
            raise
        permit.request.late_us = self._late_us() - before_us
        return result

    async def in_time(self, permit: StackPermit, work: Awaitable[T]) -> T:
        """The same for what changes nothing: it is given up at its deadline.

        The engine goes on with what it has begun, so the permit ends when that has.
        """
        before_us = self._late_us()
        left_us = permit.request.remaining_us(self._clock.now_us())
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task,), timeout=None if left_us is None else left_us / 1e6)
        except asyncio.CancelledError:
            self._chain.record_hung_up(permit, self._clock.now_us())
            self._abandon(permit, task, Outcome.IGNORE)
            raise
        if not task.done():
            self._abandon(permit, task, Outcome.DROPPED)
            raise self._shown(permit.request, _TOO_LATE, self._clock.now_us())
        permit.request.late_us = self._late_us() - before_us
        try:
            return task.result()
        except BaseException as error:
            self.failed(permit, error)
            raise

    def guarded(self, permit: StackPermit, work: Awaitable[T]) -> asyncio.Future[T]:
        """Work that goes on by itself, and whose permit ends even if it never begins.

        What was given up meanwhile keeps its place, as `in_time` says.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._release, permit))
        return task

    def done(self, permit: StackPermit, began_us: int, rows: int, size_bytes: int) -> None:
        """It was done, since then, and looked at so much."""
        now_us = self._clock.now_us()
        took_us = now_us - began_us - permit.request.late_us
        permit.request.measured = Measured(took_us if took_us > 0 else 1, rows, size_bytes)
        permit.end(Outcome.SUCCESS, now_us)
        watch = self._watch
        if watch is not None and watch.down:
            watch.answered(permit.request.operation)

    def failed(self, permit: StackPermit, error: BaseException) -> None:
        """It was not."""
        permit.end(outcome_of(error), self._clock.now_us())
        if self._watch is not None and isinstance(error, Unavailable):
            self._watch.failed(permit.request.operation, error)

    def cached(
        self,
        caller: str,
        now_us: int,
        asked: CallContext | Request,
        memory: AnswerMemory | None = None,
        key: str = "",
    ) -> None:
        """Charge for an answer without the engine; raises `Refused` if that cannot be paid.

        `memory` has counted it as served, and is told if it is not.
        """
        chain = self._chain
        spans = self._spans
        if spans is not None:
            spans.serve_cached()
        if not chain.layered:
            chain.usage.cached(caller, 0)
            return
        refusal = chain.units.charge_cached(caller, now_us)
        if refusal is not None:
            if self._more(refusal, caller) is None:
                if memory is not None:
                    memory.refuse(key)
                claim = asked.criticality if chain.classed else None
                member = DEFAULT_CRITICALITY if claim is None else claim
                chain.usage.refuse_cached(caller, member, refusal)
                if self._refusals is not None:
                    self._refusals.record_cached(caller, member, refusal, now_us)
                if spans is not None:
                    spans.refuse_cached(refusal)
                if self._asked is not None:
                    self._asked.refuse_cached(caller, chain.units.settings.cached_mru, now_us)
                raise Refused(refusal)
            chain.units.owe_cached(caller, now_us)  # more of its quota is on its way
        chain.usage.cached(caller, chain.units.settings.cached_mru)

    def refuse_shared(self, request: Request, decision: Decision, now_us: int) -> None:
        """Count the refusal of one that was refused with whom it shared a fetch."""
        self._chain.usage.refuse(request, decision)
        if self._refusals is not None:
            self._refusals.record(request, decision, now_us)

    def _late_us(self) -> int:
        return 0 if self._lateness is None else self._lateness.total_us(self._clock.now_us())

    def _abandon(self, permit: StackPermit, task: asyncio.Future[T], outcome: Outcome) -> None:
        """End the permit when the work has ended; an engine that never answers has lost it."""
        self._abandoned.add(permit)
        loop = asyncio.get_running_loop()
        lost = loop.call_later(LOST_S, self._end_abandoned, permit, task, outcome)

        def ended(_: asyncio.Future[T]) -> None:
            lost.cancel()
            self._end_abandoned(permit, task, outcome)

        task.add_done_callback(ended)

    def _end_abandoned(
        self, permit: StackPermit, task: asyncio.Future[T], outcome: Outcome
    ) -> None:
        if task.done() and not task.cancelled():
            task.exception()  # nobody else will ask for it
        self._abandoned.discard(permit)
        permit.end(outcome, self._clock.now_us())

    def _release(self, permit: StackPermit, _: asyncio.Future[T]) -> None:
        if permit not in self._abandoned:
            permit.end(Outcome.IGNORE, self._clock.now_us())  # nothing, if it has ended


def attributes_of(rows: int, size_bytes: int | None = None) -> dict[str, str]:
    """Return what is known of work before it is done, as the policies read it.

    Bytes that are not given are estimated, from what such work has weighed.
    """
    if size_bytes is None:
        return {ROWS: str(rows)}
    return {ROWS: str(rows), SIZE: str(size_bytes)}


def next_part(call: CallContext, request: Request) -> CallContext:
    """Return the context of a request's next part: the same deadline, a new arrival."""
    return CallContext(
        call.identity,
        criticality=call.criticality,
        deadline_us=request.deadline_us,
        strong=call.strong,
    )
