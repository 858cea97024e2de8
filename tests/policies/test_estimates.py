"""Estimates: bytes that nobody has said, and what an estimate leaves for the caller's next one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT, Reason
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import Weights
from sluicegate.policies.budgets import TokenBudgets
from sluicegate.policies.estimate_error import UNSEEN_CHARGES, EstimateErrors
from sluicegate.policies.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)
from sluicegate.policies.work_estimates import HEAVIEST_US, WorkEstimates
from sluicegate.testing import START_US

KIB_RU = Weights(1.0, 0.0, 1.0 / 1_024, 0.1)  # a RU a request, one a KiB, a tenth a millisecond
SETTINGS = RequestUnitsSettings(
    weights=KIB_RU,
    settle=False,
    margin_quantile=None,
    ratios_max=0,
    sketches_max=100,
    carry=True,
    latency_ms=0.0,
    rate_ru=1 << 30,
    burst_ru=1 << 30,
)


def units_of(settings: RequestUnitsSettings = SETTINGS) -> RequestUnits:
    return RequestUnits(settings)


def enter(
    units: RequestUnits, caller: str = "ann", table: str = "t", now_us: int = START_US
) -> tuple[Request, RequestUnitsPermit]:
    request = Request("k", caller=caller, operation="get", table=table)
    permit = units.admit(request, now_us)
    assert isinstance(permit, RequestUnitsPermit)
    return request, permit


def read(units: RequestUnits, size: int, caller: str = "ann", *, service_us: int = 0) -> int:
    """Read so many bytes; returns what was charged for it in the end."""
    request, permit = enter(units, caller)
    request.measured = Measured(service_us, 1, size)
    permit.end(Outcome.SUCCESS, START_US)
    return request.cost_mru


def test_who_reads_alike_is_charged_what_it_costs_from_the_second_read_on() -> None:
    units = units_of()
    read(units, 10_240)
    assert read(units, 10_240) == 11_000 + 10_000  # and what the first has left
    assert [read(units, 10_240) for _ in range(100)] == [11_000] * 100


@pytest.mark.parametrize("every", [2, 10, 100])
def test_who_alternates_shapes_is_charged_their_sum(every: int) -> None:
    units = units_of()
    paid = cost = 0
    for number in range(10_000):
        size = 1_024_000 if number % every == 0 else 1_024
        cost += 1_000 + size * 1_000 // 1_024
        paid += read(units, size)
    assert 0.95 * cost <= paid <= 1.05 * cost


DEAREST_MRU = 1_000 + 1_000 * 1_000  # a read of 1,000 KiB


def farthest_mru(units: RequestUnits, sizes: list[int], under_way: int) -> int:
    """Of any run of reads in their order, the most that was charged beyond its cost, or too little.

    So many are under way at once: each ends when so many more have begun.
    """
    begun = list[tuple[Request, RequestUnitsPermit, int]]()
    apart_mru = least_mru = most_mru = 0
    for number in range(len(sizes) + under_way):
        if number < len(sizes):
            begun.append((*enter(units, now_us=START_US + number), sizes[number]))
        if number >= under_way:
            request, permit, size = begun[number - under_way]
            request.measured = Measured(0, 1, size)
            permit.end(Outcome.SUCCESS, START_US + number)
            apart_mru += request.cost_mru - 1_000 - size * 1_000 // 1_024
            least_mru, most_mru = min(least_mru, apart_mru), max(most_mru, apart_mru)
    return most_mru - least_mru


READS = st.lists(
    st.one_of(st.just(0), st.just(1_024_000), st.integers(0, 1_024_000)), min_size=1, max_size=200
)


@given(READS, st.integers(1, 16))
def test_over_any_run_of_reads_what_is_charged_is_what_they_cost_but_for_a_bound(
    sizes: list[int], under_way: int
) -> None:
    bound_mru = (under_way + 2) * DEAREST_MRU
    assert farthest_mru(units_of(), sizes, under_way) <= bound_mru


@pytest.mark.parametrize(
    "sizes", [[number * 2_000 for number in range(512)], ([0] * 30 + [1_024_000] * 16) * 20]
)
def test_without_what_an_estimate_leaves_there_is_no_such_bound(sizes: list[int]) -> None:
    assert farthest_mru(units_of(), sizes, 1) <= 3 * DEAREST_MRU
    units = units_of(replace(SETTINGS, carry=False))
    assert farthest_mru(units, sizes, 1) > 15 * DEAREST_MRU


def test_what_one_caller_reads_is_charged_to_nobody_else() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 100, "honest")
    for _ in range(100):
        read(units, 1_024_000, "hog")
    assert {read(units, 100, "honest") for _ in range(100)} <= set(range(1_090, 1_110))


def test_nobody_owes_for_a_stall_of_the_backend() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 0, service_us=1_000)
    before = read(units, 0, service_us=1_000)
    read(units, 0, service_us=5_000_000)
    assert read(units, 0, service_us=1_000) <= before * 1.15


def test_what_a_later_stage_refuses_leaves_what_is_owed_as_it_was() -> None:
    units = units_of()
    read(units, 10_240)
    assert units.errors is not None
    owed = units.errors.owed_mru()
    _, permit = enter(units)
    assert units.errors.owed_mru() == {}
    permit.end(Outcome.IGNORE, START_US, spent=False)
    assert units.errors.owed_mru() == owed == {"ann": 10_000}


def test_a_charge_that_was_refused_pays_nothing_of_what_is_owed() -> None:
    budget = TokenBudgets(10, 10, 0, callers_max=10)
    units = RequestUnits(SETTINGS, budget=budget)
    read(units, 8_192)
    assert units.errors is not None
    owed = units.errors.owed_mru()["ann"]
    refusal = units.admit(Request("k", caller="ann", operation="get", table="t"), START_US)
    assert isinstance(refusal, Decision)
    assert units.errors.owed_mru() == {"ann": owed}


def test_an_estimate_may_delay_a_request_and_never_rules_it_out() -> None:
    """Of a table of large rows a newcomer's hundred may be tiny."""
    budget = TokenBudgets(100, 100, 0, callers_max=10)
    units = RequestUnits(SETTINGS, budget=budget)
    assert units.estimates is not None
    units.estimates.learn_table("t", 1, 1_000_000, START_US)
    request, permit = enter(units)
    assert request.cost_mru == 100_000  # all there is
    request.measured = Measured(0, 1, 0)
    permit.end(Outcome.SUCCESS, START_US)
    assert request.cost_mru == 1_000  # the others went back
    enter(units)


