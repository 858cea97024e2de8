"""Retry: judges whether a call that went wrong is sent again, and when.

`decide` is the judgement, a pure function; `Retry.call` carries it out. The checks run in this
order, and the first that fails ends it:

    the result     only what may be better next time: failures, time-outs, refusals of overload;
                   a quota's refusal only if it said when to come back
    the marks      the backend, or a retry below us, marked it `dont_retry`
    the work       what may have been begun is repeated only if it is idempotent
    the number     `attempts` of the request's class, the first one included
    the deadline   after the wait there must be `slack_us` left, or it would be done for nobody
    the budget     a share of the traffic (`retry_budget.py`), never a multiple of it

The wait is the kernel's (`kernels/backoff.py`): full jitter, and a Retry-After is the least it may
be, with jitter above it, so that callers with the same Retry-After do not all come at one instant.

Only one layer retries. Three layers of three attempts are 27 calls of the lowest; so a result that
leaves here unmended is marked `dont_retry`, and a retry above us, in this process or behind a door
that passes the mark on, lets it be. `stopped` says why there was no further attempt.

The seed's form, a smart client that does not repeat what was refused by back-pressure, is
`on_overload="never"`. By default such a call is repeated within the budget; with `"told"` only if
it said when to come back, as with a quota.

Cost: a look-up and an addition to each first call; the rest only when it goes wrong. Bounds:
`attempts` of each class, `wait_us_max`, the budget. Nothing is kept of a call that has ended or was
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import DEADLINE, RETRIES_SPENT
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX, Backoff, BackoffSettings
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.call_result import CallResult, ResultKind, result_of
from sluicegate.policies.client.retry_budget import RetryBudgets
from sluicegate.policies.settings import check_ranges, one_of, within, wrong_setting

T = TypeVar("T")
# Work is called with the number of the attempt, from 0.
Work = Callable[[int], Awaitable[CallResult[T]]]

RULE_ID: Final = "retry"
ATTEMPTS_MAX: Final = 100
CLASSES: Final = 4

WITHIN_BUDGET: Final = "budget"
NEVER_ON_OVERLOAD: Final = "never"
WHEN_TOLD: Final = "told"
_ON_OVERLOAD: Final = (WITHIN_BUDGET, WHEN_TOLD, NEVER_ON_OVERLOAD)

# Why there was no further attempt.
NOT_FOR_RETRY: Final = "not_for_retry"
MARKED_FINAL: Final = "dont_retry"
NOT_IDEMPOTENT: Final = "not_idempotent"
ATTEMPTS_SPENT: Final = "attempts"
TOO_LATE: Final = DEADLINE.name
BUDGET_SPENT: Final = RETRIES_SPENT.name


@final
@dataclass(frozen=True, kw_only=True)
class RetrySettings(BackoffSettings):
    """How often by class (CRITICAL first), and how long between."""

    attempts: tuple[int, ...] = (3, 3, 3, 1)
    slack_us: int = ranged(0, 0, WAIT_US_MAX)
    on_overload: str = WITHIN_BUDGET

    def __post_init__(self) -> None:
        check_ranges("retry", self)
        if len(self.attempts) != CLASSES:
            raise BadValue("retry.attempts", self.attempts, "give one number for each class")
        for number in self.attempts:
            within("retry.attempts", number, 1, ATTEMPTS_MAX)
        one_of("retry.on_overload", self.on_overload, _ON_OVERLOAD)
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None


class RetryStats(NamedTuple):
    """Calls, attempts of them all, calls that a retry mended, and why others were given up."""

    calls: int
    attempts: int
    mended: int
    inflight: int
    marked_final: int
    not_idempotent: int
    attempts_spent: int
    too_late: int
    budget_spent: int


class RetryPlan(NamedTuple):
    """Wait so long and try again; or, if `wait_us` is `NEVER`, stop, and why."""

    wait_us: int
    stopped: str


def never_repeated(settings: RetrySettings, result: CallResult[T], *, idempotent: bool) -> str:
    """Return why this result is never repeated; empty if it may be."""
    kind = result.kind
    if kind in {ResultKind.OK, ResultKind.REJECTED, ResultKind.CANCELLED}:
        return NOT_FOR_RETRY
    if result.dont_retry or (
        kind is ResultKind.OVERLOADED and settings.on_overload == NEVER_ON_OVERLOAD
    ):
        return MARKED_FINAL
    if result.retry_after_us <= 0 and (
        kind is ResultKind.LIMITED
        or (kind is ResultKind.OVERLOADED and settings.on_overload == WHEN_TOLD)
    ):
        return NOT_FOR_RETRY
    if result.may_have_run and not idempotent:
        return NOT_IDEMPOTENT
    return ""


def decide(
    settings: RetrySettings,
    backoff: Backoff,
    request: Request,
    result: CallResult[T],
    attempt: int,
    now_us: int,
    draw: float,
    *,
    idempotent: bool,
    previous_us: int = 0,
) -> RetryPlan:
    """Whether attempt number `attempt` is followed by another; all but the budget."""
    stopped = never_repeated(settings, result, idempotent=idempotent)
    if stopped:
        return RetryPlan(NEVER, stopped)
    if attempt + 1 >= settings.attempts[request.criticality]:
        return RetryPlan(NEVER, ATTEMPTS_SPENT)
    wait_us = backoff.wait_us(attempt, draw, hint_us=result.retry_after_us, previous_us=previous_us)
    if wait_us == NEVER:
        return RetryPlan(NEVER, MARKED_FINAL)
    deadline_us = request.deadline_us
    if deadline_us is not None and now_us + wait_us + settings.slack_us >= deadline_us:
        return RetryPlan(NEVER, TOO_LATE)
    return RetryPlan(wait_us, "")


@final
class Retry:
    """Repeats a call while that is likely to help and does no harm."""

    __slots__ = (
        "_attempts",
        "_backoff",
        "_calls",
        "_chance",
        "_inflight",
        "_mended",
        "_stopped",
        "budgets",
        "settings",
    )

    def __init__(
        self,
        chance: Chance,
        settings: RetrySettings | None = None,
        budgets: RetryBudgets | None = None,
    ) -> None:
        self.settings = RetrySettings() if settings is None else settings
        self.budgets = RetryBudgets() if budgets is None else budgets
        self._backoff = Backoff(self.settings)
        self._chance = chance
        self._calls = self._attempts = self._mended = self._inflight = 0
        self._stopped: dict[str, int] = {}

    async def call(
        self, work: Work[T], request: Request, clock: Clock, *, idempotent: bool = False
    ) -> CallResult[T]:
        """Return the last attempt's result; `work` is called for each with its number, from 0."""
        self.begin(request, clock.now_us())
        try:
            return await self._attempt(work, request, clock, idempotent)
        finally:
            self.end()

    def begin(self, request: Request, now_us: int) -> None:
        """Count a call and pay its deposit, for whoever carries out the attempts; `end` follows."""
        self._calls += 1
        self._inflight += 1
        self.budgets.deposit(request, now_us)

    def end(self) -> None:
        """The call that has begun is over, however it ended."""
        self._inflight -= 1

    def next_wait_us(
        self,
        result: CallResult[T],
        request: Request,
        attempt: int,
        now_us: int,
        *,
        idempotent: bool,
        previous_us: int = 0,
    ) -> int:
        """How long to wait before the next attempt; `NEVER`, and `result` is marked with why."""
        self._attempts += 1
        if result.ok:
            self._mended += attempt > 0
            return NEVER
        plan = decide(
            self.settings,
            self._backoff,
            request,
            result,
            attempt,
            now_us,
            self._chance.draw(),
            idempotent=idempotent,
            previous_us=previous_us,
        )
        stopped = plan.stopped
        if plan.wait_us != NEVER and not self.budgets.withdraw(request, now_us):
            stopped = BUDGET_SPENT
        if stopped:
            self.give_up(result, stopped)
            return NEVER
        return plan.wait_us

    def is_too_late(self, result: CallResult[T], request: Request, now_us: int) -> bool:
        """Whether the wait took too long, as where a loop was busy; `result` is marked if so."""
        deadline_us = request.deadline_us
        if deadline_us is None or now_us + self.settings.slack_us < deadline_us:
            return False
        self.give_up(result, TOO_LATE)
        return True

    async def _attempt(
        self, work: Work[T], request: Request, clock: Clock, idempotent: bool
    ) -> CallResult[T]:
        attempt = 0
        wait_us = 0
        while True:
            result = await result_of(work(attempt))
            wait_us = self.next_wait_us(
                result,
                request,
                attempt,
                clock.now_us(),
                idempotent=idempotent,
                previous_us=wait_us,
            )
            if wait_us == NEVER:
                return result
            if wait_us > 0:
                await asyncio.sleep(wait_us / 1_000_000)
                if self.is_too_late(result, request, clock.now_us()):
                    return result
            attempt += 1

    def stats(self) -> RetryStats:
        """What was decided so far."""
        stopped = self._stopped
        return RetryStats(
            self._calls,
            self._attempts,
            self._mended,
            self._inflight,
            stopped.get(MARKED_FINAL, 0),
            stopped.get(NOT_IDEMPOTENT, 0),
            stopped.get(ATTEMPTS_SPENT, 0),
            stopped.get(TOO_LATE, 0),
            stopped.get(BUDGET_SPENT, 0),
        )

    def give_up(self, result: CallResult[T], stopped: str) -> None:
        """Mark the result of a call that is not repeated, and count why."""
        self._stopped[stopped] = self._stopped.get(stopped, 0) + 1
        result.dont_retry = True
        if not result.stop_reason:
            result.stop_reason = stopped
