"""The line book: who stands in line, in which order, until when, and who has to go instead.

It is the queue without its gate: no loop, no futures, no places to give away. It is handed waiters
and answers with the next to begin, or with those who have to go and why; the gate acts on that.

A waiter (`waiter.py`) stands in its class's line of `kernels/weighted_queue.py`, and among the
`Expiries`, for the lines are looked at from their ends. Nowhere else.

Who goes has one of three reasons. QUEUE_FULL: no room, or pushed out by somebody who matters more.
QUEUE_TIMEOUT: the rule, or `wait_us_max`. DEADLINE: what is left is less than the work takes (p99
of what was measured here, for its cost if that is less). Refusing only what has expired already is
worthless: at twice the load everything would be served a moment too late. Whose whole time is less
than twice the p99 may still wait for half of it: a tail must not shut out a short deadline.

The rule counts from the door: a unit has waited since it arrived there, if that is known, and the
rest (`wait_us_max`, the bounds of a short line) since it joined.

Nobody goes by the rule for the sake of a lower class: where all of a line have stood too long and
others who matter less wait, the oldest is served (work that ends at one instant makes such lines).

The target grows with the service time of an *unloaded* service, measured while at most half of the
places are taken; 5 ms is right for 10 ms of work, and sheds for nothing where it takes 100. So does
whatever else is a span, as far as deadlines allow (`settings.py`, "Slow work").

Both bounds leave room for bursts: where a long line would be served in the pauses of what comes,
all may wait for longer (`kernels/burst_allowance.py`): in line as long as nearly all are served so,
else the newest first.

A unit's line within its class is that of the name which `group` gives it, its operation unless said
otherwise, and is served by its weight, in what `cost` says. So a service may have one line for each
magnitude of work: none then waits behind what is far dearer than itself.

With `line_us` the line itself is short while the queue is saturated (`saturation.py`). Then what is
not CRITICAL stands in line no longer than `line_us`, or eight places take to become free if that is
more, and no more of it than the places serve in that time; who would be more is refused at once,
the least important first.

Cost: O(classes) each time somebody joins or leaves; the heap's logarithm. Bounds: `length_max` and
`bytes_max` over all classes, `wait_us_max`, `WEIGHTS_MAX` operations; the heap is at most twice the
line, and a little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.reasons import DEADLINE, QUEUE_FULL, QUEUE_TIMEOUT, Reason
from sluicegate.contracts.request import Request
from sluicegate.kernels.adaptive_lifo import OVERFLOWED, QUEUED, QueueEntry
from sluicegate.kernels.burst_allowance import BurstAllowance, BurstAllowanceSettings
from sluicegate.kernels.verdict import NEVER
from sluicegate.kernels.weighted_queue import WeightedQueue
from sluicegate.policies.queue.saturation import Saturation
from sluicegate.policies.queue.settings import (
    CROWDED_FLOOR_US,
    FLOOR_US,
    QueueSettings,
    queue_classes,
    queue_floors,
    rule_for,
)
from sluicegate.policies.queue.waiter import Expiries, LineRemoval, Waiter
from sluicegate.policies.queue.work_times import WorkTimes

_CLASSES: Final = tuple(Criticality)
_SHORT_TARGETS: Final = 4  # a line that has no allowance is about so long
_SLOW_TIMES: Final = 10  # work is slow that takes so many times the 10 ms of the settings
_RARE_TIMES: Final = 50  # of work that takes so many, the first that is too much is a burst
_SHORT_WORKS: Final = 32  # whose callers wait for fewer units of slow work stay in order


@final
class LineBook:
    """All lines of a queue, before so many `places`; `removed` takes who has to go."""

    __slots__ = (
        "_cost",
        "_expiries",
        "_group",
        "_lanes",
        "_latest_us",
        "_lines",
        "_newest_first",
        "_numbers",
        "_patience_us",
        "_queue",
        "_rules",
        "_settings",
        "_times",
        "burst",
        "places",
        "saturation",
        "waiting",
        "work",
    )

    def __init__(
        self,
        settings: QueueSettings,
        group: Callable[[Request], str] | None = None,
        cost: Callable[[Request], int] | None = None,
    ) -> None:
        self._settings = settings
        self._group = group
        self._cost = cost
        self._numbers = {name: at for at, name in enumerate(settings.weights, 1)}
        self._lanes = 1 + len(settings.weights)
        classes = queue_classes(settings)
        self._queue: WeightedQueue[Waiter] = WeightedQueue(
            classes,
            length_max=settings.length_max,
            weight_max=settings.bytes_max,
            floors=queue_floors(settings),
            floor_us=FLOOR_US,
        )
        self._lines = [self._queue.queue(lane) for lane in range(len(classes))]
        self._rules = [rule_for(settings) for _ in classes]
        self._expiries = Expiries()
        self.work = WorkTimes(settings.slack_quantile)
        self._patience_us = 0  # of who has a deadline
        self._times = 1  # how many times the 10 ms of the settings unloaded work takes
        self.saturation = Saturation(settings.line_us)
        burst_us_max = settings.burst_us_max if settings.form == "codel" else 0
        self.burst = BurstAllowance(
            BurstAllowanceSettings(
                short_us=_SHORT_TARGETS * settings.target_us, allowance_us_max=burst_us_max
            )
        )
        self._latest_us = 0  # when somebody was to begin
        self._newest_first = False  # while bursts make long lines that spill
        self.places = settings.places
        self.waiting = 0

    @property
    def bytes(self) -> int:
        """What all who wait weigh."""
        return self._queue.weight

    @property
    def standing(self) -> bool:
        """Whether a class stands."""
        return self._is_standing(len(self._rules))

    @property
    def burst_units(self) -> int:
        """How many more may wait for the sake of bursts: what is done in their allowance."""
        burst_us = self.burst.us
        return burst_us * self.places // max(1, self.work.mean_us) if burst_us else 0

    @property
    def target_us(self) -> int:
        """The delay that is still good."""
        return self._rules[0].target_us()

    def replace_times(self, settings: QueueSettings) -> None:
        """Go by how long these settings let anybody wait; of who joins from now on."""
        self._settings = settings
        self.saturation.line_us = settings.line_us

    def add(self, waiter: Waiter, weight: int, now_us: int, removed: list[LineRemoval]) -> None:
        """Have somebody stand in line who has found no place."""
        timeout_us = self._settings.wait_us_max
        if self.burst.counts:
            self.record_arrival(now_us, stalled=self.work.stands_still(now_us))
        self.saturation.record_full()
        left_us = waiter.request.remaining_us(now_us)
        if left_us is not None:
            left_us -= min(self.work.slack_of(waiter.request), left_us // 2)
            waiter.latest_us = now_us + left_us
            self._patience_us += (left_us - self._patience_us) // 16
            self.burst.patience_us = self._patience_us
            timeout_us = min(self._wait_us_max(), left_us)
        self._push(waiter, self._lane(waiter.request), timeout_us, weight, now_us, removed)

    def waiting_beside(self, request: Request) -> int:
        """How many wait in its line, of all classes."""
        waiting = 0
        for line in self._lines[self._number(request) :: self._lanes]:
            waiting += line.length
        return waiting

    def first_class(self) -> Criticality | None:
        """The class that matters most of those who wait."""
        if self.waiting:
            for lane, line in enumerate(self._lines):
                if line.length:
                    return _CLASSES[lane // self._lanes]
        return None

    def owes(self, request: Request) -> bool:
        """Whether others wait, and none of its class, which is owed a unit."""
        served_by_us = self._latest_us - self._rests_us()
        return self.waiting > 0 and self._queue.owes(self._lane(request), served_by_us)

    def next(self, now_us: int, removed: list[LineRemoval], floors: bool = True) -> Waiter | None:
        """Take out who is to begin now; who has stood too long goes before.

        Without `floors`, no class is served before its turn.
        """
        self._latest_us = now_us
        if self.burst.counts:
            self.burst.advance(now_us)
        found: Waiter | None = None
        lost: list[QueueEntry[Waiter]] = []
        while self.waiting and found is None:
            self._drop_standing(now_us, removed)
            entry = self._queue.pop(now_us, lost, floors, self._rests_us())
            if lost:
                self._remove_lost(lost, now_us, removed)
                lost.clear()
            self.waiting = len(self._queue)
            if entry is None:
                break
            if self._is_late(entry.item, now_us):
                self._rules[entry.item.lane].record_late()
                _remove(entry.item, DEADLINE, NEVER, removed)
            else:
                found = entry.item
                found.entry = None
        return found

    def take(self, waiter: Waiter, now_us: int, removed: list[LineRemoval]) -> bool:
        """Take out this one to begin now; False if it is too late for it."""
        late = self._is_late(waiter, now_us)
        self.remove(waiter, now_us)
        if late:
            self._rules[waiter.lane].record_late()
            _remove(waiter, DEADLINE, NEVER, removed)
        return not late

    def remove(self, waiter: Waiter, now_us: int) -> None:
        """Take somebody out who wants to go."""
        entry = waiter.entry
        if entry is not None and self._lines[waiter.lane].cancel(entry, now_us):
            self.waiting -= 1
        waiter.entry = None

    def move(self, request: Request, now_us: int, removed: list[LineRemoval]) -> bool:
        """Move a waiting unit to the class it is of now; False if it does not wait."""
        waiter = self._find(request)
        if waiter is None or waiter.entry is None:
            return False
        lane = self._lane(request)
        if lane == waiter.lane:
            return True
        left_us, weight = self._last_us(waiter) - now_us, waiter.entry.weight
        self.remove(waiter, now_us)
        self._push(waiter, lane, left_us, weight, now_us, removed)
        return True

    def sweep(self, now_us: int, removed: list[LineRemoval]) -> None:
        """Take out who has expired, wherever it stands."""
        lost: list[QueueEntry[Waiter]] = []
        self._queue.expire(now_us, lost)
        self._remove_lost(lost, now_us, removed)
        waiter = self._expiries.pop(now_us)
        while waiter is not None:
            self.remove(waiter, now_us)
            self._expire(waiter, now_us, removed)
            waiter = self._expiries.pop(now_us)
        self.waiting = len(self._queue)

    def delay_us(self, now_us: int) -> int:
        """How long the one that waits longest has waited; 0 if nobody does."""
        longest_us = 0
        for line in self._lines:
            oldest = line.oldest
            if oldest is not None:
                longest_us = max(longest_us, now_us - oldest.item.queued_us)
        return longest_us

    def learn(
        self, service_us: int, unloaded: bool, now_us: int, cost: int = 1, beside: int = 0
    ) -> None:
        """Record how long the work took that cost so much, when `beside` others are still at it."""
        work = self.work
        if service_us < 0 or work.stood_still(service_us, beside, now_us):
            return  # The clock went back; or it was a stall, and no work, that took so long.
        if work.learn(service_us, unloaded, now_us, cost) and self._settings.adaptive_target:
            for rule in self._rules:
                rule.fit(work.unloaded_us)
            self._times = max(1, self._rules[0].target_us() // self._settings.target_us)
            self.burst.fit(self._times)

    def record_arrival(self, now_us: int, *, stalled: bool = False) -> None:
        """Record a unit, to weigh bursts; in a long line that spills the newest go first."""
        burst = self.burst
        burst.record_arrival(self.work.mean_us / self.places, now_us, stalled=stalled)
        target_us = self._rules[0].target_us()
        newest_first = burst.spills and burst.us > 2 * target_us and not self._stays_in_line()
        if newest_first is self._newest_first or self._settings.standing_us is not None:
            return
        self._newest_first = newest_first
        for line in self._lines:
            line.stand_after(4 * target_us if newest_first else None)

    def record_missed(self, now_us: int) -> None:
        """Record a unit that was refused before it could stand in line."""
        self._record_refusal(now_us)
        if self.burst.counts:
            self.record_arrival(now_us)

    def _record_refusal(self, now_us: int) -> None:
        line_us = self.waiting * self.work.mean_us / self.places
        expected = self._times >= _RARE_TIMES and self._stays_in_line()
        self.burst.record_refusal(line_us, now_us, expected=expected)

    def _stays_in_line(self) -> bool:
        """Whether work is slow, and callers wait for so little of it that no line is long."""
        if self._times < _SLOW_TIMES:
            return False
        return self._patience_us < _SHORT_WORKS * self.work.unloaded_us

    def _push(
        self,
        waiter: Waiter,
        lane: int,
        timeout_us: int,
        weight: int,
        now_us: int,
        removed: list[LineRemoval],
    ) -> None:
        lost: list[QueueEntry[Waiter]] = []
        rule = self._rules[lane]
        length = self._lines[lane].length
        timeout_us = rule.timeout_us(timeout_us, length, now_us)
        if length == 0 and self._others_wait(lane):
            rule.record_empty()
        waiter.lane = lane
        request = waiter.request
        cost = max(1, request.cost_ru if self._cost is None else self._cost(request))
        self._queue.limit(self._room(lane))
        if lane >= self._lanes:
            timeout_us = self.saturation.wait_us(
                timeout_us, self.places, self.work.service_us, self.burst.us
            )
        waiter.entry = self._queue.push(lane, waiter, timeout_us, now_us, lost, weight, cost)
        waiter.expires_us = now_us + timeout_us
        if waiter.entry.fate == QUEUED:
            self._expiries.add(waiter, self.waiting)
        if lost:
            self._remove_lost(lost, now_us, removed)
        self.waiting = len(self._queue)

    def _last_us(self, waiter: Waiter) -> int:
        """Until when it may wait, as far as the deadline and the longest wait are concerned."""
        if waiter.latest_us < 0:
            return waiter.queued_us + self._settings.wait_us_max
        return min(waiter.latest_us, waiter.queued_us + self._wait_us_max())

    def _wait_us_max(self) -> int:
        """How long anybody waits who has a deadline."""
        settings = self._settings
        wait_us = settings.wait_us_max
        return max(wait_us, min(wait_us * self._times, settings.slow_wait_us_max))

    def _is_late(self, waiter: Waiter, now_us: int) -> bool:
        """The work may take longer now than it did when this unit was queued."""
        left_us = waiter.request.remaining_us(now_us)
        if left_us is None:
            return False
        budget_us = left_us + max(0, now_us - waiter.queued_us)
        return left_us < min(self.work.slack_of(waiter.request), budget_us // 2) or left_us == 0

    def _drop_standing(self, now_us: int, removed: list[LineRemoval]) -> None:
        for lane, line in enumerate(self._lines):
            rule = self._rules[lane]
            entry = line.oldest
            while entry is not None:
                waiter = entry.item
                delay_us = now_us - waiter.since_us
                if self.burst.us:
                    delay_us = max(0, delay_us - self.burst.us)
                stands = rule.drop(delay_us, now_us)
                still = rule.still(delay_us, line.length, now_us)
                # How many stand in the line of the door is not known, only for how long.
                at_door = waiter.queued_us - waiter.since_us > 2 * rule.target_us()
                if not stands or (still and not at_door):
                    break
                if self._queue.spares(lane) or self._only_lower_class_gains(lane, now_us):
                    break
                line.cancel(entry, now_us)
                retry_us = self._settings.interval_us
                self._remove_early(waiter, QUEUE_TIMEOUT, retry_us, now_us, removed)
                entry = line.oldest

    def _only_lower_class_gains(self, lane: int, now_us: int) -> bool:
        """Whether only a lower class would have its place: all of its own have stood too long."""
        newest = self._lines[lane].newest
        if newest is None or not self._lower_class_waits(lane):
            return False
        bound_us = 2 * self._rules[lane].target_us() + self.burst.us
        return now_us - newest.item.since_us > bound_us

    def _expire(self, waiter: Waiter, now_us: int, removed: list[LineRemoval]) -> None:
        """Its time is over."""
        if 0 <= waiter.latest_us <= now_us:
            self._rules[waiter.lane].record_late()
            _remove(waiter, DEADLINE, NEVER, removed)
        else:
            retry_us = self._settings.interval_us
            self._remove_early(waiter, QUEUE_TIMEOUT, retry_us, now_us, removed)

    def _remove_lost(
        self, lost: list[QueueEntry[Waiter]], now_us: int, removed: list[LineRemoval]
    ) -> None:
        for entry in lost:
            if entry.fate == OVERFLOWED:
                self._remove_early(entry.item, QUEUE_FULL, self._drained_us(), now_us, removed)
            else:
                self._expire(entry.item, now_us, removed)

    def _remove_early(
        self,
        waiter: Waiter,
        reason: Reason,
        retry_us: int,
        now_us: int,
        removed: list[LineRemoval],
    ) -> None:
        """Somebody goes who might still have been served in time."""
        self._record_refusal(now_us)
        self._rules[waiter.lane].record_late()
        _remove(waiter, reason, retry_us, removed)

    def _room(self, lane: int) -> int:
        """How many may be in line when one of this class comes."""
        room = self.saturation.room(self.places, self.work.mean_us, self.burst.us)
        if room is None:
            return self._settings.length_max
        if lane >= self._lanes:
            return room
        # What is CRITICAL is judged by how long it has stood, not by its number.
        critical = 2  # who comes, and one more
        for line in self._lines[: self._lanes]:
            critical += line.length
        return max(room, critical)

    def _drained_us(self) -> int:
        """When all who wait now will have been served."""
        return max(1_000, len(self._queue) * self.work.service_us // self.places)

    def _find(self, request: Request) -> Waiter | None:
        for line in self._lines:
            entry = line.oldest
            while entry is not None:
                if entry.item.request is request:
                    return entry.item
                entry = entry.newer
        return None

    def _lower_class_waits(self, lane: int) -> bool:
        """Whether somebody of a class that matters less is in line."""
        for less in range((lane // self._lanes + 1) * self._lanes, len(self._lines)):
            if self._lines[less].length:
                return True
        return False

    def _others_wait(self, lane: int) -> bool:
        """Whether somebody is in another line of the class, or of one that matters less."""
        first = lane // self._lanes * self._lanes
        for other in range(first, len(self._lines)):
            if other != lane and self._lines[other].length:
                return True
        return False

    def _rests_us(self) -> int:
        """How long a class without its turn rests after each unit that it is owed."""
        return CROWDED_FLOOR_US if self._is_standing(self._lanes) else 0

    def _is_standing(self, lanes: int) -> bool:
        for lane in range(lanes):
            if self._lines[lane].length and self._rules[lane].overloaded():
                return True
        return False

    def _lane(self, request: Request) -> int:
        return request.criticality * self._lanes + self._number(request)

    def _number(self, request: Request) -> int:
        name = request.operation if self._group is None else self._group(request)
        return self._numbers.get(name, 0)


def _remove(waiter: Waiter, reason: Reason, retry_us: int, removed: list[LineRemoval]) -> None:
    """It stands no longer; its entry names it, and only the collector could free the two."""
    waiter.entry = None
    removed.append(LineRemoval(waiter, reason, retry_us))
