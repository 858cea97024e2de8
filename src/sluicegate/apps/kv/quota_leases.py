"""Quota leases: the task that supplies a leased budget with blocks from the store.

The budget (`policies/quota/leased_budget.py`) decides what to request and what to do with the
result; this task carries both. All callers that lack units in one tick of the loop share a round;
meanwhile the others wait for the next. A request that finds its budget empty may wait for the
coming round, `wait_us` at most. If the block is late then, the store is slow: the caller has its
share in advance, as in an outage of the store, and is not rejected because of the delay.

When a whole round goes unanswered, the budget is told that the store is gone. Then it is probed
each `probe_us` by a request that takes nothing. A store that fails in part fails only the callers
there; each has its share for that epoch, and is requested again in the next.

Bounds: `callers_in_ask_max` a round, `waiters_max` waiters, `ask_timeout_us` for a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.members import Members
from sluicegate.apps.kv.store_watch import StoreWatch
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, PartialTake, Store
from sluicegate.policies.quota.leased_budget import BlockRequest, LeasedBudget
from sluicegate.policies.settings import within

LIMIT_ID: Final = "ru"
WATCHED: Final = "leases"  # as the store's watch knows this
PROBE: Final = "~probe"
LIMITS_MAX: Final = 10_000
# What a store raises when it cannot decide, or in time.
UNANSWERED: Final = (Unavailable, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLeasesSettings:
    """How blocks are requested."""

    # Of a request, for a round; 0: none waits. A busy store, or a busy machine, takes tens of
    # milliseconds for a round trip; beyond this the store counts as slow, and shares are lent.
    wait_us: int = 100_000
    ask_timeout_us: int = 250_000
    probe_us: int = 1_000_000
    callers_in_ask_max: int = 1_000
    waiters_max: int = 10_000

    def __post_init__(self) -> None:
        within("quota_leases.wait_us", self.wait_us, 0, 1_000_000)
        within("quota_leases.ask_timeout_us", self.ask_timeout_us, 1_000, 60_000_000)
        within("quota_leases.probe_us", self.probe_us, 1_000, 3_600_000_000)
        within("quota_leases.callers_in_ask_max", self.callers_in_ask_max, 1, 100_000)
        within("quota_leases.waiters_max", self.waiters_max, 1, 1 << 20)


class QuotaLeasesStats(NamedTuple):
    """Levels now, counts since the beginning."""

    alone: bool
    waiting: int
    rounds: int
    asked: int  # callers, over all rounds
    unanswered: int
    waited: int
    waited_in_vain: int
    lent: int  # times that a caller had its share in advance


@final
class QuotaLeases:
    """Keeps one budget supplied, in one event loop."""

    __slots__ = (
        "_alone",
        "_clock",
        "_edge_us",
        "_lent",
        "_limits",
        "_loop",
        "_members",
        "_probe_us",
        "_requested",
        "_rest",
        "_rounds",
        "_roused",
        "_store",
        "_unanswered",
        "_waited",
        "_waited_in_vain",
        "_waiters",
        "_waiting",
        "budget",
        "settings",
        "watch",
    )

    def __init__(
        self,
        budget: LeasedBudget,
        clock: Clock,
        *,
        store: Store | None = None,
        members: Members | None = None,
        settings: QuotaLeasesSettings | None = None,
    ) -> None:
        self.budget = budget
        self.settings = settings or QuotaLeasesSettings()
        self.watch: StoreWatch | None = None  # who hears whether the store answers
        self._clock = clock
        self._store = store
        self._members = members
        self._limits: dict[int, tuple[str, Limit]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._rest: asyncio.Future[None] | None = None
        self._roused = False
        self._waiters: dict[str, list[asyncio.Future[bool]]] = {}
        self._waiting = 0
        self._alone = False
        self._edge_us = self._probe_us = 0
        self._rounds = self._requested = self._unanswered = 0
        self._waited = self._waited_in_vain = self._lent = 0
        if store is None:
            budget.detach_store(clock.now_us())

    # What a request asks.

    def before(self, caller: str, now_us: int) -> Awaitable[bool] | None:
        """Before a request is judged: what to wait for; None, mostly, is nothing."""
        if self._loop is None or not self.budget.empty(caller, now_us):
            return None
        return self._wait(caller)

    def more(self, caller: str) -> Awaitable[bool] | None:
        """After `QUOTA_SPENT`: what to wait for before it is judged once more; None: it stands."""
        if self._loop is None or not self.budget.awaits_block(caller, self._clock.now_us()):
            return None
        return self._wait(caller)

    # The task.

    async def run(self) -> None:
        """Keep the budget supplied until cancelled."""
        self._loop = asyncio.get_running_loop()
        self.budget.on_request = self.rouse
        try:
            while True:
                rest_us = await self.turn()
                if rest_us > 0 and not self._roused:
                    await self._sleep(rest_us)
                self._roused = False
        finally:
            self.budget.on_request = None
            self._loop = None
            for caller in [*self._waiters]:
                self._wake(caller, False)

    async def turn(self) -> int:
        """Run one round: requests of an epoch's edge, then demand. Return the pause after it."""
        now_us = self._clock.now_us()
        if now_us >= self._edge_us:
            self._follow_members()
            self._edge_us = self.budget.renew(now_us)
        if self._store is not None:
            if self._alone:
                await self._probe(self._store, now_us)
            else:
                await self._ask(self._store, now_us)
        now_us = self._clock.now_us()
        until_us = self._edge_us
        if self._alone and self._probe_us < until_us:
            until_us = self._probe_us
        return max(until_us - now_us, 0)

    def rouse(self) -> None:
        """Begin a round soon; called amid a charge."""
        self._roused = True
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def stats(self) -> QuotaLeasesStats:
        """What it looks like now."""
        return QuotaLeasesStats(
            self._alone,
            self._waiting,
            self._rounds,
            self._requested,
            self._unanswered,
            self._waited,
            self._waited_in_vain,
            self._lent,
        )

    # Inside.

    async def _ask(self, store: Store, now_us: int) -> None:
        settings = self.settings
        requests = self.budget.block_requests(settings.callers_in_ask_max, now_us)
        if not requests:
            return
        self._rounds += 1
        self._requested += len(requests)
        answers = await self._collect(store, requests)
        heard_us = self._clock.now_us()
        replies = 0
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, BaseException):
                self.budget.fall_back(request, heard_us)
            else:
                replies += 1
                remaining = answer.decision.remaining
                self.budget.credit(request, answer.units, remaining, answer.at_us, now_us, heard_us)
            self._wake(request.caller, not isinstance(answer, BaseException))
        self._unanswered += len(requests) - replies
        if replies:
            self._record_answer()
        else:
            self._failed(next((one for one in answers if isinstance(one, UNANSWERED)), None))
            self._set_alone(True, heard_us)
        if len(requests) == settings.callers_in_ask_max:
            self._roused = True  # There may be more.

    async def _collect(
        self, store: Store, requests: list[BlockRequest]
    ) -> list[PartialTake | BaseException]:
        """One for each, and why where none came."""
        tasks = [
            asyncio.ensure_future(store.take_some(self._charge(request), request.ladder))
            for request in requests
        ]
        try:
            _, late = await asyncio.wait(tasks, timeout=self.settings.ask_timeout_us / 1e6)
        except BaseException:
            for ask in tasks:
                ask.cancel()
            raise
        for ask in late:
            ask.cancel()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(
                reply, (*UNANSWERED, asyncio.CancelledError)
            ):
                raise reply
        return replies

    async def _probe(self, store: Store, now_us: int) -> None:
        if now_us < self._probe_us:
            return
        self._probe_us = now_us + self.settings.probe_us
        rule_id, limit = self._limit(1)
        try:
            async with asyncio.timeout(self.settings.ask_timeout_us / 1e6):
                await store.take([Charge(rule_id, limit, PROBE, 0)], keep=False)
        except UNANSWERED as error:
            self._failed(error)
            return
        self._record_answer()
        self._set_alone(False, self._clock.now_us())

    def _failed(self, error: BaseException | None) -> None:
        if self.watch is not None:
            self.watch.failed(WATCHED, TimeoutError() if error is None else error)

    def _record_answer(self) -> None:
        if self.watch is not None:
            self.watch.answered(WATCHED)

    def _set_alone(self, alone: bool, now_us: int) -> None:
        self._alone = alone
        if alone:
            self._probe_us = now_us + self.settings.probe_us
            self.budget.detach_store(now_us)
            for caller in [*self._waiters]:
                self._wake(caller, True)  # Its share is there now.
        else:
            self.budget.attach_store(now_us)
            self._roused = True

    def _charge(self, request: BlockRequest) -> Charge:
        rule_id, limit = self._limit(request.quota_mru)
        return Charge(rule_id, limit, request.caller, request.ladder[0])

    def _limit(self, quota_mru: int) -> tuple[str, Limit]:
        """A quota as a store counts it; the id names it, so that equal ones are one limit."""
        entry = self._limits.get(quota_mru)
        if entry is None:
            if len(self._limits) >= LIMITS_MAX:
                self._limits.clear()
            epoch_us = self.budget.settings.epoch_us
            limit = Limit(quota_mru, period_us=epoch_us, algorithm=Algorithm.FIXED_WINDOW)
            entry = self._limits[quota_mru] = (f"{LIMIT_ID}-{quota_mru}-{epoch_us}", limit)
        return entry

    def _follow_members(self) -> None:
        if self._members is not None:
            self.budget.set_live(max(self._members.live(), 1))

    def _wait(self, caller: str) -> Awaitable[bool] | None:
        loop, wait_us = self._loop, self.settings.wait_us
        if loop is None or not wait_us or self._waiting >= self.settings.waiters_max:
            return None
        waiters = self._waiters.get(caller)
        if waiters is None:
            waiters = self._waiters[caller] = []
            loop.call_later(wait_us / 1e6, self._give_up, caller, waiters)
        waiter: asyncio.Future[bool] = loop.create_future()
        waiters.append(waiter)
        self._waiting += 1
        self._waited += 1
        return waiter

    def _give_up(self, caller: str, waiters: list[asyncio.Future[bool]]) -> None:
        if self._waiters.get(caller) is waiters:
            self._waited_in_vain += len(waiters)
            self._lent += 1
            self.budget.lend(caller, self._clock.now_us())
            self._wake(caller, True)

    def _wake(self, caller: str, answered: bool) -> None:
        for waiter in self._waiters.pop(caller, ()):
            self._waiting -= 1
            if not waiter.done():
                waiter.set_result(answered)

    async def _sleep(self, us: int) -> None:
        loop = asyncio.get_running_loop()
        self._rest = loop.create_future()
        timer = loop.call_later(us / 1e6, self.rouse)
        try:
            await self._rest
        finally:
            timer.cancel()
            self._rest = None
