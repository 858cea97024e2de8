"""Dependency: what a service calls, within places of its own, and with a stand-in if it is soft.

    trends = Dependency("trends", bulkhead, Fallback())
    result = await trends.call(fetch, "lamp", default=list)
    result.degraded  # the page shows what stands in, and says so

The places are those of one `Bulkhead` for all dependencies of a service: each has its cap, fixed or
found, and all have the pool. A call that finds none free is refused at once and nothing is begun.
The fallback is outside of the bulkhead: a full compartment is a failure like any other, and what
the fallback gives up for taking too long is cancelled, which gives its place back.

Its deadline is the first of that of the call and that of the request that is being served. Nothing
is begun after it: a hard one is refused then, and a soft one is done without.

`call` is for tasks of an event loop, `call_now` for threads, and both may share a bulkhead: what is
decided is decided under one lock, which is never held while a call waits or a default is made. What
blocks cannot be cancelled. So a soft call has a thread of its own, and its caller goes on when its
time is over; the thread keeps the place until its work has ended, so that of what hangs there are
never more threads than places. A hard one blocks its caller: give its driver a time-out.

Bounds: those of the bulkhead and of the fallback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Final, Generic, TypeVar, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.bulkhead import Bulkhead, BulkheadPermit
from sluicegate.policies.call_result import CallResult, result_of, result_of_error, result_of_value
from sluicegate.policies.deadline import refusal
from sluicegate.policies.fallback import Fallback
from sluicegate.resilience.context import served_request
from sluicegate.resilience.dependencies.threads import WorkThread, result_now
from sluicegate.system import SystemClock

T = TypeVar("T")

_LOCK: Final = Lock()  # of all bulkheads and fallbacks; what they decide takes microseconds
_DEFAULT: Final = object()


@final
class Dependency(Generic[T]):
    """One dependency of a service; hard without a fallback, soft with one."""

    __slots__ = ("_bulkhead", "_clock", "fallback", "name")

    def __init__(
        self,
        name: str,
        bulkhead: Bulkhead,
        fallback: Fallback[T] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.fallback = fallback
        self._bulkhead = bulkhead
        self._clock = SystemClock() if clock is None else clock

    async def call(
        self,
        work: Callable[[], Awaitable[T]],
        key: str = "",
        *,
        default: Callable[[], T] | None = None,
        criticality: Criticality = DEFAULT_CRITICALITY,
        deadline_us: int | None = None,
    ) -> CallResult[T]:
        """Return its result, or what stands in for it; a stale value is kept by `key`."""
        request = self._request(key, criticality, deadline_us)

        async def attempt(_: int) -> CallResult[T]:
            return await self._call(work, request)

        if self.fallback is None:
            return await attempt(0)
        return await self.fallback.call(attempt, request, self._clock, default=default)

    async def _call(self, work: Callable[[], Awaitable[T]], request: Request) -> CallResult[T]:
        permit = self._enter(request)
        if isinstance(permit, CallResult):
            return permit
        outcome = Outcome.IGNORE
        try:
            result = await result_of(ok_of(work()))
            outcome = result.outcome
            return result
        finally:
            self._leave(permit, outcome)

    def call_now(
        self,
        work: Callable[[], T],
        key: str = "",
        *,
        default: Callable[[], T] | None = None,
        criticality: Criticality = DEFAULT_CRITICALITY,
        deadline_us: int | None = None,
    ) -> CallResult[T]:
        """Like `call`, for work that blocks."""
        request = self._request(key, criticality, deadline_us)
        fallback = self.fallback
        if fallback is None:
            return self._call_now(work, request)
        with _LOCK:
            epoch = fallback.begin(request)
            budget_us = fallback.budget_us(request, self._clock.now_us())
        if budget_us is None:
            result = self._call_now(work, request)
        else:
            result = self._call_within(fallback, work, request, budget_us)
        marker = None if default is None else lambda: cast("T", _DEFAULT)
        with _LOCK:
            found = fallback.end(request, epoch, result, self._clock.now_us(), marker)
        if found.value is _DEFAULT and default is not None:
            found.value = default()
        return found

    def _call_now(self, work: Callable[[], T], request: Request) -> CallResult[T]:
        permit = self._enter(request)
        if isinstance(permit, CallResult):
            return permit
        return self._work_now(work, permit)

    def _call_within(
        self, fallback: Fallback[T], work: Callable[[], T], request: Request, budget_us: int
    ) -> CallResult[T]:
        """Work in a thread of its own, and wait for it no longer than that."""
        permit = self._enter(request) if budget_us > 0 else None
        if isinstance(permit, CallResult):
            return permit
        if permit is None:
            with _LOCK:
                return fallback.time_out(0)
        running = WorkThread(lambda: self._work_now(work, permit), self.name)
        try:
            running.start()
        except RuntimeError:  # no thread is to be had
            self._leave(permit, Outcome.IGNORE)
            raise
        result = running.wait(budget_us)
        if result is None:
            with _LOCK:
                return fallback.time_out(budget_us)
        return result

    def _work_now(self, work: Callable[[], T], permit: BulkheadPermit) -> CallResult[T]:
        outcome = Outcome.IGNORE
        try:
            result = result_now(work, self.name)
            outcome = result.outcome
            return result
        finally:
            self._leave(permit, outcome)

    def _request(self, key: str, criticality: Criticality, deadline_us: int | None) -> Request:
        served = served_request()
        if served is not None and served.deadline_us is not None:
            given_us = served.deadline_us
            deadline_us = given_us if deadline_us is None else min(deadline_us, given_us)
        return make_request(key, shard=self.name, criticality=criticality, deadline_us=deadline_us)

    def _enter(self, request: Request) -> BulkheadPermit | CallResult[T]:
        now_us = self._clock.now_us()
        permit: BulkheadPermit | Decision
        if request.remaining_us(now_us) == 0:
            permit = refusal()
        else:
            with _LOCK:
                permit = self._bulkhead.admit(request, now_us)
        if isinstance(permit, Decision):
            return cast("CallResult[T]", result_of_error(Refused(permit)))
        return permit

    def _leave(self, permit: BulkheadPermit, outcome: Outcome) -> None:
        with _LOCK:
            permit.end(outcome, self._clock.now_us())


async def ok_of(work: Awaitable[T]) -> CallResult[T]:
    """Await a value; it is the result of a call that went well."""
    return result_of_value(await work)
