"""Protection: deadline, criticality and gate of a service, for every kind of server.

A request is given its deadline (`X-Sluicegate-Deadline-Ms`, `grpc-timeout` or the time of its
endpoint, whichever is less; otherwise it has no deadline) and its criticality, and takes a slot of
one `Gate`: the service is one resource, and its operations are its endpoints. The number of
slots is a setting; without it the number is found.

A server calls `begin` with the claims of a request, `admit` before the work and `end` after it, and
adds `mark_of` to a refusal. A protection belongs to one event loop, or with `threaded=True` to the
threads of one process, which call `admit_now`: they wait in the pool of their server, where nothing
can order them, so they have no queue, and a quarter of the slots is only for CRITICAL.

Bounds: those of the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final, NamedTuple, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Measured, Request, make_request
from sluicegate.policies.admission.degradation import Degradation, OverloadLevel
from sluicegate.policies.admission.gate import LIMIT_MAX, Gate, GatePermit, GateSettings, GateStats
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.settings import check_type
from sluicegate.resilience.context import ServedRequest
from sluicegate.resilience.overload_mark import OverloadMark, overload_mark
from sluicegate.resilience.server.loop_lag import LoopLag
from sluicegate.resilience.server.queue_form import QueueForm
from sluicegate.resilience.server.wait_level import HOLD_US, WaitLevel
from sluicegate.resilience.settings import Resilience
from sluicegate.system import SystemChance, SystemClock

RETRY_AFTER_US: Final = 250_000  # at least, so that rejected clients do not retry immediately
JITTER: Final = 0.5  # the share by which the times of two marks may differ
_OVERLOAD_STATUS: Final = 503
_HELD_BYTES: Final = "held_bytes"  # the attribute of what a request holds while it waits
_SHIFT: Final = 6  # in the share that is admitted, one request weighs a sixty-fourth
_ALL: Final = 1 << 20


class ProtectionObserver(Protocol):
    """Receives refusals and ends; it may not raise."""

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """A request was refused."""
        ...

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Admitted work has ended; `request.measured` is the time it took."""
        ...


class ProtectionStats(NamedTuple):
    """Levels now, and counts since the start."""

    gate: GateStats
    slots: int  # 0: none, or not found yet
    found: bool  # whether the number of slots is searched for
    streams: int  # responses after their first message
    background: int  # tasks that go on after their response
    left_queue: int  # requests that waited and were admitted or refused
    waited_us: int  # by all of those
    admitted: Mapping[Criticality, int]
    refused: Mapping[tuple[str, Criticality], int]  # by the name of the reason, and the class
    level: OverloadLevel
    lag_us: int  # of the event loop


