"""Stack: policies in an order that one can see.

    stack = Stack(
        at_once("criticality", criticality),  # how much it may claim to matter
        at_once("request units", request_units),  # what it costs, and whether that is left
        waits("queue", gate),  # when it may start
        observers=[usage],
    )

The class of a request decides its place in the queue and its price, so the criticality stage is
first. Request units are before the queue: a request over its quota waits behind its class, or is
rejected without waiting.

Each stage is called in order, and the first refusal ends it. What earlier stages hold is
then given back in reverse order with `spent=False`; the same if whoever waits is cancelled, or a
stage fails. What all admit holds one `StackPermit`, which ends all of them in reverse, once.

`admit` is a coroutine. Where no stage would have to wait, as for most requests, `ready` is true and
`admit_now` does the same without one; `admit` itself goes that way then, and reads the clock once.

A stage that answers at once is given the instant, the same one for all of them between two waits. A
stage that waits is given the clock. A permit that ends without `request.measured` is measured here:
from the instant at which the last stage admitted it, so no queue of ours is in it.

Observers are given each wait (since the request was read off its socket, if that is known: what the
event loop did not get round to is a queue too), each refusal and each end, as far as they have the
methods. They must be quick and must not raise.

Cost: for each stage a call to admit and one to end, and a coroutine where anybody waits. Methods
are looked up once, when the stack is built. Bound: `STAGES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.permit import BasePermit, Outcome, Permit
from sluicegate.contracts.policy import (
    NOTHING_HELD,
    Admission,
    BasePolicy,
    BasePromptPolicy,
    Policy,
    PromptPolicy,
    WaitingPolicy,
)
from sluicegate.contracts.request import Measured, Request

STAGES_MAX: Final = 32
OBSERVERS_MAX: Final = 16


class RefusalObserver(Protocol):
    """Is given refusals; it may not raise."""

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        """A stage has refused it."""
        ...


class EndObserver(Protocol):
    """Is given ends; it may not raise."""

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Admitted work has ended; `request.measured` says what it was."""
        ...


class BaseEndObserver:
    """One whose class is compiled: a stack calls it without looking its method up."""

    __slots__ = ()

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """As `EndObserver.record_end` says."""
        raise NotImplementedError


@final
class _ForeignEndObserver(BaseEndObserver):
    """One of a class that is not compiled."""

    __slots__ = ("_record",)

    def __init__(self, record: Callable[[Request, Outcome, int], None]) -> None:
        self._record = record

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        """Hand it on."""
        self._record(request, outcome, now_us)


StackObserver: TypeAlias = RefusalObserver | EndObserver


class StageStats(NamedTuple):
    """One stage: its decisions, how often it was unwound, and its policy's own statistics."""

    name: str
    admitted: int
    refused: int
    unwound: int
    own: Any  # `stats()` of the policy; None if it has none


class StackStats(NamedTuple):
    """All requests, and each stage."""

    entered: int
    entering: int  # in a stage that waits
    admitted: int
    refused: int
    broken_off: int  # cancelled on the way in, or a stage failed
    under_way: int
    ended: int
    stages: tuple[StageStats, ...]


@final
class StackStage:
    """One place in a stack; built by `at_once` or `waits`."""

    __slots__ = ("at_once", "name", "waiting")

    def __init__(self, name: str, policy: Policy | None, waiting: WaitingPolicy | None) -> None:
        if not name:
            raise BadValue("stage.name", name, "give a name; statistics and refusals show it")
        self.name = name
        self.at_once = policy
        self.waiting = waiting


def at_once(name: str, policy: Policy) -> StackStage:
    """A stage that answers at once."""
    return StackStage(name, policy, None)


def waits(name: str, policy: WaitingPolicy) -> StackStage:
    """A stage that may suspend before it answers."""
    return StackStage(name, None, policy)


@final
class _Step:
    """A stage in use, and its counts."""

    __slots__ = (
        "admit_now",
        "admitted",
        "at_once",
        "name",
        "own",
        "own_prompt",
        "ready",
        "refused",
        "unwound",
        "waiting",
    )

    def __init__(self, stage: StackStage) -> None:
        self.name = stage.name
        self.at_once = stage.at_once
        self.waiting = stage.waiting
        # None: the policy cannot tell, so any request may have to wait.
        self.ready: Callable[[Request, int], bool] | None = None
        self.admit_now: Callable[[Request, int], Admission] = _refuse_prompt
        # Those of them whose classes are compiled.
        policy: object = stage.at_once
        waiting: object = stage.waiting
        self.own: BasePolicy | None = None
        if isinstance(policy, BasePolicy):
            self.own = policy
        self.own_prompt: BasePromptPolicy | None = None
        if isinstance(waiting, BasePromptPolicy):
            self.own_prompt = waiting
        if stage.at_once is not None:
            self.admit_now = stage.at_once.admit
        elif hasattr(stage.waiting, "ready") and hasattr(stage.waiting, "admit_now"):
            prompt = cast("PromptPolicy", stage.waiting)
            self.ready = prompt.ready
            self.admit_now = prompt.admit_now
        self.admitted = self.refused = self.unwound = 0

    def stats(self) -> StageStats:
        """Its counts, and those of its policy."""
        policy: object = self.at_once if self.waiting is None else self.waiting
        stats = getattr(policy, "stats", None)
        own = stats() if callable(stats) else None
        return StageStats(self.name, self.admitted, self.refused, self.unwound, own)


