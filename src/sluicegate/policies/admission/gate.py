"""Gate: one queue and one limit in front of each resource.

    arrives     a slot is free and nobody waits: it starts; else it waits
                it cannot finish before its deadline: DEADLINE
                the queue is full: the oldest unit of the lowest rank leaves with QUEUE_FULL
    ends        its slot goes to the next unit: criticality, then callers by the time they have
                used, then the newest once a queue stands (`kernels/fair_queue.py`)
    too late    a unit that can no longer finish leaves with DEADLINE at that instant
    hangs up    cancel the task that waits: the unit leaves the queue

The limit is the number of slots where it is known, and found where it is not
(`kernels/found_limit.py`). The time that work takes is that of its resource, without this queue.

A gate belongs to one event loop. Set `lagging` while the loop itself is the bottleneck: then units
start a few at a time, in the order of the queue, after the loop has read what has arrived.

Cost: an arrival that finds a slot costs a few additions and one permit; one that waits costs a
future and a heap push. Bounds: `length_max` units and `bytes_max` bytes wait in all, and
`resources_max` resources are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePromptPolicy
from sluicegate.contracts.reasons import (
    DEADLINE,
    OVERLOADED,
    QUEUE_FULL,
    Reason,
)
from sluicegate.contracts.request import Request
from sluicegate.kernels.fair_queue import QueuedUnit
from sluicegate.kernels.found_limit import LIMIT_MAX
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.admission.resource import RANKS, Resource, rank_of
from sluicegate.policies.admission.settings import WAITER_BYTES, GateSettings

RESERVED: Final = 4  # without a queue, one slot of so many is only for CRITICAL
TURN_US: Final = 5_000  # of work that starts in one turn of a loop that is late
_DISPLACED_US: Final = 1_000_000


class GateStats(NamedTuple):
    """Levels now, and counts since the start."""

    limit: int  # of all resources; LIMIT_MAX: there is none
    found: bool
    inflight: int
    queued: int
    queued_bytes: int
    admitted: int
    waited: int  # of the admitted
    refused_full: int
    refused_timeout: int
    refused_deadline: int
    hung_up: int
    late: int  # ended after their deadline
    late_us: int  # the time spent on them
    worked_us: int


@final
class GateWaiter(QueuedUnit):
    """A request in the queue; `future` receives its permit or its refusal."""

    __slots__ = ("future", "request", "resource")

    def __init__(
        self,
        request: Request,
        resource: Resource,
        future: asyncio.Future[GatePermit | Decision],
        size: int,
    ) -> None:
        deadline_us = -1 if request.deadline_us is None else request.deadline_us
        # Without a caller's name, operations share the resource instead.
        super().__init__(rank_of(request), request.caller or request.operation, deadline_us, size)
        self.request = request
        self.resource = resource
        self.future = future


@final
class GatePermit(BasePermit):
    """One slot."""

    __slots__ = (
        "_gate",
        "_inflight",
        "hung_up",
        "is_open",
        "request",
        "resource",
        "sent_us",
        "unit",
        "window",
    )

    def __init__(
        self,
        gate: Gate,
        resource: Resource,
        request: Request,
        now_us: int,
        unit: GateWaiter | None,
    ) -> None:
        self._gate = gate
        self.window = resource.start(request, now_us)
        self._inflight = resource.inflight
        self.hung_up = False
        self.is_open = True
        self.resource = resource
        self.request = request
        self.sent_us = now_us
        self.unit = unit

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give the slot to the next unit."""
        if not self.is_open:
            return False
        self.is_open = False
        self._gate.leave(self, self._inflight, outcome, now_us, spent)
        return True


