from __future__ import annotations

from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.reasons import BREAKER_OPEN
from sluicegate.contracts.request import Request
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.client.breaker import (
    Breaker,
    BreakerChange,
    BreakerPermit,
    BreakerSettings,
)
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.testing import SeededChance

S = 1_000_000
FAILED: CallResult[object] = CallResult(ResultKind.FAILED)
OK: CallResult[object] = CallResult(ResultKind.OK)


@final
class CountedChance:
    """The middle of what chance may give, and how often it was asked."""

    def __init__(self) -> None:
        self.draws = 0

    def draw(self) -> float:
        self.draws += 1
        return 0.5


def breaker(**settings: object) -> Breaker:
    return Breaker(SeededChance(1), BreakerSettings(**settings))  # type: ignore[arg-type]


def of(shard: str, operation: str = "get", level: Criticality = Criticality.DEGRADED) -> Request:
    return Request("k", shard=shard, operation=operation, criticality=level)


def call(gate: Breaker, request: Request, kind: ResultKind, now_us: int, hint_us: int = 0) -> bool:
    permit = gate.admit(request, now_us)
    if isinstance(permit, Decision):
        return False
    if isinstance(permit, BreakerPermit):
        assert permit.end_with(CallResult(kind, retry_after_us=hint_us), now_us)
    return True


def opened(gate: Breaker, request: Request, now_us: int = 0) -> None:
    for _ in range(5):
        assert call(gate, request, ResultKind.FAILED, now_us)


def test_one_bad_shard_stops_only_itself_and_one_bad_operation_only_that() -> None:
    gate = breaker()
    opened(gate, of("a", "scan"))
    refusal = gate.admit(of("a", "scan"), S)
    assert isinstance(refusal, Decision)
    assert refusal.reason is BREAKER_OPEN
    assert refusal.rule_id == "breaker"
    assert call(gate, of("a", "get"), ResultKind.OK, S)
    assert call(gate, of("b", "scan"), ResultKind.OK, S)
    assert gate.stats() == (7, 1, 0, 1, 3, 1, 0)
    assert gate.states()["a", "scan", -1] == "open"


def test_told_apart_by_class_bulk_work_does_not_stop_what_is_critical() -> None:
    apart = breaker(by_criticality=True)
    opened(apart, of("a", level=Criticality.BULK))
    assert call(apart, of("a", level=Criticality.CRITICAL), ResultKind.OK, 0)
    together = breaker(by_operation=False)
    opened(together, of("a", "scan"))
    assert not call(together, of("a", "get"), ResultKind.OK, 0)


@pytest.mark.parametrize("kind", [ResultKind.OVERLOADED, ResultKind.LIMITED, ResultKind.CANCELLED])
def test_a_refusal_and_a_cancelled_call_say_nothing_about_health(kind: ResultKind) -> None:
    gate = breaker()
    for _ in range(100):
        assert call(gate, of("a"), kind, 0)
    for _ in range(4):
        call(gate, of("a"), ResultKind.FAILED, 0)
    for _ in range(100):
        assert call(gate, of("a"), kind, 0), "nor are they successes between failures"
    call(gate, of("a"), ResultKind.FAILED, 0)
    assert not call(gate, of("a"), ResultKind.OK, 0)


@pytest.mark.parametrize("kind", [ResultKind.FAILED, ResultKind.TIMED_OUT, ResultKind.UNREACHED])
def test_failures_open_it(kind: ResultKind) -> None:
    gate = breaker()
    for _ in range(5):
        call(gate, of("a"), kind, 0)
    assert not call(gate, of("a"), ResultKind.OK, 0)


def test_the_callers_own_fault_is_an_answer_of_a_healthy_backend() -> None:
    gate = breaker()
    for kind in [ResultKind.FAILED] * 4 + [ResultKind.REJECTED] + [ResultKind.FAILED] * 4:
        assert call(gate, of("a"), kind, 0)
    assert call(gate, of("a"), ResultKind.OK, 0), "never five in a row"


def test_in_the_seeds_form_back_pressure_trips_it_at_once_for_as_long_as_was_asked() -> None:
    gate = breaker(on_pressure="trip")
    assert call(gate, of("a"), ResultKind.OVERLOADED, 0, hint_us=60 * S)
    refusal = gate.admit(of("a"), S)
    assert isinstance(refusal, Decision)
    assert refusal.retry_after_us == 59 * S
    assert gate.stats().opened == 1
    assert gate.stats().inflight == 0