def _refuse_prompt(request: Request, now_us: int) -> Admission:
    """The `admit_now` of a stage that has none; never called, since its `ready` is None."""
    raise AssertionError(request)


@final
class _ForeignPermit(BasePermit):
    """A permit of a class that is not compiled."""

    __slots__ = ("_permit",)

    def __init__(self, permit: Permit) -> None:
        self._permit = permit

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it."""
        if spent:
            return self._permit.end(outcome, now_us)
        return self._permit.end(outcome, now_us, spent=False)


@final
class StackPermit(BasePermit):
    """What an admitted request holds of all stages; it ends once."""

    __slots__ = ("_began_us", "_ended", "_stack", "held", "request")

    def __init__(self, stack: Stack, request: Request, held: list[BasePermit], now_us: int) -> None:
        self._stack = stack
        self.held = held
        self._began_us = now_us
        self._ended = False
        self.request = request

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End the permits of all stages, in reverse, and notify the observers."""
        if self._ended:
            return False
        self._ended = True
        request = self.request
        if spent and request.measured is None and outcome is not Outcome.IGNORE:
            request.measured = Measured(max(now_us - self._began_us, 0))
        self._stack.close(request, self.held, outcome, now_us, spent)
        return True


@final
class Stack:
    """Runs a request through its stages in order."""

    __slots__ = (
        "_admitted",
        "_broken_off",
        "_end_observers",
        "_ended",
        "_entered",
        "_refusal_observers",
        "_refused",
        "_steps",
        "_waits",
    )

    def __init__(self, *stages: StackStage, observers: Sequence[StackObserver] = ()) -> None:
        if not 1 <= len(stages) <= STAGES_MAX:
            raise BadValue("stack.stages", len(stages), f"give from 1 to {STAGES_MAX} stages")
        if len(observers) > OBSERVERS_MAX:
            raise BadValue("stack.observers", len(observers), f"give at most {OBSERVERS_MAX}")
        names = [stage.name for stage in stages]
        for name in names:
            if names.count(name) > 1:
                raise BadValue("stage.name", name, "give each stage of a stack its own name")
        self._steps = [_Step(stage) for stage in stages]
        self._waits = [step for step in self._steps if step.waiting is not None]
        self._refusal_observers = _methods_of("record_refusal", observers)
        self._end_observers: list[BaseEndObserver] = []
        for observer in observers:
            if isinstance(observer, BaseEndObserver):
                self._end_observers.append(observer)
            else:
                methods = _methods_of("record_end", [observer])
                self._end_observers += [_ForeignEndObserver(method) for method in methods]
        self._entered = self._admitted = self._refused = self._broken_off = self._ended = 0

    def ready(self, request: Request, now_us: int) -> bool:
        """Whether no stage would have to wait for anything."""
        for step in self._waits:
            own, ready = step.own_prompt, step.ready
            if own is not None:
                if not own.ready(request, now_us):
                    return False
            elif ready is None or not ready(request, now_us):
                return False
        return True

    def admit_now(self, request: Request, now_us: int) -> StackPermit | Decision:
        """Every stage at one instant, for whoever is `ready`; like `admit` in all else."""
        self._entered += 1
        request.measured = None
        held: list[BasePermit] = []
        passed = 0
        try:
            for step in self._steps:
                own, own_prompt = step.own, step.own_prompt
                if own is not None:
                    admission = own.admit(request, now_us)
                elif own_prompt is not None:
                    admission = own_prompt.admit_now(request, now_us)
                else:
                    admission = step.admit_now(request, now_us)
                if isinstance(admission, BasePermit):
                    if admission is not NOTHING_HELD:
                        held.append(admission)
                elif not isinstance(admission, Decision):
                    held.append(_ForeignPermit(admission))
                elif not admission.allowed:
                    self._refuse(request, admission, held, passed, now_us)
                    return admission
                step.admitted += 1
                passed += 1
        except BaseException:
            self._broken_off += 1
            self._unwind(held, passed, now_us)
            raise
        self._admitted += 1
        return StackPermit(self, request, held, now_us)

    async def admit(self, request: Request, clock: Clock) -> StackPermit | Decision:
        """Run every stage; what is refused, cancelled or fails on the way holds nothing."""
        now_us = clock.now_us()
        if self.ready(request, now_us):
            return self.admit_now(request, now_us)
        self._entered += 1
        request.measured = None
        held: list[BasePermit] = []
        passed = 0
        refused: Decision | None = None
        try:
            for step in self._steps:
                admission: Admission
                policy = step.at_once
                if policy is not None:
                    admission = policy.admit(request, now_us)
                else:
                    waiting = step.waiting
                    assert waiting is not None  # a stage is one or the other
                    admission = await waiting.admit(request, clock)
                    now_us = clock.now_us()
                if isinstance(admission, BasePermit):
                    if admission is not NOTHING_HELD:
                        held.append(admission)
                elif not isinstance(admission, Decision):
                    held.append(_ForeignPermit(admission))
                elif not admission.allowed:
                    refused = admission
                    break
                step.admitted += 1
                passed += 1
        except BaseException:
            self._broken_off += 1
            self._unwind(held, passed, clock.now_us())
            raise
        if refused is not None:
            self._refuse(request, refused, held, passed, now_us)
            return refused
        self._admitted += 1
        return StackPermit(self, request, held, now_us)

    def enter(self, request: Request, clock: Clock) -> StackContext:
        """`async with`: raises `Refused`, and ends the permit however the block ends."""
        return StackContext(self, request, clock)

    def close(
        self, request: Request, held: list[BasePermit], outcome: Outcome, now_us: int, spent: bool
    ) -> None:
        """A permit has ended; called by the permit."""
        self._ended += 1
        try:
            end_all(held, outcome, now_us, spent)
        finally:
            if spent:
                for observer in self._end_observers:
                    observer.record_end(request, outcome, now_us)
            else:
                for step in self._steps:
                    step.unwound += 1

    def stats(self) -> StackStats:
        """Counts since the start, for the whole and for each stage."""
        return StackStats(
            self._entered,
            self._entered - self._admitted - self._refused - self._broken_off,
            self._admitted,
            self._refused,
            self._broken_off,
            self._admitted - self._ended,
            self._ended,
            tuple([step.stats() for step in self._steps]),
        )

    def _refuse(
        self, request: Request, decision: Decision, held: list[BasePermit], passed: int, now_us: int
    ) -> None:
        """Record the refusal by the stage after the `passed` ones, and unwind those."""
        step = self._steps[passed]
        step.refused += 1
        self._refused += 1
        self._unwind(held, passed, now_us)
        for record in self._refusal_observers:
            record(request, step.name, decision, now_us)

    def _unwind(self, held: list[BasePermit], passed: int, now_us: int) -> None:
        """Give back what the first stages hold."""
        for place in range(passed):
            self._steps[place].unwound += 1
        end_all(held, Outcome.IGNORE, now_us, False)


