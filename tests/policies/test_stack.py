"""Policies in an order that one can see; and what changes when two of them swap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.usage import CallerUsage
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import (
    NOTHING_HELD,
    BasePolicy,
    BasePromptPolicy,
    NothingHeld,
)
from sluicegate.contracts.reasons import OVERLOADED, QUOTA_SPENT, SHED, Reason
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.admission import gate as admission
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.stack import (
    BaseEndObserver,
    Stack,
    StackPermit,
    StackStats,
    at_once,
    outcome_of,
    waits,
)
from sluicegate.testing import HandClock

MS = 1_000
S = 1_000_000
NOW = HandClock().now_us()


def no(reason: Reason, rule_id: str = "gate") -> Decision:
    return Decision(False, 0, 7, 7, reason, rule_id)


class GatePermit:
    """Says to its gate what it was told."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        if self.ended:
            return False
        self.ended = True
        self.gate.in_use -= 1
        self.gate.log.append((f"{self.gate.name} ends", outcome, now_us, spent))
        if self.gate.fails_to_end:
            raise RuntimeError(f"{self.gate.name} cannot end")
        return True


class Gate:
    """A policy that does what the test says, and writes down what it hears."""

    def __init__(self, name: str, log: list[Any] | None = None) -> None:
        self.name = name
        self.log: list[Any] = [] if log is None else log
        self.refuses: Decision | None = None
        self.raises: Exception | None = None
        self.fails_to_end = False
        self.in_use = 0

    def admit(self, request: Request, now_us: int) -> GatePermit | Decision:
        self.log.append((f"{self.name} asked", now_us))
        if self.raises is not None:
            raise self.raises
        if self.refuses is not None:
            return self.refuses
        self.in_use += 1
        return GatePermit(self)

    def stats(self) -> tuple[str, int]:
        return (self.name, self.in_use)


class Line:
    """A policy that waits until the test opens it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.opened = asyncio.Event()
        self.waiting = 0

    async def admit(self, request: Request, clock: Clock) -> GatePermit | Decision:
        self.waiting += 1
        try:
            await self.opened.wait()
        finally:
            self.waiting -= 1
        return self.gate.admit(request, clock.now_us())


class RecordingObserver:
    """An observer."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def record_refusal(self, request: Request, stage: str, decision: Decision, now_us: int) -> None:
        assert decision.reason is not None
        self.events.append(("refused", stage, decision.reason.name, now_us))

    def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
        self.events.append(("ended", outcome, request.measured, now_us))


def measured_now(request: Request) -> Measured | None:
    return request.measured


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story()

    asyncio.run(whole())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def admitted(stack: Stack, request: Request, clock: HandClock) -> StackPermit:
    permit = await stack.admit(request, clock)
    assert isinstance(permit, StackPermit)
    return permit


def test_stages_are_asked_in_order_and_end_in_reverse() -> None:
    async def story() -> None:
        log: list[Any] = []
        clock = HandClock()
        stack = Stack(*[at_once(name, Gate(name, log)) for name in "abc"])
        permit = await admitted(stack, Request("k"), clock)
        assert log == [("a asked", NOW), ("b asked", NOW), ("c asked", NOW)]
        log.clear()
        assert permit.end(Outcome.SUCCESS, NOW + 5)
        assert log == [(f"{name} ends", Outcome.SUCCESS, NOW + 5, True) for name in "cba"]
        assert not permit.end(Outcome.DROPPED, NOW + 6)
        assert len(log) == 3

    run(story)


def test_a_refusal_unwinds_what_earlier_stages_took_and_asks_no_later_one() -> None:
    async def story() -> None:
        log: list[Any] = []
        gates = [Gate(name, log) for name in "abcd"]
        gates[2].refuses = no(SHED)
        stack = Stack(*[at_once(gate.name, gate) for gate in gates])
        decision = await stack.admit(Request("k"), HandClock())
        assert decision is gates[2].refuses
        assert log[3:] == [
            ("b ends", Outcome.IGNORE, NOW, False),
            ("a ends", Outcome.IGNORE, NOW, False),
        ]
        stats = stack.stats()
        assert [(one.admitted, one.refused, one.unwound) for one in stats.stages] == [
            (1, 0, 1),
            (1, 0, 1),
            (0, 1, 0),
            (0, 0, 0),
        ]
        assert stats[:7] == (1, 0, 0, 1, 0, 0, 0)

    run(story)


