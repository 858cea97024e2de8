"""Request units: predicted, charged, settled, learned; and what each way to end pays."""

from __future__ import annotations

import random
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
from sluicegate.policies.budgets import TokenBudgets
from sluicegate.policies.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.operation_cost import OperationCost, WorkShape, read_shape
from sluicegate.policies.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
OK, IGNORE, DROPPED = Outcome.SUCCESS, Outcome.IGNORE, Outcome.DROPPED
START = 1_000_000_000_000_000
# A request is 1 RU, a row is 1 RU, and nothing else costs.
PLAIN = Weights(1.0, 1.0, 0.0, 0.0)


def units(**some: object) -> RequestUnits:
    plain: dict[str, object] = {"weights": PLAIN, "margin_quantile": None, "learn_rate": 0.0}
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

    settings = RequestUnitsSettings(
        weights=PLAIN, margin_quantile=None, learn_rate=0.0, burst_ru=100
    )
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


def test_one_outlier_cannot_bankrupt_a_caller_nor_make_it_rich() -> None:
    assert end(units(), OK, Measured(rows=100_000)) == 200
    assert end(units(correction_max=3), OK, Measured(rows=100_000)) == 60
    assert end(units(), OK, Measured(size_bytes=1), predicted_rows=199) == 20


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


def test_in_the_form_of_the_seed_no_charge_is_corrected_and_the_model_learns() -> None:
    these = units(settle=False, learn_rate=0.1)
    assert end(these, OK, Measured(rows=199)) == 20
    assert end(units(settle=False), IGNORE) == 20
    assert end(units(settle=False), IGNORE, spent=False) == 0
    assert these.weights("").row_ru > 1.0


def test_it_learns_from_successes_that_were_measured_and_from_nothing_else() -> None:
    for outcome, measured, spent in [
        (OK, None, True),
        (OK, Measured(rows=199, from_cache=True), True),
        (IGNORE, Measured(rows=199), True),
        (DROPPED, Measured(rows=199), True),
        (OK, Measured(rows=199), False),
    ]:
        these = units(learn_rate=0.5)
        end(these, outcome, measured, spent=spent)
        assert these.weights("").row_ru == 1.0, (outcome, measured, spent)
        assert these.stats().learned == 0


def test_where_time_costs_nothing_it_learns_however_long_work_takes() -> None:
    these = units(learn_rate=0.1, settle=False)
    for _ in range(100):
        permit = enter(these, request := rows(10))
        request.measured = Measured(5_000_000, 30, 0)
        permit.end(OK, START)
        these.settle("a", -1_000_000, START)
    assert these.predict_mru(rows(10)) > 20_000


def test_a_class_whose_cost_has_tripled_is_charged_three_times_as_much_before_long() -> None:
    dice = random.Random(5)
    these = units(learn_rate=0.02, operations={"scan": PLAIN}, burst_ru=1 << 40)
    for _ in range(1_500):
        request = rows(dice.randrange(5, 200), operation="scan")
        permit = enter(these, request)
        rows_claimed = int(request.attributes["rows"])
        request.measured = Measured(
            rows=max(1, round(3 * rows_claimed * dice.lognormvariate(0, 0.3)))
        )
        permit.end(OK, START)
    assert these.predict_mru(rows(100, operation="scan")) == pytest.approx(301_000, rel=0.15)
    assert these.weights("get").row_ru == 1.0, "another operation has its own model"
    stats = these.stats()
    assert stats.learned == 1_500
    assert 0.7 < stats.learned_predicted_mru / stats.learned_actual_mru < 1.1


def do(these: RequestUnits, row_count: int, looked_at: int, caller: str) -> int:
    """A scan from begin to end; what was charged before the fact."""
    request = rows(row_count, caller)
    permit = enter(these, request)
    request.measured = Measured(rows=looked_at)
    permit.end(OK, START)
    return permit.predicted_mru


def paid_ru(these: RequestUnits) -> float:
    stats = these.stats()
    return (stats.charged_mru + stats.debited_mru - stats.refunded_mru) / 1_000


def test_a_caller_whose_shapes_are_wrong_soon_pays_for_what_it_causes() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    do(these, 1, 200, "liar")
    assert paid_ru(these) == 20, "ten times the prediction, and no more, the first time"
    for _ in range(12):
        do(these, 1, 200, "liar")
    assert do(these, 1, 200, "liar") == pytest.approx(201_000, rel=0.1)
    before = paid_ru(these)
    do(these, 1, 200, "liar")
    assert paid_ru(these) - before == 201