@final
class Gate(BasePromptPolicy):
    """The queue and the limit of each resource."""

    __slots__ = (
        "_admitted",
        "_due_us",
        "_full",
        "_hung_up",
        "_late",
        "_late_us",
        "_resource_of",
        "_size_bytes",
        "_timed_out",
        "_timer",
        "_too_late",
        "_turn",
        "_waited",
        "_worked_us",
        "lagging",
        "members",
        "queued",
        "queued_bytes",
        "resources",
        "settings",
    )

    def __init__(
        self,
        settings: GateSettings,
        *,
        size_bytes: Callable[[Request], int] | None = None,
        resource_of: Callable[[Request], str] | None = None,
    ) -> None:
        """A request waits for `resource_of` it, else for its shard, and holds `size_bytes`."""
        self.settings = settings
        self.resources: dict[str, Resource] = {}
        self.members = settings.members
        self._size_bytes = size_bytes
        self._resource_of = resource_of
        self.lagging = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = 0
        self._turn = False  # one start for each turn of the loop is scheduled
        self.queued = self.queued_bytes = 0
        self._admitted = self._waited = self._full = self._timed_out = self._too_late = 0
        self._hung_up = self._late = self._late_us = self._worked_us = 0

    # How a request enters.

    def resource(self, request: Request) -> Resource:
        """Return the resource that a request needs."""
        name = request.shard if self._resource_of is None else self._resource_of(request)
        found = self.resources.get(name)
        return self.resource_named(name) if found is None else found

    def resource_named(self, name: str) -> Resource:
        """Return a resource; it is new if nobody has needed it yet."""
        found = self.resources.get(name)
        if found is None:
            if len(self.resources) >= self.settings.resources_max:
                self._forget_idle()
            found = self.resources[name] = Resource(name, self.settings.slots, self.members)
        return found

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether the request would be decided at once."""
        if self._turn or self.lagging:
            return False
        resource = self.resource(request)
        return resource.inflight < resource.limit and not resource.queue.waiting

    def admit_now(self, request: Request, now_us: int) -> GatePermit | Decision:
        """Take a slot, for a request that is `ready`."""
        resource = self.resource(request)
        if request.deadline_us is not None and self._is_too_late(
            request, resource.least_us(request, now_us), now_us
        ):
            return self._refusal(DEADLINE)
        self._admitted += 1
        return GatePermit(self, resource, request, now_us, None)

    def admit_or_refuse(self, request: Request, now_us: int) -> GatePermit | Decision:
        """Decide without a queue, for callers that cannot wait; a few slots are for CRITICAL."""
        resource = self.resource(request)
        limit = resource.limit
        found = resource.found
        if found is not None and not (found.limiting or resource.rationed):
            limit = LIMIT_MAX  # one late unit is no reason to refuse another
        if request.criticality:
            limit -= limit // RESERVED
        if resource.inflight >= limit:
            self._full += 1
            if found is not None:
                found.record_rejected()
            return self._refusal(OVERLOADED, self._wait_us(resource))
        return self.admit_now(request, now_us)

    async def admit(self, request: Request, clock: Clock) -> GatePermit | Decision:
        """Return a permit, now or when it is this request's turn, or a refusal."""
        now_us = clock.now_us()
        if self.ready(request, now_us):
            return self.admit_now(request, now_us)
        resource = self.resource(request)
        least_us = resource.least_us(request, now_us)
        if self._is_too_late(request, least_us, now_us):
            return self._refusal(DEADLINE)
        loop = asyncio.get_running_loop()
        size = WAITER_BYTES + (0 if self._size_bytes is None else self._size_bytes(request))
        unit = GateWaiter(request, resource, loop.create_future(), size)
        if not self._make_room(unit):
            self._full += 1
            return self._refusal(QUEUE_FULL, self._wait_us(resource))
        resource.push(unit, request, least_us, now_us)
        self.queued += 1
        self.queued_bytes += size
        self._watch(resource, clock, now_us)
        if resource.inflight < resource.limit:  # the loop is what there is too little of
            self._take_turns(clock)
        try:
            return await unit.future
        except asyncio.CancelledError:
            self._hang_up(unit, clock.now_us())
            raise

    # How it leaves.

    def leave(
        self, permit: GatePermit, inflight: int, outcome: Outcome, now_us: int, spent: bool
    ) -> None:
        """A permit has ended; called by the permit."""
        resource, request = permit.resource, permit.request
        sent_us = permit.sent_us
        took_us, late = -1, False
        if spent and (outcome is not Outcome.IGNORE or permit.hung_up):
            measured = request.measured
            took_us = 0 if measured is None else measured.service_us
            if took_us <= 0:
                took_us = max(now_us - sent_us, 0)
            deadline_us = request.deadline_us
            late = deadline_us is not None and now_us > deadline_us
            self._worked_us += took_us
            if late:
                self._late += 1
                self._late_us += took_us
            late = late or permit.hung_up or outcome is Outcome.DROPPED
            if permit.unit is not None:
                resource.queue.settle(permit.unit, took_us)
        if resource.end(request, sent_us, permit.window, inflight, took_us, now_us, late):
            self._expect(resource, request.operation, now_us)
        if resource.queue.waiting and not self._turn:
            self._serve(resource, now_us)

    def record_hung_up(self, permit: GatePermit, now_us: int) -> None:
        """The caller of work in flight has hung up; how long the work takes counts all the same."""
        if not permit.is_open or permit.hung_up:
            return
        permit.hung_up = True
        found = permit.resource.found
        if found is not None and permit.request.deadline_us is None:
            found.record_hung_up(now_us - (permit.request.arrived_us or permit.sent_us))

    @property
    def inflight(self) -> int:
        """How many units are in flight in all resources."""
        return sum(resource.inflight for resource in self.resources.values())

    def requeue(self, request: Request, now_us: int) -> bool:
        """Move a waiting request to the rank that it has now; looks at all that wait."""
        queue = self.resource(request).queue
        for unit in queue.units():
            if isinstance(unit, GateWaiter) and unit.request is request:
                queue.remove(unit)
                unit.rank = rank_of(request)
                least_us = 0 if unit.deadline_us < 0 else unit.deadline_us - unit.latest_us
                unit.resource.push(unit, request, least_us, unit.queued_us)
                return True
        return False

    def set_limit(
        self, resource: Resource, limit: int, now_us: int, *, at_a_time: float = 0.0
    ) -> None:
        """Set how many units may be in flight.

        With `at_a_time` a unit that ends does not make room for the next, and the resource is
        expected to serve so many at a time.
        """
        resource.limit = limit
        resource.at_a_time = at_a_time
        if resource.queue.waiting and not self._turn:
            self._serve(resource, now_us)

    def displaces(self, request: Request, now_us: int) -> bool:
        """Whether the request would have to wait while work of a lower class is served."""
        resource = self.resource(request)
        return resource.contended and resource.serves_below(request, now_us - _DISPLACED_US)

    def stats(self) -> GateStats:
        """What it looks like now."""
        limit = inflight = 0
        for resource in self.resources.values():
            limit = min(LIMIT_MAX, limit + resource.limit)
            inflight += resource.inflight
        slots = self.settings.slots
        return GateStats(
            limit if self.resources else slots or LIMIT_MAX,
            not slots,
            inflight,
            self.queued,
            self.queued_bytes,
            self._admitted,
            self._waited,
            self._full,
            self._timed_out,
            self._too_late,
            self._hung_up,
            self._late,
            self._late_us,
            self._worked_us,
        )

    def _is_too_late(self, request: Request, least_us: int, now_us: int) -> bool:
        """Whether the request could not end in time if it started now; count it."""
        deadline_us = request.deadline_us
        if deadline_us is None or now_us + max(least_us, 1) <= deadline_us:
            return False
        self._too_late += 1
        return True

    def _serve(self, resource: Resource, now_us: int) -> None:
        """Start the units that have a slot now."""
        self._expire(resource, now_us)
        while True:
            unit = resource.next(now_us)
            if unit is None:
                return
            self._begin(unit, now_us)

    def _begin(self, unit: QueuedUnit, now_us: int) -> bool:
        """Start a unit that was taken out of its queue; False if it has hung up."""
        assert isinstance(unit, GateWaiter)  # nothing else is pushed here
        self._forget(unit)
        if unit.future.done():  # cancelled, and its task has not run yet
            return False
        self._admitted += 1
        self._waited += 1
        unit.future.set_result(GatePermit(self, unit.resource, unit.request, now_us, unit))
        return True

    def _expire(self, resource: Resource, now_us: int) -> None:
        """Refuse the units that can no longer finish in time."""
        while True:
            unit = resource.queue.expire(now_us)
            if unit is None:
                return
            self._timed_out += 1
            self._reject(unit, DEADLINE)

    def _expect(self, resource: Resource, operation: str, now_us: int) -> None:
        """Use the time of an operation, now that it is known, for its units that wait."""
        for unit in resource.queue.units():
            assert isinstance(unit, GateWaiter)  # nothing else is pushed here
            if unit.request.operation == operation:
                resource.queue.expect(unit, resource.least_us(unit.request, now_us))

    def _make_room(self, unit: GateWaiter) -> bool:
        """Evict units of lower ranks, or older ones of the same, until this one fits."""
        settings, queue = self.settings, unit.resource.queue
        while (
            self.queued >= settings.length_max or self.queued_bytes + unit.size > settings.bytes_max
        ):
            evicted = queue.evict(unit.rank)
            if evicted is None:
                return False
            self._full += 1
            self._reject(evicted, QUEUE_FULL)
        return True

    def _reject(self, unit: QueuedUnit, reason: Reason) -> None:
        assert isinstance(unit, GateWaiter)
        self._forget(unit)
        if not unit.future.done():
            unit.future.set_result(self._refusal(reason, self._wait_us(unit.resource)))

    def _forget(self, unit: GateWaiter) -> None:
        self.queued -= 1
        self.queued_bytes -= unit.size

    def _hang_up(self, unit: GateWaiter, now_us: int) -> None:
        """The task that waited was cancelled."""
        self._hung_up += 1
        if unit.resource.queue.remove(unit):
            self._forget(unit)
            found = unit.resource.found
            if found is not None and unit.deadline_us < 0:
                found.record_hung_up(now_us - (unit.request.arrived_us or unit.queued_us))
        elif unit.future.done() and not unit.future.cancelled():
            given = unit.future.result()
            if isinstance(given, GatePermit):
                given.end(Outcome.IGNORE, now_us, spent=False)

    def _refusal(self, reason: Reason, retry_us: int = NEVER) -> Decision:
        if reason is DEADLINE:
            retry_us = NEVER
        return Decision(False, 0, retry_us, max(0, retry_us), reason, self.settings.name)

    def _wait_us(self, resource: Resource) -> int:
        """Return how long what waits now will take."""
        return int(resource.mean_us * (resource.queue.waiting + 1) / min(resource.parallel, 1_000))

    def _forget_idle(self) -> None:
        """Make room for another resource."""
        for name, resource in list(self.resources.items()):
            if not resource.inflight and not resource.queue.waiting:
                del self.resources[name]
                return

    # The loop.

    def _watch(self, resource: Resource, clock: Clock, now_us: int) -> None:
        """Wake up when the first unit can no longer finish."""
        due_us = resource.queue.next_expiry_us()
        if due_us < 0 or (self._timer is not None and self._due_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_us = due_us
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0, due_us - now_us) / 1e6, self._tick, clock)

    def _tick(self, clock: Clock) -> None:
        self._timer = None
        now_us = clock.now_us()
        for resource in self.resources.values():
            if resource.queue.waiting:
                self._expire(resource, now_us)
                self._watch(resource, clock, now_us)

    def _take_turns(self, clock: Clock) -> None:
        """Start one unit in each turn of the loop."""
        if not self._turn:
            self._turn = True
            asyncio.get_running_loop().call_soon(self._take_turn, clock)

    def _take_turn(self, clock: Clock) -> None:
        """Start as much work as a turn of the loop may have; if it is late no more."""
        now_us = clock.now_us()
        left_us = float(TURN_US)
        for resource in self.resources.values():
            self._expire(resource, now_us)
            while left_us > 0 or not self.lagging:
                unit = resource.next(now_us)
                if unit is None:
                    break
                if self._begin(unit, now_us):
                    left_us -= max(1.0, resource.mean_us)
        if left_us <= 0 and self.queued:
            asyncio.get_running_loop().call_soon(self._take_turn, clock)
        else:
            self._turn = False


__all__ = ["LIMIT_MAX", "RANKS", "WAITER_BYTES", "Gate", "GatePermit", "GateSettings", "GateStats"]