def test_who_is_cancelled_in_a_line_holds_nothing() -> None:
    async def story() -> None:
        log: list[Any] = []
        clock = HandClock()
        first, last = Gate("first", log), Gate("last", log)
        line = Line(Gate("line", log))
        stack = Stack(at_once("first", first), waits("line", line), at_once("last", last))
        task = asyncio.create_task(stack.admit(Request("k"), clock))
        await turns()
        assert (first.in_use, line.waiting, stack.stats().entering) == (1, 1, 1)
        clock.advance(s=3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log[-1] == ("first ends", Outcome.IGNORE, NOW + 3 * S, False)
        assert (first.in_use, line.waiting, last.in_use) == (0, 0, 0)
        stats = stack.stats()
        assert (stats.broken_off, stats.entering, stats.under_way, stats.refused) == (1, 0, 0, 0)
        assert stats.stages[0].unwound == 1

    run(story)


def test_a_stage_that_fails_is_heard_of_and_the_others_are_unwound() -> None:
    async def story() -> None:
        first, broken = Gate("first"), Gate("broken")
        broken.raises = ValueError("a bug")
        stack = Stack(at_once("first", first), at_once("broken", broken))
        with pytest.raises(ValueError, match="a bug"):
            await stack.admit(Request("k"), HandClock())
        assert first.in_use == 0
        assert stack.stats().broken_off == 1

    run(story)


def test_an_end_that_fails_keeps_no_other_from_ending() -> None:
    async def story() -> None:
        gates = [Gate(name) for name in "abc"]
        gates[1].fails_to_end = gates[2].fails_to_end = True
        observer = RecordingObserver()
        stack = Stack(*[at_once(gate.name, gate) for gate in gates], observers=[observer])
        permit = await admitted(stack, Request("k"), HandClock())
        with pytest.raises(RuntimeError, match="c cannot end"):
            permit.end(Outcome.SUCCESS, NOW)
        assert [gate.in_use for gate in gates] == [0, 0, 0]
        assert len(observer.events) == 1
        assert not permit.end(Outcome.SUCCESS, NOW)
        assert stack.stats().under_way == 0

    run(story)


def test_a_stage_after_a_wait_is_told_the_later_instant() -> None:
    async def story() -> None:
        log: list[Any] = []
        clock = HandClock()
        line = Line(Gate("line", log))
        stack = Stack(waits("line", line), at_once("last", Gate("last", log)))
        task = asyncio.create_task(stack.admit(Request("k"), clock))
        await turns()
        clock.advance(ms=30)
        line.opened.set()
        assert isinstance(await task, StackPermit)
        assert log == [("line asked", NOW + 30 * MS), ("last asked", NOW + 30 * MS)]

    run(story)


def test_work_is_measured_from_the_last_admission_without_the_wait() -> None:
    async def story() -> None:
        clock, observer = HandClock(), RecordingObserver()
        line = Line(Gate("line"))
        stack = Stack(waits("line", line), observers=[observer])
        request = Request("k", arrived_us=NOW - 4 * MS)
        task = asyncio.create_task(stack.admit(request, clock))
        await turns()
        clock.advance(ms=30)
        line.opened.set()
        permit = await task
        assert isinstance(permit, StackPermit)
        clock.advance(ms=10)
        permit.end(Outcome.SUCCESS, clock.now_us())
        assert observer.events == [
            ("ended", Outcome.SUCCESS, Measured(10 * MS), NOW + 40 * MS),
        ]

    run(story)


def test_what_was_measured_is_kept_and_what_says_nothing_is_not_measured() -> None:
    async def story() -> None:
        clock, observer = HandClock(), RecordingObserver()
        stack = Stack(at_once("a", Gate("a")), observers=[observer])
        request = Request("k")
        permit = await admitted(stack, request, clock)
        request.measured = Measured(3, rows=7)
        permit.end(Outcome.SUCCESS, NOW + 9)
        # It comes in again, as the next chunk of itself: the old measure is not the new one.
        permit = await admitted(stack, request, clock)
        assert observer.events[0][2] is not None
        assert measured_now(request) is None
        permit.end(Outcome.IGNORE, NOW + 9)
        permit = await admitted(stack, request, clock)
        permit.end(Outcome.DROPPED, NOW - 9)  # a clock that went back
        measures = [event[2] for event in observer.events]
        assert measures == [Measured(3, rows=7), None, Measured(0)]

    run(story)


def test_observers_hear_of_refusals_and_not_of_what_was_unwound() -> None:
    async def story() -> None:
        clock, observer = HandClock(), RecordingObserver()
        gate = Gate("gate")
        stack = Stack(at_once("gate", gate), observers=[observer])
        permit = await admitted(stack, Request("k"), clock)
        assert permit.end(Outcome.IGNORE, NOW, spent=False)
        assert gate.log[-1] == ("gate ends", Outcome.IGNORE, NOW, False)
        assert stack.stats().stages[0].unwound == 1
        gate.refuses = no(QUOTA_SPENT)
        await stack.admit(Request("k"), clock)
        assert observer.events == [("refused", "gate", "quota_spent", NOW)]

    run(story)


def test_a_refusal_that_is_only_tried_out_admits() -> None:
    async def story() -> None:
        gate = Gate("gate")
        gate.refuses = Decision(True, 0, 0, 0, SHED, "gate").with_marks(shadow=True)
        stack = Stack(at_once("gate", gate), at_once("last", Gate("last")))
        permit = await admitted(stack, Request("k"), HandClock())
        assert permit.end(Outcome.SUCCESS, NOW)
        assert stack.stats().stages[0][:4] == ("gate", 1, 0, 0)

    run(story)


def test_enter_ends_the_permit_however_the_block_ends() -> None:
    async def story() -> None:
        clock, gate, observer = HandClock(), Gate("gate"), RecordingObserver()
        stack = Stack(at_once("gate", gate), observers=[observer])
        async with stack.enter(Request("k"), clock) as permit:
            assert permit.request.key == "k"
            clock.advance(ms=2)
        for raised in (TimeoutError(), ValueError(), asyncio.CancelledError()):
            with pytest.raises(type(raised)):
                async with stack.enter(Request("k"), clock):
                    raise raised
        assert [event[1] for event in observer.events] == [
            Outcome.SUCCESS,
            Outcome.DROPPED,
            Outcome.IGNORE,
            Outcome.IGNORE,
        ]
        assert observer.events[0][2:] == (Measured(2 * MS), NOW + 2 * MS)
        async with stack.enter(Request("k"), clock) as permit:
            permit.end(Outcome.DROPPED, NOW)
        assert observer.events[-1][1] is Outcome.DROPPED
        gate.refuses = no(OVERLOADED)
        with pytest.raises(Refused) as refusal:
            async with stack.enter(Request("k"), clock):
                raise AssertionError("it was refused")
        assert refusal.value.decision is gate.refuses
        assert gate.in_use == 0
        assert stack.stats().under_way == 0

    run(story)


def test_the_outcome_of_a_block_is_in_a_table() -> None:
    assert outcome_of(None) is Outcome.SUCCESS
    for lost in (TimeoutError(), Unavailable("a store", "nothing"), Refused(no(SHED))):
        assert outcome_of(lost) is Outcome.DROPPED
    for says_nothing in (ValueError(), asyncio.CancelledError(), KeyboardInterrupt()):
        assert outcome_of(says_nothing) is Outcome.IGNORE


def test_a_stack_is_a_stage_of_another() -> None:
    async def story() -> None:
        log: list[Any] = []
        inner = Stack(at_once("b", Gate("b", log)), at_once("c", Gate("c", log)))
        outer = Stack(at_once("a", Gate("a", log)), waits("inner", inner))
        permit = await admitted(outer, Request("k"), HandClock())
        log.clear()
        permit.end(Outcome.SUCCESS, NOW)
        assert [what for what, *_ in log] == ["c ends", "b ends", "a ends"]
        own = outer.stats().stages[1].own
        assert isinstance(own, StackStats)
        assert own.ended == 1

    run(story)


def test_the_statistics_hold_those_of_every_policy() -> None:
    stack = Stack(
        at_once("criticality", CriticalityClamp()),
        at_once("gate", Gate("gate")),
        waits("line", _Nothing()),
    )
    names = [type(stage.own).__name__ for stage in stack.stats().stages]
    assert names == ["CriticalityStats", "tuple", "NoneType"]


class _Nothing:
    async def admit(self, request: Request, clock: Clock) -> NothingHeld:
        return NOTHING_HELD


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (Stack, "stack.stages"),
        (
            lambda: Stack(*[at_once(str(n), Gate("x")) for n in range(33)]),
            "stack.stages",
        ),
        (lambda: Stack(at_once("a", Gate("x")), at_once("a", Gate("y"))), "stage.name"),
        (lambda: at_once("", Gate("x")), "stage.name"),
        (
            lambda: Stack(at_once("a", Gate("x")), observers=[RecordingObserver()] * 17),
            "stack.observers",
        ),
    ],
)
def test_a_bad_stack_names_what_is_wrong(make: Callable[[], object], field: str) -> None:
    with pytest.raises(BadValue) as wrong:
        make()
    assert wrong.value.field == field


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enter", "open", "cancel", "end", "end again", "break", "refuse"]),
            st.integers(0, 9),
        ),
        max_size=30,
    )
)
def test_every_permit_ends_once_in_any_interleaving_and_nothing_leaks(
    steps: list[tuple[str, int]],
) -> None:
    async def story() -> None:
        clock = HandClock()
        gates = [Gate("first"), Gate("in line"), Gate("last")]
        line = Line(gates[1])
        stack = Stack(at_once("first", gates[0]), waits("line", line), at_once("last", gates[2]))
        tasks: list[asyncio.Task[Any]] = []
        over: list[StackPermit] = []
        for what, place in steps:
            clock.advance(ms=1)
            gates[2].raises = RuntimeError("broken") if what == "break" else None
            gates[2].refuses = no(OVERLOADED) if what == "refuse" else None
            if what == "enter":
                tasks.append(asyncio.create_task(stack.admit(Request("k"), clock)))
            elif what == "cancel" and tasks:
                tasks[place % len(tasks)].cancel()
            elif what in ("open", "break", "refuse"):
                line.opened.set()
                await turns()
                line.opened.clear()
            elif what == "end":
                for task in tasks:
                    if task.done() and not task.cancelled() and task.exception() is None:
                        permit = task.result()
                        if isinstance(permit, StackPermit) and permit not in over:
                            assert permit.end(Outcome.SUCCESS, clock.now_us())
                            over.append(permit)
                            break
            elif over:
                assert not over[place % len(over)].end(Outcome.DROPPED, clock.now_us(), spent=False)
            await turns()
            stats = stack.stats()
            assert stats.entering == line.waiting
            assert gates[0].in_use == stats.under_way + stats.entering
            assert gates[1].in_use == gates[2].in_use == stats.under_way
        line.opened.set()
        for got in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(got, StackPermit):
                assert got.end(Outcome.IGNORE, clock.now_us()) == (got not in over)
        assert [gate.in_use for gate in gates] == [0, 0, 0]
        stats = stack.stats()
        assert (stats.entering, stats.under_way) == (0, 0)
        assert stats.entered == stats.admitted + stats.refused + stats.broken_off
        assert stats.admitted == stats.ended

    run(story)