def test_what_one_caller_has_wrong_is_charged_to_nobody_else() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    for number in range(900):
        do(these, 9, 9, f"honest-{number % 9}")
        if number % 9 == 0:
            do(these, 1, 200, "liar")
    assert these.predict_mru(rows(9, "honest-3")) == pytest.approx(10_000, rel=0.1)
    assert these.predict_mru(rows(9, "a new one")) == pytest.approx(10_000, rel=0.1)
    alike = units(learn_rate=0.02, burst_ru=1 << 40, ratios_max=0)
    for number in range(300):
        do(alike, 9, 9, f"honest-{number % 9}")
        if number % 9 == 0:
            do(alike, 1, 200, "liar")
    assert alike.predict_mru(rows(9, "honest-3")) > 13_000


def test_what_all_callers_have_wrong_is_known_of_a_new_one_too() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    for number in range(3_000):
        do(these, 50, 50 if number < 1_000 else 150, f"c{number % 30}")
    assert these.predict_mru(rows(50, "c7")) == pytest.approx(151_000, rel=0.1)
    assert these.predict_mru(rows(50, "a new one")) == pytest.approx(151_000, rel=0.2)


def test_who_gives_no_name_has_no_ratio_and_teaches_the_weights() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    for _ in range(400):
        do(these, 9, 27, "")
    assert len(these.ratios) == 0
    assert these.weights("").cost_mru(9, 0, 0.0) == pytest.approx(28_000, rel=0.05)


def test_nothing_that_was_not_measured_teaches_a_ratio() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    for outcome, measured in (
        (OK, None),
        (IGNORE, Measured(rows=200)),
        (DROPPED, Measured(rows=200)),
        (OK, Measured(rows=200, from_cache=True)),
    ):
        request = rows(1)
        permit = enter(these, request)
        request.measured = measured
        permit.end(outcome, START)
    assert len(these.ratios) == 0


def test_the_table_of_ratios_is_bounded_and_forgets_the_usual_first() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40, ratios_max=3)
    for number in range(900):
        do(these, 5, 5, f"c{number}")
        if number % 9 == 0:
            do(these, 1, 200, "liar")
        assert len(these.ratios) <= 3
    assert these.ratios.find("", "liar") is not None
    for number in range(20):
        do(these, 1, 200, f"liar-{number}")
        assert len(these.ratios) <= 3
    assert these.ratios.find("", "liar-19") is not None


def test_chunks_of_a_caller_whose_shapes_are_wrong_are_as_small_as_its_ratio_says() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40)
    honest = len(list(these.chunks(rows(199, "honest"), 20)))
    for _ in range(40):
        do(these, 10, 100, "liar")
    assert len(list(these.chunks(rows(199, "liar"), 20))) > 5 * honest


def test_what_is_expected_has_no_margin() -> None:
    these = units(learn_rate=0.02, burst_ru=1 << 40, margin_quantile=0.9)
    dice = random.Random(7)
    for _ in range(500):
        do(these, 50, round(50 * dice.lognormvariate(-0.08, 0.4)), "a")
    expected = these.expect_mru(rows(50))
    assert expected == pytest.approx(51_000, rel=0.15)
    assert these.predict_mru(rows(50)) > 1.2 * expected


def test_nothing_that_is_measured_makes_the_model_diverge() -> None:
    dice = random.Random(6)
    these = units(learn_rate=0.4, burst_ru=1 << 40, correction_max=1_000)
    for _ in range(2_000):
        request = rows(dice.choice([0, 1, 10**15]))
        permit = these.admit(request, START)
        if isinstance(permit, RequestUnitsPermit):
            request.measured = Measured(rows=dice.choice([1, 10**15]), service_us=10**9)
            permit.end(OK, START)
    assert 1e-3 <= these.weights("").row_ru <= 1e3


def test_slow_service_makes_dear_and_a_queue_of_ours_does_not() -> None:
    by_time = Weights(1.0, 0.0, 0.0, 1.0)
    these = units(weights=by_time, latency_ms=2.0, burst_ru=10_000)
    assert these.predict_mru(rows(1)) == 3_000
    now_us = START
    for _ in range(10):
        request = rows(1)
        permit = enter(these, request, now_us)
        request.measured = Measured(service_us=9_000)
        now_us += 5_000_000  # almost all of it in our queue
        permit.end(OK, now_us)
    assert these.predict_mru(rows(1)) == pytest.approx(10_000, rel=0.02)


def test_the_margin_charges_more_at_first_so_that_less_is_settled_later() -> None:
    dice = random.Random(1)
    these = units(margin_quantile=0.7, learn_rate=0.02, burst_ru=1 << 40)
    enough = total = 0
    for step in range(6_000):
        request = rows(50)
        permit = enter(these, request)
        actual = max(1, round(50 * dice.lognormvariate(0, 0.4)))
        request.measured = Measured(rows=actual)
        if step > 2_000:
            total += 1
            enough += permit.predicted_mru >= (1 + actual) * 1_000
        permit.end(OK, START)
    assert enough / total == pytest.approx(0.7, abs=0.05)


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
        RequestUnitsSettings(weights=PLAIN, margin_quantile=None),
        shape_of=lambda request: WorkShape(len(request.key)),
    )
    request = Request("seven!!")
    enter(these, request)
    assert request.cost_ru == 8