def test_back_pressure_on_a_call_from_before_the_breaker_closed_again_is_void() -> None:
    gate = breaker(on_pressure="trip", probes=1, probe_successes=1)
    old = gate.admit(of("a"), 0)
    assert isinstance(old, BreakerPermit)
    opened(gate, of("a"))
    assert call(gate, of("a"), ResultKind.OK, 10 * S), "a probe, and it closes"
    assert old.end_with(CallResult(ResultKind.OVERLOADED), 10 * S)
    assert call(gate, of("a"), ResultKind.OK, 10 * S)
    assert gate.stats().opened == 1


def test_the_retry_after_is_exact_and_a_few_probes_close_it() -> None:
    gate = breaker()
    opened(gate, of("a"))
    refusal = gate.admit(of("a"), 0)
    assert isinstance(refusal, Decision)
    at_us = refusal.retry_after_us
    assert not call(gate, of("a"), ResultKind.OK, at_us - 1)
    probes = [gate.admit(of("a"), at_us) for _ in range(5)]
    permits = [probe for probe in probes if isinstance(probe, BreakerPermit)]
    assert len(permits) == 3, "no herd of probes"
    for probe in permits:
        probe.end_with(OK, at_us)
    assert call(gate, of("a"), ResultKind.OK, at_us)
    assert gate.stats().not_closed == 0


def test_two_breakers_of_different_chance_open_for_different_times() -> None:
    waits = []
    for seed in (1, 2):
        gate = Breaker(SeededChance(seed), BreakerSettings(open_us=4 * S))
        for shard in ("a", "b"):
            opened(gate, of(shard))
            refusal = gate.admit(of(shard), 0)
            assert isinstance(refusal, Decision)
            waits.append(refusal.retry_after_us)
    assert all(2 * S <= wait_us <= 4 * S for wait_us in waits)
    assert len(set(waits)) == 4, "each opening has a draw of its own"


def test_only_an_opening_draws() -> None:
    chance = CountedChance()
    gate = Breaker(chance)
    ready = chance.draws
    for kind in (ResultKind.OK, ResultKind.FAILED, ResultKind.CANCELLED, ResultKind.OK):
        call(gate, of("a"), kind, 0)
    assert chance.draws == ready
    opened(gate, of("a"))
    assert chance.draws == ready + 1
    refusal = gate.admit(of("a"), 0)
    assert isinstance(refusal, Decision)
    for _ in range(10):  # probes that succeed close it
        call(gate, of("a"), ResultKind.OK, refusal.retry_after_us)
    assert gate.states()["a", "get", -1] == "closed"
    assert chance.draws == ready + 1


def test_a_result_from_before_the_opening_is_void() -> None:
    gate = breaker()
    old = gate.admit(of("a"), 0)
    assert isinstance(old, BreakerPermit)
    opened(gate, of("a"))
    assert old.end_with(OK, 1)
    assert not call(gate, of("a"), ResultKind.OK, 1)


def test_slow_calls_open_it_if_asked_to() -> None:
    gate = breaker(slow_percent=50, slow_us=100_000, calls_min=4)
    for _ in range(4):
        permit = gate.admit(of("a"), 0)
        assert isinstance(permit, BreakerPermit)
        permit.end_with(OK, 100_000)
    assert not call(gate, of("a"), ResultKind.OK, 100_000)


def test_a_plain_end_counts_dropped_as_a_failure_and_what_was_unwound_as_nothing() -> None:
    gate = breaker()
    for outcome, spent in [(Outcome.DROPPED, False), (Outcome.IGNORE, True)] * 20:
        permit = gate.admit(of("a"), 0)
        assert permit.end(outcome, 0, spent=spent)  # type: ignore[union-attr]
    for _ in range(4):
        gate.admit(of("a"), 0).end(Outcome.DROPPED, 0)  # type: ignore[union-attr]
    gate.admit(of("a"), 0).end(Outcome.SUCCESS, 0)  # type: ignore[union-attr]
    for _ in range(5):
        assert isinstance(gate.admit(of("a"), 0), BreakerPermit)
        gate.admit(of("a"), 0).end(Outcome.DROPPED, 0)  # type: ignore[union-attr]
    assert not call(gate, of("a"), ResultKind.OK, 0)