# With its neighbours, and swapped.


def lied(*, clamp_first: bool) -> list[str]:
    """Four requests of a shop and of a bot that claims CRITICAL, before one slot."""
    served: list[str] = []

    async def story() -> None:
        clock = HandClock()
        callers = {"shop": Criticality.CRITICAL}
        settings = CriticalitySettings(strangers=Criticality.BULK, callers=callers)
        clamp = at_once("criticality", CriticalityClamp(settings))
        queue = waits("queue", admission.Gate(GateSettings(slots=1)))
        stack = Stack(*([clamp, queue] if clamp_first else [queue, clamp]))

        async def one(who: str, claim: Criticality) -> None:
            request = Request("k", caller=who, criticality=claim)
            permit = await admitted(stack, request, clock)
            served.append(who)
            await turns()
            permit.end(Outcome.SUCCESS, clock.now_us())

        claims = [("bot", Criticality.CRITICAL), ("shop", Criticality.DEGRADED)] * 4
        first = asyncio.create_task(one("first", Criticality.CRITICAL))
        await turns(2)
        await asyncio.gather(first, *[one(who, claim) for who, claim in claims])

    run(story)
    return served[1:]


def test_swapping_criticality_and_queue() -> None:
    assert lied(clamp_first=True) == ["shop"] * 4 + ["bot"] * 4
    assert lied(clamp_first=False) == ["bot"] * 4 + ["shop"] * 4