class FourTimes:
    """A price of four for everybody."""

    def price_milli(self, request: Request, now_us: int) -> int:
        return 4_000


def put(units: RequestUnits, size: int, now_us: int = START_US) -> Request | Decision:
    """Write so many bytes, which takes a second; returns the request, or its refusal."""
    attributes = {"size_bytes": str(size)}
    request = Request("k", caller="ann", operation="put", table="t", attributes=attributes)
    permit = units.admit(request, now_us)
    if isinstance(permit, Decision):
        return permit
    request.measured = Measured(1_000_000, 1, size)
    permit.end(Outcome.SUCCESS, now_us)
    return request


def reason_of(answer: Request | Decision) -> Reason | None:
    return answer.reason if isinstance(answer, Decision) else None


def test_a_price_delays_a_request_and_never_rules_it_out() -> None:
    """It is another at another time: whoever is told never to come again would lose the write."""
    settings = replace(SETTINGS, weights=Weights(1.0, 0.0, 1.0 / 1_024, 0.0))
    budget = TokenBudgets(10, 10, 0, callers_max=10)
    units = RequestUnits(settings, budget=budget, pricing=FourTimes())
    assert reason_of(put(units, 5 << 10)) is None  # 24 at that price: all there is
    assert reason_of(put(units, 5 << 10)) is QUOTA_SPENT
    assert reason_of(put(units, 10 << 10)) is COST_ABOVE_LIMIT  # 11 at a price of one


def test_a_slow_backend_delays_a_request_and_never_rules_it_out() -> None:
    units = RequestUnits(SETTINGS, budget=TokenBudgets(10, 10, 0, callers_max=10))
    now_us = START_US
    for _ in range(50):
        assert reason_of(put(units, 0, now_us)) in (None, QUOTA_SPENT)
        now_us += 100_000_000
    assert units.predict_mru(Request("k", caller="ann", operation="put", table="t")) > 50_000


def test_what_was_charged_too_much_goes_back_and_is_no_second_quota() -> None:
    units = units_of()
    for _ in range(10):
        read(units, 102_400)
    for _ in range(1_000):
        read(units, 0)
    assert units.errors is not None
    [owed] = units.errors.owed_mru().values() or [0]
    assert owed >= -101_000


