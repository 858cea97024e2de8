"""Queue: who waits for one of a few places at work, in which order, and when it is refused.

Judges by time spent waiting, class and what is left before the deadline. Sources: the controlled
delay queue with adaptive LIFO of Maurer, "Fail at Scale" (2015), and folly's form of it, held until
the queue has emptied, which is the default; all are named in `rules.py`. Order is
`kernels/weighted_queue.py`: criticality first, inside it operations by weight, inside those in
line, or the newest first once it stands (`settings.py` says why the first is the default).

    a place is free and nobody waits    at work at once: two additions
    else                                the class is queued, and waits for a permit to end
    a permit ends                       the expired go, who stood too long goes, the next one begins

Who leaves without a permit is refused at once, with a reason of its own. QUEUE_FULL: no room, or
pushed out by somebody who matters more. QUEUE_TIMEOUT: the rule, or `wait_us_max`. DEADLINE: what
is left is less than the work takes (p99 of what was measured here). Refusing only what has expired
already is worthless: at twice the load everything would be served a moment too late. Whose whole
time is less than twice the p99 may still wait for half of it: a tail must not shut out a short
deadline.

The target grows with the service time of an *unloaded* service, measured while at most half of the
places are taken; 5 ms is right for 10 ms of work, and sheds for nothing where it takes 100.

Both bounds leave room for bursts: where refusing has left places idle that the refused could have
used in time, all may wait for longer (`kernels/burst_allowance.py`), the newest first.

With `line_us` the line itself is short while the queue is saturated (`saturation.py`). Then what is
not CRITICAL stands in line no longer than `line_us` or one work takes, and no more of it than the
places serve in that time; who would be more is refused at once, the least important first.

A waiter is cancelled like any other task: queued, it goes; already given a place, the place goes to
the next. Nothing here waits for a permit to end: while somebody waits, one timer of the running
loop, every `sweep_us`, removes who has expired meanwhile. One queue belongs to one loop.

The number of places may come from elsewhere: `resize` it with the limit of `concurrency`.

Cost: see above; waiting costs a future and O(classes). Bounds: `length_max` and `bytes_max` over
all classes, `wait_us_max`, `WEIGHTS_MAX` operations. A unit that waits counts `WAITER_BYTES` and
what `size_bytes` says of it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUEUE_TIMEOUT, Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.adaptive_lifo import OVERFLOWED, QueueEntry
from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings
from sluicegate.kernels.verdict import NEVER
from sluicegate.kernels.weighted_queue import WeightedQueue
from sluicegate.kernels.windowed_quantile import WindowedQuantile
from sluicegate.policies.queue.saturation import Saturation
from sluicegate.policies.queue.settings import (
    PLACES_MAX,
    WAITER_BYTES,
    QueueSettings,
    queue_classes,
    rule_for,
)
from sluicegate.policies.settings import within

__all__ = ["WAITER_BYTES", "Queue", "QueuePermit", "QueueSettings", "QueueStats"]

_FIT_EVERY: Final = 32
_EXPIRIES_KEPT: Final = 64
_SLACK_EVERY_US: Final = 100_000


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
class _Waiter:
    """One unit in line; `future` brings its permit or its refusal."""

    __slots__ = ("entry", "expires_us", "future", "lane", "latest_us", "queued_us", "request")

    def __init__(
        self, request: Request, future: asyncio.Future[QueuePermit | Decision], now_us: int
    ) -> None:
        self.request = request
        self.future = future
        self.queued_us = now_us
        self.lane = 0
        self.latest_us = -1  # from then on it is too late for its deadline
        self.expires_us = 0  # and from then on for whatever reason
        self.entry: QueueEntry[_Waiter] | None = None


@final
class QueuePermit:
    """One place at work."""

    __slots__ = ("_begun_us", "_open", "_queue", "_unloaded", "waited_us")

    def __init__(self, queue: Queue, begun_us: int, waited_us: int, unloaded: bool) -> None:
        self._queue = queue
        self._begun_us = begun_us
        self._unloaded = unloaded
        self._open = True
        self.waited_us = waited_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the place to the next."""
        if not self._open:
            return False
        self._open = False
        queue = self._queue
        if spent and outcome is Outcome.SUCCESS:
            queue.learn(now_us - self._begun_us, self._unloaded, now_us)
        queue.release(now_us)
        return True


