"""Work estimates: what requests turned out to be, what they pay, and what an incident changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT, Reason
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import YOUTH, Weights, WorkEstimates
from sluicegate.policies.quota.budgets import TokenBudgets
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.quota.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)
from sluicegate.testing import START_US

MS, SECOND = 1_000, 1_000_000
KIB_RU = Weights(1.0, 0.0, 1.0 / 1_024, 0.1)  # a RU a request, one a KiB, a tenth a millisecond
SETTINGS = RequestUnitsSettings(
    weights=KIB_RU, latency_ms=0.0, rate_ru=1 << 30, burst_ru=1 << 30, debt_ru=1 << 30
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


def read(
    units: RequestUnits,
    size: int,
    caller: str = "ann",
    *,
    service_us: int = 0,
    now_us: int = START_US,
) -> int:
    """Read `size` bytes; return the charge in the end."""
    request, permit = enter(units, caller, now_us=now_us)
    request.measured = Measured(service_us, 1, size)
    permit.end(Outcome.SUCCESS, now_us)
    return request.cost_mru


def predicted(units: RequestUnits, caller: str = "ann") -> int:
    return units.predict_mru(Request("k", caller=caller, operation="get", table="t"))


def paid_mru(units: RequestUnits) -> int:
    stats = units.stats()
    return stats.charged_mru + stats.debited_mru - stats.refunded_mru


def test_read_is_predicted_by_what_the_last_ones_were() -> None:
    units = units_of()
    assert predicted(units) == 1_000
    assert read(units, 10_240) == 11_000
    assert predicted(units) == 11_000


READS = st.lists(
    st.one_of(st.just(0), st.just(1_024_000), st.integers(0, 1_024_000)), min_size=1, max_size=100
)


@given(READS, st.integers(1, 16))
def test_sum_of_charges_is_sum_of_costs(sizes: list[int], under_way: int) -> None:
    units = units_of()
    begun: list[tuple[Request, RequestUnitsPermit, int]] = []
    cost_mru = 0
    for number, size in enumerate([*sizes, *[0] * under_way]):
        if number >= under_way:
            request, permit, found = begun[number - under_way]
            request.measured = Measured(0, 1, found)
            permit.end(Outcome.SUCCESS, START_US)
            cost_mru += request.cost_mru
        begun.append((*enter(units), size))
    for request, permit, _ in begun[len(sizes) :]:
        permit.end(Outcome.IGNORE, START_US, spent=False)
        assert request.cost_mru
    assert paid_mru(units) == cost_mru


def test_estimates_of_one_caller_leave_others_alone() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 100, "honest")
    for _ in range(100):
        read(units, 1_024_000, "hog")
    assert 1_090 <= predicted(units, "honest") <= 1_110


def test_newcomer_is_predicted_by_its_table() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 10_240, "old")
    assert predicted(units, "new") == 11_000
    read(units, 0, "new")
    assert predicted(units, "new") == 1_000  # its own bytes, from its first read on


def test_unwound_read_teaches_nothing() -> None:
    units = units_of()
    request, permit = enter(units)
    request.measured = Measured(0, 1, 10_240)
    permit.end(Outcome.IGNORE, START_US, spent=False)
    assert predicted(units) == 1_000
    assert paid_mru(units) == 0


@pytest.mark.parametrize(
    ("outcome", "measured"),
    [
        (Outcome.SUCCESS, None),
        (Outcome.SUCCESS, Measured(rows=200, from_cache=True)),
        (Outcome.IGNORE, Measured(rows=200)),
        (Outcome.DROPPED, Measured(9 * MS, rows=200)),
    ],
)
def test_only_measured_success_teaches(outcome: Outcome, measured: Measured | None) -> None:
    units = units_of()
    request, permit = enter(units)
    request.measured = measured
    permit.end(outcome, START_US)
    assert predicted(units) == 1_000


class FourTimes:
    """A price of four for all callers."""

    def price_milli(self, request: Request, now_us: int) -> int:
        return 4_000


def put(units: RequestUnits, size: int, now_us: int = START_US) -> Request | Decision:
    """Write `size` bytes in a second; return the request, or its refusal."""
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


def test_price_delays_request_and_never_rules_it_out() -> None:
    settings = replace(SETTINGS, weights=Weights(1.0, 0.0, 1.0 / 1_024, 0.0))
    budget = TokenBudgets(10, 10, 0, callers_max=10)
    units = RequestUnits(settings, budget=budget, pricing=FourTimes())
    assert reason_of(put(units, 5 << 10)) is None  # 24 at that price: all there is
    assert reason_of(put(units, 5 << 10)) is QUOTA_SPENT
    assert reason_of(put(units, 10 << 10)) is COST_ABOVE_LIMIT  # 11 at a price of one


def test_slow_engine_delays_request_and_never_rules_it_out() -> None:
    units = RequestUnits(SETTINGS, budget=TokenBudgets(10, 10, 10, callers_max=10))
    now_us = START_US
    for _ in range(50):
        assert reason_of(put(units, 0, now_us)) in (None, QUOTA_SPENT)
        now_us += 100_000_000
    assert units.predict_mru(Request("k", caller="ann", operation="put", table="t")) > 50_000


def test_huge_rows_at_small_quota_are_paid_in_the_end() -> None:
    budget = LeasedBudget(LeasedBudgetSettings(quota_ru=20))
    budget.detach_store(START_US)
    units = RequestUnits(SETTINGS, budget=budget)
    served = cost_mru = 0
    for tenth in range(6_000):  # ten minutes, ten tries a second
        now_us = START_US + tenth * SECOND // 10
        request = Request("k", caller="ann", operation="get", table="t")
        permit = units.admit(request, now_us)
        if isinstance(permit, RequestUnitsPermit):
            served += 1
            request.measured = Measured(0, 1, 460_800)
            permit.end(Outcome.SUCCESS, now_us)
            cost_mru += request.cost_mru
    assert served >= 20
    assert cost_mru <= 600 * 20_000 + 460_000  # its quota, and one row


# Time.


def incident(times: float, *, minutes: int, quota_times: float = 1.5) -> list[float]:
    """Read for ten minutes, then `minutes` slower by `times`: the share served of each minute."""
    per_s, usual_us = 5, 10 * MS
    need_ru = per_s * (1.0 + 0.1 * usual_us / MS)
    budget = LeasedBudget(LeasedBudgetSettings(quota_ru=round(quota_times * need_ru)))
    budget.detach_store(START_US)
    units = RequestUnits(SETTINGS, budget=budget)
    now_us, shares = START_US, []
    for minute in range(10 + minutes):
        served = 0
        for _ in range(60 * per_s):
            now_us += SECOND // per_s
            request = Request("k", caller="ann", operation="get", table="t")
            permit = units.admit(request, now_us)
            if isinstance(permit, RequestUnitsPermit):
                served += 1
                took_us = usual_us if minute < 10 else round(times * usual_us)
                request.measured = Measured(took_us, 1, 0)
                permit.end(Outcome.SUCCESS, now_us)
        shares.append(served / (60 * per_s))
    return shares


@pytest.mark.parametrize("times", [2.0, 8.0])
def test_slow_engine_spends_no_quota_for_ten_minutes(times: float) -> None:
    """In minute 10 14 and 40% were rejected, since the usual time followed the slow one."""
    assert min(incident(times, minutes=10)) == 1.0


def test_slow_shard_costs_its_callers_as_usual() -> None:
    units, now_us = units_of(), START_US
    for number in range(3_000):
        now_us += 10 * MS
        slow = number % 10 == 3 and number > 1_000
        cost_mru = read(units, 0, service_us=(24 if slow else 3) * MS, now_us=now_us)
        assert cost_mru <= 1_000 + 100 * 3 * 1.3


def test_bytes_are_charged_in_full_during_incident() -> None:
    units, now_us = units_of(), START_US
    for _ in range(200):
        now_us += 20 * MS
        read(units, 0, service_us=3 * MS, now_us=now_us)
    assert read(units, 102_400, service_us=3 * SECOND, now_us=now_us) == pytest.approx(
        101_300, rel=0.01
    )


def test_newcomer_in_incident_is_charged_as_usual() -> None:
    units, now_us = units_of(), START_US
    for number in range(YOUTH):
        now_us += 1_000 * MS
        read(units, 0, service_us=10 * MS, now_us=now_us + number)
    assert read(units, 0, "new", service_us=500 * MS, now_us=now_us) <= 2_100


# The table.


def test_estimates_are_bounded_and_forget_fewest_requests() -> None:
    estimates = WorkEstimates(3)
    for caller, lessons in (("", 9), ("b", 1), ("c", 9), ("d", 1)):
        for _ in range(lessons):
            estimates.meet(("t", "get", caller), START_US).learn(1, 1, 1, 1)
    assert len(estimates) == 3
    assert {row.caller for row in estimates.rows()} == {"", "c", "d"}


def test_kept_estimates_are_known_again() -> None:
    units = units_of()
    for _ in range(100):
        read(units, 10_240, service_us=5 * MS)
    assert units.estimates is not None
    again = units_of()
    assert again.estimates is not None
    again.estimates.restore(units.estimates.rows(), START_US)
    assert predicted(again) == predicted(units)
    first = [row.caller for row in again.estimates.rows()]
    assert first == ["", "ann"]


def test_kept_estimate_replaces_none_that_is_learned() -> None:
    units = units_of()
    read(units, 10_240)
    assert units.estimates is not None
    rows = units.estimates.rows()
    again = units_of()
    assert again.estimates is not None
    read(again, 0)
    again.estimates.restore(rows, START_US)
    assert predicted(again) == 1_000
