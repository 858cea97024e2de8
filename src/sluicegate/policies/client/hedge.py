"""Hedge: decides whether a late call is sent a second time while the first still runs.

Source: the hedged requests of Dean and Barroso, "The Tail at Scale" (2013). After the p95 of such
calls another is sent; the first result wins and the other is cancelled. One call in twenty is late
by that rule, so the tail is cut for 5 per cent more work.

What keeps it from doing harm:

    idempotent     else the work may be done twice
    the budget     shared with the retries (`retry_budget.py`): when everything slows down
                   everything is late, and hedging all of it would be the end
    the class      `least_class` and above; bulk work has time
    the deadline   a hedge that could not even be sent before it is not waited for
    the samples    no hedge before `samples_min` calls have ended

An error does not win while another attempt runs; but an error before the p95 is not hedged at once
either, that is the retry's business. What loses is entered in the p95 with the time it had taken
when it lost: of winners alone the p95 would shrink, and hedges grow, from call to call.

One policy may serve threads, each with a loop of its own: `guard` is held wherever it decides, and
never while an attempt runs. Who shares the budgets gives the lock that guards them.

Source of the p95: `kernels/windowed_quantile.py`, one for each backend and operation, of first
attempts; those that were refused or failed fast say nothing about it.

Cost: nothing but the p95 to calls that are not hedgeable; a task to each that is. Bounds:
`hedges_max` beside the first, `keys_max` sketches of at most 48 kB.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.kernels.backoff import WAIT_US_MAX
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.verdict import NEVER
from sluicegate.kernels.windowed_quantile import WINDOWS_MAX, Scale, WindowedQuantile
from sluicegate.policies.client.attempts import Attempts
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.retry import Work
from sluicegate.policies.client.retry_budget import RetryBudgets
from sluicegate.policies.keyed_table import KEYS_MAX, KeyedTable, key_of
from sluicegate.policies.settings import check_ranges, within

T = TypeVar("T")

HEDGES_MAX: Final = 10
SAMPLES_MAX: Final = 1 << 30
# Results whose time says when a call is late; None is an attempt that lost.
_TELLING: Final = (None, ResultKind.OK, ResultKind.REJECTED, ResultKind.TIMED_OUT)


@final
@dataclass(frozen=True, kw_only=True)
class HedgeSettings:
    """After which quantile, how often, and for whom."""

    quantile: float = 0.95
    samples_min: int = ranged(50, 1, SAMPLES_MAX)
    delay_us_min: int = ranged(1_000, 0, WAIT_US_MAX)
    delay_us_max: int = 10_000_000
    hedges_max: int = ranged(1, 0, HEDGES_MAX)
    least_class: Criticality = Criticality.DEGRADED
    windows: int = ranged(5, 1, WINDOWS_MAX)
    sub_window_us: int = ranged(2_000_000, 1, WAIT_US_MAX)
    refresh_us: int = ranged(250_000, 0, WAIT_US_MAX)
    keys_max: int = ranged(1_000, 1, KEYS_MAX)

    def __post_init__(self) -> None:
        check_ranges("hedge", self)
        if not 0.5 <= self.quantile < 1.0:
            raise BadValue("hedge.quantile", self.quantile, "give from 0.5 to below 1")
        within("hedge.delay_us_max", self.delay_us_max, self.delay_us_min, WAIT_US_MAX)


class HedgeStats(NamedTuple):
    """Calls; hedges sent, that won, and that the budget refused; attempts running; sketches."""

    calls: int
    hedges: int
    won: int
    budget_spent: int
    running: int
    keys: int
    untracked: int


@final
class _Entry:
    """The latency of one operation of one backend."""

    __slots__ = ("_computed_us", "_delay_us", "_settings", "latency", "used_us")

    def __init__(self, settings: HedgeSettings, scale: Scale) -> None:
        self._settings = settings
        self.latency = WindowedQuantile(settings.windows, settings.sub_window_us, scale)
        self.used_us = 0
        self._computed_us = -WAIT_US_MAX
        self._delay_us = NEVER

    def at_rest(self, now_us: int) -> bool:
        """Whether the window has forgotten all calls."""
        return now_us - self.used_us > self._settings.windows * self._settings.sub_window_us

    def add(self, took_us: int, now_us: int) -> None:
        """Count one call."""
        self.used_us = now_us
        self.latency.add(max(took_us, 0), now_us)

    def delay_us(self, now_us: int) -> int:
        """When a call is late, as of at most `refresh_us` ago; `NEVER` after too few calls."""
        settings = self._settings
        if now_us - self._computed_us >= settings.refresh_us:
            self._computed_us = now_us
            self._delay_us = NEVER
            if self.latency.count(now_us) >= settings.samples_min:
                late_us = self.latency.quantile(settings.quantile, now_us) or 0.0
                self._delay_us = min(
                    max(int(late_us), settings.delay_us_min), settings.delay_us_max
                )
        return self._delay_us


@final
class Hedge:
    """Sends a late call once more and takes the first result."""

    __slots__ = (
        "_attempts",
        "_budget_spent",
        "_calls",
        "_entries",
        "_guard",
        "_hedges",
        "_scale",
        "_won",
        "budgets",
        "settings",
    )

    def __init__(
        self,
        budgets: RetryBudgets,
        settings: HedgeSettings | None = None,
        guard: AbstractContextManager[object] | None = None,
    ) -> None:
        self._guard = nullcontext() if guard is None else guard
        self.settings = HedgeSettings() if settings is None else settings
        # First calls are paid in by who shares them (`Retry.call`), or with `budgets.deposit`.
        self.budgets = budgets
        self._attempts = Attempts()
        self._scale = Scale()
        self._entries: KeyedTable[_Entry] = KeyedTable(self.settings.keys_max)
        self._calls = self._hedges = self._won = self._budget_spent = 0

    def delay_us(self, request: Request, now_us: int, *, idempotent: bool) -> int:
        """How long the first attempt may take before another is sent; `NEVER` if none is."""
        settings = self.settings
        if not idempotent or settings.hedges_max == 0 or request.criticality > settings.least_class:
            return NEVER
        entry = self._entry_of(request, now_us)
        if entry is None:
            return NEVER
        delay_us = entry.delay_us(now_us)
        deadline_us = request.deadline_us
        if deadline_us is not None and now_us + delay_us >= deadline_us:
            return NEVER
        return delay_us

    async def call(
        self, work: Work[T], request: Request, clock: Clock, *, idempotent: bool = False
    ) -> CallResult[T]:
        """Return the first result; `work` is called for each attempt with its number, from 0."""
        began_us = clock.now_us()
        with self._guard:
            delay_us = self.begin(request, began_us, idempotent=idempotent)
        first = self._attempts.start(work(0))
        running = [first]
        try:
            return await self._race(work, request, clock, running, delay_us)
        finally:
            for task in running:
                self._attempts.give_up(task)
            with self._guard:
                self._learn(request, first, clock.now_us() - began_us, clock.now_us())

    def begin(self, request: Request, now_us: int, *, idempotent: bool) -> int:
        """Count a call; return when it is late, or `NEVER` if it is not hedged."""
        self._calls += 1
        return self.delay_us(request, now_us, idempotent=idempotent)

    async def _race(
        self,
        work: Work[T],
        request: Request,
        clock: Clock,
        running: list[asyncio.Task[CallResult[T]]],
        delay_us: int,
    ) -> CallResult[T]:
        """`running` holds every attempt, the first one first."""
        worst: CallResult[T] | None = None
        waiting = list(running)
        while True:
            hedges = len(running) - 1
            may_hedge = delay_us != NEVER and hedges < self.settings.hedges_max and worst is None
            done, _ = await asyncio.wait(
                waiting,
                timeout=delay_us / 1_000_000 if may_hedge else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in [task for task in waiting if task in done]:
                result = task.result()
                if result.kind is ResultKind.OK or result.kind is ResultKind.REJECTED:
                    self._won += task is not running[0]
                    return result
                worst = result
                waiting.remove(task)
            if not waiting and worst is not None:
                return worst
            if not done:
                with self._guard:
                    may_send = self.may_send(request, clock.now_us())
                if may_send:
                    task = self._attempts.start(work(hedges + 1))
                    running.append(task)
                    waiting.append(task)
                else:
                    delay_us = NEVER

    def stats(self) -> HedgeStats:
        """What was decided so far, and how things stand."""
        return HedgeStats(
            self._calls,
            self._hedges,
            self._won,
            self._budget_spent,
            self._attempts.running,
            len(self._entries),
            self._entries.untracked,
        )

    def may_send(self, request: Request, now_us: int) -> bool:
        """Take a hedge out of the budget; return False if the budget or the time is spent."""
        deadline_us = request.deadline_us
        if deadline_us is not None and now_us >= deadline_us:
            return False
        if not self.budgets.withdraw(request, now_us):
            self._budget_spent += 1
            return False
        self._hedges += 1
        return True

    def count_win(self) -> None:
        """A hedge was answered first."""
        self._won += 1

    def learn(self, request: Request, kind: ResultKind | None, took_us: int, now_us: int) -> None:
        """Enter what the first attempt took; `kind` is None if it lost and still runs."""
        if kind not in _TELLING:
            return
        entry = self._entry_of(request, now_us)
        if entry is not None:
            entry.add(took_us, now_us)

    def _learn(
        self, request: Request, first: asyncio.Task[CallResult[T]], took_us: int, now_us: int
    ) -> None:
        kind: ResultKind | None = None
        if first.done() and not first.cancelled():
            if first.exception() is not None:
                return
            kind = first.result().kind
        self.learn(request, kind, took_us, now_us)

    def _entry_of(self, request: Request, now_us: int) -> _Entry | None:
        key = key_of(request, by_operation=True, by_criticality=False)
        entry = self._entries.entries.get(key)
        if entry is None and self._entries.has_room(now_us):
            entry = _Entry(self.settings, self._scale)
            entry.used_us = now_us
            self._entries.entries[key] = entry
        return entry
