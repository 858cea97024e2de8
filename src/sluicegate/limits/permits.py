"""Permits: at most so many at once, for each key, in this process or in all of them.

    exports = Permits(5, expires_after_s=60, store_url="redis://localhost:6379/0")
    with exports.hold("customer:42"):
        ...

A rate limits how often work begins; this limits how much of it is under way. What is admitted holds
a permit until it is released or its time is over, so a process that dies holds no place for ever.
The store's own clock says when. The a-names are the same operations for asyncio.

Who waits stands in the line of its key in this process; the first of a line asks again when a
permit of this process is released, when the earliest may have expired, and where other processes
can release, every `poll_s`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count as numbers
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, final
from weakref import WeakSet

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.edge import seconds, share, text, whole
from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.contracts.must_await import must_await
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.reasons import CONCURRENCY_LIMITED, STORE_UNAVAILABLE
from sluicegate.kernels.verdict import NEVER
from sluicegate.limits.glass.break_glass import Glass, override_decision
from sluicegate.limits.hold import Hold, HoldDecorator
from sluicegate.limits.limiter import COST_MAX, MEMORY_URLS, check_key, check_store
from sluicegate.limits.permit import FixedPermitStore, KeyPermit, PermitStore
from sluicegate.limits.rule import Failure, term
from sluicegate.limits.wait_lines import (
    WAITERS_MAX_DEFAULT,
    ThreadTicket,
    Ticket,
    WaitLines,
    finish,
    task_ticket,
    ticket_on,
)
from sluicegate.limits.wrapper import CallCost, CallKey
from sluicegate.stores.memory.permits import KEYS_MAX_DEFAULT, MemoryPermits
from sluicegate.system import SystemChance
from sluicegate.system import now_us as system_now_us

if TYPE_CHECKING:
    from sluicegate.limits.permit_stores import Heartbeat, PermitStores

LIMIT_MAX: Final = 100_000
COUNT_MAX: Final = 1_000  # places of one permit
SPAN_S_MIN: Final = 0.001
SPAN_S_MAX: Final = 31_536_000.0  # a year
POLL_S_DEFAULT: Final = 0.1
_SPAN_REMEDY: Final = "give seconds, from 0.001 to a year"
_NAME_REMEDY: Final = "give some text without braces"
_BEATS: Final = 3  # renewals in the time after which a permit expires


@final
class Permits:
    """At most `limit` permits at once for each key.

    A permit that is not released ends after `expires_after_s`. `store_url` says where the places
    are: `memory:`, `redis://...`, `redis+cluster://...`, `redis+sentinel://...`. There, `name`
    keeps places of one kind apart from others of the same key; processes that share places say the
    same name, limit and expiry.

    `failure` says what happens when the store does not answer: `open` admits, `closed` refuses,
    `local` counts in this process against `local_share` of the limit. Such a decision is marked as
    degraded. `keys_max` bounds the keys with permits in this process, `waiters_max` the line for
    one key; `poll_s` is how often the first of a line asks a store that others share. `prefix`
    begins every key in it.

    `observer` is told of every decision. `glass`, where it is broken, admits without asking. With
    `open_store`, a store of one's own takes the place of a URL: it is called once an event loop.
    """

    def __init__(
        self,
        limit: int,
        *,
        expires_after_s: float = 60.0,
        store_url: str = "memory:",
        name: str | None = None,
        failure: str | Failure = Failure.OPEN,
        local_share: float = 1.0,
        keys_max: int = KEYS_MAX_DEFAULT,
        waiters_max: int = WAITERS_MAX_DEFAULT,
        poll_s: float = POLL_S_DEFAULT,
        prefix: str = "rate_limit",
        observer: Observer | None = None,
        glass: Glass | None = None,
        open_store: Callable[[], PermitStore] | None = None,
        clock: Clock | None = None,
    ) -> None:
        places = _whole("limit", limit, LIMIT_MAX)
        for field, span_s in (("expires_after_s", expires_after_s), ("poll_s", poll_s)):
            seconds(field, span_s, _SPAN_REMEDY, least=SPAN_S_MIN, most=SPAN_S_MAX)
        share("local_share", local_share)
        for field, bound in (("keys_max", keys_max), ("waiters_max", waiters_max)):
            whole(field, bound, 1, COST_MAX, "give a number, at least 1")
        check_store(store_url, prefix)
        self.limit_max = places
        self.name = f"{places}-at-once" if name is None else _name(name)
        self.expires_after_us = round(expires_after_s * 1e6)
        self.failure = term(Failure, "failure", failure)
        self._clock = clock
        self._observer = observer
        self._glass = glass
        self._poll_us = round(poll_s * 1e6)
        self._remote: PermitStores | None = None
        self._heartbeats: PermitStores | None = (
            None  # for heartbeats of threads, where no store is remote
        )
        if open_store is not None or store_url not in MEMORY_URLS:
            self._remote = self._open_remote(store_url, prefix, open_store)
            places = max(1, int(places * local_share))
        # The store itself, or what counts instead of it under `local`.
        self._memory = MemoryPermits(
            self.now_us, self.name, places, self.expires_after_us, keys_max=keys_max
        )
        self._fixed = FixedPermitStore(self._without_store)
        self._lines = WaitLines(self.now_us, waiters_max)
        # Of each key, who stands first in its line and may be asking.
        self._first: dict[str, Ticket] = {}
        self._first_lock = Lock()
        self._reset_after_fork()
        _instances.add(self)

    # Ask.

    def acquire(
        self, key: str, count: SupportsIndex = 1, *, wait_s: float | None = None
    ) -> KeyPermit:
        """Return a permit of `count` places for `key`; look whether it was admitted.

        With `wait_s`, wait up to so long for it; `float("inf")` waits without end.
        """
        key, places = _check(key, count)
        wait_us, began_us = _wait_us(wait_s), self.now_us()
        store = self.blocking
        if wait_us is None:
            permit = finish(self._acquire_once(store, key, places))
        else:
            ticket = ticket_on(self._clock, ThreadTicket())
            permit = finish(self._acquire_in_line(store, ticket, key, places, wait_us))
        return self._record(permit, began_us)

    def aacquire(
        self, key: str, count: SupportsIndex = 1, *, wait_s: float | None = None
    ) -> Coroutine[Any, Any, KeyPermit]:
        """`acquire`, for asyncio."""
        return must_await(self._aacquire(key, count, wait_s=wait_s), "Permits.aacquire")

    async def _aacquire(
        self, key: str, count: SupportsIndex = 1, *, wait_s: float | None = None
    ) -> KeyPermit:
        key, places = _check(key, count)
        wait_us, began_us = _wait_us(wait_s), self.now_us()
        store = self.here()
        if wait_us is None:
            permit = await self._acquire_once(store, key, places)
        else:
            ticket = ticket_on(self._clock, task_ticket())
            permit = await self._acquire_in_line(store, ticket, key, places, wait_us)
        return self._record(permit, began_us)

    def peek(self, key: str, count: SupportsIndex = 1) -> Decision:
        """Return what `acquire` would decide now; nothing is held by it."""
        return finish(self._peek_in(self.blocking, *_check(key, count)))

    def apeek(self, key: str, count: SupportsIndex = 1) -> Coroutine[Any, Any, Decision]:
        """`peek`, for asyncio."""
        return must_await(self._apeek(key, count), "Permits.apeek")

    async def _apeek(self, key: str, count: SupportsIndex = 1) -> Decision:
        return await self._peek_in(self.here(), *_check(key, count))

    # Around work.

    def hold(
        self,
        key: str,
        count: SupportsIndex = 1,
        *,
        wait_s: float | None = None,
        renew: bool = False,
    ) -> Hold:
        """A block, plain or async, that holds a permit; `Refused` is raised if there is none.

        With `renew`, a heartbeat keeps the permit from expiring while the block runs.
        """
        key, places = _check(key, count)
        wait_s = _check_wait(wait_s)
        return Hold(
            partial(self.acquire, key, places, wait_s=wait_s),
            partial(self.aacquire, key, places, wait_s=wait_s),
            self.heartbeat if renew else None,
            self.heartbeat_here if renew else None,
        )

    def limit(
        self, *, key: CallKey, count: CallCost = 1, wait_s: float | None = None, renew: bool = False
    ) -> HoldDecorator:
        """Hold a permit during each call of a function, plain or async; else raise `Refused`."""
        hold = partial(self.hold, wait_s=_check_wait(wait_s), renew=renew)
        return HoldDecorator(hold, key, count)

    def heartbeat(self, permit: KeyPermit) -> Heartbeat:
        """Renew a thread's permit until it ends, or until the heartbeat is stopped."""
        beats = self._remote or self._heartbeats
        if beats is None:
            from sluicegate.limits.permit_stores import PermitStores  # noqa: PLC0415

            beats = self._heartbeats = PermitStores(lambda: self._memory)
        return beats.beat(permit, self._beat_s())

    def heartbeat_here(self, permit: KeyPermit) -> Heartbeat:
        """`heartbeat`, as a task of the running loop."""
        from sluicegate.limits.permit_stores import Heartbeat  # noqa: PLC0415

        return Heartbeat(permit, permit.held_in(self.here()), self._beat_s())

    # For permits and for their tests.

    def now_us(self) -> int:
        """Return the instant of this process."""
        clock = self._clock
        return system_now_us() if clock is None else clock.now_us()

    @property
    def blocking(self) -> PermitStore:
        """The store as a thread asks it."""
        return self._memory if self._remote is None else self._remote.blocking

    def here(self) -> PermitStore:
        """Return the store of the running loop."""
        return self._memory if self._remote is None else self._remote.here()

    def wake(self, key: str) -> None:
        """A place of `key` may be free: have the first of its line ask."""
        ticket = self._first.get(key)
        if ticket is not None:
            try:
                ticket.wake()
            except RuntimeError:
                return  # its loop has ended while it waited

    def waiting(self) -> int:
        """Return how many wait in this process."""
        return self._lines.waiting()

    # The end.

    def close(self) -> None:
        """Close what threads have opened; what is held stays held until it ends."""
        for stores in (self._remote, self._heartbeats):
            if stores is not None:
                stores.close()

    async def aclose(self) -> None:
        """Close what this event loop and threads have opened."""
        if self._remote is not None:
            await self._remote.aclose()
        self.close()

    def __enter__(self) -> Permits:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Permits:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Inside.

    async def _acquire_once(self, store: PermitStore, key: str, count: int) -> KeyPermit:
        permit_id = f"{self._stem}-{next(self._numbers)}"
        sent_us = self.now_us()
        local: PermitStore | None = None if self._remote is not None else self._memory
        glass = self._glass
        if glass and glass.broken and glass.opening_for(self.name, key, sent_us):
            local = store = FixedPermitStore(self._let_through)
        try:
            decision = await store.acquire(key, permit_id, count)
        except Unavailable as error:
            local = self._fallback_store(error)
            decision = await local.acquire(key, permit_id, count)
            decision = decision.with_marks(degraded=True, cause=str(error))
        else:
            if self._remote is not None and self._remote.watch.away:
                self._remote.watch.answer()
        until_us = sent_us + self.expires_after_us
        return KeyPermit(self, local, permit_id, key, count, decision, until_us)

    async def _peek_in(self, store: PermitStore, key: str, count: int) -> Decision:
        try:
            return await store.look(key, count)
        except Unavailable as error:
            fallback = self._fallback_store(error)
            decision = await fallback.look(key, count)
            return decision.with_marks(degraded=True, cause=str(error))

    async def _acquire_in_line(
        self, store: PermitStore, ticket: Ticket, key: str, count: int, wait_us: int
    ) -> KeyPermit:
        """Stand in the line of `key` until there is a permit, or `wait_us` are over."""
        deadline_us = self.now_us() + wait_us
        permit: KeyPermit | None = None

        async def take() -> Decision:
            nonlocal permit
            # Before the store is asked: a release from then on is not missed.
            with self._first_lock:
                self._first[key] = ticket
            permit = await self._acquire_once(store, key, count)
            return self._with_pause(permit.decision, deadline_us)

        async def look() -> Decision:
            return await self._peek_in(store, key, count)

        try:
            decision = await self._lines.wait(key, ticket, take, look, wait_us)
        finally:
            with self._first_lock:
                if self._first.get(key) is ticket:
                    del self._first[key]
        # Who has never been first has never asked.
        if permit is not None:
            return permit
        return KeyPermit(self, None, "", key, count, decision, 0)

    def _with_pause(self, decision: Decision, deadline_us: int) -> Decision:
        """Return the decision, with how long to pause in place of when to come back.

        That a place may be free sooner than a refusal says is what one waits for.
        """
        left_us = deadline_us - self.now_us()
        retry_us = decision.retry_after_us
        if decision.allowed or retry_us == NEVER or left_us <= 0:
            return decision
        if self._remote is not None or decision.reason is not CONCURRENCY_LIMITED:
            retry_us = min(retry_us, self._poll_us) if retry_us > 0 else self._poll_us
        return Decision(
            False,
            decision.remaining,
            min(retry_us, left_us),
            decision.reset_after_us,
            decision.reason,
            decision.rule_id,
            limit=decision.limit,
        )

    def _fallback_store(self, error: Unavailable) -> PermitStore:
        """Who decides when the store does not."""
        if self._remote is not None:
            self._remote.watch.fail(error, self.failure)
        return self._memory if self.failure is Failure.LOCAL else self._fixed

    def _without_store(self) -> Decision:
        reason = STORE_UNAVAILABLE if self.failure is Failure.CLOSED else None
        return Decision(reason is None, 0, 0, 0, reason, self.name, limit=self.limit_max)

    def _let_through(self) -> Decision:
        return override_decision(self.name, self.limit_max)

    def _beat_s(self) -> float:
        return self.expires_after_us / 1e6 / _BEATS

    def _record(self, permit: KeyPermit, began_us: int) -> KeyPermit:
        if self._observer is not None:
            self._observer.record_decision(permit.decision, permit.key, began_us, self.now_us())
        return permit

    def _open_remote(
        self, store_url: str, prefix: str, open_store: Callable[[], PermitStore] | None
    ) -> PermitStores:
        try:
            # What needs asyncio is imported when it is wanted.
            from sluicegate.limits import permit_stores  # noqa: PLC0415

            if open_store is not None:
                return permit_stores.PermitStores(open_store)
            return permit_stores.open_permit_stores(
                store_url, prefix, self.name, self.limit_max, self.expires_after_us
            )
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("sluicegate"):
                raise
            raise MissingPackage(error.name, "redis") from None

    def _reset_after_fork(self) -> None:
        """Have names of one's own; also in a child, which would go on with its parent's."""
        draw = SystemChance().draw
        self._stem = f"{int(draw() * 2**53):x}{int(draw() * 2**53):x}"
        self._numbers = numbers(1)


def _check(key: str, count: SupportsIndex) -> tuple[str, int]:
    return str(check_key(key)), _whole("count", count, COUNT_MAX)


def _whole(field: str, value: SupportsIndex, most: int) -> int:
    places = value.__index__() if hasattr(value, "__index__") else 0
    if not 1 <= places <= most:
        raise BadValue(field, value, f"give a whole number from 1 to {most:,}")
    return places


def _name(name: str) -> str:
    if not text("name", name, _NAME_REMEDY) or "{" in name or "}" in name:
        raise BadValue("name", name, _NAME_REMEDY)
    return name


def _check_wait(wait_s: float | None) -> float | None:
    _wait_us(wait_s)  # a bad one is told here, not at the first call
    return wait_s


def _wait_us(wait_s: float | None) -> int | None:
    if wait_s is None:
        return None
    seconds("wait_s", wait_s, "give seconds, 0 or more; None does not wait")
    return int(min(wait_s, 1e9) * 1e6)


_instances: Final[WeakSet[Permits]] = WeakSet()


def _after_fork() -> None:
    for permits in [*_instances]:
        permits._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
