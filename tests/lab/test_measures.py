from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.goals import Goal, judge_goals
from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.measures import (
    amplification,
    capacity_us,
    figures,
    jain,
    quantile,
    recovery_s,
    refused_p99_ms,
)
from sluicegate.lab.speed_profile import SpeedProfile
from tests.lab.confidence import interval
from tests.lab.rigs import small

SECOND = 1_000_000


def ledger(span_us: int = 10 * SECOND, warm_us: int = 0) -> RunLedger:
    return RunLedger(small(1).kinds, warm_us=warm_us, span_us=span_us)


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([7], 0.99) == 7
    assert quantile([], 0.99) == inf


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.01, 1))
def test_no_more_than_the_rest_pass_a_quantile(values: list[int], share: float) -> None:
    bound = quantile(values, share)
    assert sum(value <= bound for value in values) >= share * len(values) - 1e-9
    assert sum(value > bound for value in values) <= (1 - share) * len(values) + 1e-9


def test_jain_is_one_for_equals_and_a_share_for_a_monopoly() -> None:
    assert jain([4, 4, 4, 4]) == 1
    assert jain([8, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([0, 0]) == 0.0


def test_an_interval_is_student_s() -> None:
    result = interval([1.0, 2.0, 3.0, 4.0, 5.0], level=95)
    assert (result.mean, round(result.high - result.mean, 3)) == (3.0, 1.963)
    wider = interval([1.0, 2.0, 3.0, 4.0, 5.0], level=99)
    assert round(wider.high - wider.mean, 3) == 3.256
    with pytest.raises(ValueError, match="two runs"):
        interval([1.0])


def test_a_brown_out_is_not_counted_as_capacity() -> None:
    rig = small(1, speed_profile=SpeedProfile(((1 * SECOND, 0.25), (2 * SECOND, 1.0))))
    assert capacity_us(rig, 0, 4 * SECOND) == 32 * 3.25 * SECOND


def test_recovery_counts_from_the_repair_to_the_first_good_second() -> None:
    book = ledger()
    for bucket in range(100):
        book.good_at[bucket] = 10 if not 30 <= bucket < 67 else 0
    # From 6.7 s on all is well; 95% of a second from 6.7 s on is what it takes.
    assert recovery_s(book, 3 * SECOND, 6 * SECOND) == 0.7
    book.good_at[67:] = [9] * len(book.good_at[67:])
    assert recovery_s(book, 3 * SECOND, 6 * SECOND) == inf


def test_the_ledger_counts_what_ends_after_the_warm_up() -> None:
    book = ledger(warm_us=1_000)
    book.record_offer(0, 500, False)
    book.record_answer(0, 3, 500, 900, 70, in_time=True)
    book.record_offer(0, 1_000, False)
    book.record_offer(0, 1_001, True)
    book.record_answer(0, 3, 1_000, 1_400, 50, in_time=True)
    book.record_answer(0, 3, 1_001, 1_500, 60, in_time=False)
    book.record_refusal(0, 950, 999)
    book.record_refusal(0, 1_000, 1_007)
    row = book.by_kind[0]
    assert (row.offered, row.good, row.late, row.refused) == (2, 1, 1, 1)
    assert (row.good_us, row.refused_us, row.callers[3]) == ([400], [7], 1)
    assert (book.useful_us, book.wasted_us) == (50, 60)
    assert (book.started, book.retries, amplification(book)) == (1, 1, 2.0)
    assert refused_p99_ms(book) == 0.007


def test_figures_of_a_run_without_an_end_meet_no_goal() -> None:
    numbers = figures(small(1), ledger(span_us=2 * SECOND))
    assert numbers["p99_ms"] == inf
    assert numbers["success.get"] == 0.0
    assert numbers["goodput"] == 0
    assert not Goal(figure="p99_ms", at_most=60).is_met(numbers["p99_ms"], small(1))


def test_a_goal_takes_the_worst_of_all_seeds_and_says_which() -> None:
    rigs = {"a": small(1), "b": small(2)}
    figures_by_rig = {
        "a": {1: {"goodput": 0.99, "p99_ms": 50.0}, 2: {"goodput": 0.97, "p99_ms": 60.0}},
        "b": {1: {"goodput": 0.5, "p99_ms": 70.0}, 2: {"goodput": 0.6, "p99_ms": 10.0}},
    }
    goals = (
        Goal(figure="goodput", at_least=0.98, cases=("a",)),
        Goal(figure="p99_ms", at_most=60),
    )
    findings = [
        (f.case, f.goal.figure, f.worst, f.seed, f.met)
        for f in judge_goals(goals, rigs, figures_by_rig)
    ]
    assert findings == [
        ("a", "goodput", 0.97, 2, False),
        ("a", "p99_ms", 60.0, 2, True),
        ("b", "p99_ms", 70.0, 1, False),
    ]


def test_a_goal_may_ask_the_rig_for_its_bound() -> None:
    goal = Goal(figure="goodput", at_least=lambda rig: 0.98 * rig.ceiling(10))
    rig = small(10, refusal_cost=0.01)
    assert goal.text(rig) == "goodput >= 0.8909"
    assert goal.is_met(0.9, rig)
    assert not goal.is_met(0.88, rig)


def test_a_goal_has_one_bound() -> None:
    with pytest.raises(BadValue):
        Goal(figure="goodput")
    with pytest.raises(BadValue):
        Goal(figure="goodput", at_least=1, at_most=2)
