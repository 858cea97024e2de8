"""Dependency: a backend of a service, with its own slots, and with a fallback if it is soft.

    trends = Dependency("trends", Fallback(), slots=10)
    result = await trends.call(fetch, "lamp", default=list)
    result.degraded  # True if the page shows the fallback

A call that finds no free slot is rejected at once and nothing is begun. The fallback is outside of
the slots: a call without a slot is a failure like any other, and work that the fallback gives up
for taking too long is cancelled, which frees its slot. `soft.py` is the form for one function.

A hard dependency passes a bug through. A soft one replaces the result of any exception, and logs
the first of several in a row that no driver is known to raise.

Its deadline is the first of that of the call and that of the request that is being served. Nothing
is begun after it: a hard one is rejected then, and a soft one returns its fallback.

`call` is for tasks of an event loop and `call_now` for threads; both share the slots. Their
decisions are made under one lock, which is never held while a call waits or a default is made.
Work that blocks cannot be cancelled. So a soft call has its own thread, and its caller
continues when its time is over; the thread keeps the slot until its work has ended, so there are
never more threads than slots. A hard call blocks its caller: give its driver a time-out.

Bounds: `slots`, and those of the fallback.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Final, Generic, TypeVar, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BULKHEAD_FULL
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.client.call_result import CallResult, result_of_error
from sluicegate.policies.client.fallback import Fallback
from sluicegate.policies.settings import within
from sluicegate.resilience.context import deadline_refusal, served_request
from sluicegate.resilience.dependencies.results import (
    Reading,
    any_failure,
    result_now,
    result_of_work,
)
from sluicegate.resilience.dependencies.threads import WorkThread
from sluicegate.resilience.errors.registry import result_of_driver_error
from sluicegate.system import SystemClock

T = TypeVar("T")

SLOTS: Final = 40
SLOTS_MAX: Final = 1 << 20
_RETRY_US: Final = 1_000  # a slot is free whenever a call ends
_LOCK: Final = Lock()  # of all dependencies; a decision takes microseconds
_DEFAULT: Final = object()
_log: Final = logging.getLogger("sluicegate.resilience")


@final
class Dependency(Generic[T]):
    """One dependency of a service; hard without a fallback, soft with one."""

    __slots__ = ("_clock", "_in_a_row", "_reading", "fallback", "inflight", "name", "slots")

    def __init__(
        self,
        name: str,
        fallback: Fallback[T] | None = None,
        *,
        slots: int = SLOTS,
        clock: Clock | None = None,
    ) -> None:
        within(f"dependencies.{name}.slots", slots, 1, SLOTS_MAX)
        self.name = name
        self.fallback = fallback
        self.slots = slots
        self.inflight = 0
        self._in_a_row = False  # the last call has ended with a bug
        self._reading: Reading = result_of_driver_error if fallback is None else self._any_failure
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
        refused = self._enter(request)
        if refused is not None:
            return refused
        try:
            return self._note(await result_of_work(work(), self._reading))
        finally:
            self._leave()

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
        refused = self._enter(request)
        return self._work_now(work) if refused is None else refused

    def _call_within(
        self, fallback: Fallback[T], work: Callable[[], T], request: Request, budget_us: int
    ) -> CallResult[T]:
        """Work in a thread of its own, and wait for it no longer than that."""
        if budget_us <= 0:
            with _LOCK:
                return fallback.time_out(0)
        refused = self._enter(request)
        if refused is not None:
            return refused
        running = WorkThread(lambda: self._work_now(work), self.name)
        try:
            running.start()
        except RuntimeError:  # the process cannot start a thread
            self._leave()
            raise
        result = running.wait(budget_us)
        if result is None:
            with _LOCK:
                return fallback.time_out(budget_us)
        return result

    def _work_now(self, work: Callable[[], T]) -> CallResult[T]:
        try:
            return self._note(result_now(work, self.name, self._reading))
        finally:
            self._leave()

    def _note(self, result: CallResult[T]) -> CallResult[T]:
        if result.ok:
            self._in_a_row = False
        return result

    def _any_failure(self, error: Exception) -> CallResult[object]:
        if not self._in_a_row and result_of_driver_error(error) is None:
            self._in_a_row = True
            _log.warning("%s: replaced after an unknown error", self.name, exc_info=error)
        return any_failure(error)

    def _request(self, key: str, criticality: Criticality, deadline_us: int | None) -> Request:
        served = served_request()
        if served is not None and served.deadline_us is not None:
            given_us = served.deadline_us
            deadline_us = given_us if deadline_us is None else min(deadline_us, given_us)
        return make_request(key, shard=self.name, criticality=criticality, deadline_us=deadline_us)

    def _enter(self, request: Request) -> CallResult[T] | None:
        """Take a slot; return the rejection if none is free or the time is over."""
        if request.remaining_us(self._clock.now_us()) == 0:
            decision = deadline_refusal()
        else:
            with _LOCK:
                if self.inflight < self.slots:
                    self.inflight += 1
                    return None
            decision = Decision(False, 0, _RETRY_US, _RETRY_US, BULKHEAD_FULL, self.name)
        return cast("CallResult[T]", result_of_error(Refused(decision)))

    def _leave(self) -> None:
        with _LOCK:
            self.inflight -= 1
