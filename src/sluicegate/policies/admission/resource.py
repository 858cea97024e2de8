"""Resource: a limit on work in flight, the queue in front of it, and the times of its work.

A resource is what requests wait for: a shard, an engine, a pool of workers. It knows no loop;
`gate.py` adds the futures.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.request import Request
from sluicegate.kernels.fair_queue import FairQueue, QueuedUnit
from sluicegate.kernels.found_limit import LIMIT_MAX, FoundLimit
from sluicegate.kernels.service_times import ServiceTimes

CLASSES: Final = len(Criticality)
RANKS: Final = 2 * CLASSES  # of each class, first what is within its quota
OPERATIONS_MAX: Final = 256
OTHERS: Final = "(others)"
_NEVER_US: Final = -(1 << 62)
_MEAN_WEIGHT: Final = 1 / 16


@final
class Resource:
    """The limit, the queue and the times of one resource."""

    __slots__ = (
        "at_a_time",
        "ended",
        "found",
        "inflight",
        "limit",
        "mean_us",
        "name",
        "patience_us",
        "queue",
        "rationed",
        "scale",
        "served_us",
        "slots",
        "spent_us",
        "times",
    )

    def __init__(self, name: str, slots: int, members: int = 1) -> None:
        """With `slots` of 0 the limit is found; else `members` dispatchers share them."""
        self.name = name
        self.slots = slots
        self.found = FoundLimit() if slots == 0 else None
        self.limit = (
            equal_part(slots, members) if slots else LIMIT_MAX
        )  # how many units may be in flight
        self.rationed = False  # a fleet has found the limit, and `limit` is a part of it
        self.scale = 1.0  # of the times: below 1 after more was in flight than the limit is now
        self.at_a_time = 0.0  # above 0: a slot that comes free is given away, and so many are ours
        self.inflight = 0
        self.ended = 0
        self.spent_us = 0  # on those that have ended
        self.patience_us = 0.0  # the sum of their callers' mean patience
        self.mean_us = 0.0  # of all its work
        self.queue = FairQueue(RANKS)
        self.times: dict[str, ServiceTimes] = {}
        self.served_us = [_NEVER_US] * CLASSES  # when a unit of each class last started

    @property
    def parallel(self) -> float:
        """How many units are served at a time while others wait."""
        return self.at_a_time or self.limit

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is in flight, here or at other dispatchers."""
        return not (self.inflight or self.queue.waiting or self.at_a_time)

    @property
    def contended(self) -> bool:
        """Whether a unit that arrives now has to wait."""
        return self.queue.waiting > 0 or self.inflight >= self.limit

    def need_us(self, request: Request) -> int:
        """Return how long this request is expected to take; 0 if nothing is known."""
        times = self.times.get(request.operation)
        mean_us = self.mean_us if times is None or not times.count else times.mean_us
        return int(mean_us * self.scale)

    def least_us(self, request: Request, now_us: int) -> int:
        """Return the least time that this request takes if it starts now; 0 if unknown."""
        times = self.times.get(request.operation)
        if times is None:
            return 0
        least_us = times.least_us(self.inflight, now_us, free=not self.contended, idle=self.idle)
        return int(least_us * self.scale)

    def serves_below(self, request: Request, since_us: int) -> bool:
        """Whether work of a lower class has started here since then."""
        served_us = self.served_us
        for class_ in range(request.criticality + 1, CLASSES):
            if served_us[class_] >= since_us:
                return True
        return False

    def push(self, unit: QueuedUnit, request: Request, least_us: int, now_us: int) -> None:
        """Add a unit to the queue; with a slot left it is the event loop that it waits for."""
        self.queue.push(
            unit,
            self.need_us(request),
            now_us,
            least_us=least_us,
            slots=self.parallel if self.inflight >= self.limit else 1,
        )

    def start(self, request: Request, now_us: int) -> int:
        """A unit is sent; return the window that it belongs to (`FoundLimit.send`)."""
        self.inflight += 1
        self.served_us[request.criticality] = now_us
        found = self.found
        if found is None:
            return 0
        deadline_us = request.deadline_us
        if deadline_us is None:
            window = found.send(now_us, 0, 0)
        else:
            patience_us = deadline_us - (request.arrived_us or now_us)
            window = found.send(now_us, deadline_us, max(0, patience_us))
        if not self.rationed:
            self.limit = found.limit
        return window

    def next(self, now_us: int) -> QueuedUnit | None:
        """Take the unit out of the queue that is to start now; None if none may."""
        if not self.queue.waiting or self.inflight >= self.limit:
            return None
        return self.queue.pop(self.mean_us, now_us)

    def end(
        self,
        request: Request,
        sent_us: int,
        window: int,
        inflight: int,
        took_us: int,
        now_us: int,
        late: bool,
    ) -> bool:
        """A unit has ended; learn from it, unless it took -1.

        `inflight` were in flight when it was sent. Once there are many operations, the others share
        a record of times. Return whether the time of its operation is known from now on.
        """
        self.inflight -= 1
        self.ended += 1
        if self.at_a_time:
            self.limit -= 1
        found = self.found
        if took_us < 0:
            if found is not None:
                found.forget(window, now_us)
                if not self.rationed:
                    self.limit = found.limit
            return False
        self.spent_us += took_us
        operation = request.operation
        times = self.times.get(operation)
        if times is None:
            if len(self.times) >= OPERATIONS_MAX:
                operation = OTHERS
            times = self.times.setdefault(operation, ServiceTimes())
        known_now = times.record(took_us, inflight, now_us)
        weight = _MEAN_WEIGHT if self.mean_us else 1.0
        self.mean_us += (took_us - self.mean_us) * weight
        if found is not None:
            self.patience_us += found.patience_us
            found.record(
                window,
                took_us,
                now_us,
                inflight,
                times.alone_us or found.alone_us or self.mean_us,
                late,
                self.queue.waiting > 0,
            )
            if not self.rationed:
                self.limit = found.limit
        return known_now


def rank_of(request: Request) -> int:
    """Return the rank of a request: its class, and in it whether it is over its quota."""
    return 2 * request.criticality + request.over_quota


def equal_part(slots: int, members: int) -> int:
    """Return the slots of a dispatcher that does not know the load at the others."""
    return max(1, slots // members)
