"""Queue: who waits for one of a few places at work, in which order, and when it is refused.

Judges by time spent waiting, class and what is left before the deadline. Sources: the controlled
delay queue with adaptive LIFO of Maurer, "Fail at Scale" (2015), and folly's form of it, held until
the queue has emptied, which is the default; all are named in `rules.py`. Order is
`kernels/weighted_queue.py`: criticality first, inside it operations by weight, inside those in
line, or the newest first once it stands (`settings.py` says why the first is the default).

    a place is free and nobody waits    at work at once: two additions
    else                                the class is queued, and waits for a permit to end
    a permit ends                       the expired go, who stood too long goes, the next one begins

Who stands in line, and who has to go, is for the line book to say (`line_book.py`), which knows no
loop; here is the gate: the places, the permits, and the futures of those who wait.

Who leaves without a permit is refused at once, with a reason of its own: QUEUE_FULL, QUEUE_TIMEOUT
or DEADLINE.

A waiter is cancelled like any other task: queued, it goes; already given a place, the place goes to
the next. Nothing here waits for a permit to end: while somebody waits, one timer of the running
loop, every `sweep_us`, removes who has expired meanwhile. One queue belongs to one loop.

The number of places may come from elsewhere: `resize` it with the limit of `concurrency`.

Two queues may lend each other places (`lend_to`), so that class comes before the kind of work: a
place that is free goes to who waits at the borrower, if that matters more than all who wait here;
an idle one is lent to CRITICAL alone. It comes back when the permit ends, and what the work took is
learned by the queue that it waited in.

With `partition` a unit may be of a part that has a share of the places (`policies/partitions.py`):
while that has fewer than its share it begins at once, though all places are taken.

Cost: see above; waiting costs a future and what the book costs. Bounds: those of the book. A unit
that waits counts `WAITER_BYTES` and what `size_bytes` says of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePromptPolicy
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, Reason
from sluicegate.contracts.request import Request
from sluicegate.policies.partitions import Partition
from sluicegate.policies.queue.line_book import LineBook
from sluicegate.policies.queue.settings import PLACES_MAX, WAITER_BYTES, QueueSettings
from sluicegate.policies.queue.waiter import LineRemoval, Waiter
from sluicegate.policies.settings import within

__all__ = ["WAITER_BYTES", "Queue", "QueuePermit", "QueueSettings", "QueueStats"]


class QueueStats(NamedTuple):
    """Levels now, counts since the beginning."""

    places: int
    inflight: int
    queued: int
    queued_bytes: int
    admitted: int
    waited: int  # of those admitted
    refused_full: int
    refused_timeout: int
    refused_deadline: int
    cancelled: int
    overloaded: bool
    target_us: int
    slack_us: int


@final
class _Waiter(Waiter):
    """One unit in line; `future` brings its permit or its refusal."""

    __slots__ = ("future",)

    def __init__(
        self, request: Request, future: asyncio.Future[QueuePermit | Decision], now_us: int
    ) -> None:
        super().__init__(request, now_us)
        self.future = future


@final
class QueuePermit(BasePermit):
    """One place at work; `borrower` is who has it, if that is not the queue's own."""

    __slots__ = (
        "_begun_us", "_borrower", "_cost", "_open", "_partition", "_queue", "_unloaded",
        "waited_us",
    )  # fmt: skip

    def __init__(
        self,
        queue: Queue,
        begun_us: int,
        waited_us: int,
        unloaded: bool,
        cost: int,
        borrower: Queue | None = None,
        partition: Partition | None = None,
    ) -> None:
        if partition is not None:
            partition.inflight += 1
        self._partition = partition
        self._queue = queue
        self._cost = cost
        self._borrower = borrower
        self._begun_us = begun_us
        self._unloaded = unloaded
        self._open = True
        self.waited_us = waited_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the place to the next."""
        if not self._open:
            return False
        self._open = False
        queue, borrower = self._queue, self._borrower
        if spent and outcome is Outcome.SUCCESS:
            learner = queue if borrower is None else borrower
            learner.learn(now_us - self._begun_us, self._unloaded, now_us, self._cost)
        if borrower is not None:
            queue.lent -= 1
        partition = self._partition
        if partition is not None:
            partition.inflight -= 1
            (queue if borrower is None else borrower).serve_share(partition, now_us)
        queue.release(now_us)
        return True


@final
class Queue(BasePromptPolicy):
    """A few places, and a line in front of them."""

    __slots__ = (
        "_admitted", "_book", "_borrower", "_cancelled", "_full", "_late", "_lender", "_lends",
        "_partition", "_size_bytes", "_timed_out", "_timer", "_waited", "inflight", "lent",
        "settings",
    )  # fmt: skip

    def __init__(
        self,
        settings: QueueSettings,
        size_bytes: Callable[[Request], int] | None = None,
        *,
        group: Callable[[Request], str] | None = None,
        cost: Callable[[Request], int] | None = None,
        partition: Callable[[Request], Partition | None] | None = None,
    ) -> None:
        """Weigh by `size_bytes`; `group` names the line of a unit, `cost` what it is served by.

        `partition` says whose share of the places it may fall back on.
        """
        self.settings = settings
        self._size_bytes = size_bytes
        self._partition = partition
        self._book = LineBook(settings, group, cost)
        self._timer: asyncio.TimerHandle | None = None
        self._admitted = self._waited = self._full = self._timed_out = 0
        self._late = self._cancelled = 0
        self._borrower: Queue | None = None
        self._lender: Queue | None = None
        self._lends: Callable[[Criticality, int], int] | None = None
        self.inflight = 0
        self.lent = 0  # of them, to the borrower

    def lend_to(self, borrower: Queue, lends: Callable[[Criticality, int], int]) -> None:
        """Lend places to who matters more; `lends` says how many a class may have at this time."""
        self._borrower = borrower
        self._lends = lends
        borrower._lender = self

    @property
    def places(self) -> int:
        """How many may be at work."""
        return self._book.places

    @property
    def queued(self) -> int:
        """How many wait."""
        return self._book.waiting

    def queued_beside(self, request: Request) -> int:
        """How many of them in the line that this one would join, of all classes."""
        return self._book.waiting_beside(request)

    def owes(self, request: Request) -> bool:
        """Whether it is to be let in for its class, which is owed a unit and does not wait."""
        return self._book.owes(request)

    @property
    def standing(self) -> bool:
        """Whether a line stands by the queue's rule."""
        return self._book.standing

    @property
    def burst_units(self) -> int:
        """How many more may wait for the sake of bursts."""
        return self._book.burst_units

    @property
    def slack_us(self) -> int:
        """What the work takes, as far as deadlines are concerned."""
        return self._book.work.slack_us

    async def admit(self, request: Request, clock: Clock) -> QueuePermit | Decision:
        """Return a permit, now or when a place is free for this unit, or a refusal."""
        found = self.enter(request, clock.now_us())
        if not isinstance(found, _Waiter):
            return found
        self._watch(clock)
        partition = self._partition_of(request)
        if partition is not None:
            partition.join(found)
        try:
            return await found.future
        except asyncio.CancelledError:
            self._leave(found, clock.now_us())
            raise
        finally:
            if partition is not None:
                partition.forget(found)

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether a place is free, and then nobody waits; or one of its partition's share."""
        return self.inflight < self._book.places or self.has_share(request)

    def has_share(self, request: Request) -> bool:
        """Whether its partition has fewer places than its share."""
        partition = self._partition_of(request)
        return partition is not None and partition.inflight < partition.limit(self._book.places)

    def admit_now(self, request: Request, now_us: int) -> QueuePermit | Decision:
        """Take that place."""
        book = self._book
        if book.burst.counts:
            book.record_arrival(now_us)
        partition = None
        if self._partition is not None:  # a call less for each request where there are none
            partition = self._partition(request)
            if partition is not None and self.inflight >= book.places:
                return self._begin_beyond(request, partition, now_us, 0)
        self.inflight += 1
        self._admitted += 1
        book.saturation.record_free()
        unloaded = self.inflight * 2 <= book.places
        return QueuePermit(self, now_us, 0, unloaded, request.cost_ru, None, partition)

    def enter(self, request: Request, now_us: int) -> QueuePermit | Decision | _Waiter:
        """The same without waiting: a permit, a refusal, or the place in line that `admit` awaits.

        Whoever calls it runs in the loop, and calls `admit` instead if the answer may be to wait.
        """
        if self.ready(request, now_us):
            return self.admit_now(request, now_us)
        if self._lender is not None and request.criticality == Criticality.CRITICAL:
            permit = self._lender.lend_idle(request, now_us)
            if permit is not None:
                self._admitted += 1
                return permit
        return self._enqueue(request, now_us)

    def lend_idle(self, request: Request, now_us: int) -> QueuePermit | None:
        """Lend a place that nobody has, to what is CRITICAL."""
        if self.inflight >= self._book.places or not self._may_lend(Criticality.CRITICAL, now_us):
            return None
        return self._lend(request, now_us, 0)

    def record_missed(self, now_us: int) -> None:
        """Record a unit that was refused before it got here: it belongs to what comes."""
        self._book.record_missed(now_us)

    def release(self, now_us: int) -> None:
        """Free a place; called by a permit."""
        book = self._book
        self.inflight -= 1
        borrower = self._borrower
        if book.waiting or (borrower is not None and borrower.queued):
            self._serve(now_us)

    def serve_share(self, partition: Partition, now_us: int) -> None:
        """Let the next of a partition begin that has fewer places than its share."""
        removed: list[LineRemoval] = []
        while partition.inflight < partition.limit(self._book.places):
            waiter = cast("_Waiter | None", partition.next())
            if waiter is None:
                break
            partition.forget(waiter)
            if self._book.take(waiter, now_us, removed) and not waiter.future.done():
                self._waited += 1
                waited_us = max(0, now_us - waiter.queued_us)
                permit = self._begin_beyond(waiter.request, partition, now_us, waited_us)
                waiter.future.set_result(permit)
        self._refuse(removed)

    def replace_times(self, wait_us_max: int, line_us: int | None) -> None:
        """How long it waits at most, and in a line that is short; of who joins from now on."""
        self.settings = replace(self.settings, wait_us_max=wait_us_max, line_us=line_us)
        self._book.replace_times(self.settings)

    def resize(self, places: int, now_us: int) -> None:
        """Have so many places from now on; more of them begin at once, fewer as permits end."""
        within("queue.places", places, 1, PLACES_MAX)
        book = self._book
        book.places = places
        self._serve(now_us)

    def requeue(self, request: Request, now_us: int) -> bool:
        """Move a waiting unit to the class it is of now; False if it does not wait.

        It keeps its deadline and stands behind who was there: for a fetch that came to matter more.
        Looks at all who wait.
        """
        removed: list[LineRemoval] = []
        found = self._book.move(request, now_us, removed)
        self._refuse(removed)
        return found

    def sweep(self, now_us: int) -> None:
        """Refuse who has expired; the timer does so while somebody waits."""
        removed: list[LineRemoval] = []
        self._book.sweep(now_us, removed)
        self._refuse(removed)

    def delay_us(self, now_us: int) -> int:
        """How long the one that waits longest has waited; 0 if nobody does."""
        return self._book.delay_us(now_us)

    def learn(self, service_us: int, unloaded: bool, now_us: int, cost: int = 1) -> None:
        """Record how long the work took that cost so much; called by a permit."""
        self._book.learn(service_us, unloaded, now_us, cost, self.inflight - 1)

    def stats(self) -> QueueStats:
        """What it looks like now."""
        book = self._book
        return QueueStats(
            book.places,
            self.inflight,
            book.waiting,
            book.bytes,
            self._admitted,
            self._waited,
            self._full,
            self._timed_out,
            self._late,
            self._cancelled,
            book.standing,
            book.target_us,
            book.work.slack_us,
        )

    def _enqueue(self, request: Request, now_us: int) -> QueuePermit | Decision | _Waiter:
        waiter = _Waiter(request, asyncio.get_running_loop().create_future(), now_us)
        size = 0 if self._size_bytes is None else self._size_bytes(request)
        removed: list[LineRemoval] = []
        self._book.add(waiter, WAITER_BYTES + size, now_us, removed)
        self._refuse(removed)
        return waiter.future.result() if waiter.future.done() else waiter

    def _serve(self, now_us: int) -> None:
        """Fill the free places from the line, or from the borrower's."""
        book = self._book
        borrower = self._borrower
        removed: list[LineRemoval] = []
        while self.inflight < book.places:
            if borrower is not None and borrower.queued and self._serve_borrower(borrower, now_us):
                continue
            if not book.waiting:
                return
            waiter = book.next(now_us, removed)
            if removed:
                self._refuse(removed)
                removed.clear()
            if waiter is None:
                return
            self._begin(cast("_Waiter", waiter), now_us)

    def _serve_borrower(self, borrower: Queue, now_us: int) -> bool:
        """Whether somebody went on there, since nobody matters as much here."""
        first, own = borrower._book.first_class(), self._book.first_class()
        if first is None or (own is not None and own <= first):
            return False
        if own is None and first != Criticality.CRITICAL:
            return False
        if not self._may_lend(first, now_us):
            return False
        removed: list[LineRemoval] = []
        waiter = borrower._book.next(now_us, removed, floors=False)
        if removed:
            borrower._refuse(removed)
        if waiter is None:
            return False
        future = cast("_Waiter", waiter).future
        if not future.done():
            borrower._admitted += 1
            borrower._waited += 1
            waited_us = max(0, now_us - waiter.queued_us)
            future.set_result(self._lend(waiter.request, now_us, waited_us))
        return True

    def _may_lend(self, criticality: Criticality, now_us: int) -> bool:
        return self._lends is not None and self.lent < self._lends(criticality, now_us)

    def _lend(self, request: Request, now_us: int, waited_us: int) -> QueuePermit:
        if self._book.burst.counts:
            self._book.record_arrival(now_us)
        self.inflight += 1
        self.lent += 1
        borrower = self._borrower
        partition = None if borrower is None else borrower._partition_of(request)
        return QueuePermit(self, now_us, waited_us, False, request.cost_ru, borrower, partition)

    def _partition_of(self, request: Request) -> Partition | None:
        return None if self._partition is None else self._partition(request)

    def _begin_beyond(
        self, request: Request, partition: Partition, now_us: int, waited_us: int
    ) -> QueuePermit:
        """Begin by a partition's share, whatever else is at work."""
        self.inflight += 1
        self._admitted += 1
        return QueuePermit(self, now_us, waited_us, False, request.cost_ru, None, partition)

    def _begin(self, waiter: _Waiter, now_us: int) -> None:
        if waiter.future.done():  # Cancelled, and its task has not come to say so yet.
            return
        self.inflight += 1
        self._admitted += 1
        self._waited += 1
        waited_us = max(0, now_us - waiter.queued_us)
        cost = waiter.request.cost_ru
        partition = self._partition_of(waiter.request)
        permit = QueuePermit(self, now_us, waited_us, False, cost, None, partition)
        waiter.future.set_result(permit)

    def _refuse(self, removed: list[LineRemoval]) -> None:
        """Tell those who had to go."""
        for removal in removed:
            future = cast("_Waiter", removal.waiter).future
            if future.done():
                continue
            self._count(removal.reason)
            retry_us = removal.retry_us
            future.set_result(
                Decision(False, 0, retry_us, max(0, retry_us), removal.reason, self.settings.name)
            )

    def _count(self, reason: Reason) -> None:
        if reason is QUEUE_FULL:
            self._full += 1
        elif reason is DEADLINE:
            self._late += 1
        else:
            self._timed_out += 1

    def _leave(self, waiter: _Waiter, now_us: int) -> None:
        """Its task was cancelled: out of the line, or on with the place it was just given."""
        self._cancelled += 1
        future = waiter.future
        if future.done() and not future.cancelled():
            given = future.result()
            if isinstance(given, QueuePermit):
                given.end(Outcome.IGNORE, now_us, spent=False)
            return
        self._book.remove(waiter, now_us)

    def _watch(self, clock: Clock) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.settings.sweep_us / 1e6, self._tick, clock)

    def _tick(self, clock: Clock) -> None:
        self._timer = None
        self.sweep(clock.now_us())
        if self._book.waiting:
            self._watch(clock)
