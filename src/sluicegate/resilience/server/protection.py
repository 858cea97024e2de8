"""Protection: the policies before a service's work, in one order, and what its doors ask of them.

There is one stack for light work and one for heavy work. They share the deadline, and differ in the
line, its mark and its places: neither can take a place from the other. `Lane` shows the order, and
`policies/stack.py` says with numbers what changes when two of its stages swap.

A door calls `begin` with what it read, `admit` before the work, and answers a refusal with
`mark_of`. One protection belongs to one event loop.

Bounds: those of the parts.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.policies.concurrency import AdaptiveLimit
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.deadline import Deadline
from sluicegate.policies.endpoint_cost import EndpointCost
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.stack import Stack, StackPermit, StackStats, at_once, waits
from sluicegate.policies.watermark import Watermark
from sluicegate.resilience.overload_mark import OverloadMark, overload_mark
from sluicegate.resilience.settings import Resilience
from sluicegate.system import SystemChance, SystemClock

_OVERLOAD_STATUS: Final = 503


class ProtectionStats(NamedTuple):
    """Both stacks, and the mean time of each endpoint in microseconds."""

    light: StackStats
    heavy: StackStats
    means_us: dict[str, int]


@final
class Lane:
    """The stack of one weight, and what its line is made of."""

    __slots__ = ("_chance", "_cost", "_number", "queue", "stack", "watermark")

    def __init__(
        self,
        settings: Resilience,
        queue: QueueSettings,
        deadline: Deadline,
        criticality: CriticalityClamp,
        cost: EndpointCost,
        chance: Chance,
    ) -> None:
        self._cost = cost
        self._chance = chance
        self._number = None
        if settings.concurrency is not None:
            self._number = AdaptiveLimit(settings.concurrency)
        self.queue = Queue(queue)
        self.watermark = Watermark(lambda: self.queue.queued, settings.watermark)
        self.stack = Stack(
            at_once("deadline", deadline),
            at_once("criticality", criticality),
            at_once("watermark", self.watermark),
            waits("queue", self.queue),
            observers=[self],
        )

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Learn the endpoint's cost, and how many places there should be."""
        measured = request.measured
        if measured is None or outcome is Outcome.IGNORE:
            return
        service_us = measured.service_us
        if outcome is Outcome.SUCCESS:
            self._cost.learn(request.operation, service_us)
        number = self._number
        if number is not None:
            dropped = outcome is Outcome.DROPPED
            number.learn(service_us, self.queue.inflight + 1, dropped, now_us, self._chance)
            if number.limit != self.queue.places:
                self.queue.resize(number.limit, now_us)


@final
class Protection:
    """Both lanes, and what they share."""

    __slots__ = ("_bypass", "_chance", "_clock", "_cost", "_deadline", "heavy", "light", "settings")

    def __init__(
        self,
        settings: Resilience | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        settings = Resilience() if settings is None else settings
        chance = SystemChance() if chance is None else chance
        self.settings = settings
        self._bypass = frozenset(settings.bypass)
        self._chance = chance
        self._clock: Clock = SystemClock() if clock is None else clock
        self._cost = EndpointCost(
            heavy_us=settings.heavy_us,
            light_max=max(1, int(settings.queue.places * settings.light_share)),
            endpoints_max=settings.endpoints_max,
            rules={
                path: one.weight == "heavy"
                for path, one in settings.endpoints.items()
                if one.weight != "learned"
            },
        )
        self._deadline = Deadline(settings.deadline)
        criticality = CriticalityClamp(CriticalitySettings(callers=settings.callers))
        shared = (self._deadline, criticality, self._cost, chance)
        self.light = Lane(settings, settings.queue, *shared)
        self.heavy = Lane(settings, settings.heavy_queue, *shared)

    @property
    def clock(self) -> Clock:
        """The clock that deadlines are of."""
        return self._clock

    def bypasses(self, path: str) -> bool:
        """Whether nothing judges it: health and readiness, whatever the load."""
        return path in self._bypass

    def begin(
        self,
        endpoint: str,
        *,
        left_us: int = -1,
        criticality: Criticality | None = None,
        caller: str = "",
    ) -> Request:
        """Return the request; the shorter of the caller's time and the endpoint's is its own."""
        now_us = self._clock.now_us()
        own = self.settings.endpoints.get(endpoint)
        if own is not None and own.timeout_us > 0 and not 0 <= left_us < own.timeout_us:
            left_us = own.timeout_us
        return Request(
            endpoint,
            caller=caller,
            criticality=DEFAULT_CRITICALITY if criticality is None else criticality,
            arrived_us=now_us,
            deadline_us=now_us + left_us if left_us >= 0 else None,
            operation=endpoint,
        )

    async def admit(self, request: Request) -> Admitted | Decision:
        """Wait for a place in the endpoint's lane; what is returned ends once."""
        endpoint = request.operation
        heavy = self._cost.is_heavy(endpoint)
        stack = self.heavy.stack if heavy else self.light.stack
        now_us = self._clock.now_us()
        if stack.ready(request, now_us):
            admission = stack.admit_now(request, now_us)
            if isinstance(admission, Decision):
                return admission
            if not heavy:
                self._cost.enter_light(endpoint)
            return Admitted(self, admission, heavy)
        if not heavy:
            self._cost.enter_light(endpoint)
        permit: StackPermit | None = None
        try:
            admission = await stack.admit(request, self._clock)
            if isinstance(admission, Decision):
                return admission
            permit = admission
            return Admitted(self, permit, heavy)
        finally:
            if permit is None and not heavy:
                self._cost.leave_light(endpoint)

    def leave_light(self, endpoint: str) -> None:
        """A light place is free again; called by what was admitted."""
        self._cost.leave_light(endpoint)

    def mark_of(self, decision: Decision, request: Request) -> OverloadMark | None:
        """Return the mark of a refusal that says that we are overloaded; None for any other."""
        reason = decision.reason
        if reason is None or reason.http_status != _OVERLOAD_STATUS:
            return None
        lane = self.heavy if self._cost.is_heavy(request.operation) else self.light
        settings = self.settings
        return overload_mark(
            retry=settings.retry,
            after_us=max(decision.retry_after_us, settings.watermark.retry_after_us),
            jitter=settings.jitter,
            draw=self._chance.draw(),
            admitted_permille=lane.watermark.admitted_permille,
        )

    def stats(self) -> ProtectionStats:
        """Counts since the start, and levels now."""
        return ProtectionStats(
            self.light.stack.stats(), self.heavy.stack.stats(), self._cost.means_us()
        )


@final
class Admitted:
    """What an admitted request holds; it ends once."""

    __slots__ = ("_heavy", "_permit", "_protection")

    def __init__(self, protection: Protection, permit: StackPermit, heavy: bool) -> None:
        self._protection = protection
        self._permit = permit
        self._heavy = heavy

    def end(self, outcome: Outcome) -> bool:
        """End the permit of the stack, and the count of the lane."""
        now_us = self._protection.clock.now_us()
        if not self._permit.end(outcome, now_us):
            return False
        if not self._heavy:
            self._protection.leave_light(self._permit.request.operation)
        return True
