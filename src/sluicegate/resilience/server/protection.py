"""Protection: the policies before a service's work, in one order, and what its doors ask of them.

There is one stack for light work and one for heavy work. They share the deadline, and differ in the
line, its mark and its places. Of the same class neither can take a place from the other; class
comes first, though: a place goes to the other line where that has somebody who matters more, and
what is CRITICAL is lent what is idle. `Lane` shows the order, and `policies/stack.py` says with
numbers what changes when two of its stages swap.

A door calls `begin` with what it read, `admit` before the work, and answers a refusal with
`mark_of`. A protection belongs to one event loop, or with `threaded=True` to the threads of one
process, which call `admit_now`. Threads wait in the pool of their server, where nobody can judge
them, so there is no line then: places are all that is left, by partition of criticality once they
are taken. Give the server more threads than both lanes have places, or health waits for one.

Bounds: those of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request, make_request
from sluicegate.policies.concurrency import (
    AdaptiveLimit,
    AdaptiveSettings,
    Concurrency,
    ConcurrencySettings,
)
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.deadline import Deadline
from sluicegate.policies.degradation import Degradation
from sluicegate.policies.endpoint_cost import MAGNITUDES, EndpointCost
from sluicegate.policies.partitions import PlaceShares
from sluicegate.policies.queue.queue import Queue, QueueSettings
from sluicegate.policies.stack import (
    Stack,
    StackObserver,
    StackPermit,
    StackStats,
    at_once,
    waits,
)
from sluicegate.policies.stress import Stress, StressState
from sluicegate.policies.watermark import Watermark
from sluicegate.resilience.context import ServedRequest
from sluicegate.resilience.overload_mark import OverloadMark, overload_mark
from sluicegate.resilience.server.loop_lag import LoopLag
from sluicegate.resilience.settings import Resilience
from sluicegate.system import SystemChance, SystemClock

_OVERLOAD_STATUS: Final = 503
BODY_BYTES: Final = "body_bytes"  # the attribute of what a request holds while it waits
_LATELY_US: Final = 2_000_000  # the timer of the loop rests after a second without requests
_SHIFT: Final = 6  # in the part that is admitted, one request weighs a sixty-fourth
_ALL: Final = 1 << 20
# Of the places, once all are taken: what matters most still finds some.
_SHARES: Final = {"CRITICAL": 0.25}


class ProtectionStats(NamedTuple):
    """Both stacks, the mean time of each endpoint in microseconds, the stress, what is left out."""

    light: StackStats
    heavy: StackStats
    means_us: dict[str, int]
    stress: StressState
    degraded: tuple[tuple[str, bool], ...]


class LaneStats(NamedTuple):
    """One lane: levels now, and counts since the start."""

    name: str
    places: int
    inflight: int
    queued: int
    refuses: bool  # its watermark does, now
    left_queue: int  # admitted or refused
    waited_us: int  # by all of those, since they came
    partitions: Mapping[str, int]  # what each has at work
    admitted: Mapping[Criticality, int]
    refused: Mapping[tuple[str, Criticality], int]  # by the name of the reason, and the class


@final
class Lane:
    """The stack of one weight, and what its line is made of."""

    __slots__ = (
        "_admitted",
        "_chance",
        "_concurrency",
        "_cost",
        "_has_served",
        "_left_queue",
        "_low",
        "_number",
        "_partitions",
        "_passed",
        "_refused",
        "_waited_us",
        "_waiting_of",
        "_watermark",
        "queue",
        "stack",
    )

    def __init__(
        self,
        settings: Resilience,
        queue: QueueSettings,
        deadline: Deadline,
        cost: EndpointCost,
        stress: Stress,
        chance: Chance,
        threaded: bool,
        observer: StackObserver | None,
    ) -> None:
        observers: list[StackObserver] = [self, stress]
        if observer is not None:
            observers.append(observer)
        self._cost = cost
        self._chance = chance
        self._partitions = PlaceShares(settings.partitions)
        share = self._partitions.of if settings.partitions else None
        if queue is settings.queue and not queue.weights:
            # A line for each magnitude of work, unless the settings say which lines there are.
            queue = replace(queue, weights=dict.fromkeys(MAGNITUDES[1:], 1))
            self.queue = Queue(
                queue, _body_bytes, group=self._magnitude, cost=self._mean_us, partition=share
            )
        else:
            self.queue = Queue(queue, _body_bytes, partition=share)
        self._passed = _ALL  # of those who came last, as parts of _ALL
        self._number = None
        self._admitted = dict.fromkeys(Criticality, 0)
        self._refused: dict[tuple[str, Criticality], int] = {}
        self._left_queue = self._waited_us = 0
        self._waiting_of = [0] * len(Criticality)
        self._concurrency: Concurrency | None = None
        self._watermark: Watermark | None = None
        self._low = settings.watermark.low
        self._has_served = False
        first = at_once("deadline", deadline)
        if threaded:
            number = settings.concurrency
            if number is None:
                number = AdaptiveSettings(
                    algorithm="fixed", initial=queue.places, limit_max=queue.places
                )
            places = ConcurrencySettings(name=queue.name, adaptive=number, shares=_SHARES)
            self._concurrency = Concurrency(places, chance, share)
            concurrency = at_once("concurrency", self._concurrency)
            self.stack = Stack(first, concurrency, observers=observers)
            return
        if settings.concurrency is not None:
            self._number = AdaptiveLimit(settings.concurrency)
        self._watermark = Watermark(
            self._waiting,
            settings.watermark,
            self.queue.record_missed,
            self._ahead,
        )
        self.stack = Stack(
            first,
            at_once("watermark", self._watermark),
            waits("queue", self.queue),
            observers=observers,
        )

    @property
    def admitted_permille(self) -> int:
        """The part of those who came lately that was not refused for want of places."""
        return self._passed * 1_000 // _ALL

    def _waiting(self) -> int:
        """How many wait beyond what bursts may add; none if the line does not stand.

        What a burst brought is served in the pause behind it. Before any work has ended nobody
        knows that a place will come free, and all count.
        """
        queue = self.queue
        queued = queue.queued
        if queued > self._low and self._has_served and not queue.standing:
            return 0
        return max(0, queued - queue.burst_units)

    def _ahead(self, request: Request) -> int:
        """How many in its line, or, if that is less, of those who matter as much or more.

        None is in the way of who has a share of the places that is not used up.
        """
        if self.queue.has_share(request):
            return 0
        ahead = sum(self._waiting_of[: request.criticality + 1])
        return min(ahead, self.queue.queued_beside(request))

    async def admit(self, request: Request, clock: Clock) -> StackPermit | Decision:
        """Run it through the stack, and count it while it waits."""
        waiting, of = self._waiting_of, request.criticality
        waiting[of] += 1
        try:
            return await self.stack.admit(request, clock)
        finally:
            waiting[of] -= 1

    def _magnitude(self, request: Request) -> str:
        return self._cost.magnitude(request.operation)

    def _mean_us(self, request: Request) -> int:
        return self._cost.mean_us(request.operation)

    def stats(self, name: str) -> LaneStats:
        """Return its levels and counts; any thread may ask, while others work."""
        concurrency, watermark = self._concurrency, self._watermark
        refuses = False
        if concurrency is None:
            queue = self.queue.stats()
            levels = queue.places, queue.inflight, queue.queued
            if watermark is not None:  # it learns that the line is short from who comes next
                refuses = watermark.refuses and self._waiting() > self._low
        else:
            threads = concurrency.stats()
            levels = threads.limit, threads.inflight, 0
        return LaneStats(
            name,
            *levels,
            refuses=refuses,
            left_queue=self._left_queue,
            waited_us=self._waited_us,
            partitions={one.name: one.inflight for one in self._partitions.all},
            admitted=self._admitted.copy(),
            refused=self._refused.copy(),
        )

    def record_admitted(self, request: Request) -> None:
        """One more was admitted."""
        self._admitted[request.criticality] += 1

    def record_wait(self, request: Request, delay_us: int, now_us: int) -> None:
        """One more has left the line."""
        self._left_queue += 1
        self._waited_us += delay_us

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """One more was refused."""
        if decision.reason is not None:
            of = decision.reason.name, request.criticality
            self._refused[of] = self._refused.get(of, 0) + 1
        if is_overload(decision):
            self._passed -= self._passed >> _SHIFT

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Learn the endpoint's cost, and how many places there should be."""
        self._passed += (_ALL - self._passed) >> _SHIFT
        measured = request.measured
        if measured is None or outcome is Outcome.IGNORE:
            return
        service_us = measured.service_us
        if outcome is Outcome.SUCCESS:
            self._cost.learn(request.operation, service_us, now_us)
            self._has_served = True
        number = self._number
        if number is not None:
            dropped = outcome is Outcome.DROPPED
            number.learn(service_us, self.queue.inflight + 1, dropped, now_us, self._chance)
            if number.limit != self.queue.places:
                self.queue.resize(number.limit, now_us)