@final
class Queue:
    """A few places, and a line in front of them."""

    __slots__ = (
        "_admitted",
        "_arrivals",
        "_burst",
        "_cancelled",
        "_expiries",
        "_full",
        "_lanes",
        "_late",
        "_learned",
        "_lines",
        "_newest_first",
        "_numbers",
        "_queue",
        "_rules",
        "_saturation",
        "_service",
        "_service_us",
        "_size_bytes",
        "_slack_due_us",
        "_timed_out",
        "_timer",
        "_unloaded_us",
        "_waited",
        "_waiting",
        "inflight",
        "places",
        "settings",
        "slack_us",
    )

    def __init__(
        self, settings: QueueSettings, size_bytes: Callable[[Request], int] | None = None
    ) -> None:
        self.settings = settings
        self._size_bytes = size_bytes
        self._numbers = {name: at for at, name in enumerate(settings.weights, 1)}
        self._lanes = 1 + len(settings.weights)
        classes = queue_classes(settings)
        self._queue: WeightedQueue[_Waiter] = WeightedQueue(
            classes, length_max=settings.length_max, weight_max=settings.bytes_max
        )
        self._rules = [rule_for(settings) for _ in classes]
        # In each class those who wait, in the order they came: the rule looks at the oldest.
        self._lines: list[OrderedDict[_Waiter, None]] = [OrderedDict() for _ in classes]
        self._waiting: set[_Waiter] = set()
        # Who expires next, whatever its place: the kernel does not look into the middle of a line.
        self._expiries: list[tuple[int, int, _Waiter]] = []
        self._arrivals = 0
        self._service = WindowedQuantile()
        self._service_us = self._unloaded_us = self._learned = self._slack_due_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._saturation = Saturation(settings.line_us)
        burst_us_max = settings.burst_us_max if settings.form == "codel" else 0
        self._burst = BurstAllowance(BurstAllowanceSettings(allowance_us_max=burst_us_max))
        self._newest_first = False  # while bursts make long lines
        self._admitted = self._waited = self._full = self._timed_out = 0
        self._late = self._cancelled = 0
        self.places = settings.places
        self.inflight = 0
        self.slack_us = 0

    @property
    def queued(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def admit(self, request: Request, clock: Clock) -> QueuePermit | Decision:
        """Return a permit, now or when a place is free for this unit, or a refusal."""
        found = self.enter(request, clock.now_us())
        if not isinstance(found, _Waiter):
            return found
        self._watch(clock)
        try:
            return await found.future
        except asyncio.CancelledError:
            self._leave(found, clock.now_us())
            raise

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether a place is free; nobody is overtaken, for then nobody waits."""
        return self.inflight < self.places

    def admit_now(self, request: Request, now_us: int) -> QueuePermit | Decision:
        """Take that place."""
        if self._burst.counts:
            self._record_burst(now_us)
        self.inflight += 1
        self._admitted += 1
        self._saturation.record_free()
        return QueuePermit(self, now_us, 0, self.inflight * 2 <= self.places)

    def enter(self, request: Request, now_us: int) -> QueuePermit | Decision | _Waiter:
        """The same without waiting: a permit, a refusal, or the place in line that `admit` awaits.

        Whoever calls it runs in the loop, and calls `admit` instead if the answer may be to wait.
        """
        if self.ready(request, now_us):
            return self.admit_now(request, now_us)
        return self._enqueue(request, now_us)

    def release(self, now_us: int) -> None:
        """Free a place; called by a permit."""
        if self._burst.counts:
            self._record_burst(now_us)
        self.inflight -= 1
        if self._waiting:
            self._serve(now_us)

    def replace_times(self, wait_us_max: int, line_us: int | None) -> None:
        """How long it waits at most, and in a line that is short; of who joins from now on."""
        self.settings = replace(self.settings, wait_us_max=wait_us_max, line_us=line_us)
        self._saturation.line_us = line_us

    def resize(self, places: int, now_us: int) -> None:
        """Have so many places from now on; more of them begin at once, fewer as permits end."""
        within("queue.places", places, 1, PLACES_MAX)
        if self._burst.counts:
            self._record_burst(now_us)
        self.places = places
        self._serve(now_us)

    def requeue(self, request: Request, now_us: int) -> bool:
        """Move a waiting unit to the class it is of now; False if it does not wait.

        It keeps its deadline and stands behind who was there: for a fetch that came to matter more.
        Looks at all who wait.
        """
        waiter = self._find(request)
        if waiter is None or waiter.entry is None:
            return False
        lane = self._lane(request)
        if lane == waiter.lane:
            return True
        weight = waiter.entry.weight
        left_us = self.settings.wait_us_max - (now_us - waiter.queued_us)
        if waiter.latest_us >= 0:
            left_us = min(left_us, waiter.latest_us - now_us)
        self._remove(waiter, now_us)
        self._push(waiter, lane, left_us, weight, now_us)
        return True

    def sweep(self, now_us: int) -> None:
        """Refuse who has expired; the timer does so while somebody waits."""
        lost: list[QueueEntry[_Waiter]] = []
        self._queue.expire(now_us, lost)
        self._remove_lost(lost, now_us)
        deaths = self._expiries
        while deaths and deaths[0][0] <= now_us:
            waiter = heappop(deaths)[2]
            if waiter.expires_us <= now_us and waiter in self._waiting:
                self._expire(waiter, now_us)

    def delay_us(self, now_us: int) -> int:
        """How long the one that waits longest has waited; 0 if nobody does."""
        longest_us = 0
        for line in self._lines:
            if line:
                longest_us = max(longest_us, now_us - next(iter(line)).queued_us)
        return longest_us

    def learn(self, service_us: int, unloaded: bool, now_us: int) -> None:
        """Record how long the work took; called by a permit."""
        if service_us < 0:  # The clock went back.
            return
        settings = self.settings
        if settings.slack_quantile > 0.0:
            self._service.add(service_us, now_us)
            if now_us >= self._slack_due_us or now_us < self._slack_due_us - _SLACK_EVERY_US:
                self._slack_due_us = now_us + _SLACK_EVERY_US
                self.slack_us = int(self._service.quantile(settings.slack_quantile, now_us) or 0)
        self._service_us += (service_us - self._service_us) // 8
        if not unloaded or not settings.adaptive_target:
            return
        if self._learned == 0:
            self._unloaded_us = service_us
        self._unloaded_us += (service_us - self._unloaded_us) // 16
        if self._learned % _FIT_EVERY == 0:
            for rule in self._rules:
                rule.fit(self._unloaded_us)
        self._learned += 1

    def stats(self) -> QueueStats:
        """What it looks like now."""
        return QueueStats(
            self.places,
            self.inflight,
            len(self._waiting),
            self._queue.weight,
            self._admitted,
            self._waited,
            self._full,
            self._timed_out,
            self._late,
            self._cancelled,
            self._is_standing(len(self._rules)),
            self._rules[0].target_us(),
            self.slack_us,
        )

    def _enqueue(self, request: Request, now_us: int) -> QueuePermit | Decision | _Waiter:
        timeout_us = self.settings.wait_us_max
        self._saturation.record_full()
        waiter = _Waiter(request, asyncio.get_running_loop().create_future(), now_us)
        left_us = request.remaining_us(now_us)
        if left_us is not None:
            left_us -= min(self.slack_us, left_us // 2)
            waiter.latest_us = now_us + left_us
            timeout_us = min(timeout_us, left_us)
        size = 0 if self._size_bytes is None else self._size_bytes(request)
        self._push(waiter, self._lane(request), timeout_us, WAITER_BYTES + size, now_us)
        return waiter.future.result() if waiter.future.done() else waiter

    def _push(self, waiter: _Waiter, lane: int, timeout_us: int, weight: int, now_us: int) -> None:
        lost: list[QueueEntry[_Waiter]] = []
        rule = self._rules[lane]
        rule_us = rule.timeout_us(self._queue.queue(lane).length, now_us)
        if not self._lines[lane] and self._lower_class_waits(lane):
            rule.record_empty()
        waiter.lane = lane
        self._waiting.add(waiter)
        self._lines[lane][waiter] = None
        cost = max(1, waiter.request.cost_ru)
        timeout_us = min(timeout_us, rule_us)
        self._queue.limit(self._room(lane))
        if lane >= self._lanes:
            timeout_us = self._saturation.wait_us(timeout_us, self._service_us, self._burst.us)
        waiter.entry = self._queue.push(lane, waiter, timeout_us, now_us, lost, weight, cost)
        waiter.expires_us = now_us + timeout_us
        self._arrivals += 1
        heappush(self._expiries, (waiter.expires_us, self._arrivals, waiter))
        if len(self._expiries) > 2 * len(self._waiting) + _EXPIRIES_KEPT:
            self._expiries = [expiry for expiry in self._expiries if expiry[2] in self._waiting]
            heapify(self._expiries)
        if lost:
            self._remove_lost(lost, now_us)

    def _serve(self, now_us: int) -> None:
        """Fill the free places from the line."""
        lost: list[QueueEntry[_Waiter]] = []
        while self._waiting and self.inflight < self.places:
            self._drop_standing(now_us)
            floors = not self._is_standing(2 * self._lanes)
            entry = self._queue.pop(now_us, lost, floors)
            if lost:
                self._remove_lost(lost, now_us)
                lost.clear()
            if entry is None:
                return
            self._begin(entry.item, now_us)

    def _begin(self, waiter: _Waiter, now_us: int) -> None:
        self._forget(waiter)
        if waiter.future.done():  # Cancelled, and its task has not come to say so yet.
            return
        if self._is_late(waiter, now_us):
            self._refuse(waiter, DEADLINE, NEVER)
            return
        self.inflight += 1
        self._admitted += 1
        self._waited += 1
        waited_us = max(0, now_us - waiter.queued_us)
        waiter.future.set_result(QueuePermit(self, now_us, waited_us, False))

    def _is_late(self, waiter: _Waiter, now_us: int) -> bool:
        """The work may take longer now than it did when this unit was queued."""
        left_us = waiter.request.remaining_us(now_us)
        if left_us is None:
            return False
        budget_us = left_us + max(0, now_us - waiter.queued_us)
        return left_us < min(self.slack_us, budget_us // 2) or left_us == 0

    def _drop_standing(self, now_us: int) -> None:
        for lane, line in enumerate(self._lines):
            rule = self._rules[lane]
            while line:
                waiter = next(iter(line))
                delay_us = now_us - waiter.queued_us
                if self._burst.us:
                    delay_us = max(0, delay_us - self._burst.us)
                if not rule.drop(delay_us, now_us):
                    break
                self._remove(waiter, now_us)
                self._refuse_early(waiter, QUEUE_TIMEOUT, self.settings.interval_us, now_us)

    def _expire(self, waiter: _Waiter, now_us: int) -> None:
        """Its time is over."""
        self._remove(waiter, now_us)
        if 0 <= waiter.latest_us <= now_us:
            self._refuse(waiter, DEADLINE, NEVER)
        else:
            self._refuse_early(waiter, QUEUE_TIMEOUT, self.settings.interval_us, now_us)

    def _remove(self, waiter: _Waiter, now_us: int) -> None:
        if waiter.entry is not None:
            self._queue.cancel(waiter.entry, now_us)
        self._forget(waiter)

    def _remove_lost(self, lost: list[QueueEntry[_Waiter]], now_us: int) -> None:
        for entry in lost:
            if entry.fate == OVERFLOWED:
                self._forget(entry.item)
                self._refuse_early(entry.item, QUEUE_FULL, self._drained_us(), now_us)
            else:
                self._expire(entry.item, now_us)

    def _refuse_early(self, waiter: _Waiter, reason: Reason, retry_us: int, now_us: int) -> None:
        """Refuse somebody who might still have been served in time."""
        late_us = waiter.queued_us + self.settings.wait_us_max
        if waiter.latest_us >= 0:
            late_us = min(late_us, waiter.latest_us)
        self._burst.record_refusal(self._service_us, late_us, now_us)
        self._refuse(waiter, reason, retry_us)

    def _record_burst(self, now_us: int) -> None:
        """Record what is idle; the newest go first while bursts make long lines."""
        burst = self._burst
        burst.record(self.places - self.inflight, self.places, now_us)
        target_us = self._rules[0].target_us()
        newest_first = burst.us > 2 * target_us
        if newest_first is self._newest_first or self.settings.standing_us is not None:
            return
        self._newest_first = newest_first
        for lane in range(len(self._rules)):
            self._queue.queue(lane).stand_after(4 * target_us if newest_first else None)

    def _refuse(self, waiter: _Waiter, reason: Reason, retry_us: int) -> None:
        if waiter.future.done():
            return
        if reason is QUEUE_FULL:
            self._full += 1
        elif reason is DEADLINE:
            self._late += 1
        else:
            self._timed_out += 1
        waiter.future.set_result(
            Decision(False, 0, retry_us, max(0, retry_us), reason, self.settings.name)
        )

    def _room(self, lane: int) -> int:
        """How many may be in line when one of this class comes."""
        room = self._saturation.room(self.places, self._service_us, self._burst.us)
        if room is None:
            return self.settings.length_max
        if lane >= self._lanes:
            return room
        # What is CRITICAL is judged by how long it has stood, not by its number.
        critical = 1
        for line in self._lines[: self._lanes]:
            critical += len(line)
        return max(room, critical)

    def _drained_us(self) -> int:
        """When all who wait now will have been served."""
        return max(1_000, len(self._waiting) * self._service_us // self.places)

    def _forget(self, waiter: _Waiter) -> None:
        self._waiting.discard(waiter)
        self._lines[waiter.lane].pop(waiter, None)

    def _find(self, request: Request) -> _Waiter | None:
        for line in self._lines:
            for waiter in line:
                if waiter.request is request:
                    return waiter
        return None

    def _leave(self, waiter: _Waiter, now_us: int) -> None:
        """Its task was cancelled: out of the line, or on with the place it was just given."""
        self._cancelled += 1
        future = waiter.future
        if future.done() and not future.cancelled():
            given = future.result()
            if isinstance(given, QueuePermit):
                given.end(Outcome.IGNORE, now_us, spent=False)
            return
        self._remove(waiter, now_us)

    def _lower_class_waits(self, lane: int) -> bool:
        """Whether somebody of a class that matters less is in line."""
        first = (lane // self._lanes + 1) * self._lanes
        return any(self._lines[less] for less in range(first, len(self._lines)))

    def _is_standing(self, lanes: int) -> bool:
        return any(self._lines[lane] and self._rules[lane].overloaded() for lane in range(lanes))

    def _lane(self, request: Request) -> int:
        return request.criticality * self._lanes + self._numbers.get(request.operation, 0)

    def _watch(self, clock: Clock) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.settings.sweep_us / 1e6, self._tick, clock)

    def _tick(self, clock: Clock) -> None:
        self._timer = None
        self.sweep(clock.now_us())
        if self._waiting:
            self._watch(clock)