def test_who_reads_huge_ones_at_once_is_charged_for_them_before_they_end() -> None:
    """A mean would let a burst through that nothing has taught yet."""
    budget = TokenBudgets(1_000, 1_000, 1_000, callers_max=10)
    units = RequestUnits(SETTINGS, budget=budget)
    for number in range(1_000):
        read(units, 1_024_000 if number == 0 else 0)
        budget.settle("ann", -2_000_000, START_US)
    permits = 0
    while isinstance(
        units.admit(Request("k", caller="ann", operation="get", table="t"), START_US),
        RequestUnitsPermit,
    ):
        permits += 1
    assert permits <= 8


def test_who_never_read_huge_ones_may_have_as_many_under_way_as_he_likes() -> None:
    budget = TokenBudgets(1_000, 1_000, 1_000, callers_max=10)
    units = RequestUnits(SETTINGS, budget=budget)
    for _ in range(100):
        read(units, 100, "honest")
        budget.settle("honest", -2_000_000, START_US)
    read(units, 1_024_000, "hog")
    for _ in range(64):
        request, _ = enter(units, "honest")
        assert request.cost_mru < 1_200


def test_too_much_under_way_that_may_be_far_heavier_holds_a_caller_until_some_of_it_ends() -> None:
    budget = TokenBudgets(1_000, 1_000, 1_000, callers_max=10)
    units = RequestUnits(SETTINGS, budget=budget)
    let_in: list[str] = []
    units.on_seen = let_in.append
    assert units.errors is not None
    for _ in range(100):
        read(units, 100, "ann")
        budget.settle("ann", -2_000_000, START_US)
    read(units, 1_024_000, "hog")  # a thousand units, of which the largest charge is two
    under_way = []
    while "ann" not in units.errors.held:
        under_way.append(enter(units, "ann"))
    assert len(under_way) == UNSEEN_CHARGES * 2 + 1
    request, permit = under_way.pop()
    request.measured = Measured(0, 1, 100)
    permit.end(Outcome.SUCCESS, START_US)
    assert "ann" not in units.errors.held
    assert let_in == ["ann"]


def test_one_read_is_never_too_much_whatever_it_may_weigh() -> None:
    units = RequestUnits(SETTINGS, budget=TokenBudgets(10, 10, 10, callers_max=10))
    assert units.errors is not None
    units.errors.meet("ann")
    for second in range(100):
        request, permit = enter(units, "ann", now_us=START_US + second * 1_000_000)
        request.measured = Measured(0, 1, 100)
        permit.end(Outcome.SUCCESS, START_US + second * 1_000_000)
    hog, permit = enter(units, "hog")
    hog.measured = Measured(0, 1, 1_024_000)
    permit.end(Outcome.SUCCESS, START_US)
    enter(units, "ann", now_us=START_US + 200_000_000)
    assert not units.errors.held


def test_a_newcomer_is_estimated_by_what_was_written() -> None:
    units = units_of()
    write = Request(
        "t", caller="w", operation="put", table="t", attributes={"rows": "1", "size_bytes": "10240"}
    )
    permit = units.admit(write, START_US)
    assert isinstance(permit, RequestUnitsPermit)
    write.measured = Measured(0, 1, 10_240)
    permit.end(Outcome.SUCCESS, START_US)
    request, _ = enter(units)
    assert request.cost_mru == 11_000


def test_the_tables_are_bounded_and_forget_what_tells_least() -> None:
    estimates = WorkEstimates(3)
    for caller, lessons in (("a", 9), ("b", 1), ("c", 9), ("d", 1)):
        for _ in range(lessons):
            estimates.meet("t", "get", caller).learn(1, 1, START_US)
    assert len(estimates) == 3
    assert estimates.find("t", "get", "b") is None
    errors = EstimateErrors(3)
    for caller, owed in (("a", 9), ("b", 0), ("c", -9), ("d", 1)):
        errors.meet(caller).owed_mru = owed
    assert errors.owed_mru() == {"a": 9, "c": -9, "d": 1}


def test_the_heaviest_is_forgotten_in_an_hour() -> None:
    sketch = WorkEstimates(1).meet("t", "get", "a")
    sketch.learn(1, 1_000_000, START_US)
    sketch.learn(1, 10, START_US + HEAVIEST_US)
    assert sketch.heaviest == 1_000_000
    sketch.learn(1, 10, START_US + HEAVIEST_US + 1)
    assert sketch.heaviest == 10


def test_what_was_learned_is_kept() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 10_240)
    assert units.estimates is not None
    again = WorkEstimates(100)
    again.restore(units.estimates.rows(), START_US)
    assert sorted(again.rows()) == sorted(units.estimates.rows())
    sketch = again.find("t", "get", "ann")
    assert sketch is not None
    assert sketch.bytes_of(1) == 10_240