def test_the_budget_may_be_one_that_is_filled_each_epoch() -> None:
    quota = LeasedBudget(LeasedBudgetSettings(form="live", quota_ru=100))
    these = RequestUnits(
        RequestUnitsSettings(weights=PLAIN, margin_quantile=None, learn_rate=0.0), budget=quota
    )
    request = rows(59)
    permit = enter(these, request)
    assert refused(these, rows(59)).retry_after_us == 1_000_000
    request.measured = Measured(rows=9)
    permit.end(OK, START)
    assert left_ru(these) == 90
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
        ("correction_max", 0),
        ("cached_mru", -1),
        ("chunks_max", 0),
        ("ratios_max", -1),
        ("learn_rate", 1.1),
        ("learn_rate", float("nan")),
        ("latency_ms", float("inf")),
        ("margin_quantile", 1.0),
        ("operations", {str(n): PLAIN for n in range(1_001)}),
    ],
)
def test_a_bad_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(BadValue) as caught:
        units(**{field: value})
    assert caught.value.field == f"request_units.{field}"
    with pytest.raises(BadValue, match="overshoot"):
        units(learn_rate=1.0, correction_max=1_000)
    with pytest.raises(BadValue):
        next(units().chunks(rows(5), 0))


def test_a_slow_shard_makes_nothing_dearer_on_the_others() -> None:
    settings = RequestUnitsSettings(
        margin_quantile=None, learn_rate=0.0, rate_ru=100_000, burst_ru=100_000
    )
    these = RequestUnits(settings)
    for number in range(1_000):
        request = rows(1, operation="get", shard=f"s{number % 10}")
        permit = enter(these, request, START + number * 10_000)
        request.measured = Measured(rows=1, service_us=150_000 if number % 10 == 3 else 3_000)
        permit.end(OK, START + number * 10_000)
    healthy = these.predict_mru(rows(1, operation="get", shard="s1"))
    slow = these.predict_mru(rows(1, operation="get", shard="s3"))
    assert slow < 1.3 * healthy
    assert healthy == pytest.approx(these.predict_mru(rows(1, operation="get")), rel=1.0)


def test_shards_beyond_the_bound_share_one_latency() -> None:
    these = RequestUnits(
        RequestUnitsSettings(
            margin_quantile=None, learn_rate=0.0, rate_ru=1 << 30, burst_ru=1 << 30
        )
    )
    for number in range(2_000):
        request = rows(1, shard=f"s{number}")
        permit = enter(these, request, START + number * 10_000)
        request.measured = Measured(rows=1, service_us=30_000 if number < 256 else 1_000)
        permit.end(OK, START + number * 10_000)
    shared = these.predict_mru(rows(1, shard="s1999"))
    assert shared == these.predict_mru(rows(1, shard="never seen"))
    assert 2 * shared < these.predict_mru(rows(1, shard="s1"))


def test_that_a_shard_is_slow_costs_its_callers_little() -> None:
    these, now_us = slow_units(), START
    now_us = read_often(these, now_us, seconds=40, took_ms=3)
    usual_ru = these.predict_mru(rows(1, shard="s")) / 1_000
    for _ in range(24):
        now_us = read_often(these, now_us, seconds=1, took_ms=150)
        assert these.predict_mru(rows(1, shard="s")) / 1_000 < 1.3 * usual_ru
        assert these.predict_mru(rows(1, shard="other")) / 1_000 < 1.3 * usual_ru
    stats = these.stats()
    assert stats.learned_actual_mru < 1.3 * stats.learned * usual_ru * 1_000


def test_a_shard_that_is_slow_from_the_beginning_costs_little_where_others_are_not() -> None:
    these, now_us = slow_units(), START
    for _ in range(100):
        for shard, took_ms in (("a", 3), ("b", 3), ("c", 3), ("slow", 150)):
            now_us += 2 * MS
            request = rows(1, shard=shard, caller="c")
            permit = enter(these, request, now_us)
            request.measured = Measured(took_ms * MS, rows=1)
            permit.end(OK, now_us)
    assert these.predict_mru(rows(1, shard="a", caller="c")) < 7_000
    assert these.predict_mru(rows(1, shard="slow", caller="c")) < 9_000


def test_what_was_usual_before_a_restart_is_usual_after_it() -> None:
    these = slow_units()
    cost = these._other
    cost.restore(cost.weights, 1.0, {"s": 3.0}, {"s": 3.0})
    read_often(these, START, seconds=2, took_ms=150)
    assert these.predict_mru(rows(1, shard="s")) < 1_300 * (1 + 1 + 3)


