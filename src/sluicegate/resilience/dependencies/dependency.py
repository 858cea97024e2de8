"""Dependency: what a service calls, within places of its own, and with a stand-in if it is soft.

    trends = Dependency("trends", bulkhead, Fallback())
    result = await trends.call(fetch, "lamp", default=list)
    result.degraded  # the page shows what stands in, and says so

The places are those of one `Bulkhead` for all dependencies of a service: each has its cap, fixed or
found, and all have the pool. A call that finds none free is refused at once and nothing is begun.
The fallback is outside of the bulkhead: a full compartment is a failure like any other, and what
the fallback gives up for taking too long is cancelled, which gives its place back.

For tasks of one event loop. Bounds: those of the bulkhead and of the fallback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.bulkhead import Bulkhead
from sluicegate.policies.call_result import CallResult, result_of, result_of_error, result_of_value
from sluicegate.policies.fallback import Fallback
from sluicegate.system import SystemClock

T = TypeVar("T")


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
        request = Request(key, shard=self.name, criticality=criticality, deadline_us=deadline_us)

        async def attempt(_: int) -> CallResult[T]:
            return await self._call(work, request)

        if self.fallback is None:
            return await attempt(0)
        return await self.fallback.call(attempt, request, self._clock, default=default)

    async def _call(self, work: Callable[[], Awaitable[T]], request: Request) -> CallResult[T]:
        permit = self._bulkhead.admit(request, self._clock.now_us())
        if isinstance(permit, Decision):
            return cast("CallResult[T]", result_of_error(Refused(permit)))
        outcome = Outcome.IGNORE
        try:
            result = await result_of(ok_of(work()))
            outcome = result.outcome
            return result
        finally:
            permit.end(outcome, self._clock.now_us())


async def ok_of(work: Awaitable[T]) -> CallResult[T]:
    """Await a value; it is the result of a call that went well."""
    return result_of_value(await work)