@final
class Protection:
    """Both lanes, and what they share."""

    __slots__ = (
        "_bypass",
        "_chance",
        "_clock",
        "_cost",
        "_criticality",
        "_deadline",
        "_lag",
        "_lock",
        "degradation",
        "heavy",
        "light",
        "settings",
        "stress",
    )

    def __init__(
        self,
        settings: Resilience | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        threaded: bool = False,
        observer: StackObserver | None = None,
    ) -> None:
        settings = Resilience() if settings is None else settings
        chance = SystemChance() if chance is None else chance
        self.settings = settings
        self._bypass = frozenset(settings.bypass)
        self._chance = chance
        self._clock: Clock = SystemClock() if clock is None else clock
        self._cost = EndpointCost(
            heavy_us=settings.heavy_us,
            places=settings.queue.places,
            light_max=max(1, int(settings.queue.places * settings.light_share)),
            endpoints_max=settings.endpoints_max,
            target_us=settings.queue.target_us,
            rules={
                path: one.weight == "heavy"
                for path, one in settings.endpoints.items()
                if one.weight != "learned"
            },
        )
        self._lock = Lock()  # of threads; in an event loop nothing comes between
        # An endpoint that has a mean of its own has a time of its own.
        classes = max(settings.deadline.operations_max, settings.endpoints_max)
        self._deadline = Deadline(replace(settings.deadline, operations_max=classes))
        self._criticality = CriticalityClamp(CriticalitySettings(callers=settings.callers))
        self.stress = Stress(settings.stress)
        self.degradation = Degradation(self.stress, settings.degrade)
        # Threads wait for the pool of their server, and no timer shows for how long.
        self._lag = None if threaded else LoopLag(self._clock, self._record_lag)
        shared = (self._deadline, self._cost, self.stress, chance, threaded, observer)
        self.light = Lane(settings, settings.queue, *shared)
        self.heavy = Lane(settings, settings.heavy_queue, *shared)
        self.light.queue.lend_to(self.heavy.queue, self._light_lends)
        self.heavy.queue.lend_to(self.light.queue, self._heavy_lends)

    @property
    def threaded(self) -> bool:
        """Whether it is of threads; else it is of one event loop."""
        return self._lag is None

    def bypasses(self, path: str) -> bool:
        """Whether nothing judges it: health and readiness, whatever the load."""
        return path in self._bypass

    def begin(
        self,
        endpoint: str,
        *,
        left_us: int = -1,
        left_now: bool = False,
        criticality: Criticality | None = None,
        caller: str = "",
    ) -> Request:
        """Return the request; the shorter of the caller's time and the endpoint's is its own.

        The caller's counts from the arrival, or from now on if `left_now`.
        """
        now_us = self._clock.now_us()
        if self._lag is not None:
            waited_us = self._lag.waited_us(now_us)
            now_us -= waited_us
            if left_now and left_us >= 0:
                left_us += waited_us
        own = self.settings.endpoints.get(endpoint)
        if own is not None and own.timeout_us > 0 and not 0 <= left_us < own.timeout_us:
            left_us = own.timeout_us
        request = make_request(
            endpoint,
            caller=caller,
            criticality=DEFAULT_CRITICALITY if criticality is None else criticality,
            arrived_us=now_us,
            deadline_us=now_us + left_us if left_us >= 0 else None,
            operation=endpoint,
        )
        self._criticality.admit(request, now_us)
        return request

    async def admit(
        self, request: Request, held_bytes: Callable[[], int] | None = None
    ) -> Admitted | Decision:
        """Wait for a place in the endpoint's lane; what is returned ends once.

        `held_bytes` says how much of its body stands in memory meanwhile; asked if it has to wait.
        """
        now_us = self._clock.now_us()
        if self._lane(request, now_us).stack.ready(request, now_us):
            return self.admit_now(request)
        if held_bytes is not None:
            size = held_bytes()
            if size:
                request.attributes = {**request.attributes, BODY_BYTES: str(size)}
        endpoint = request.operation
        heavy = self._cost.is_heavy(endpoint, now_us, request.criticality)
        if not heavy:
            self._cost.enter_light(endpoint, now_us, request.criticality)
        held = False
        try:
            lane = self.heavy if heavy else self.light
            admission = await lane.admit(request, self._clock)
            if isinstance(admission, Decision):
                return admission
            lane.record_admitted(request)
            held = True
            return Admitted(self, admission, heavy)
        finally:
            if not held and not heavy:
                self._cost.leave_light(endpoint)

    def admit_now(self, request: Request) -> Admitted | Decision:
        """The same for a thread, or where nobody would have to wait."""
        endpoint = request.operation
        with self._lock:
            now_us = self._clock.now_us()
            heavy = self._cost.is_heavy(endpoint, now_us, request.criticality)
            lane = self.heavy if heavy else self.light
            admission = lane.stack.admit_now(request, now_us)
            if isinstance(admission, Decision):
                return admission
            lane.record_admitted(request)
            if not heavy:
                self._cost.enter_light(endpoint, now_us, request.criticality)
            return Admitted(self, admission, heavy)

    def end(self, permit: StackPermit, outcome: Outcome, heavy: bool) -> bool:
        """End what is held; called by what was admitted."""
        with self._lock:
            ended = True
            try:
                ended = permit.end(outcome, self._clock.now_us())
            finally:  # an observer may have failed
                if ended and not heavy:
                    self._cost.leave_light(permit.request.operation)
            return ended

    def mark_of(self, decision: Decision, request: Request) -> OverloadMark | None:
        """Return the mark of a refusal that says that we are overloaded; None for any other."""
        if not is_overload(decision):
            return None
        settings = self.settings
        return overload_mark(
            retry=settings.retry,
            after_us=max(decision.retry_after_us, settings.watermark.retry_after_us),
            jitter=settings.jitter,
            draw=self._chance.draw(),
            admitted_permille=self._lane(request, self._clock.now_us()).admitted_permille,
        )

    def stats(self) -> ProtectionStats:
        """Counts since the start, and levels now."""
        now_us = self._clock.now_us()
        return ProtectionStats(
            self.light.stack.stats(),
            self.heavy.stack.stats(),
            self._cost.means_us(),
            self.stress.read(now_us),
            tuple([(name, self.is_degraded(name)) for name in self.degradation.switches]),
        )

    def lanes(self) -> list[LaneStats]:
        """Return what each lane does; unlike `stats`, for any thread, and it judges nothing."""
        return [self.light.stats("light"), self.heavy.stats("heavy")]

    def stress_lately(self) -> StressState | None:
        """Return the stress, for any thread; None if nobody has asked for anything lately."""
        if self.threaded:
            with self._lock:
                return self.stress.read(self._clock.now_us())
        state = self.stress.stats().picture
        return state if self._clock.now_us() - state.at_us < _LATELY_US else None

    def served(self, request: Request) -> ServedRequest:
        """Return the context that an admitted request runs with."""
        return ServedRequest(
            deadline_us=request.deadline_us,
            criticality=request.criticality,
            caller=request.caller,
            switches=self.degradation,
        )

    def is_degraded(self, name: str) -> bool:
        """Whether this part of answers is to be left out now."""
        return self.degradation.is_degraded(name, self._clock.now_us())

    def is_in_vain(self, deadline_us: int | None) -> bool:
        """Whether the time that a caller claimed is over, so that nobody waits for an answer."""
        return deadline_us is not None and self._clock.now_us() >= deadline_us

    def _record_lag(self, late_us: int, now_us: int) -> None:
        """The event loop's timer; it keeps the picture of stress fresh for `stress_lately`."""
        self.stress.record_loop_lag(late_us, now_us)
        self.stress.read(now_us)

    def _lane(self, request: Request, now_us: int) -> Lane:
        heavy = self._cost.is_heavy(request.operation, now_us, request.criticality)
        return self.heavy if heavy else self.light

    def _light_lends(self, criticality: Criticality, now_us: int) -> int:
        return 0 if self._cost.is_needed(criticality, now_us) else self.light.queue.places

    def _heavy_lends(self, criticality: Criticality, now_us: int) -> int:
        return self.heavy.queue.places


def protection_of(
    settings: Resilience | None, protection: Protection | None, *, threaded: bool
) -> Protection:
    """Return the protection given to a door, or a new one of these settings."""
    if protection is None:
        return Protection(settings, threaded=threaded)
    if settings is not None:
        raise BadValue("protect.settings", settings, "give the settings or a protection, not both")
    if protection.threaded is not threaded:
        remedy = f"make it with threaded={threaded} for this kind of server"
        raise BadValue("protect.protection.threaded", protection.threaded, remedy)
    return protection


def _body_bytes(request: Request) -> int:
    return int(request.attributes.get(BODY_BYTES, "0"))


def is_overload(decision: Decision) -> bool:
    """Whether it was refused because we have too little."""
    reason = decision.reason
    return reason is not None and reason.http_status == _OVERLOAD_STATUS


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
        return self._protection.end(self._permit, outcome, self._heavy)
