from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.contracts.reasons import CLIENT_THROTTLED
from sluicegate.contracts.request import Request
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.client_throttle import (
    ClientThrottle,
    ClientThrottlePermit,
    ClientThrottleSettings,
)
from sluicegate.testing import SeededChance

S = 1_000_000
CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality


def throttle(**settings: object) -> ClientThrottle:
    return ClientThrottle(SeededChance(3), ClientThrottleSettings(**settings))  # type: ignore[arg-type]


def of(level: Criticality = DEGRADED, shard: str = "a") -> Request:
    return Request("k", shard=shard, criticality=level)


def call(
    policy: ClientThrottle,
    request: Request,
    kind: ResultKind,
    now_us: int,
    admits: Criticality | None = None,
) -> bool:
    permit = policy.admit(request, now_us)
    if isinstance(permit, Decision):
        assert permit.reason is CLIENT_THROTTLED
        assert permit.retry_after_us > 0
        return False
    assert isinstance(permit, ClientThrottlePermit)
    assert permit.end_with(CallResult(kind, admits=admits), now_us)
    return True


def sent(
    policy: ClientThrottle, request: Request, kind: ResultKind, begin_us: int, count: int
) -> int:
    """Of `count` calls, 10 ms apart."""
    return sum(call(policy, request, kind, begin_us + n * 10_000) for n in range(count))


def test_who_is_refused_holds_back_and_who_is_accepted_does_not() -> None:
    policy = throttle()
    assert sent(policy, of(), ResultKind.OK, 0, 1000) == 1000
    assert sent(policy, of(shard="b"), ResultKind.OVERLOADED, 0, 1000) < 100
    assert sent(policy, of(), ResultKind.OK, 10 * S, 1000) == 1000, (
        "another backend is another matter"
    )


def test_the_refusals_of_bulk_work_do_not_silence_what_is_critical() -> None:
    policy = throttle()
    sent(policy, of(BULK), ResultKind.OVERLOADED, 0, 1000)
    assert sent(policy, of(CRITICAL), ResultKind.OK, 10 * S, 100) == 100
    one_for_all = throttle(by_criticality=False)
    sent(one_for_all, of(BULK), ResultKind.OVERLOADED, 0, 1000)
    assert sent(one_for_all, of(CRITICAL), ResultKind.OK, 10 * S, 100) < 50


def test_calls_refused_here_count_as_requests_so_that_a_refusing_backend_is_left_alone() -> None:
    policy = throttle()
    first = sent(policy, of(), ResultKind.OVERLOADED, 0, 500)
    second = sent(policy, of(), ResultKind.OVERLOADED, 5 * S, 500)
    assert second < first
    assert second <= 12, "little more than one probe a second"


@pytest.mark.parametrize(
    "kind", [ResultKind.LIMITED, ResultKind.REJECTED, ResultKind.FAILED, ResultKind.CANCELLED]
)
def test_what_is_no_overload_holds_nothing_back(kind: ResultKind) -> None:
    assert sent(throttle(), of(), kind, 0, 1000) == 1000


@pytest.mark.parametrize(
    "kind", [ResultKind.TIMED_OUT, ResultKind.UNREACHED, ResultKind.OVERLOADED]
)
def test_what_is_not_accepted_holds_back(kind: ResultKind) -> None:
    assert sent(throttle(), of(), kind, 0, 1000) < 100


@pytest.mark.parametrize("ends", ["first to last", "last to first"])
def test_a_cold_burst_of_a_thousand_to_a_backend_that_is_well_is_sent_whole(ends: str) -> None:
    policy = throttle()
    sent = [policy.admit(of(), 0) for _ in range(1_000)]
    permits = [one for one in sent if isinstance(one, ClientThrottlePermit)]
    assert len(permits) == 1_000
    for n, permit in enumerate(permits if ends == "first to last" else reversed(permits)):
        assert permit.end_with(CallResult(ResultKind.OK), 50_000 + n)
        assert call(policy, of(), ResultKind.OK, 50_000 + n), "nor is what comes meanwhile"
    assert policy.stats().throttled == 0


def test_a_cold_burst_that_was_refused_holds_back_what_comes_after_it() -> None:
    policy = throttle()
    for permit in [policy.admit(of(), 0) for _ in range(1_000)]:
        assert isinstance(permit, ClientThrottlePermit)
        permit.end_with(CallResult(ResultKind.OVERLOADED), 50_000)
    assert sent(policy, of(), ResultKind.OVERLOADED, 50_000, 99) <= 2


def test_one_refusal_an_acceptance_is_the_most_that_a_backend_far_above_its_capacity_sees() -> None:
    policy = throttle()
    accepted = refused = 0
    for n in range(20_000):
        kind = ResultKind.OK if n % 10 == 0 else ResultKind.OVERLOADED
        if call(policy, of(), kind, n * 1_000) and n > 5_000:
            accepted += kind is ResultKind.OK
            refused += kind is ResultKind.OVERLOADED
    # A tenth of whatever comes is accepted, so what passes shrinks until probes are most of it.
    assert accepted + refused < 1_500


def part_sent(told_permille: int, *, unproven: bool = False, refused: float = 0.4) -> float:
    """Of 6,000 calls, of which a part is refused however few are sent."""
    policy, draw = throttle(history_us=2 * S), SeededChance(5).draw
    sent = 0
    for n in range(6_000):
        permit = policy.admit(of(), n * 10_000)
        if isinstance(permit, ClientThrottlePermit):
            sent += 1
            kind = ResultKind.OVERLOADED if draw() < refused else ResultKind.OK
            answer = CallResult[object](kind, unproven=unproven, admitted_permille=told_permille)
            permit.end_with(answer, n * 10_000)
    return sent / 6_000


