"""Concurrency: the number, and who may still enter when it is reached."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import CONCURRENCY_LIMITED, OVERLOADED
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.concurrency import (
    AdaptiveSettings,
    Concurrency,
    ConcurrencySettings,
    WorkPermit,
)
from sluicegate.testing import SeededChance

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
OK, IGNORE, DROPPED = Outcome.SUCCESS, Outcome.IGNORE, Outcome.DROPPED
SECOND = 1_000_000


def fixed(limit: int) -> AdaptiveSettings:
    return AdaptiveSettings(algorithm="fixed", initial=limit)


def gate(limit: int = 4, **some: object) -> Concurrency:
    return Concurrency(
        ConcurrencySettings(adaptive=fixed(limit), **some),  # type: ignore[arg-type]
        SeededChance(),
    )


def of(criticality: Criticality = DEGRADED, caller: str = "") -> Request:
    return Request("k", criticality=criticality, caller=caller)


def enter(gate: Concurrency, request: Request, now_us: int = 0) -> WorkPermit:
    permit = gate.admit(request, now_us)
    assert isinstance(permit, WorkPermit)
    return permit


def refused(gate: Concurrency, request: Request) -> Decision:
    decision = gate.admit(request, 0)
    assert isinstance(decision, Decision)
    assert not decision
    assert decision.rule_id == "concurrency"
    return decision


def test_one_more_than_the_limit_is_refused_and_told_when_a_place_is_likely_free() -> None:
    full = gate(2)
    first = enter(full, of())
    first.end(OK, 40_000)
    for _ in range(2):
        enter(full, of())
    decision = refused(full, of())
    assert decision.reason is OVERLOADED
    assert decision.retry_after_us == 20_000
    assert full.stats().refused == 1


def test_a_permit_ends_exactly_once() -> None:
    one = gate(1)
    permit = enter(one, of())
    assert permit.end(OK, 5)
    assert not permit.end(OK, 6)
    assert not permit.end(IGNORE, 6, spent=False)
    assert one.inflight == 0


def test_while_there_is_room_nobody_asks_for_shares() -> None:
    shared = gate(4, shares={"CRITICAL": 0.5})
    for _ in range(4):
        enter(shared, of(BULK))
    refused(shared, of(BULK))


def test_a_share_admits_when_the_whole_is_full_and_no_more_than_the_share() -> None:
    shared = gate(4, shares={"CRITICAL": 0.5})
    bulk = [enter(shared, of(BULK)) for _ in range(4)]
    for _ in range(2):
        enter(shared, of(CRITICAL))
    refused(shared, of(CRITICAL))
    assert shared.inflight == 6
    assert shared.stats().over == 2
    # And until the whole has room again, who has no share waits.
    bulk[0].end(OK, 1)
    bulk[1].end(OK, 1)
    refused(shared, of(BULK))
    bulk[2].end(OK, 1)
    enter(shared, of(BULK))


def test_a_small_share_is_one_place_and_none_is_none() -> None:
    shared = gate(4, shares={"CRITICAL": 0.01})
    for _ in range(4):
        enter(shared, of(DEGRADED))
    enter(shared, of(CRITICAL))
    refused(shared, of(CRITICAL))
    refused(shared, of(DEGRADED))


def test_a_share_is_not_rounded_up_by_the_last_bit_of_a_float() -> None:
    shared = gate(100, shares={"CRITICAL": 0.07})
    for _ in range(100):
        enter(shared, of(BULK))
    for _ in range(7):
        enter(shared, of(CRITICAL))
    refused(shared, of(CRITICAL))


def test_a_caller_over_its_share_asked_for_too_much_and_one_without_met_a_full_service() -> None:
    shared = gate(4, by="caller", shares={"a": 0.25, "b": 0.25})
    for _ in range(4):
        enter(shared, of(caller="a"))
    assert refused(shared, of(caller="a")).reason is CONCURRENCY_LIMITED
    assert refused(shared, of(caller="stranger")).reason is OVERLOADED
    enter(shared, of(caller="b"))
    assert refused(shared, of(caller="b")).reason is CONCURRENCY_LIMITED


def test_whoever_invents_names_shares_one_partition_with_all_the_others() -> None:
    shared = gate(4, by="caller", shares={"a": 0.25}, other_share=0.25)
    for _ in range(4):
        enter(shared, of(caller="a"))
    enter(shared, of(caller="x1"))
    refused(shared, of(caller="x2"))
    assert shared.inflight == 5


def critical_success(shares: dict[str, float]) -> float:
    """How many critical units of a tenth of twice the load get through ten busy places."""
    dice = random.Random(7)
    shared = gate(10, shares=shares)
    running: list[tuple[int, WorkPermit]] = []
    calls = served = 0
    for now_us in range(0, 2 * SECOND, 500):  # 2,000 a second where 1,000 can be done
        for ended in [one for one in running if one[0] <= now_us]:
            running.remove(ended)
            ended[1].end(OK, now_us)
        critical = dice.random() < 0.1
        permit = shared.admit(of(CRITICAL if critical else BULK), now_us)
        if isinstance(permit, WorkPermit):
            running.append((now_us + 10_000, permit))
        if critical:
            calls += 1
            served += isinstance(permit, WorkPermit)
    return served / calls


def test_without_partitions_critical_work_is_halved_at_twice_the_load_and_with_them_it_is_not() -> (
    None
):
    assert critical_success({}) < 0.65
    assert critical_success({"CRITICAL": 0.5}) > 0.99


def work(gate: Concurrency, now_us: int, took_us: int, outcome: Outcome = OK) -> None:
    enter(gate, of(), now_us).end(outcome, now_us + took_us)


def adaptive(algorithm: str, **some: int) -> Concurrency:
    settings = AdaptiveSettings(algorithm=algorithm, samples_min=4, **some)
    return Concurrency(ConcurrencySettings(adaptive=settings), SeededChance())


def loaded(one: Concurrency, now_us: int, took_us: int, outcome: Outcome = OK) -> int:
    """A second and a bit with every place taken; the instant after it."""
    for _ in range(3):
        permits = []
        for _ in range(one.limit):
            permit = one.admit(of(), now_us)
            if isinstance(permit, WorkPermit):
                permits.append(permit)
        now_us += max(took_us, 400_000)
        for permit in permits:
            permit.end(outcome, now_us - max(took_us, 400_000) + took_us)
    return now_us


@pytest.mark.parametrize("algorithm", ["vegas", "gradient2", "aimd"])
def test_each_number_grows_under_load_that_stays_quick_and_shrinks_when_work_is_lost(
    algorithm: str,
) -> None:
    one = adaptive(algorithm, window_us=500_000)
    now_us = SECOND
    for _ in range(30):
        now_us = loaded(one, now_us, 10_000)
    grown = one.limit
    assert grown > 20
    assert 9_000 <= one.stats().rtt_us <= 10_000
    for _ in range(12):
        now_us = loaded(one, now_us, 10_000, DROPPED)
    assert one.limit < grown


def test_fast_is_the_default_and_fixed_never_moves() -> None:
    assert AdaptiveSettings().algorithm == "fast"
    still = gate(5)
    now_us = SECOND
    for _ in range(10):
        now_us = loaded(still, now_us, 10_000, DROPPED)
    assert still.limit == 5


def aimd_by(outcome: Outcome, *, spent: bool = True, measured: Measured | None = None) -> int:
    """The limit after a window that ends in this way, from 20."""
    one = adaptive("aimd", window_us=1_000)
    for step in range(8):
        request = of()
        permit = enter(one, request, step * 1_000)
        request.measured = measured
        permit.end(outcome, step * 1_000 + 500, spent=spent)
    return one.limit


def test_only_what_says_something_about_us_is_learned_from() -> None:
    assert aimd_by(DROPPED) < 20
    assert aimd_by(IGNORE) == 20
    assert aimd_by(DROPPED, spent=False) == 20
    assert aimd_by(DROPPED, measured=Measured(from_cache=True)) == 20
    assert aimd_by(DROPPED, measured=Measured(service_us=500)) < 20


def grown_by(outcome: Outcome, *, spent: bool = True, cached: bool = False) -> int:
    """The limit after two windows of one unit at a time that end in this way, from 1."""
    one = adaptive("aimd", window_us=1_000, initial=1)
    for step in range(8):
        request = of()
        permit = enter(one, request, step * 1_000)
        request.measured = Measured(service_us=500, from_cache=cached)
        permit.end(outcome, step * 1_000 + 500, spent=spent)
    return one.limit


def test_a_quick_end_that_says_nothing_does_not_raise_the_limit_either() -> None:
    assert grown_by(OK) > 1
    assert grown_by(IGNORE) == 1
    assert grown_by(OK, spent=False) == 1
    assert grown_by(OK, cached=True) == 1


def test_a_clock_that_goes_back_is_no_fast_answer() -> None:
    one = adaptive("vegas", window_us=1_000)
    for _ in range(20):
        work(one, 10 * SECOND, -5 * SECOND)
    assert one.limit == 20
    assert one.stats().rtt_us == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=120))
def test_nothing_leaks_in_any_order_and_the_whole_stays_within_limit_and_shares(
    steps: list[tuple[int, int]],
) -> None:
    shared = gate(5, shares={"CRITICAL": 0.4, "DEGRADED": 0.2})
    permits: list[WorkPermit] = []
    for kind, choice in steps:
        if choice < 18:
            permit = shared.admit(of(Criticality(kind)), choice)
            if isinstance(permit, WorkPermit):
                permits.append(permit)
            else:
                assert len(permits) >= 5
        elif permits:
            permit = permits.pop(choice % len(permits))
            assert permit.end(list(Outcome)[kind % 3], choice, spent=choice % 2 == 0)
            assert not permit.end(OK, choice)
        assert shared.inflight == len(permits) <= 5 + 2 + 1
    for permit in permits:
        permit.end(OK, 100)
    assert shared.inflight == 0
    assert [partition.inflight for partition in shared._classes] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: AdaptiveSettings(algorithm="guess"), "concurrency.algorithm"),
        (lambda: AdaptiveSettings(limit_min=0), "concurrency.limit_min"),
        (lambda: AdaptiveSettings(limit_max=0), "concurrency.limit_max"),
        (lambda: AdaptiveSettings(initial=2_000), "concurrency.initial"),
        (lambda: AdaptiveSettings(window_us=0), "concurrency.window_us"),
        (lambda: AdaptiveSettings(samples_min=0), "concurrency.samples_min"),
        (lambda: AdaptiveSettings(timeout_us=0), "concurrency.timeout_us"),
        (lambda: ConcurrencySettings(by="moon"), "concurrency.by"),
        (lambda: ConcurrencySettings(shares={"CRITICAL": 1.1}), "concurrency.shares.CRITICAL"),
        (lambda: ConcurrencySettings(shares={"URGENT": 0.1}), "concurrency.shares"),
        (lambda: ConcurrencySettings(other_share=float("nan")), "concurrency.shares.other_share"),
        (
            lambda: ConcurrencySettings(by="caller", shares={str(n): 0.1 for n in range(1_001)}),
            "concurrency.shares",
        ),
    ],
)
def test_a_bad_setting_is_named(make: object, field: str) -> None:
    assert callable(make)
    with pytest.raises(BadValue) as caught:
        make()
    assert caught.value.field == field
