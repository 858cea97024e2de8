"""Calls: the parts of a client in their order, and the two loops that carry a call out.

`Call` decides and never waits: `enter` before each attempt, `leave` with its result, `close` at the
end. `call` of the client awaits between them and `call_now` blocks; nothing else differs, so there
is one client and no twin of it. `errors/registry.py` turns an exception of a transport into a
result; any other error is a bug, ends the permits of the attempt as cancelled, and passes through.

A plain function cannot be stopped: for it `attempt_us` bounds nothing but what it reads from
`Call.left_us`, as the transports do. A coroutine is cancelled when its time is over.

Threads may share a client: what its parts decide, they decide under one lock, which all clients of
a group share. It is never held while a call waits, and listeners are called outside of it.

Bounds: those of the parts. A call that has ended, or was cancelled, holds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event, Lock
from typing import Final, Protocol, TypeVar, cast, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.balance import BalancePermit
from sluicegate.policies.client.breaker import (
    Breaker,
    BreakerChange,
    BreakerListener,
    BreakerPermit,
)
from sluicegate.policies.client.call_result import OK, CallResult, ResultKind
from sluicegate.policies.client.client_throttle import ClientThrottle, ClientThrottlePermit
from sluicegate.policies.client.hedge import Hedge
from sluicegate.policies.client.retry import ATTEMPTS_SPENT, Retry, never_repeated
from sluicegate.policies.client.retry_budget import RetryBudgets
from sluicegate.resilience.client.attempt_timers import LoopTimers
from sluicegate.resilience.client.bypass import BYPASS
from sluicegate.resilience.client.race import ThreadRaces
from sluicegate.resilience.client.rejections import at_host, handed_on, last_word, rejection
from sluicegate.resilience.client.settings import ClientSettings
from sluicegate.resilience.context import served_request
from sluicegate.resilience.errors.registry import KNOWN_ERRORS, ErrorRules
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.subscribers import Subscribers
from sluicegate.system import SystemChance, SystemClock

T = TypeVar("T")


class CallObserver(Protocol):
    """What is shown each attempt when it has ended; `resilience/tracing.py` is one."""

    def record_attempt(
        self,
        request: Request,
        attempt: int,
        host: str,
        result: CallResult[object],
        began_us: int,
        now_us: int,
    ) -> None:
        """Take it; called outside of the lock. It may not raise."""
        ...


HOSTS_TRIED_MAX: Final = 3  # whose breakers refuse, before an attempt is refused

_TOO_LATE: Final = "the time of the attempt is over"
_CANCELLED: Final[CallResult[object]] = CallResult(ResultKind.CANCELLED)


@final
class Call:
    """One call under way, and what its attempt holds; `ResilientClient.begin` makes it."""

    __slots__ = (
        "_balance",
        "_began_us",
        "_begun",
        "_breaker",
        "_client",
        "_clock",
        "_idempotent",
        "_open",
        "_repeatable",
        "_throttle",
        "_tried",
        "_wait_us",
        "attempt",
        "host",
        "is_hedge",
        "request",
    )

    def __init__(
        self,
        client: ResilientClient,
        clock: Clock,
        request: Request,
        idempotent: bool,
        repeatable: bool,
    ) -> None:
        self._client = client
        self._clock = clock
        self._idempotent = idempotent
        self._repeatable = repeatable
        self._balance: BalancePermit | None = None
        self._breaker: BreakerPermit | None = None
        self._throttle: ClientThrottlePermit | None = None
        self._tried: list[str] = []  # the hosts of earlier attempts
        self._wait_us = 0
        self._began_us = 0  # for an observer
        self._begun = False
        self._open = True
        self.attempt = 0
        self.host = ""  # of this attempt, if there is a group to choose from
        self.is_hedge = False  # another attempt of this call runs
        self.request = request

    @property
    def makes_claims(self) -> bool:
        """Whether its requests say what is left, and how much they matter."""
        return self._client.settings.claims

    @property
    def left_us(self) -> int:
        """What this attempt may take from now on."""
        deadline_us = self.request.deadline_us
        attempt_us = self._client.settings.attempt_us
        if deadline_us is None:
            return attempt_us
        left_us = deadline_us - self._clock.now_us()
        return attempt_us if attempt_us < left_us else left_us if left_us > 0 else 0

    def timers(self) -> LoopTimers:
        """The timers of the client on the running loop."""
        client, loop = self._client, asyncio.get_running_loop()
        if client.timers is None or client.timers.loop is not loop:
            client.timers = LoopTimers(loop)
        return client.timers

    def enter(self) -> CallResult[object] | None:
        """Admit the next attempt; a result, if it is refused here."""
        client = self._client
        now_us = self._clock.now_us()
        with client.lock:
            if not self._begun:
                self._begun = True
                client.retry.begin(self.request, now_us)
            refused = self._enter(now_us)
        if client.has_news():
            client.notify()
        if client.observer is not None and refused is None:
            self._began_us = now_us
        return refused

    def _enter(self, now_us: int) -> CallResult[object] | None:
        request, hosts = self.request, self._client.hosts
        if request.deadline_us is not None and now_us >= request.deadline_us:
            return rejection(Decision(False, 0, NEVER, 0, DEADLINE, "client"))
        if hosts is None:
            refusal = self._admit(request, now_us)
            return None if refusal is None else rejection(refusal)
        refusal = None
        for _ in range(HOSTS_TRIED_MAX):
            permit = hosts.balance.admit(request, now_us, self._tried)
            if isinstance(permit, Decision):
                return rejection(permit.with_marks(cause=hosts.failure))
            self._balance = permit
            self.host = permit.host
            self._tried.append(permit.host)
            refusal = self._admit(at_host(request, permit.host), now_us)
            if refusal is None:
                return None
            self._end(_CANCELLED, now_us)
        return None if refusal is None else rejection(refusal)

    def _admit(self, request: Request, now_us: int) -> Decision | None:
        """Hold the permits of an attempt; a refusal, and none is held."""
        if BYPASS.attempts:
            return None
        client = self._client
        throttle = client.throttle.admit(request, now_us)
        if isinstance(throttle, Decision):
            return throttle
        if isinstance(throttle, ClientThrottlePermit):
            self._throttle = throttle
        breaker = client.breaker.admit(request, now_us)
        if isinstance(breaker, Decision):
            self._end(_CANCELLED, now_us)
            return breaker
        if isinstance(breaker, BreakerPermit):
            self._breaker = breaker
        return None

    def leave(self, result: CallResult[T]) -> int:
        """End the attempt; how long to wait for the next, or `NEVER`, which ends the call."""
        client = self._client
        some = cast("CallResult[object]", result)
        if client.observer is not None:
            self._observe(client.observer, some)
        now_us = self._clock.now_us()
        with client.lock:
            self._end(some, now_us)
            wait_us = self._wait_after(result, now_us)
            if wait_us == NEVER and self._open:
                self._open = False
                client.retry.end()
        self._wait_us = wait_us
        self.attempt += 1
        if client.has_news():
            client.notify()
        return wait_us

    def _wait_after(self, result: CallResult[T], now_us: int) -> int:
        client = self._client
        attempt = self.attempt if self._repeatable else client.last_attempt(self.request)
        if not BYPASS.attempts:
            return client.retry.next_wait_us(
                result,
                self.request,
                attempt,
                now_us,
                idempotent=self._idempotent,
                previous_us=self._wait_us,
            )
        why = never_repeated(client.settings.retry, result, idempotent=self._idempotent)
        if not why and (not self._repeatable or attempt + 1 >= BYPASS.attempts):
            why = ATTEMPTS_SPENT
        if why and not result.ok:
            client.retry.give_up(result, why)
        return NEVER if why else 0

    def is_too_late(self, result: CallResult[T]) -> bool:
        """Whether the wait has used up the time."""
        with self._client.lock:
            return self._client.retry.is_too_late(result, self.request, self._clock.now_us())

    def beside(self) -> Call:
        """Return a hedge: a further attempt, with permits of its own, where no other has been."""
        found = Call(self._client, self._clock, self.request, self._idempotent, self._repeatable)
        found._begun = True
        found.attempt = self.attempt
        found.is_hedge = True
        found._tried = self._tried
        return found

    def finish(self, result: CallResult[object]) -> None:
        """End what this attempt holds, and judge nothing: whether it wins is not known yet."""
        if self._client.observer is not None:
            self._observe(self._client.observer, result)
        with self._client.lock:
            self._end(result, self._clock.now_us())
        self._client.notify()

    def lose(self) -> None:
        """Give the attempt up if it still runs: another has won, and this one was never answered.

        All that is known of its host is that it takes longer than it has had.
        """
        with self._client.lock:
            lost = self._balance
            if lost is not None:
                self._balance = None
                lost.end_late(self._clock.now_us())
        self.finish(_CANCELLED)

    def _observe(self, observer: CallObserver, result: CallResult[object]) -> None:
        """Show it the attempt, once: a race has shown each of its own."""
        if self._began_us == 0:
            return
        began_us, self._began_us = self._began_us, 0
        now_us = self._clock.now_us()
        observer.record_attempt(self.request, self.attempt, self.host, result, began_us, now_us)

    def close(self) -> None:
        """End the call, once; an attempt that has no result was cancelled."""
        if not self._open:
            return
        self._open = False
        with self._client.lock:
            self._end(_CANCELLED, self._clock.now_us())
            if self._begun:
                self._client.retry.end()
        self._client.notify()

    def _end(self, result: CallResult[object], now_us: int) -> None:
        if self._balance is not None:
            self._balance.end_with(result, now_us)
            self._balance = None
        if self._breaker is not None:
            self._breaker.end_with(result, now_us)
            self._breaker = None
        if self._throttle is not None:
            self._throttle.end_with(result, now_us)
            self._throttle = None


class ResilientClient:
    """The parts, and how a call goes through them; `hosts` are those of one service.

    `client.py` has the form of it that users make, with settings in seconds.
    """

    __slots__ = (
        "_changes",
        "_pause",
        "_races",
        "breaker",
        "clock",
        "errors",
        "hedge",
        "hosts",
        "lock",
        "observer",
        "retry",
        "settings",
        "throttle",
        "timers",
    )

    def __init__(
        self,
        settings: ClientSettings | None = None,
        hosts: HostGroup | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        pause: Callable[[float], object] | None = None,
        observer: CallObserver | None = None,
        errors: ErrorRules = KNOWN_ERRORS,
    ) -> None:
        self.observer = observer
        self.errors = errors
        self.settings = ClientSettings() if settings is None else settings
        self.hosts = hosts
        self.clock = SystemClock() if clock is None else clock
        chance = SystemChance() if chance is None else chance
        self._pause = _pause if pause is None else pause
        budgets = RetryBudgets(self.settings.retry_budget)
        self.retry = Retry(chance, self.settings.retry, budgets)
        self.throttle = ClientThrottle(chance, self.settings.throttle)
        self.breaker = Breaker(chance, self.settings.breaker)
        self.lock = Lock() if hosts is None else hosts.lock
        self.hedge = (
            None if self.settings.hedge is None else Hedge(budgets, self.settings.hedge, self.lock)
        )
        self._races = None if self.hedge is None else ThreadRaces(self.hedge, self.clock, self.lock)
        self.timers: LoopTimers | None = None  # of the loop that was used last
        self._changes: Subscribers[BreakerChange] = Subscribers()
        self.breaker.subscribe(self._changes.record)

    def refuse_hedges(self, driver: str) -> None:
        """Refuse a driver that sends one request at a time; a setting is never without effect."""
        if self.hedge is not None:
            remedy = f"leave [client.hedge] out for {driver}, which cannot send a request twice"
            raise BadValue("client.hedge", "a table", remedy)

    def subscribe(self, listener: BreakerListener) -> None:
        """Call it with every change of a breaker's state from now on, outside of the lock.

        `breaker.subscribe` calls within it: such a listener may not use the client.
        """
        self._changes.subscribe(listener)

    def has_news(self) -> bool:
        """Whether there may be changes to hand over; asked for with every call."""
        return bool(self._changes.events) or self.hosts is not None

    def notify(self) -> None:
        """Hand changes over to the listeners; called by whoever has let go of the lock."""
        self._changes.notify()
        if self.hosts is not None:
            self.hosts.notify()

    def begin(self, request: Request, *, idempotent: bool, repeatable: bool = True) -> Call:
        """Begin a call; the first deadline binds: of `timeout_us`, its own, of what is served.

        The last two are brought forward by the margin.
        """
        deadline_us = self.clock.now_us() + self.settings.timeout_us
        served, given_us = served_request(), request.deadline_us
        if given_us is not None:
            deadline_us = min(deadline_us, given_us - self.settings.margin_us)
        if served is not None and served.deadline_us is not None:
            deadline_us = min(deadline_us, served.deadline_us - self.settings.margin_us)
        request = request.copy()
        request.deadline_us = deadline_us
        return Call(self, self.clock, request, idempotent, repeatable)

    def deadline_us(self, left_us: int) -> int | None:
        """Return the deadline of a request that may take so long in all; None for -1."""
        return None if left_us < 0 else self.clock.now_us() + left_us + self.settings.margin_us

    def last_attempt(self, request: Request) -> int:
        """The number of the last attempt that a request of this class may make."""
        return self.settings.retry.attempts[request.criticality] - 1

    async def call(
        self,
        work: Callable[[Call], Awaitable[CallResult[T]]],
        request: Request,
        *,
        idempotent: bool = False,
        repeatable: bool = True,
        errors: ErrorRules | None = None,
    ) -> CallResult[T]:
        """Return the result of the last attempt; `work` is called for each with the call.

        Two attempts run at once only if hedging is set. `errors` replace the client's own.
        """
        hedge = self.hedge if idempotent and repeatable and not BYPASS.attempts else None
        rules = self.errors if errors is None else errors
        call = self.begin(request, idempotent=idempotent, repeatable=repeatable)
        try:
            result: CallResult[T] | None = None
            while True:
                refused = call.enter()
                if refused is not None:
                    return handed_on(last_word(result, refused))
                if hedge is None:
                    result = await _attempt(call, work, rules)
                else:
                    result = await self._hedged(hedge, call, work, rules)
                wait_us = call.leave(result)
                if wait_us == NEVER:
                    return result if result.kind is OK else handed_on(result)
                await asyncio.sleep(wait_us / 1_000_000)
                if call.is_too_late(result):
                    return handed_on(result)
        finally:
            call.close()

    async def _hedged(
        self,
        hedge: Hedge,
        call: Call,
        work: Callable[[Call], Awaitable[CallResult[T]]],
        rules: ErrorRules,
    ) -> CallResult[T]:
        """Make the attempt, and another beside it if it is late; each ends what it holds."""

        async def run(number: int) -> CallResult[T]:
            one = call if number == 0 else call.beside()
            if number > 0:
                refused = one.enter()
                if refused is not None:
                    return cast("CallResult[T]", refused)
            ended = _CANCELLED
            try:
                result = await _attempt(one, work, rules)
                ended = cast("CallResult[object]", result)
                return result
            finally:
                one.finish(ended)

        result = await hedge.call(run, call.request, self.clock, idempotent=True)
        call.lose()
        return result

    def call_now(
        self,
        work: Callable[[Call], CallResult[T]],
        request: Request,
        *,
        idempotent: bool = False,
        repeatable: bool = True,
        errors: ErrorRules | None = None,
    ) -> CallResult[T]:
        """Like `call`, for work that blocks; a hedge of it runs in a thread."""
        races = self._races if idempotent and repeatable and not BYPASS.attempts else None
        rules = self.errors if errors is None else errors
        call = self.begin(request, idempotent=idempotent, repeatable=repeatable)
        try:
            result: CallResult[T] | None = None
            while True:
                refused = call.enter()
                if refused is not None:
                    return handed_on(last_word(result, refused))
                if races is None:
                    result = _attempt_now(call, work, rules)
                else:
                    result = _hedged_now(races, call, work, rules)
                wait_us = call.leave(result)
                if wait_us == NEVER:
                    return result if result.kind is OK else handed_on(result)
                self._pause(wait_us / 1_000_000)
                if call.is_too_late(result):
                    return handed_on(result)
        finally:
            call.close()


async def _attempt(
    call: Call, work: Callable[[Call], Awaitable[CallResult[T]]], rules: ErrorRules
) -> CallResult[T]:
    timer = call.timers().start(call.left_us)
    try:
        return await work(call)
    except asyncio.CancelledError:
        if not timer.is_over():
            raise
        return CallResult(ResultKind.TIMED_OUT, error=TimeoutError(_TOO_LATE))
    except Exception as error:
        result = rules.result_of(error)
        if result is None:
            raise
        return cast("CallResult[T]", result)
    finally:
        timer.stop()


def _attempt_now(
    call: Call, work: Callable[[Call], CallResult[T]], rules: ErrorRules
) -> CallResult[T]:
    try:
        return work(call)
    except Exception as error:
        result = rules.result_of(error)
        if result is None:
            raise
        return cast("CallResult[T]", result)


def _hedged_now(
    races: ThreadRaces, call: Call, work: Callable[[Call], CallResult[T]], rules: ErrorRules
) -> CallResult[T]:
    """Like `_hedged`, in threads."""

    def run(number: int) -> CallResult[T]:
        one = call if number == 0 else call.beside()
        if number > 0:
            refused = one.enter()
            if refused is not None:
                return cast("CallResult[T]", refused)
        ended = _CANCELLED
        try:
            result = _attempt_now(one, work, rules)
            ended = cast("CallResult[object]", result)
            return result
        finally:
            one.finish(ended)

    result = races.run(run, call.request)
    call.lose()
    return result


def _pause(seconds: float) -> None:
    Event().wait(seconds)
