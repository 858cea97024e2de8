"""Fallback: decides what a caller gets when a soft dependency fails.

A page can be served without its trends. So a dependency that is soft gets a limited time, and when
it fails the result is, in this order: the last good one if it is not older than `stale_us_max`,
then the caller's default, then the failure. A stand-in is never passed off as the real thing: it is
an OK result with `degraded` set, the `age_us` of a stale value, and the failure's `error` still in
it; and it is counted.

A failure of CRITICAL work is not hidden: it stays the failure that it is, unless the settings say
`critical="mark"`; then it is marked like the others and counted apart. What is the caller's own
fault (REJECTED) or was given up (CANCELLED) has no stand-in either, and neither has a bug.

`timeout_us` bounds what a soft dependency may take, and never more than is left before the deadline
less `reserve_us`, which the caller needs for the rest of its work. A dependency that hangs is given
up; it cannot hold the caller.

Call `forget` after a write, or a stand-in could be older than the caller's own write. The table is
`kernels/lru_ttl.py`, counted in values.

Cost: a task a call if it has a time-out; a put to each good result. Bounds: `values_max` values;
what one weighs is the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.lru_ttl import LruTtl
from sluicegate.policies.client.attempts import Attempts
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of
from sluicegate.policies.client.retry import Work
from sluicegate.policies.keyed_table import KEYS_MAX
from sluicegate.policies.settings import check_ranges, one_of

T = TypeVar("T")

FAIL: Final = "fail"
MARK: Final = "mark"

REPLACED: Final = (
    ResultKind.FAILED,
    ResultKind.TIMED_OUT,
    ResultKind.UNREACHED,
    ResultKind.OVERLOADED,
    ResultKind.LIMITED,
)


@final
@dataclass(frozen=True, kw_only=True)
class FallbackSettings:
    """How long a soft dependency may take, and how old its stand-in may be; 0 is off for both."""

    timeout_us: int = ranged(500_000, 0, WAIT_US_MAX)
    reserve_us: int = ranged(0, 0, WAIT_US_MAX)
    stale_us_max: int = ranged(60_000_000, 0, WAIT_US_MAX)
    values_max: int = ranged(10_000, 1, KEYS_MAX)
    critical: str = FAIL

    def __post_init__(self) -> None:
        check_ranges("fallback", self)
        one_of("fallback.critical", self.critical, (FAIL, MARK))


class FallbackStats(NamedTuple):
    """Calls, those that went well, and what stood in for the others; `critical_marked` of them."""

    calls: int
    good: int
    stale: int
    defaulted: int
    failed: int
    critical_marked: int
    timed_out: int
    running: int
    values: int


class _StoredValue(NamedTuple, Generic[T]):
    """The value of a good result, and when it came."""

    value: T
    at_us: int


@final
class Fallback(Generic[T]):
    """Replaces the failures of soft dependencies."""

    __slots__ = (
        "_attempts",
        "_calls",
        "_critical_marked",
        "_defaulted",
        "_failed",
        "_good",
        "_stale",
        "_stored",
        "_timed_out",
        "settings",
    )

    def __init__(self, settings: FallbackSettings | None = None) -> None:
        self.settings = FallbackSettings() if settings is None else settings
        self._attempts = Attempts()
        # Each value counts as one byte, so the bound is a number of values.
        self._stored: LruTtl[_StoredValue[T]] = LruTtl(
            self.settings.values_max,
            ttl_us=max(self.settings.stale_us_max, 1),
            jitter=0.0,
            beta=0.0,
            overhead_bytes=0,
        )
        self._calls = self._good = self._stale = self._defaulted = self._failed = 0
        self._critical_marked = self._timed_out = 0

    async def call(
        self,
        work: Work[T],
        request: Request,
        clock: Clock,
        *,
        default: Callable[[], T] | None = None,
    ) -> CallResult[T]:
        """The dependency's result, or what stands in for it, marked."""
        epoch = self.begin(request)
        result = await self._call(work, request, clock)
        return self.end(request, epoch, result, clock.now_us(), default)

    def begin(self, request: Request) -> int:
        """Count a call, for whoever carries it out within `budget_us`; `end` takes what it returns.

        For threads, under one lock: only `default` runs what is not of this policy.
        """
        self._calls += 1
        return self._stored.begin(key_of_value(request))

    def end(
        self,
        request: Request,
        epoch: int,
        result: CallResult[T],
        now_us: int,
        default: Callable[[], T] | None,
    ) -> CallResult[T]:
        """Return the result, or what stands in for it."""
        if not result.ok:
            return self.stand_in(request, result, now_us, default)
        self._good += 1
        if self.settings.stale_us_max > 0 and not result.degraded:
            stored = _StoredValue(result.unwrap(), now_us)
            key = key_of_value(request)
            self._stored.put(key, stored, 1, epoch=epoch, now_us=now_us, draw=0.0)
        return result

    def time_out(self, budget_us: int) -> CallResult[T]:
        """Return the result of a call that has used up its budget."""
        self._timed_out += 1
        why = f"no answer in {budget_us} us" if budget_us > 0 else "no time was left to ask"
        return CallResult(ResultKind.TIMED_OUT, error=TimeoutError(why))

    def stand_in(
        self, request: Request, result: CallResult[T], now_us: int, default: Callable[[], T] | None
    ) -> CallResult[T]:
        """Return what the caller gets instead of a failure."""
        critical = request.criticality is Criticality.CRITICAL
        if result.kind not in REPLACED or (critical and self.settings.critical == FAIL):
            self._failed += 1
            return result
        _, stored = self._stored.get(key_of_value(request), now_us, 0.0)
        if stored is not None:
            self._stale += 1
            found = _degraded(stored.value, result)
            found.age_us = max(now_us - stored.at_us, 0)
        elif default is not None:
            self._defaulted += 1
            found = _degraded(default(), result)
        else:
            self._failed += 1
            return result
        self._critical_marked += critical
        return found

    def forget(self, request: Request) -> bool:
        """Drop the value kept for this request, and the fetch under way; call it after a write."""
        return self._stored.invalidate(key_of_value(request))

    def budget_us(self, request: Request, now_us: int) -> int | None:
        """How long the dependency may take; None if nothing bounds it."""
        timeout_us = self.settings.timeout_us
        remaining_us = request.remaining_us(now_us)
        if remaining_us is None:
            return timeout_us if timeout_us > 0 else None
        left_us = max(remaining_us - self.settings.reserve_us, 0)
        return min(timeout_us, left_us) if timeout_us > 0 else left_us

    def stats(self) -> FallbackStats:
        """What was decided so far, and how things stand."""
        return FallbackStats(
            self._calls,
            self._good,
            self._stale,
            self._defaulted,
            self._failed,
            self._critical_marked,
            self._timed_out,
            self._attempts.running,
            len(self._stored),
        )

    async def _call(self, work: Work[T], request: Request, clock: Clock) -> CallResult[T]:
        budget_us = self.budget_us(request, clock.now_us())
        if budget_us is None:
            return await result_of(work(0))
        if budget_us == 0:
            return self.time_out(0)
        task = self._attempts.start(work(0))
        try:
            await asyncio.wait([task], timeout=budget_us / 1_000_000)
            if task.done():
                return task.result()
        finally:
            self._attempts.give_up(task)
        return self.time_out(budget_us)


def key_of_value(request: Request) -> str:
    """Backend, operation, caller and key: a value kept for one caller is never another's."""
    shard, operation, caller = request.shard, request.operation, request.caller
    # With the lengths in front no two of them run into each other, whatever they contain.
    return f"{len(shard)} {len(operation)} {len(caller)} {shard}{operation}{caller}{request.key}"


def _degraded(value: T, result: CallResult[T]) -> CallResult[T]:
    found = CallResult(
        ResultKind.OK, value, error=result.error, retry_after_us=result.retry_after_us
    )
    found.degraded = True
    found.dont_retry = result.dont_retry
    found.stop_reason = result.kind.value
    return found