@final
class StackContext:
    """The `async with` of one request."""

    __slots__ = ("_clock", "_permit", "_request", "_stack")

    def __init__(self, stack: Stack, request: Request, clock: Clock) -> None:
        self._stack = stack
        self._request = request
        self._clock = clock
        self._permit: StackPermit | None = None

    async def __aenter__(self) -> StackPermit:
        admission = await self._stack.admit(self._request, self._clock)
        if isinstance(admission, Decision):
            raise Refused(admission)
        self._permit = admission
        return admission

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        permit = self._permit
        if permit is not None:
            permit.end(outcome_of(raised), self._clock.now_us())


def _methods_of(name: str, observers: Sequence[StackObserver]) -> list[Callable[..., None]]:
    """That method of each observer that has it."""
    return [getattr(observer, name) for observer in observers if hasattr(observer, name)]


def outcome_of(raised: BaseException | None) -> Outcome:
    """How a block ended: what was lost to overload is DROPPED, a bug or a cancel says nothing."""
    if raised is None:
        return Outcome.SUCCESS
    if isinstance(raised, (TimeoutError, Unavailable, Refused)):
        return Outcome.DROPPED
    return Outcome.IGNORE


def end_all(held: list[BasePermit], outcome: Outcome, now_us: int, spent: bool) -> None:
    """End them in reverse; one that fails does not keep the others from ending."""
    failed: Exception | None = None
    for permit in reversed(held):
        try:
            permit.end(outcome, now_us, spent=spent)
        except Exception as error:
            failed = error if failed is None else failed
    if failed is not None:
        raise failed
