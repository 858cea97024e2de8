"""Coalesce: many ask for the same answer, one fetch brings it.

Judges whether a fetch for this key is in the air already; who comes then waits for its answer.
Source: the in-flight reads of Airbnb's Mussel dispatchers (Gaonkar, Getz and Cho, 2025), which
attach new arrivals to the pending future. The seed says no more than that; what is added here is
what goes wrong otherwise.

- *Nobody's end is another's.* The fetch runs as a task of its own, the first to ask is a waiter
  like all others. A cancelled waiter leaves; the fetch is cancelled when the last one has left.
- *Each waiter has its own deadline,* and is refused with DEADLINE when it passes. The fetch has the
  greatest of them, and the highest criticality: its `Flight` carries both, as a `Request`, and they
  rise as waiters join. Else the patient would inherit the hurry of who came first, and the critical
  would wait behind bulk. `on_raise` is called, so that a queue can move it (`Queue.requeue`).
- *An error is shared once.* The flight leaves the table before anybody is told, so whoever asks
  again begins anew; each waiter gets an exception of its own. Nothing is retried, with one
  exception: a fetch that was refused (`Refused`) as what it was when it began, and had been
  raised since, is fetched once more as what it is.
- *A fetch that hangs holds nobody for ever.* Those who try again would join it again and keep it in
  the air. So who comes when it is overdue (`overdue_us`, and four times what is usual) begins a
  second one, and whichever lands first answers all; between two writes there are at most two.
- *A write parts the stream.* After `invalidate(key)` nobody joins the flight that began before;
  those in it had asked before the write was done. `Flight.void` tells the fetch not to fill a
  cache.

- *A crowd is told by and by.* Each of those who wait goes on in the turn of the loop in which it is
  told, so 64 are told in each: 1,280 refused scans at once kept the loop for 20 to 60 ms.

Not more than `waiters_max` wait for one flight: one more is refused, WAITERS_FULL. Where there are
`flights_max` in the air, another key is fetched by whoever asked, alone.

The key is the caller's business, and must hold all that changes the answer: who may see it, the
projection, the version. Exceptions are copied; one that cannot be is told as `Unavailable`, with
the original as its cause. One Coalesce belongs to one loop. What all of it has cost is the
leader's: charge followers as cached, and let them teach nothing.

Cost: a future a waiter, and a task a flight. Bounds: `flights_max` times `waiters_max`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.reasons import DEADLINE, WAITERS_FULL, Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.settings import check_ranges

COUNT_MAX: Final = 1 << 20
OVERDUE_US_MAX: Final = 86_400_000_000
OVERDUE_FACTOR: Final = 4
TOLD_A_TURN: Final = 64  # of those who wait for one flight
_RETRY_US_MIN: Final = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceSettings:
    """How many may wait for one answer, and how many answers may be in the air.

    `overdue_us` is the age at which a flight is helped by a second one; 0 is never.
    """

    name: str = "coalesce"
    waiters_max: int = ranged(10_000, 1, COUNT_MAX)
    flights_max: int = ranged(10_000, 1, COUNT_MAX)
    overdue_us: int = ranged(200_000, 0, OVERDUE_US_MAX)

    def __post_init__(self) -> None:
        check_ranges("coalesce", self)


class CoalesceStats(NamedTuple):
    """Levels now, counts since the beginning."""

    flights: int
    waiting: int
    flown: int
    joined: int
    alone: int  # fetched without a flight, because the table was full
    failed: int  # flights that ended in an error
    again: int  # flown once more, since they had come to matter more
    abandoned: int  # cancelled, because nobody waited any more
    refused: int  # WAITERS_FULL
    late: int  # DEADLINE
    relieved: int  # flights that were overdue, and helped by a second one


@final
class Flight(Generic[T]):
    """One fetch in the air; what the fetch is handed, and may read while it works."""

    __slots__ = (
        "begun_us",
        "finished",
        "initial_criticality",
        "key",
        "request",
        "task",
        "twin",
        "void",
        "waiters",
    )

    def __init__(self, key: str, request: Request, begun_us: int) -> None:
        self.key = key
        # A request of its own: the first one to ask may leave, and keeps what it claimed.
        self.request = request.copy()
        self.request.cost_ru = request.cost_ru
        self.begun_us = begun_us
        self.initial_criticality = request.criticality  # when the fetch began
        self.void = False  # the key has been written since: the answer must not be kept
        self.finished = False
        # In the order they came, which is the order they are told in.
        self.waiters: dict[asyncio.Future[T], None] = {}
        self.task: asyncio.Task[None] | None = None
        self.twin: Flight[T] | None = None  # the other one in the air for this key


@final
class Coalesce(Generic[T]):
    """The fetches that are in the air, by key."""

    __slots__ = (
        "_abandoned",
        "_again",
        "_alone",
        "_failed",
        "_flights",
        "_flown",
        "_joined",
        "_late",
        "_on_raise",
        "_refused",
        "_relieved",
        "_running",
        "_service_us",
        "_waiting",
        "settings",
    )

    def __init__(
        self, settings: CoalesceSettings, on_raise: Callable[[Request, int], object] | None = None
    ) -> None:
        self.settings = settings
        self._on_raise = on_raise
        self._flights: dict[str, Flight[T]] = {}  # those that may be joined
        self._running: set[Flight[T]] = set()
        self._waiting = 0
        self._service_us = 0
        self._flown = self._joined = self._alone = self._failed = self._again = 0
        self._abandoned = self._refused = self._late = self._relieved = 0

    async def share(
        self,
        key: str,
        request: Request,
        clock: Clock,
        fetch: Callable[[Flight[T]], Awaitable[T]],
    ) -> T:
        """The answer for `key`, from this fetch or from one that is in the air.

        Raise what the fetch raised, or `Refused`: the line is full, or the request's time is
        over.
        """
        now_us = clock.now_us()
        if request.remaining_us(now_us) == 0:
            self._late += 1
            raise Refused(self._refusal(DEADLINE, NEVER))
        flight = self._flights.get(key)
        if flight is None:
            flight = Flight(key, request, now_us)
            if len(self._running) >= self.settings.flights_max:
                self._alone += 1
                return await self._fetch_alone(flight, fetch, now_us)
            self._start(flight, clock, fetch)
        elif self._is_overdue(flight, now_us):
            self._relieved += 1
            twin = flight
            flight = Flight(key, request, now_us)
            flight.twin, twin.twin = twin, flight
            self._start(flight, clock, fetch)
        elif len(flight.waiters) >= self.settings.waiters_max:
            self._refused += 1
            retry_us = max(_RETRY_US_MIN, self._service_us - (now_us - flight.begun_us))
            raise Refused(self._refusal(WAITERS_FULL, retry_us))
        else:
            self._joined += 1
            self._raise_to(flight, request, now_us)
        return await self._wait(flight, request, now_us)

    def leader(self, key: str) -> Request | None:
        """What whoever asks for this key now would join, as it began; None if nothing."""
        flight = self._flights.get(key)
        return None if flight is None else flight.request

    def invalidate(self, key: str) -> bool:
        """The key has been written: nobody joins what began before. Call it before acknowledging.

        False if nothing was in the air.
        """
        flight = self._flights.pop(key, None)
        if flight is None:
            return False
        flight.void = True
        if flight.twin is not None:
            flight.twin.void = True
        return True

    def stats(self) -> CoalesceStats:
        """What it looks like now."""
        return CoalesceStats(
            len(self._running),
            self._waiting,
            self._flown,
            self._joined,
            self._alone,
            self._failed,
            self._again,
            self._abandoned,
            self._refused,
            self._late,
            self._relieved,
        )

    def _is_overdue(self, flight: Flight[T], now_us: int) -> bool:
        """Whether a second one is to begin: it takes too long, and there is but one."""
        overdue_us = self.settings.overdue_us
        age_us = now_us - flight.begun_us
        if overdue_us == 0 or age_us < overdue_us or flight.twin is not None:
            return False
        return (
            age_us >= OVERDUE_FACTOR * self._service_us
            and len(self._running) < self.settings.flights_max
        )

    async def _fetch_alone(
        self, flight: Flight[T], fetch: Callable[[Flight[T]], Awaitable[T]], now_us: int
    ) -> T:
        """Without a place in the table, but not without a deadline."""
        left_us = flight.request.remaining_us(now_us)
        if left_us is None:
            return await fetch(flight)
        try:
            async with asyncio.timeout(left_us / 1e6) as timer:
                return await fetch(flight)
        except TimeoutError:
            if not timer.expired():
                raise
            self._late += 1
            raise Refused(self._refusal(DEADLINE, NEVER)) from None

    def _start(
        self, flight: Flight[T], clock: Clock, fetch: Callable[[Flight[T]], Awaitable[T]]
    ) -> None:
        self._flown += 1
        self._flights[flight.key] = flight
        self._running.add(flight)
        flight.task = asyncio.get_running_loop().create_task(self._run(flight, clock, fetch))
        flight.task.add_done_callback(partial(self._release, flight))

    async def _run(
        self, flight: Flight[T], clock: Clock, fetch: Callable[[Flight[T]], Awaitable[T]]
    ) -> None:
        try:
            try:
                value = await fetch(flight)
            except Refused:
                if flight.request.criticality >= flight.initial_criticality:
                    raise
                self._again += 1
                value = await fetch(flight)
        except Exception as error:
            self._failed += 1
            self._finish(flight, clock)
            await _tell(flight, None, error)
        else:
            self._finish(flight, clock)
            await _tell(flight, value)
            # Nobody has joined the older one since this began, and nothing was written while both
            # could be joined: each answer is new enough for those who wait for the other.
            if flight.twin is not None:
                if self._flights.get(flight.key) is flight.twin:
                    del self._flights[flight.key]  # who wait for it are told now, and it goes
                await _tell(flight.twin, value)

    def _finish(self, flight: Flight[T], clock: Clock) -> None:
        """Out of the table, before anybody is told: who asks from now on begins anew."""
        flight.finished = True
        self._withdraw(flight)
        took_us = clock.now_us() - flight.begun_us
        if took_us > 0:
            self._service_us += (took_us - self._service_us) // 8

    def _withdraw(self, flight: Flight[T]) -> None:
        if self._flights.get(flight.key) is not flight:
            return
        twin = flight.twin
        if twin is None or twin.finished or twin.void:
            del self._flights[flight.key]
        else:  # the older one is still in the air, and is the one to join
            self._flights[flight.key] = twin

    def _release(self, flight: Flight[T], task: asyncio.Task[None]) -> None:
        """Only now its place in the air is free: a fetch may take long to let itself be cancelled.

        Somebody still waits if it was cancelled from outside, perhaps before it began.
        """
        flight.finished = True
        self._withdraw(flight)
        self._running.discard(flight)
        if flight.twin is not None:
            flight.twin.twin = None
            flight.twin = None
        for waiter in flight.waiters:
            if not waiter.done():
                waiter.set_exception(Unavailable("the shared fetch", "it was cancelled"))

    async def _wait(self, flight: Flight[T], request: Request, now_us: int) -> T:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        flight.waiters[waiter] = None
        self._waiting += 1
        timer: asyncio.TimerHandle | None = None
        left_us = request.remaining_us(now_us)
        if left_us is not None:
            timer = loop.call_later(left_us / 1e6, self._too_late, waiter)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting -= 1
            del flight.waiters[waiter]
            del waiter  # it holds the error, whose traceback holds this frame
            if not flight.waiters and not flight.finished:
                self._abandon(flight)

    def _too_late(self, waiter: asyncio.Future[T]) -> None:
        if not waiter.done():
            self._late += 1
            waiter.set_exception(Refused(self._refusal(DEADLINE, NEVER)))

    def _abandon(self, flight: Flight[T]) -> None:
        """Nobody waits; who comes next must not wait for a fetch that is being cancelled."""
        self._abandoned += 1
        self._withdraw(flight)
        if flight.task is not None:
            flight.task.cancel()

    def _raise_to(self, flight: Flight[T], request: Request, now_us: int) -> None:
        """Let the fetch matter as much, and live as long, as the most that waits for it."""
        shared = flight.request
        if shared.deadline_us is not None:
            if request.deadline_us is None:
                shared.deadline_us = None
            elif request.deadline_us > shared.deadline_us:
                shared.deadline_us = request.deadline_us
        if request.criticality < shared.criticality:
            shared.criticality = Criticality(request.criticality)
            if self._on_raise is not None:
                self._on_raise(shared, now_us)

    def _refusal(self, reason: Reason, retry_us: int) -> Decision:
        return Decision(False, 0, retry_us, max(0, retry_us), reason, self.settings.name)


async def _tell(flight: Flight[T], value: T | None, error: Exception | None = None) -> None:
    """Tell those who still wait, so many in each turn of the loop."""
    for at, waiter in enumerate([*flight.waiters]):
        if at and at % TOLD_A_TURN == 0:
            await asyncio.sleep(0)
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(cast("T", value))
        else:
            waiter.set_exception(_copy_error(error))


def _copy_error(error: Exception) -> Exception:
    """The same error, as an object of its own: each waiter adds its own traceback."""
    try:
        found = copy(error)
    except Exception:  # a constructor that wants other arguments may raise anything
        found = error
    if found is error or type(found) is not type(error):
        found = Unavailable("the shared fetch", repr(error))
    found.__cause__ = error
    return found