@given(
    st.lists(
        st.tuples(st.sampled_from(["in", "out", "refuse"]), st.sampled_from(Criticality)),
        max_size=40,
    )
)
def test_who_is_ready_is_answered_at_once_as_who_waits_would_be(
    story: list[tuple[str, Criticality]],
) -> None:
    """One stack is asked without a coroutine wherever that can be, the other always with one."""

    def stack_of() -> tuple[Stack, Gate]:
        gate = Gate("gate")
        return Stack(
            at_once("gate", gate), waits("queue", admission.Gate(GateSettings(slots=3)))
        ), gate

    async def play() -> None:
        clock = HandClock()
        (prompt, first), (patient, second) = stack_of(), stack_of()
        permits: list[tuple[StackPermit, StackPermit]] = []
        for word, criticality in story:
            clock.advance(us=100)
            if word == "out" and permits:
                for permit in permits.pop(0):
                    permit.end(Outcome.SUCCESS, clock.now_us())
                continue
            first.refuses = second.refuses = no(SHED) if word == "refuse" else None
            one = Request("k", criticality=criticality)
            if not prompt.ready(one, clock.now_us()):
                assert len(permits) == 3  # nobody overtakes, and nobody waits for nothing
                continue
            mine = prompt.admit_now(one, clock.now_us())
            theirs = await patient.admit(Request("k", criticality=criticality), clock)
            if isinstance(mine, StackPermit):
                assert isinstance(theirs, StackPermit)
                permits.append((mine, theirs))
            else:
                assert mine == theirs
        assert prompt.stats()[:-1] == patient.stats()[:-1]
        stages = zip(prompt.stats().stages, patient.stats().stages, strict=True)
        assert all(a[:-1] == b[:-1] for a, b in stages)
        assert first.in_use == second.in_use == len(permits)

    asyncio.run(play())