def test_a_full_table_never_forgets_an_open_breaker() -> None:
    gate = breaker(keys_max=3, idle_us=10 * S, open_us=300 * S)
    opened(gate, of("bad"))
    for n in range(12):
        call(gate, of(f"new {n}"), ResultKind.OK, 11 * S * n + S)
    stats = gate.stats()
    assert stats.keys == 3
    assert gate.states()["bad", "get", -1] == "open"
    assert stats.untracked == 0, "there was always an idle one to forget"


def test_a_breaker_in_use_is_not_forgotten_though_it_is_closed() -> None:
    gate = breaker(keys_max=1)
    for _ in range(4):
        call(gate, of("a"), ResultKind.FAILED, 0)
    assert call(gate, of("b"), ResultKind.OK, 59 * S)
    assert not gate.states().get(("b", "get", -1))
    call(gate, of("a"), ResultKind.FAILED, 59 * S)
    assert not call(gate, of("a"), ResultKind.OK, 59 * S)


def test_what_there_is_no_room_for_passes_unjudged() -> None:
    gate = breaker(keys_max=1)
    opened(gate, of("a"))
    for _ in range(10):
        permit = gate.admit(of("b"), 0)
        assert permit is NOTHING_HELD
        assert permit.end(Outcome.DROPPED, 0)
    assert gate.stats().untracked == 10


def test_it_can_be_held_by_hand_and_is_not_forgotten_then() -> None:
    gate = breaker(keys_max=1, idle_us=10 * S)
    assert gate.force(of("a"), "open", 0)
    refusal = gate.admit(of("a"), 0)
    assert isinstance(refusal, Decision)
    assert refusal.retry_after_us == NEVER
    assert refusal.reset_after_us == 0
    assert not gate.force(of("b"), "open", 1000 * S), "there is no room beside it"
    assert gate.force(of("a"), "closed", 1000 * S)
    opened(gate, of("a"), 1000 * S)
    assert call(gate, of("a"), ResultKind.OK, 1000 * S)
    assert not gate.force(of("b"), "open", 3000 * S)
    assert gate.force(of("a"), "release", 3000 * S)
    opened(gate, of("a"), 3000 * S)
    assert not call(gate, of("a"), ResultKind.OK, 3000 * S)
    with pytest.raises(BadValue, match=r"breaker\.force"):
        gate.force(of("a"), "ajar", 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keys_max", 0),
        ("failure_percent", 101),
        ("on_pressure", "x"),
        ("idle_us", 1),
        ("probes", 0),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"breaker\.{field}"):
        breaker(**{field: value})


Step = tuple[int, int, int]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, S)), max_size=80))
def test_a_permit_ends_exactly_once_and_nothing_leaks(steps: list[Step]) -> None:
    gate = breaker(on_pressure="trip")
    kinds = list(ResultKind)
    permits: list[BreakerPermit] = []
    ended: list[BreakerPermit] = []
    now_us = 0
    for what, which, later_us in steps:
        now_us += later_us
        if what == 0 or not permits:
            permit = gate.admit(of(str(which % 2)), now_us)
            if isinstance(permit, BreakerPermit):
                permits.append(permit)
        elif what == 1 and ended:
            assert not ended[which % len(ended)].end(Outcome.DROPPED, now_us)
            assert not ended[which % len(ended)].end_with(CallResult(ResultKind.OVERLOADED), now_us)
        else:
            permit = permits.pop(which % len(permits))
            if what == 2:
                assert permit.end_with(CallResult(kinds[which % len(kinds)]), now_us)
            else:
                assert permit.end(Outcome.DROPPED, now_us, spent=which % 2 == 0)
            ended.append(permit)
        assert gate.stats().inflight == len(permits)
    for permit in permits:
        assert permit.end(Outcome.SUCCESS, now_us)
    assert gate.stats().inflight == 0


def test_listeners_are_given_each_change_of_state_once() -> None:
    gate = breaker(on_pressure="trip", probes=1, probe_successes=1)
    changes: list[BreakerChange] = []
    gate.subscribe(changes.append)
    opened(gate, of("a"))
    assert not call(gate, of("a"), ResultKind.OK, 1)
    assert call(gate, of("a"), ResultKind.OK, 10 * S)
    assert call(gate, of("a"), ResultKind.OVERLOADED, 11 * S)
    gate.force(of("a"), "closed", 12 * S)
    key = ("a", "get", -1)
    assert changes == [
        (key, "closed", "open", 0),
        (key, "open", "half-open", 10 * S),
        (key, "half-open", "closed", 10 * S),
        (key, "closed", "open", 11 * S),
        (key, "open", "forced closed", 12 * S),
    ]