@final
class Protection:
    """The gate of one service, and what its servers share."""

    __slots__ = (
        "_admitted",
        "_chance",
        "_criticality",
        "_form",
        "_lag",
        "_left_queue",
        "_lock",
        "_observer",
        "_passed",
        "_refused",
        "_timeouts_us",
        "_waited_us",
        "background",
        "bypass",
        "clock",
        "degradation",
        "gate",
        "settings",
        "streams",
        "waits",
    )

    def __init__(
        self,
        settings: Resilience | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        threaded: bool = False,
        observer: ProtectionObserver | None = None,
    ) -> None:
        settings = Resilience() if settings is None else settings
        self.settings = settings
        self.clock: Clock = SystemClock() if clock is None else clock
        self._chance: Chance = SystemChance() if chance is None else chance
        self._observer = observer
        self.bypass = frozenset(settings.bypass)  # what nothing judges
        self._timeouts_us = {
            name: int(one.timeout_s * 1e6)
            for name, one in settings.endpoints.items()
            if one.timeout_s
        }
        self._criticality = CriticalityClamp(CriticalitySettings(callers=settings.callers))
        slots = settings.slots
        if settings.form and (threaded or not slots):
            remedy = "give slots too" if not threaded else "delete it: threads have no queue here"
            raise BadValue("resilience.form", settings.form, remedy)
        self.gate = Gate(
            GateSettings(
                slots=slots,
                length_max=settings.queue_length,
                bytes_max=settings.queue_bytes,
            ),
            size_bytes=_held_bytes,
        )
        # Threads wait in the pool of their server, and no timer shows for how long.
        self._lag = None if threaded else LoopLag(self.clock, self.gate)
        self._form = QueueForm(settings, self.gate, _held_bytes) if settings.form else None
        self.waits = WaitLevel()
        self.degradation = Degradation(self.waits.read, settings.degrade)
        self._lock = Lock()  # of threads; in an event loop nothing comes between
        self._admitted = dict.fromkeys(Criticality, 0)
        self._refused: dict[tuple[str, Criticality], int] = {}
        self._left_queue = self._waited_us = 0
        self._passed = _ALL  # the share of recent requests that was admitted, of _ALL
        self.streams = self.background = 0

    @property
    def threaded(self) -> bool:
        """Whether it is of threads; else it is of one event loop."""
        return self._lag is None

    @property
    def slots(self) -> int:
        """How many requests may be in flight; 0 if there is no limit, or none found yet."""
        limit = self.gate.stats().limit
        return 0 if limit >= LIMIT_MAX else limit

    def begin(
        self,
        endpoint: str,
        now_us: int,
        *,
        left_us: int = -1,
        left_now: bool = False,
        criticality: Criticality | None = None,
        caller: str = "",
    ) -> Request:
        """Return the request; the shorter of the caller's time and the endpoint's is its own.

        The caller's counts from the arrival, or from now on if `left_now`.
        """
        if self._lag is not None:
            waited_us = self._lag.waited_us(now_us)
            now_us -= waited_us
            if left_now and left_us >= 0:
                left_us += waited_us
        own_us = self._timeouts_us.get(endpoint)
        if own_us is not None and not 0 <= left_us < own_us:
            left_us = own_us
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

    def try_admit(self, request: Request, now_us: int) -> GatePermit | Decision | None:
        """Return a slot or a refusal; None if the request has to wait."""
        if self._form is not None:
            found = self._form.try_admit(request, now_us)
            if found is None:
                return None
        elif not self.gate.ready(request, now_us):
            return None
        else:
            found = self.gate.admit_now(request, now_us)
        if isinstance(found, Decision):
            self._record_refusal(request, found, now_us)
        else:
            self._admitted[request.criticality] += 1
        return found

    async def wait(self, request: Request, held_bytes: int = 0) -> GatePermit | Decision:
        """Wait for a slot, while the request holds `held_bytes` of memory.

        Cancel the task to leave the queue.
        """
        if held_bytes:
            request.attributes = {**request.attributes, _HELD_BYTES: str(held_bytes)}
        clock = self.clock
        began_us = clock.now_us()
        queue = self.gate if self._form is None else self._form
        found = await queue.admit(request, clock)
        now_us = clock.now_us()
        self._record_wait(request, now_us - began_us, now_us)
        if isinstance(found, Decision):
            self._record_refusal(request, found, now_us)
        else:
            self._admitted[request.criticality] += 1
        return found

    async def admit(
        self, request: Request, now_us: int, held_bytes: int = 0
    ) -> GatePermit | Decision:
        """Return a slot, now or when it is this request's turn, or a refusal."""
        found = self.try_admit(request, now_us)
        return await self.wait(request, held_bytes) if found is None else found

    def admit_now(self, request: Request, now_us: int) -> GatePermit | Decision:
        """Return a slot or a refusal, for a thread."""
        with self._lock:
            found = self.gate.admit_or_refuse(request, now_us)
            if isinstance(found, Decision):
                self._record_refusal(request, found, now_us)
                if is_overload(found):  # it would have had to wait
                    self.waits.record(request.criticality, HOLD_US, 1, now_us)
            else:
                self._admitted[request.criticality] += 1
            return found

    def end(self, permit: GatePermit, outcome: Outcome) -> bool:
        """Give the slot back; False if it was given back already."""
        now_us = self.clock.now_us()
        if self._form is not None:
            ended = self._form.end(permit, outcome, now_us)
        elif self._lag is not None:
            ended = permit.end(outcome, now_us)
        else:
            with self._lock:
                ended = permit.end(outcome, now_us)
        if not ended:
            return False
        self._passed += (_ALL - self._passed) >> _SHIFT
        if self._observer is not None:
            request = permit.request
            if request.measured is None:
                request.measured = Measured(max(now_us - permit.sent_us, 0))
            self._observer.record_end(request, outcome, now_us)
        return True

    def record_hung_up(self, permit: GatePermit) -> None:
        """The caller of work in flight has hung up."""
        self.gate.record_hung_up(permit, self.clock.now_us())

    def mark_of(self, decision: Decision, request: Request) -> OverloadMark | None:
        """Return the mark of a refusal for overload; None for any other refusal."""
        if not self._is_overload(decision, request):
            return None
        return overload_mark(
            retry=self.settings.retry,
            after_us=max(decision.retry_after_us, RETRY_AFTER_US),
            jitter=JITTER,
            draw=self._chance.draw(),
            admitted_permille=self._passed * 1_000 // _ALL,
        )

    def stats(self) -> ProtectionStats:
        """Return what it looks like now; any thread may ask, while others work."""
        gate = self.gate.stats()
        if self._form is not None:
            gate = self._form.stats(gate)
        return ProtectionStats(
            gate,
            0 if gate.limit >= LIMIT_MAX else gate.limit,
            gate.found,
            self.streams,
            self.background,
            self._left_queue,
            self._waited_us,
            self._admitted.copy(),
            self._refused.copy(),
            self.waits.read(self.clock.now_us()),
            0 if self._lag is None else self._lag.lag_us(),
        )

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
        return self.degradation.is_degraded(name, self.clock.now_us())

    def is_in_vain(self, deadline_us: int | None) -> bool:
        """Whether the deadline that the caller claimed is over, so that an answer is useless."""
        return deadline_us is not None and self.clock.now_us() >= deadline_us

    def _record_refusal(self, request: Request, decision: Decision, now_us: int) -> None:
        if decision.reason is not None:
            of = decision.reason.name, request.criticality
            self._refused[of] = self._refused.get(of, 0) + 1
        if self._is_overload(decision, request):
            self._passed -= self._passed >> _SHIFT
        if self._observer is not None:
            self._observer.record_refusal(request, "gate", decision, now_us)

    def _is_overload(self, decision: Decision, request: Request) -> bool:
        """Whether there is too little capacity, or the queue leaves too little time."""
        if decision.reason is DEADLINE:
            return self.gate.resource(request).contended
        return is_overload(decision)

    def _record_wait(self, request: Request, waited_us: int, now_us: int) -> None:
        """A request has left the queue."""
        self._left_queue += 1
        self._waited_us += waited_us
        resource = self.gate.resource(request)
        self.waits.record(request.criticality, waited_us, int(resource.mean_us), now_us)


def protection_of(
    settings: Resilience | None, protection: Protection | None, *, threaded: bool
) -> Protection:
    """Return the protection given to a server, or a new one of these settings."""
    if settings is not None:
        remedy = "give Resilience(slots=...), or resilience_settings(TABLE)"
        check_type("protect.settings", settings, Resilience, remedy)
    if protection is not None:
        check_type("protect.protection", protection, Protection, "give a Protection")
    if protection is None:
        return Protection(settings, threaded=threaded)
    if settings is not None:
        raise BadValue("protect.settings", settings, "give the settings or a protection, not both")
    if protection.threaded is not threaded:
        remedy = f"make it with threaded={threaded} for this kind of server"
        raise BadValue("protect.protection.threaded", protection.threaded, remedy)
    return protection


def check_app(app: object, kind: str) -> None:
    """Refuse what cannot be called as an application of this kind."""
    if not callable(app):
        raise BadValue("protect.app", app, f"give an application, a callable of {kind}")


def is_overload(decision: Decision) -> bool:
    """Whether it was refused because we have too little."""
    reason = decision.reason
    return reason is not None and reason.http_status == _OVERLOAD_STATUS


def _held_bytes(request: Request) -> int:
    return int(request.attributes.get(_HELD_BYTES, "0"))