def test_who_is_ready_is_admitted_at_one_instant() -> None:
    clock, queue = HandClock(), admission.Gate(GateSettings(slots=1))
    stack = Stack(at_once("criticality", CriticalityClamp()), waits("queue", queue))
    readings = 0

    class CountedClock:
        def now_us(self) -> int:
            nonlocal readings
            readings += 1
            return clock.now_us()

    permit = asyncio.run(stack.admit(Request("key"), CountedClock()))
    assert isinstance(permit, StackPermit)
    assert readings == 1


def test_the_policies_of_a_server_are_asked_without_looking_their_methods_up() -> None:
    """Compiled, a call by name costs as much as what many of them do."""
    for policy in (CriticalityClamp(), RequestUnits(RequestUnitsSettings())):
        assert isinstance(policy, BasePolicy)
        assert isinstance(policy.admit(Request("key"), NOW), BasePermit)
    gate = admission.Gate(GateSettings())
    assert isinstance(gate, BasePromptPolicy)
    assert isinstance(gate.admit_now(Request("key", operation="get"), NOW), BasePermit)
    assert isinstance(CallerUsage(), BaseEndObserver)


def test_observers_of_any_class_are_told_in_their_order() -> None:
    heard: list[str] = []

    class Foreign:
        def __init__(self, name: str) -> None:
            self.name = name

        def record_end(self, request: Request, outcome: Outcome, now_us: int) -> None:
            heard.append(self.name)

    stack = Stack(
        at_once("criticality", CriticalityClamp()),
        observers=[Foreign("first"), CallerUsage(), Foreign("last")],
    )
    permit = stack.admit_now(Request("key"), NOW)
    assert isinstance(permit, StackPermit)
    assert permit.end(Outcome.SUCCESS, NOW)
    assert heard == ["first", "last"]


def test_a_stage_that_cannot_say_whether_it_waits_is_never_ready() -> None:
    class Slow:
        async def admit(self, request: Request, clock: Clock) -> NothingHeld:
            return NOTHING_HELD

    assert not Stack(waits("slow", Slow())).ready(Request("k"), NOW)
    assert Stack(at_once("gate", Gate("gate"))).ready(Request("k"), NOW)
