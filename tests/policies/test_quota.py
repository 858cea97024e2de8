"""Quota: filled each epoch, in parts that follow demand or the number of dispatchers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, QUOTA_SPENT
from sluicegate.contracts.request import Request
from sluicegate.policies.quota import Quota, QuotaPermit, QuotaSettings

OK, IGNORE = Outcome.SUCCESS, Outcome.IGNORE
SECOND = 1_000_000
START = 1_000_000_000_000_000  # at the edge of an epoch


def quota(**some: object) -> Quota:
    return Quota(QuotaSettings(**some))  # type: ignore[arg-type]


def costing(ru: int, caller: str = "a") -> Request:
    return Request("k", caller=caller, cost=ru)


def left_ru(these: Quota, caller: str = "a", now_us: int = START) -> int:
    return these.charge(caller, 0, now_us).remaining // 1_000


def test_a_caller_spends_its_quota_and_gets_it_anew_at_the_edge_of_an_epoch() -> None:
    these = quota(quota_ru=10)
    assert isinstance(these.admit(costing(7), START + 300_000), QuotaPermit)
    decision = these.admit(costing(4), START + 300_000)
    assert isinstance(decision, Decision)
    assert decision.reason is QUOTA_SPENT
    assert decision.rule_id == "quota"
    assert decision.remaining == 3
    assert decision.retry_after_us == 700_000
    assert isinstance(these.admit(costing(4), START + 999_999), Decision)
    assert isinstance(these.admit(costing(4), START + SECOND), QuotaPermit)
    assert isinstance(these.admit(costing(10, "b"), START), QuotaPermit)


def test_all_dispatchers_fill_at_the_same_instants_whenever_they_began() -> None:
    early, late = quota(quota_ru=5), quota(quota_ru=5)
    early.admit(costing(5), START + 10)
    late.admit(costing(5), START + 990_000)
    assert left_ru(early, now_us=START + 999_999) == left_ru(late, now_us=START + 999_999) == 0
    assert left_ru(early, now_us=START + SECOND) == left_ru(late, now_us=START + SECOND) == 5


def test_no_more_is_kept_than_the_epochs_that_may_be() -> None:
    these = quota(quota_ru=10, kept_epochs=2)
    assert left_ru(these) == 20
    these.charge("a", 20_000, START)
    assert left_ru(these, now_us=START + SECOND) == 10
    assert left_ru(these, now_us=START + 100 * SECOND) == 20


def test_what_was_unwound_is_given_back_once_and_what_was_done_is_not() -> None:
    these = quota(quota_ru=10)
    permit = these.admit(costing(6), START)
    assert isinstance(permit, QuotaPermit)
    assert permit.end(IGNORE, START, spent=False)
    assert not permit.end(IGNORE, START, spent=False)
    assert left_ru(these) == 10
    permit = these.admit(costing(6), START)
    assert isinstance(permit, QuotaPermit)
    permit.end(IGNORE, START)
    assert left_ru(these) == 4
    assert these.stats().under_way == 0


def test_a_refund_after_its_epoch_fills_no_fuller_than_full() -> None:
    these = quota(quota_ru=10)
    permit = these.admit(costing(6), START)
    assert isinstance(permit, QuotaPermit)
    permit.end(IGNORE, START + 2 * SECOND, spent=False)
    assert left_ru(these, now_us=START + 2 * SECOND) == 10


def test_what_costs_more_than_a_bucket_is_admitted_full_and_owes_the_rest() -> None:
    these = quota(quota_ru=10, debt_epochs=1)
    these.charge("a", 1_000, START)
    assert these.charge("a", 15_000, START).retry_after_us == SECOND
    later = START + SECOND
    assert these.charge("a", 15_000, later)
    assert these.charge("a", 6_000, later).retry_after_us == 2 * SECOND
    assert left_ru(these, now_us=later + SECOND) == 5
    decision = these.admit(costing(21), later + 9 * SECOND)
    assert isinstance(decision, Decision)
    assert decision.reason is COST_ABOVE_LIMIT
    assert decision.retry_after_us < 0


def test_settling_stops_at_the_deepest_debt() -> None:
    these = quota(quota_ru=10, debt_epochs=1)
    these.settle("a", 500_000, START)
    assert left_ru(these, now_us=START + SECOND) == 0
    assert left_ru(these, now_us=START + 2 * SECOND) == 10


def test_in_the_form_of_the_seed_each_dispatcher_has_an_equal_part() -> None:
    these = quota(form="live", quota_ru=100, live=4)
    assert left_ru(these) == 25
    these.charge("a", 25_000, START)
    these.set_live(2)
    assert left_ru(these, now_us=START + SECOND) == 50
    assert not these.share("a", 900_000, START)
    assert left_ru(these, now_us=START + SECOND) == 50
    these.set_live(10)
    assert left_ru(these, now_us=START + SECOND) == 10, "what is kept shrinks with the part"


def uneven(form: str) -> float:
    """What part of a demand of 90 of 100 is admitted, if it comes through two of ten."""
    fleet = [quota(form=form, quota_ru=100, live=10) for _ in range(10)]
    dice = random.Random(4)
    asked = admitted = 0
    for epoch in range(20):
        now_us = START + epoch * SECOND
        seen = [0] * 10
        for _ in range(90):
            place = dice.randrange(2)
            seen[place] += 1
            asked += 1
            admitted += fleet[place].charge("a", 1_000, now_us).allowed
        for place, one in enumerate(fleet):
            one.share("a", seen[place] * 1_000_000 // sum(seen), now_us)
    return admitted / asked


def test_equal_parts_admit_a_fifth_of_an_uneven_demand_and_shares_admit_it() -> None:
    assert uneven("live") < 0.25
    assert uneven("shares") > 0.93


def test_until_a_share_is_told_and_when_it_is_withdrawn_parts_are_equal() -> None:
    these = quota(quota_ru=100, live=4)
    assert left_ru(these) == 25
    assert these.share("a", 750_000, START)
    assert left_ru(these, now_us=START + SECOND) == 75
    these.charge("a", 75_000, START + SECOND)
    assert left_ru(these, now_us=START + 2 * SECOND) == 75
    assert these.share("a", None, START)
    assert left_ru(these, now_us=START + 3 * SECOND) == 25


def test_a_share_of_nothing_waits_for_the_next_epoch_and_is_never_hopeless() -> None:
    these = quota(quota_ru=100)
    these.share("a", 0, START)
    decision = these.admit(costing(5), START + 400_000)
    assert isinstance(decision, Decision)
    assert decision.reason is QUOTA_SPENT
    assert decision.retry_after_us == 600_000


@given(
    st.lists(st.integers(0, 1_000), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 900)), max_size=80),
)
def test_shares_that_add_up_to_one_never_admit_more_than_the_quota_an_epoch(
    weights: list[int], asks: list[tuple[int, int, int]]
) -> None:
    fleet = [quota(quota_ru=50, debt_epochs=0, live=3) for _ in range(3)]
    for place, one in enumerate(fleet):
        one.share("a", weights[place] * 1_000_000 // max(1, sum(weights)), START)
        one.charge("a", 0, START)
    spent: dict[int, int] = {}
    now_us = START + 10 * SECOND
    for place, ru, ms in asks:
        now_us += ms * 1_000
        if fleet[place].charge("a", ru * 1_000, now_us):
            spent[now_us // SECOND] = spent.get(now_us // SECOND, 0) + ru
    assert all(ru <= 50 for ru in spent.values())


def test_strangers_beyond_the_bound_share_one_bucket_and_never_that_of_who_is_named() -> None:
    these = quota(quota_ru=10, quotas_ru={"vip": 500}, callers_max=2)
    for name in ["x", "y", "z", "w"]:
        these.charge(name, 4_000, START)
    assert left_ru(these, "q") == 2, "z, w and q share one of 10"
    assert left_ru(these, "vip") == 500
    assert these.stats().shared == 3
    # Full again and so forgotten, a bucket makes room.
    assert left_ru(these, "q", START + SECOND) == 10
    assert these.stats().shared == 3


def test_a_clock_that_goes_back_fills_nothing() -> None:
    these = quota(quota_ru=10)
    these.charge("a", 10_000, START + 5 * SECOND)
    assert left_ru(these, now_us=START) == 0
    assert left_ru(these, now_us=START + 5 * SECOND) == 0
    assert left_ru(these, now_us=START + 6 * SECOND) == 10


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"form": "square"}, "quota.form"),
        ({"quota_ru": 0}, "quota.quota_ru"),
        ({"quotas_ru": {"a": 0}}, "quota.quotas_ru.a"),
        ({"quotas_ru": {"a": 1, "b": 1}, "callers_max": 1}, "quota.quotas_ru"),
        ({"epoch_us": 0}, "quota.epoch_us"),
        ({"kept_epochs": 0}, "quota.kept_epochs"),
        ({"debt_epochs": -1}, "quota.debt_epochs"),
        ({"live": 0}, "quota.live"),
        ({"callers_max": 0}, "quota.callers_max"),
    ],
)
def test_a_bad_setting_is_named(some: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        quota(**some)
    assert caught.value.field == field


def test_a_bad_share_or_number_of_dispatchers_is_named() -> None:
    with pytest.raises(BadValue, match="share"):
        quota().share("a", 1_000_001, START)
    with pytest.raises(BadValue, match="live"):
        quota().set_live(0)
