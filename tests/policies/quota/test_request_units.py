"""Request units: charged and settled, what each way to end pays, and work beyond a quota."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import Weights, read_weights
from sluicegate.policies.quota.budgets import TokenBudgets
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.quota.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)
from sluicegate.policies.quota.work_shape import WorkShape, read_shape

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
OK, IGNORE, DROPPED = Outcome.SUCCESS, Outcome.IGNORE, Outcome.DROPPED
START = 1_000_000_000_000_000
# A request is 1 RU, a row is 1 RU, and nothing else costs.
PLAIN = Weights(1.0, 1.0, 0.0, 0.0)


def units(**some: object) -> RequestUnits:
    plain: dict[str, object] = {"weights": PLAIN, "estimates_max": 0}
    return RequestUnits(RequestUnitsSettings(**(plain | some)))  # type: ignore[arg-type]


def rows(count: int, caller: str = "a", **more: object) -> Request:
    return Request("k", caller=caller, attributes={"rows": str(count)}, **more)  # type: ignore[arg-type]


def enter(these: RequestUnits, request: Request, now_us: int = START) -> RequestUnitsPermit:
    permit = these.admit(request, now_us)
    assert isinstance(permit, RequestUnitsPermit)
    return permit


def refused(these: RequestUnits, request: Request, now_us: int = START) -> Decision:
    decision = these.admit(request, now_us)
    assert isinstance(decision, Decision)
    assert decision.rule_id == "request_units"
    return decision


def left_ru(these: RequestUnits, caller: str = "a", now_us: int = START) -> float:
    """By asking the budget for nothing."""
    return these._budget.charge(caller, 0, now_us).remaining / 1_000


def test_a_scan_is_charged_for_its_rows_before_it_is_done() -> None:
    these = units(burst_ru=100, rate_ru=10)
    request = rows(39)
    enter(these, request)
    assert request.cost_ru == 40
    assert left_ru(these) == 60
    decision = refused(these, rows(69))
    assert decision.reason is QUOTA_SPENT
    assert decision.remaining == 60
    assert decision.retry_after_us == 1_000_000
    enter(these, rows(69), START + 1_000_000)
    assert left_ru(these, "another") == 100


def test_what_is_less_than_a_unit_is_charged_in_thousandths_and_told_rounded_up() -> None:
    these = units(weights=Weights(0.3, 0.001, 0.0, 0.0), burst_ru=1)
    request = rows(1)
    enter(these, request)
    assert request.cost_ru == 1
    assert left_ru(these) == pytest.approx(0.699)


def test_a_price_makes_a_class_dearer_and_settling_stays_at_that_price() -> None:
    class Prices:
        def price_milli(self, request: Request, now_us: int) -> int:
            assert now_us == START
            return 3_000 if request.criticality is BULK else 1_000

    settings = RequestUnitsSettings(weights=PLAIN, estimates_max=0, burst_ru=100)
    these = RequestUnits(settings, pricing=Prices())
    bulk = rows(9, criticality=BULK)
    permit = enter(these, bulk)
    assert bulk.cost_ru == 10, "the cost is the cost; only the charge is dearer"
    assert left_ru(these) == 70
    bulk.measured = Measured(rows=4)
    permit.end(OK, START)
    assert left_ru(these) == 85
    permit = enter(these, rows(9, criticality=CRITICAL))
    assert left_ru(these) == 75
    permit.end(IGNORE, START, spent=False)
    assert left_ru(these) == 85


def end(
    these: RequestUnits,
    outcome: Outcome,
    measured: Measured | None = None,
    *,
    predicted_rows: int = 19,
    spent: bool = True,
) -> float:
    """What a request predicted at 20 RU has paid in the end, of a budget of 1,000."""
    before = left_ru(these)
    request = rows(predicted_rows)
    permit = enter(these, request)
    request.measured = measured
    assert permit.end(outcome, START, spent=spent)
    assert not permit.end(OK, START)
    assert not permit.end(IGNORE, START, spent=False)
    return before - left_ru(these)


def test_what_succeeds_pays_what_it_cost_by_rows_looked_at() -> None:
    assert end(units(), OK, Measured(rows=49)) == 50
    assert end(units(), OK, Measured(rows=4)) == 5
    assert end(units(), OK) == 20
    assert end(units(), OK, Measured(service_us=700)) == 20, "only a time was told"


def test_a_cached_answer_pays_a_little_and_never_nothing() -> None:
    these = units()
    assert end(these, OK, Measured(from_cache=True)) == pytest.approx(0.1)
    assert end(these, OK, Measured(rows=19, from_cache=True)) == pytest.approx(0.1)
    assert these.stats().cached == 2


def test_what_is_cancelled_keeps_its_base_cost_so_that_giving_up_is_not_free() -> None:
    assert end(units(), IGNORE) == 1
    assert end(units(), IGNORE, Measured(service_us=900)) == 1
    assert end(units(), IGNORE, Measured(rows=9)) == 10, "what it read, if that is told"
    assert end(units(), IGNORE, Measured(rows=9), predicted_rows=0) == 10


def test_what_timed_out_has_cost_us_what_was_predicted() -> None:
    assert end(units(), DROPPED) == 20
    assert end(units(), DROPPED, Measured(service_us=900)) == 20
    assert end(units(), DROPPED, Measured(rows=29)) == 30


def test_a_time_out_is_no_measure_of_the_work_so_slow_does_not_make_dear() -> None:
    by_time = units(weights=Weights(1.0, 1.0, 0.0, 1.0), latency_ms=4.0)
    assert end(by_time, DROPPED, Measured(service_us=900_000)) == 24


def test_what_a_later_stage_refused_pays_nothing() -> None:
    these = units()
    assert end(these, IGNORE, spent=False) == 0
    assert end(these, OK, Measured(rows=500), spent=False) == 0
    assert these.stats().under_way == 0


def test_what_costs_more_than_a_whole_budget_is_admitted_when_it_is_full_and_owes_the_rest() -> (
    None
):
    these = units(burst_ru=100, debt_ru=50, rate_ru=100)
    enter(these, rows(149))
    assert left_ru(these) == 0
    assert refused(these, rows(0)).retry_after_us == 510_000
    decision = refused(these, rows(150), START + 10_000_000)
    assert decision.reason is COST_ABOVE_LIMIT
    assert decision.retry_after_us < 0


def test_cost_and_not_count_keeps_point_reads_alive_beside_scans() -> None:
    def reads_served(weights: Weights) -> float:
        these = units(weights=weights, rate_ru=500, burst_ru=500)
        capacity = served = calls = 0
        for ms in range(5_000):
            capacity = min(2_000, capacity + 1)  # one row a millisecond can be read
            now_us = START + ms * 1_000
            scan = rows(200, "bulk")
            permit = these.admit(scan, now_us)
            if isinstance(permit, RequestUnitsPermit):
                capacity -= 200
            if ms % 5 == 0 and ms > 1_000:
                calls += 1
                served += capacity > 0 and bool(these.admit(rows(1, "reads"), now_us))
        return served / calls

    assert reads_served(Weights(1.0, 0.0, 0.0, 0.0)) < 0.1
    assert reads_served(PLAIN) > 0.95


def test_a_scan_in_chunks_covers_each_row_once_and_no_chunk_costs_more() -> None:
    these = units()
    whole = rows(199, criticality=BULK, deadline_us=7, operation="scan", shard="s", arrived_us=3)
    parts = list(these.chunks(whole, 10))
    assert len(parts) == 23
    # The others have not waited while the first was at work: a queue would take it for a delay.
    assert [part.arrived_us for part in parts] == [3, *[0] * 22]
    first = 0
    for part in parts:
        assert int(part.attributes["first_row"]) == first
        first += int(part.attributes["rows"])
        assert these.predict_mru(part) <= 10_000
        assert (part.caller, part.criticality, part.deadline_us) == ("a", BULK, 7)
        assert (part.operation, part.shard) == ("scan", "s")
    assert first == 199


@given(st.integers(0, 10_000), st.integers(0, 100_000), st.integers(1, 500), st.integers(1, 300))
def test_chunks_lose_nothing_whatever_the_shape(
    count: int, size_bytes: int, ru: int, chunks_max: int
) -> None:
    these = units(weights=read_weights(0.001, 0.1, 0.5), chunks_max=chunks_max)
    attributes = {"rows": str(count), "size_bytes": str(size_bytes)}
    parts = list(these.chunks(Request("k", attributes=attributes), ru))
    assert 1 <= len(parts) <= chunks_max
    assert sum(int(part.attributes["rows"]) for part in parts) == max(1, count)
    assert sum(int(part.attributes["size_bytes"]) for part in parts) == size_bytes
    firsts = [int(part.attributes["first_row"]) for part in parts]
    assert firsts == sorted(set(firsts))


def test_chunks_enter_anew_so_a_read_passes_between_them() -> None:
    these = units(burst_ru=40, rate_ru=1_000)
    now_us = START
    order = []
    for part in these.chunks(rows(99), 20):
        while isinstance(decision := these.admit(part, now_us), Decision):
            assert decision.reason is QUOTA_SPENT
            now_us += decision.retry_after_us
        order.append("chunk")
        enter(these, rows(1, "b"), now_us)
        order.append("read")
        decision.end(OK, now_us)
    assert order.count("chunk") == 6
    assert now_us > START


def shape_of(attributes: Mapping[str, str]) -> tuple[int, int]:
    shape = read_shape(Request("k", attributes=attributes))
    return shape.rows, shape.size_bytes


def test_a_shape_that_is_no_number_counts_as_not_told() -> None:
    for text in ["", "-5", "1e9", "NaN", "9" * 17, "\u0663", "0x10"]:
        assert shape_of({"rows": text, "size_bytes": text}) == (1, 0)
    assert shape_of({"rows": "12", "size_bytes": "7"}) == (12, 7)
    assert shape_of(MappingProxyType({"rows": "12", "size_bytes": "7"})) == (12, 7)
    assert shape_of({}) == (1, 0)


def test_the_shape_may_come_from_elsewhere() -> None:
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, estimates_max=0),
        shape_of=lambda request: WorkShape(len(request.key)),
    )
    request = Request("seven!!")
    enter(these, request)
    assert request.cost_ru == 8


def test_the_budget_may_be_one_that_is_filled_each_epoch() -> None:
    quota = LeasedBudget(LeasedBudgetSettings(form="live", quota_ru=100))
    these = RequestUnits(RequestUnitsSettings(weights=PLAIN, estimates_max=0), budget=quota)
    request = rows(59)
    permit = enter(these, request)
    assert refused(these, rows(59)).retry_after_us == 1_000_000
    request.measured = Measured(rows=9)
    permit.end(OK, START)
    assert quota.standing("a", START).level_mru == 90_000
    enter(these, rows(59))


def test_a_budget_that_nobody_has_used_yet_is_not_taken_for_none() -> None:
    budgets = TokenBudgets(100, 100, 0, callers_max=2)
    these = RequestUnits(RequestUnitsSettings(weights=PLAIN), budget=budgets)
    enter(these, rows(9))
    assert len(budgets) == 1


def test_callers_beyond_the_bound_share_one_budget_and_a_full_one_is_forgotten_first() -> None:
    budgets = TokenBudgets(10, 10, 0, callers_max=2)
    assert budgets.charge("a", 5_000, START)
    assert budgets.charge("b", 5_000, START)
    assert budgets.charge("c", 8_000, START).remaining == 2_000
    assert not budgets.charge("d", 8_000, START), "c and d share"
    later = START + 500_000
    assert budgets.charge("d", 8_000, later).remaining == 2_000
    assert len(budgets) == 2


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=80))
def test_the_books_balance_in_any_interleaving(steps: list[tuple[int, int]]) -> None:
    these = units(burst_ru=1_000_000, debt_ru=1_000_000, rate_ru=1)
    permits: list[tuple[RequestUnitsPermit, Request]] = []
    for count, choice in steps:
        if choice < 10:
            request = rows(count)
            permits.append((enter(these, request), request))
        elif permits:
            permit, request = permits.pop(choice % len(permits))
            if choice % 2:
                request.measured = Measured(rows=count, from_cache=choice % 5 == 0)
            assert permit.end(list(Outcome)[count % 3], START, spent=choice % 4 != 0)
            assert not permit.end(OK, START)
        assert these.stats().under_way == len(permits)
        stats = these.stats()
        paid = stats.charged_mru + stats.debited_mru - stats.refunded_mru
        assert left_ru(these) * 1_000 == 1_000_000_000 - paid
    for permit, _ in permits:
        permit.end(IGNORE, START, spent=False)
    assert these.stats().under_way == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate_ru", 0),
        ("burst_ru", 0),
        ("debt_ru", -1),
        ("callers_max", 0),
        ("cached_mru", -1),
        ("chunks_max", 0),
        ("estimates_max", -1),
        ("latency_ms", float("inf")),
        ("operations", {str(n): PLAIN for n in range(1_001)}),
    ],
)
def test_a_bad_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        units(**{field: value})
    assert caught.value.field == f"request_units.{field}"
    with pytest.raises(BadValue):
        next(units().chunks(rows(5), 0))


# Debt, and work beyond a quota.


def test_cost_beyond_debt_is_owed_and_paid_before_further_work() -> None:
    these = units(burst_ru=100, rate_ru=100, debt_ru=100)
    assert end(these, OK, Measured(rows=999)) == 100  # the budget is empty, and as much in debt
    assert these.owed_mru() == {"a": 800_000}
    waits_us = 0
    while isinstance(decision := these.admit(rows(1), START + waits_us), Decision):
        assert decision.reason is QUOTA_SPENT
        waits_us += decision.retry_after_us
    assert 9_000_000 <= waits_us <= 9_200_000  # 900 RU at 100 a second
    assert these.owed_mru() == {}
    assert left_ru(these, "another") == 100


def test_debt_of_another_dispatcher_is_taken_over() -> None:
    these = units(burst_ru=100, rate_ru=100, debt_ru=100)
    these.owe({"a": 300_000, "b": -5})
    assert these.owed_mru() == {"a": 300_000}
    assert refused(these, rows(1)).reason is QUOTA_SPENT
    assert these.owed_mru() == {"a": 100_000}


def test_owed_callers_are_bounded() -> None:
    these = units(callers_max=2)
    these.owe({"a": 1, "b": 1, "c": 1})
    these.owe({"a": 1})
    assert these.owed_mru() == {"a": 2, "b": 1}


class Contention:
    """Whether lower classes are admitted on a resource that is contended."""

    def __init__(self) -> None:
        self.lower: set[str] = set()
        self.asked = 0

    def __call__(self, request: Request, now_us: int) -> bool:
        self.asked += 1
        return request.shard in self.lower


def test_spent_quota_admits_what_lower_class_would_displace() -> None:
    contention = Contention()
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, estimates_max=0, rate_ru=10, burst_ru=10, debt_ru=10),
        displaces=contention,
    )
    first = rows(9, shard="s")
    enter(these, first)
    assert not first.over_quota
    assert contention.asked == 0  # it is not called before a quota is spent
    assert refused(these, rows(9, shard="s")).reason is QUOTA_SPENT
    contention.lower.add("s")
    beyond = rows(9, shard="s")
    permit = enter(these, beyond)
    assert beyond.over_quota
    assert refused(these, rows(9, shard="healthy")).reason is QUOTA_SPENT
    assert these.stats().over_quota == 1
    contention.lower.clear()
    again = beyond.copy()
    again.over_quota = True
    assert refused(these, again).reason is QUOTA_SPENT
    assert [again.over_quota] == [False]  # the mark is of one admission
    assert permit.end(OK, START)


def test_work_beyond_quota_is_charged_within_debt() -> None:
    contention = Contention()
    contention.lower.add("s")
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, estimates_max=0, rate_ru=10, burst_ru=10, debt_ru=10),
        displaces=contention,
    )
    for _ in range(50):
        request = rows(9, shard="s")
        permit = enter(these, request)
        request.measured = Measured(rows=99)
        permit.end(OK, START)
    contention.lower.clear()
    # Nothing of 49 times 100 RU is owed beyond the debt of the budget.
    assert these.owed_mru() == {"a": 80_000}  # of the first, which was within the quota
    seconds = 0
    while isinstance(these.admit(rows(9, shard="s"), START + seconds * 1_000_000), Decision):
        seconds += 1
    assert seconds == 10


def test_quota_without_contention_is_strict() -> None:
    these = RequestUnits(
        RequestUnitsSettings(
            weights=PLAIN, estimates_max=0, rate_ru=100, burst_ru=100, debt_ru=100
        ),
        displaces=Contention(),
    )
    served = 0
    for ms in range(60_000):  # ten times its quota, for a minute
        request = rows(0)
        permit = these.admit(request, START + ms * 1_000)
        if isinstance(permit, RequestUnitsPermit):
            served += 1
            permit.end(OK, START + ms * 1_000)
    assert 60 * 100 <= served <= 1.2 * 60 * 100


def test_cost_above_limit_is_rejected_though_it_would_displace() -> None:
    contention = Contention()
    contention.lower.add("s")
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, estimates_max=0, rate_ru=10, burst_ru=10, debt_ru=10),
        displaces=contention,
    )
    assert refused(these, rows(30, shard="s")).reason is COST_ABOVE_LIMIT


def test_unwound_work_beyond_quota_is_given_back() -> None:
    contention = Contention()
    contention.lower.add("s")
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, estimates_max=0, rate_ru=10, burst_ru=10, debt_ru=90),
        displaces=contention,
    )
    enter(these, rows(9, shard="s"))
    permit = enter(these, rows(9, shard="s"))
    permit.end(IGNORE, START, spent=False)
    assert left_ru(these) == 0
    assert these.stats().under_way == 1
    enter(these, rows(4, shard="s"), START + 500_000)