def test_that_work_takes_longer_for_good_is_charged_in_the_end() -> None:
    these, now_us = slow_units(), START
    now_us = read_often(these, now_us, seconds=40, took_ms=3)
    for _ in range(100):  # an hour and more, sampled
        now_us = read_often(these, now_us, seconds=1, took_ms=12) + 40 * S
    assert these.predict_mru(rows(1, shard="s")) / 1_000 == pytest.approx(1 + 1 + 12, rel=0.1)


def test_rows_are_charged_whole_though_their_shard_is_slow() -> None:
    these, now_us = slow_units(settle=True, rate_ru=1_000, burst_ru=1_000), START
    now_us = read_often(these, now_us, seconds=40, took_ms=3)
    now_us = read_often(these, now_us, seconds=1, took_ms=150) + 10 * S
    request = rows(500, shard="s", caller="b")
    permit = enter(these, request, now_us)
    request.measured = Measured(600 * MS, rows=500)
    permit.end(OK, now_us)
    assert 498 < 1_000 - left_ru(these, "b", now_us) < 530


def test_what_is_usual_of_a_new_shard_is_what_was_not_in_a_line() -> None:
    operation = operation_of_time()
    for number in range(400):  # a line of twenty, then of ten, and so on; once in 20 it is empty
        beside = number % 20
        operation.time("s", 10_000 * (1 + beside), beside, START + number * 5_000)
    assert operation.latency_ms("s") < 1.3 * 20
    assert operation.charged_ms("s", 100_000) < 30


def test_without_peers_a_first_second_in_a_line_is_not_for_long_what_is_usual() -> None:
    operation, now_us = operation_of_time(), START
    for number in range(400):
        now_us += 10_000
        in_line = number < 100
        operation.time("s", 80_000 if in_line else 10_000, 60, now_us)
    for _ in range(100):  # the line is back
        now_us += 10_000
        operation.time("s", 80_000, 60, now_us)
    charged = [operation.charged_ms("s", 80_000) for _ in range(10)]
    assert max(charged) < 1.3 * 10


def test_where_all_take_as_long_as_one_in_twenty_did_it_is_the_mean_that_counts() -> None:
    operation, now_us = operation_of_time(), START
    for number in range(1_000):  # for 40 s: a mean of 10 ms, a p95 of 48
        now_us += 40_000
        operation.time("s", 48_000 if number % 10 == 9 else 6_000, number % 4, now_us)
    for _ in range(100):
        now_us += 10_000
        operation.time("s", 48_000, 50, now_us)
    assert operation.charged_ms("s", 48_000) < 1.35 * 10.2


def test_what_takes_no_longer_than_usual_after_a_stall_is_charged_whole() -> None:
    operation, now_us = operation_of_time(), START
    for _ in range(100):
        now_us += 50_000
        operation.time("s", 10_000, 0, now_us)
    for _ in range(100):
        operation.time("s", 5_000_000, 50, now_us)
    assert operation.charged_ms("s", 10_000) == 10
    assert operation.charged_ms("s", 5_000_000) < 14


def operation_of_time() -> OperationCost:
    """One whose time costs, and that learns no weights."""
    return OperationCost(
        "get",
        Weights(1.0, 1.0, 0.0, 1.0),
        learn_rate=0.0,
        correction_max=10,
        margin_quantile=None,
        latency_ms=1.0,
    )


S, MS = 1_000_000, 1_000


def slow_units(**some: object) -> RequestUnits:
    """A request, a row and a millisecond cost 1 RU each."""
    given: dict[str, object] = {"weights": Weights(1.0, 1.0, 0.0, 1.0), "learn_rate": 0.02}
    return units(**(given | {"settle": False, "rate_ru": 10_000, "burst_ru": 10_000} | some))


def read_often(these: RequestUnits, now_us: int, *, seconds: int, took_ms: int) -> int:
    """Forty reads a second of one shard, by a caller each; returns when they are done."""
    for number in range(40 * seconds):
        now_us += 25 * MS
        request = rows(1, caller=f"c{number % 4}", shard="s")
        permit = these.admit(request, now_us)
        if isinstance(permit, RequestUnitsPermit):
            request.measured = Measured(took_ms * MS, rows=1)
            permit.end(OK, now_us)
    return now_us


def test_one_that_took_long_is_looked_at_soon_and_many_are_not_each_looked_at() -> None:
    operation = operation_of_time()
    for number in range(101):
        operation.time("s", 1_000, 0, START + number * 1_000)
    calm_ms = operation.latency_ms("s")
    for number in range(100):
        operation.time("s", 90_000, 0, START + 101_000 + number * 100)
        assert operation.latency_ms("s") == calm_ms
    operation.time("s", 90_000, 0, START + 151_000)
    assert operation.latency_ms("s") > 2 * calm_ms