def test_a_backend_that_loses_calls_whatever_is_asked_of_it_is_asked_as_before() -> None:
    """A third or two fifths of the hosts behind a name are down, or have too much."""
    for refused in (0.05, 0.1, 0.2, 0.33, 0.4):
        assert part_sent(0, unproven=True, refused=refused) >= 0.99, "a mere status"
        assert part_sent(50, refused=refused) >= 0.99, "a mark of one of many"
    assert part_sent(600, unproven=True) >= 0.99
    assert part_sent(600) < 0.3, "the control: a mark that is of the whole"


def test_after_the_backend_has_recovered_all_passes_again() -> None:
    policy = throttle(history_us=5 * S)
    sent(policy, of(), ResultKind.OVERLOADED, 0, 3000)
    sent(policy, of(), ResultKind.OK, 30 * S, 2000)
    assert sent(policy, of(), ResultKind.OK, 50 * S, 100) == 100


def test_what_a_backend_says_it_admits_is_refused_here_at_once_below_that() -> None:
    policy = throttle()
    assert call(policy, of(BULK), ResultKind.OVERLOADED, 0, admits=DEGRADED)
    assert not call(policy, of(BULK), ResultKind.OK, 1)
    assert not call(policy, of(BEST_EFFORT), ResultKind.OK, 1)
    assert call(policy, of(DEGRADED), ResultKind.OK, 1)
    assert call(policy, of(BULK, shard="b"), ResultKind.OK, 1)
    refusal = policy.admit(of(BULK), 400_000)
    assert isinstance(refusal, Decision)
    assert refusal.retry_after_us == 600_000
    assert call(policy, of(BULK), ResultKind.OK, S), "it ends by itself"
    assert policy.stats().gated == 3
    assert policy.stats().throttled == 0


def test_critical_work_passes_the_gate_whatever_is_said_and_the_gate_reopens_when_told() -> None:
    policy = throttle()
    policy.record_level("a", CRITICAL, 0)
    assert call(policy, of(CRITICAL), ResultKind.OK, 1)
    assert not call(policy, of(DEGRADED), ResultKind.OK, 1)
    policy.record_level("a", BULK, 2)
    assert call(policy, of(BULK), ResultKind.OK, 3)


def test_gates_are_bounded() -> None:
    policy = throttle(keys_max=2)
    for shard in "abc":
        policy.record_level(shard, DEGRADED, 0)
    assert isinstance(policy.admit(of(BULK, "b"), 1), Decision)
    assert not isinstance(policy.admit(of(BULK, "c"), 1), Decision)
    policy.record_level("c", DEGRADED, 2 * S)
    assert isinstance(policy.admit(of(BULK, "c"), 2 * S), Decision)


def test_throttles_are_bounded_and_only_those_without_history_are_forgotten() -> None:
    policy = throttle(keys_max=2)
    sent(policy, of(shard="a"), ResultKind.OVERLOADED, 0, 500)
    call(policy, of(shard="b"), ResultKind.OK, 5 * S)
    permit = policy.admit(of(shard="c"), 5 * S)
    assert permit is NOTHING_HELD
    assert policy.stats().untracked == 1
    assert sent(policy, of(shard="a"), ResultKind.OVERLOADED, 5 * S, 100) < 5
    assert call(policy, of(shard="c"), ResultKind.OK, 16 * S + 1)
    assert policy.stats().keys == 2


def test_what_was_unwound_was_never_sent_and_holds_nothing_back() -> None:
    policy = throttle()
    for n in range(1000):
        permit = policy.admit(of(), n * 1000)
        assert isinstance(permit, ClientThrottlePermit)
        assert permit.end(Outcome.DROPPED, n * 1000, spent=False)
    for n in range(100):
        dropped = policy.admit(of(shard="d"), n * 1000)
        if isinstance(dropped, ClientThrottlePermit):
            dropped.end(Outcome.DROPPED, n * 1000)
    assert policy.stats().throttled > 50


@pytest.mark.parametrize(("field", "value"), [("multiplier", 0.5), ("buckets", 1), ("keys_max", 0)])
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"client_throttle\.{field}"):
        throttle(**{field: value})


Step = tuple[int, int, int]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, S)), max_size=60))
def test_a_permit_ends_exactly_once_and_nothing_leaks(steps: list[Step]) -> None:
    policy = throttle(requests_min=1)
    kinds = list(ResultKind)
    permits: list[ClientThrottlePermit] = []
    ended: list[ClientThrottlePermit] = []
    now_us = 0
    for what, which, later_us in steps:
        now_us += later_us
        if what == 0 or not permits:
            permit = policy.admit(of(shard=str(which % 2)), now_us)
            if isinstance(permit, ClientThrottlePermit):
                permits.append(permit)
        elif what == 1 and ended:
            assert not ended[which % len(ended)].end(Outcome.SUCCESS, now_us)
            assert not ended[which % len(ended)].end_with(
                CallResult(ResultKind.OK, admits=BULK), now_us
            )
        else:
            permit = permits.pop(which % len(permits))
            if what == 2:
                assert permit.end_with(CallResult(kinds[which % len(kinds)]), now_us)
            else:
                assert permit.end(Outcome.DROPPED, now_us, spent=which % 2 == 0)
            ended.append(permit)
        assert policy.stats().inflight == len(permits)
    for permit in permits:
        assert permit.end(Outcome.SUCCESS, now_us)
    assert policy.stats().inflight == 0
