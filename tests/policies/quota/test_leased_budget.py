"""Leased budget: blocks are debited before they are spent, and die with their epoch."""

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
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.quota.budgets import Budget
from sluicegate.policies.quota.leased_budget import (
    NAMED_MAX,
    OTHERS,
    RETURN_EPOCHS,
    BlockRequest,
    BudgetPermit,
    LeasedBudget,
    LeasedBudgetSettings,
)

SECOND = 1_000_000
START = 1_000_000_000_000_000  # at the edge of an epoch
RU = 1_000
TRIP = 500


def budget(**some: object) -> LeasedBudget:
    return LeasedBudget(LeasedBudgetSettings(**some))  # type: ignore[arg-type]


class Bank:
    """The obvious store: so much an epoch by its own clock, and no more."""

    def __init__(self, quota_mru: int = 1_000 * RU, skew_us: int = 0) -> None:
        self.quota_mru = quota_mru
        self.skew_us = skew_us
        self.grants: dict[tuple[str, int], int] = {}

    def answer(self, these: LeasedBudget, now_us: int) -> None:
        """Ask for all that is wanted, and be told at once, `TRIP` later."""
        for request in these.block_requests(100, now_us):
            self.tell(these, request, now_us)

    def tell(self, these: LeasedBudget, request: BlockRequest, now_us: int) -> int:
        at_us = now_us + TRIP // 2 + self.skew_us
        place = (request.caller, at_us // SECOND)
        left = self.quota_mru - self.grants.get(place, 0)
        units = next((rung for rung in request.ladder if rung <= left), 0)
        self.grants[place] = self.grants.get(place, 0) + units
        these.credit(request, units, left - units, at_us, now_us, now_us + TRIP)
        return units


def supplied(bank: Bank, these: LeasedBudget, caller: str, mru: int, now_us: int) -> bool:
    """As a dispatcher asks: what is refused for request of a block is tried again with one."""
    for _ in range(30):
        if these.charge(caller, mru, now_us).allowed:
            return True
        if not these.awaits_block(caller, now_us):
            return False
        bank.answer(these, now_us)
    return False


def test_it_stands_in_the_place_of_any_other_budget() -> None:
    these: Budget = budget(form="live")
    assert these.charge("a", RU, START).allowed


def test_nothing_is_spent_that_was_not_granted() -> None:
    these, bank = budget(), Bank()
    refused = these.charge("a", RU, START)
    assert not refused.allowed
    assert refused.retry_after_us > 0
    assert these.awaits_block("a", START)
    bank.answer(these, START)
    assert these.charge("a", RU, START + TRIP).allowed


def test_a_block_dies_with_its_epoch() -> None:
    these, bank = budget(), Bank()
    assert supplied(bank, these, "a", RU, START)
    assert these.standing("a", START).level_mru == 0
    these.charge("a", 5 * RU, START)
    bank.answer(these, START)
    assert these.standing("a", START).level_mru >= 5 * RU
    # Measured from before it was asked for: half a trip early, never late.
    assert not these.charge("a", RU, START + SECOND - TRIP // 2).allowed


def test_the_whole_quota_can_be_had_and_no_more() -> None:
    these, bank = budget(), Bank()
    had = sum(supplied(bank, these, "a", RU, START + n * 300) for n in range(3_000))
    assert had == 1_000
    assert not these.awaits_block("a", START + 900_000)
    assert these.charge("a", RU, START + 900_000).retry_after_us == 100_000 + TRIP // 2


def test_what_others_have_taken_is_not_asked_for_again_in_this_epoch() -> None:
    these, bank = budget(), Bank()
    bank.grants["a", START // SECOND] = bank.quota_mru
    assert these.charge("a", RU, START).retry_after_us < SECOND // 2
    bank.answer(these, START)
    refused = these.charge("a", RU, START + 100_000)
    assert refused.retry_after_us == 900_000 + TRIP // 2
    assert not these.awaits_block("a", START + 100_000)
    assert supplied(bank, these, "a", RU, START + SECOND)


def test_a_block_is_what_is_spent_in_a_tenth_of_an_epoch() -> None:
    these, bank = budget(), Bank()
    for epoch in range(12):
        for n in range(200):
            now_us = START + epoch * SECOND + 1_000 + n * 4_900
            assert supplied(bank, these, "a", RU, now_us)
            bank.answer(these, now_us)
    these.renew(START + 12 * SECOND)
    (request,) = these.block_requests(9, START + 12 * SECOND)
    assert 15 * RU <= request.ladder[0] <= 25 * RU
    assert request.ladder[-1] == RU


def test_near_the_end_no_more_is_asked_for_than_can_be_spent() -> None:
    these, bank = budget(), Bank()
    for n in range(900):
        supplied(bank, these, "a", RU, START + n * 1_000)
    supplied(bank, these, "a", RU, START + SECOND)
    while these.charge("a", RU, START + 2 * SECOND - 10_000).allowed:
        pass
    (request,) = these.block_requests(9, START + 2 * SECOND - 10_000)
    assert request.ladder[0] <= 10 * RU


def test_at_half_of_a_block_the_next_is_wanted_and_only_once() -> None:
    these, bank = budget(), Bank()
    these.charge("a", 100 * RU, START)
    bank.answer(these, START)
    assert these.charge("a", 49 * RU, START + TRIP).allowed
    assert these.block_requests(9, START + TRIP) == []
    assert these.charge("a", 10 * RU, START + TRIP).allowed
    assert len(these.block_requests(9, START + TRIP)) == 1
    assert these.charge("a", 10 * RU, START + TRIP).allowed
    assert these.block_requests(9, START + TRIP) == []


def test_who_asks_is_heard_at_once() -> None:
    these = budget()
    requests: list[int] = []
    these.on_request = lambda: requests.append(1)
    these.charge("a", RU, START)
    these.charge("a", RU, START)
    these.charge("b", RU, START)
    assert len(requests) == 2
    assert {request.caller for request in these.block_requests(9, START)} == {"a", "b"}


def test_what_a_small_request_needs_is_had_where_a_large_one_is_refused() -> None:
    these, bank = budget(), Bank()
    bank.grants["a", START // SECOND] = 700 * RU
    assert not supplied(bank, these, "a", 500 * RU, START)
    assert supplied(bank, these, "a", 10 * RU, START)


def test_a_store_whose_clock_is_elsewhere_says_when_an_epoch_ends() -> None:
    these, bank = budget(), Bank(skew_us=400_000)
    had = sum(supplied(bank, these, "a", RU, START + n * 1_000) for n in range(1_500))
    # Epochs end at 0.6 and 1.6 s by the clock here: of the first it had 600, of the second 900.
    assert 1_480 <= had <= 1_500
    assert len(bank.grants) == 2


def test_what_is_granted_by_an_epoch_that_is_over_is_void() -> None:
    these = budget()
    bank = Bank()
    supplied(bank, these, "a", RU, START)
    these.charge("a", RU, START + SECOND - 100)
    (request,) = these.block_requests(9, START + SECOND - 100)
    these.credit(request, 10 * RU, 0, START + SECOND - 1, START + SECOND - 100, START + SECOND + 9)
    assert not these.charge("a", RU, START + SECOND + 10).allowed
    assert these.stats().lapsed_mru >= 0
    assert these.awaits_block("a", START + SECOND + 10)


def test_what_costs_more_than_the_quota_waits_for_all_of_it_and_owes_the_rest() -> None:
    these, bank = budget(), Bank()
    assert supplied(bank, these, "a", 1_500 * RU, START)
    assert these.standing("a", START).level_mru == -500 * RU
    assert not supplied(bank, these, "a", RU, START + 1)
    assert supplied(bank, these, "a", 500 * RU, START + SECOND)
    assert not supplied(bank, these, "a", RU, START + SECOND + 1)
    assert supplied(bank, these, "a", 1_000 * RU, START + 2 * SECOND)


def test_what_costs_more_than_quota_and_debt_is_never_admitted() -> None:
    assert budget().charge("a", 2_000 * RU + 1, START).retry_after_us == NEVER
    assert budget(debt_epochs=0).charge("a", 1_000 * RU + 1, START).retry_after_us == NEVER


def test_a_correction_is_owed_up_to_the_debt_and_paid_first() -> None:
    these, bank = budget(), Bank()
    supplied(bank, these, "a", RU, START)
    these.settle("a", 10**9, START)
    assert these.standing("a", START).level_mru == -1_000 * RU
    assert not supplied(bank, these, "a", RU, START + SECOND)
    assert supplied(bank, these, "a", RU, START + 2 * SECOND)


def test_a_refund_fills_no_further_than_what_the_epoch_has_brought() -> None:
    these, bank = budget(), Bank()
    these.charge("a", 100 * RU, START)
    bank.answer(these, START)
    assert these.charge("a", 60 * RU, START).allowed
    these.settle("a", -(10**9), START)
    assert these.standing("a", START).level_mru == 100 * RU
    these.settle("a", -5, START + SECOND)
    assert these.standing("a", START + SECOND).level_mru == 0


def test_live_is_an_even_part_whatever_the_demand() -> None:
    these = budget(form="live", live=3)
    assert sum(these.charge("a", RU, START).allowed for _ in range(500)) == 333
    these.set_live(2)
    assert sum(these.charge("a", RU, START + SECOND).allowed for _ in range(900)) == 500


def test_without_a_store_the_retry_is_exact() -> None:
    these = budget(form="live", live=2)
    assert these.charge("a", 500 * RU, START).allowed
    these.settle("a", 700 * RU, START)  # owes 700, and 500 come each second
    refused = these.charge("a", 400 * RU, START + 250_000)
    again_us = START + 250_000 + refused.retry_after_us
    assert not these.charge("a", 400 * RU, again_us - 1).allowed
    # 300 are there after three epochs, so it takes the third's whole.
    assert again_us == START + 3 * SECOND
    assert not these.charge("a", 400 * RU, START + 2 * SECOND).allowed
    assert these.charge("a", 400 * RU, again_us).allowed


@given(
    costs=st.lists(st.tuples(st.integers(1, 900), st.integers(0, 400_000)), max_size=20),
    live=st.integers(1, 5),
)
def test_a_refusal_names_the_next_instant_at_which_this_cost_could_pass(
    costs: list[tuple[int, int]], live: int
) -> None:
    these, now_us = budget(form="live", live=live), START + 7
    for ru, pause_us in costs:
        now_us += pause_us
        verdict = these.charge("a", ru * RU, now_us)
        if verdict.allowed:
            continue
        now_us += verdict.retry_after_us
        assert not these.charge("a", ru * RU, now_us - 1).allowed
        assert these.charge("a", ru * RU, now_us).allowed


def test_the_last_share_is_kept_for_as_long_as_the_store_is_gone() -> None:
    these, other, bank = budget(live=2), budget(live=2), Bank()
    for epoch in range(30):
        for n in range(2_000):
            now_us = START + epoch * SECOND + n * 490
            supplied(bank, these, "a", RU, now_us)
            if n % 4 == 0:
                supplied(bank, other, "a", RU, now_us)
    begun = START + 30 * SECOND
    for one in (these, other):
        one.detach_store(begun)
    for epoch in range(600):
        now_us = begun + epoch * SECOND + 10
        had = [
            sum(10 * one.charge("a", 10 * RU, now_us).allowed for _ in range(101))
            for one in (these, other)
        ]
        assert 930 <= sum(had) <= 1_010
        assert had[0] > 2.5 * had[1]
    now_us = begun + 600 * SECOND
    for one in (these, other):
        one.attach_store(now_us)
    for epoch in range(8):
        had_now = 0
        for n in range(2_000):
            at_us = now_us + epoch * SECOND + n * 490
            had_now += supplied(bank, these, "a", RU, at_us)
            had_now += n % 4 == 0 and supplied(bank, other, "a", RU, at_us)
        assert 900 <= had_now <= 1_010


def test_a_caller_below_its_quota_may_be_uneven_while_the_store_is_gone() -> None:
    these, bank = budget(live=2), Bank()
    for epoch in range(10):
        for n in range(100):
            supplied(bank, these, "a", RU, START + epoch * SECOND + n * 9_000)
    these.detach_store(START + 10 * SECOND)
    assert these.standing("a", START + 10 * SECOND).share == pytest.approx(0.55, abs=0.02)
    had = sum(these.charge("a", RU, START + 11 * SECOND).allowed for _ in range(400))
    assert had == 400


def test_who_was_never_seen_has_an_even_part_while_the_store_is_gone() -> None:
    these = budget(live=4)
    these.detach_store(START)
    assert sum(these.charge("new", RU, START).allowed for _ in range(999)) == 250


def test_an_epoch_in_which_the_store_went_brings_no_more_than_the_share() -> None:
    these, bank = budget(live=2), Bank()
    supplied(bank, these, "a", 400 * RU, START)
    these.detach_store(START + 1)
    assert sum(these.charge("a", RU, START + 1).allowed for _ in range(999)) == 100


def test_when_it_is_back_nobody_leases_beyond_the_share_for_a_while() -> None:
    these, bank = budget(live=4), Bank()
    these.detach_store(START)
    these.charge("a", RU, START)
    these.attach_store(START)
    for epoch in range(1, RETURN_EPOCHS + 1):
        now_us = START + epoch * SECOND
        had = sum(supplied(bank, these, "a", RU, now_us + n * 900) for n in range(1_000))
        assert 240 <= had <= 250
    now_us = START + (RETURN_EPOCHS + 1) * SECOND
    assert sum(supplied(bank, these, "a", RU, now_us + n * 900) for n in range(1_000)) == 1_000


def test_a_caller_whose_ask_was_not_answered_has_its_share_for_that_epoch() -> None:
    these, bank = budget(live=4), Bank()
    these.charge("a", RU, START)
    (request,) = these.block_requests(9, START)
    these.fall_back(request, START + 5)
    assert sum(these.charge("a", RU, START + 5).allowed for _ in range(999)) == 250
    assert supplied(bank, these, "a", 900 * RU, START + SECOND)


@given(
    prices=st.lists(st.integers(1, 50), min_size=4, max_size=12),
    form=st.sampled_from(["live", "leases"]),
)
def test_no_price_changes_what_comes_in(prices: list[int], form: str) -> None:
    """Whatever stress does to the price, an epoch brings the same."""
    brought: list[list[int]] = []
    for series in (prices, [1] * len(prices)):
        these = budget(form=form, live=3)
        if form == "leases":
            these.detach_store(START)
        brought.append([])
        for epoch, price in enumerate(series):
            now_us = START + epoch * SECOND
            for n in range(20):
                these.charge("a", 10 * RU * price, now_us + n)
                these.settle("a", (n % 3 - 1) * RU * price, now_us + n)
            brought[-1].append(these.standing("a", now_us + 99).brought_mru)
    assert brought[0] == brought[1]


@given(prices=st.lists(st.integers(1, 50), min_size=3, max_size=6))
def test_at_any_price_a_thirsty_caller_is_granted_its_quota_an_epoch(prices: list[int]) -> None:
    these, bank = budget(), Bank()
    for epoch, price in enumerate(prices):
        for n in range(130):
            supplied(bank, these, "a", 9 * RU * price, START + epoch * SECOND + n * 7_500)
    for epoch in range(len(prices)):
        grant = bank.grants["a", START // SECOND + epoch]
        assert 1_000 * RU - 9 * max(prices) * RU <= grant <= 1_000 * RU


@given(
    asks=st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(1, 400), st.integers(0, 200_000), st.integers(0, 9)
        ),
        max_size=80,
    ),
    skews=st.tuples(*[st.integers(-2_000_000, 2_000_000)] * 3),
)
def test_the_fleet_never_spends_more_than_the_quota(
    asks: list[tuple[int, int, int, int]], skews: tuple[int, int, int]
) -> None:
    """Wrong clocks, late answers, lost answers and crashes included."""
    settings = LeasedBudgetSettings(quota_ru=1_000, debt_epochs=0)
    fleet = [LeasedBudget(settings) for _ in skews]
    spent: dict[int, int] = {}
    bank, true_us = Bank(), START + 3
    for which, ru, pause_us, fate in asks:
        true_us += pause_us
        now_us = true_us + skews[which]
        if fate == 9:
            fleet[which] = LeasedBudget(settings)
        these = fleet[which]
        bank.skew_us = -skews[which]
        for _ in range(6):
            if these.charge("a", ru * RU, now_us).allowed:
                # It may be spent at any instant from the answer on, so at least at this one.
                spent[true_us // SECOND] = spent.get(true_us // SECOND, 0) + ru * RU
                break
            if not these.awaits_block("a", now_us):
                break
            for request in these.block_requests(9, now_us):
                if fate == 8:
                    units = bank.quota_mru - bank.grants.get(("a", true_us // SECOND), 0)
                    bank.grants["a", true_us // SECOND] = bank.quota_mru - units // 2
                    these.credit(request, 0, 0, true_us, now_us, now_us + TRIP)
                else:
                    bank.tell(these, request, now_us)
            now_us += TRIP
            true_us += TRIP
    assert all(mru <= 1_000 * RU for mru in spent.values())
    assert all(mru <= 1_000 * RU for mru in bank.grants.values())


def test_callers_beyond_the_bound_share_one_account_but_who_is_named_has_room() -> None:
    these = budget(form="live", callers_max=2, quotas_ru={"named": 7})
    for caller in ("a", "b", "c", "d"):
        these.charge(caller, 500 * RU, START)
    assert these.stats().callers == 2
    assert these.stats().shared == 2
    assert not these.charge("e", RU, START).allowed
    assert these.standing("e", START).caller == OTHERS
    assert these.charge("named", 7 * RU, START).allowed


def test_who_asks_for_nothing_is_forgotten_but_not_while_the_store_is_gone() -> None:
    these = budget()
    supplied(Bank(), these, "a", RU, START)
    for epoch in range(1, 60):
        these.renew(START + epoch * SECOND)
        these.block_requests(9, START + epoch * SECOND)
        if epoch == 1:
            supplied(Bank(), these, "a", RU, START + SECOND)
        for request in these.block_requests(9, START + epoch * SECOND):
            these.fall_back(request, START + epoch * SECOND)
        these.fall_back(BlockRequest("a", 0, []), START + epoch * SECOND)
    assert these.stats().callers == 0
    these.charge("b", RU, START + 60 * SECOND)
    these.detach_store(START + 60 * SECOND)
    for epoch in range(61, 200):
        these.renew(START + epoch * SECOND)
    assert these.stats().callers == 1


def test_other_quotas_hold_from_the_next_epoch_on() -> None:
    these = budget(form="live", quota_ru=10)
    assert these.charge("a", 10 * RU, START).allowed
    these.set_quotas(20, {"b": 5})
    assert these.quota_mru("b") == 5 * RU
    assert sum(these.charge("a", RU, START + SECOND).allowed for _ in range(30)) == 20


@pytest.mark.parametrize(
    ("some", "field"),
    [
        ({"form": "even"}, "budget.form"),
        ({"quota_ru": 0}, "budget.quota_ru"),
        ({"quotas_ru": {"a": 0}}, "budget.quotas_ru.a"),
        ({"epoch_us": 0}, "budget.epoch_us"),
        ({"debt_epochs": -1}, "budget.debt_epochs"),
        ({"live": 0}, "budget.live"),
        ({"blocks": 0}, "budget.blocks"),
        ({"memory": 0.0}, "budget.memory"),
        ({"callers_max": 0}, "budget.callers_max"),
    ],
)
def test_wrong_settings_are_refused_by_name(some: dict[str, object], field: str) -> None:
    with pytest.raises(BadValue) as caught:
        budget(**some)
    assert caught.value.field == field


def test_named_callers_are_bounded_by_what_rules_may_name() -> None:
    named = {str(number): 5 for number in range(20_000)}
    these = budget(form="live", quotas_ru=named)
    assert these.quota_mru("19999") == 5 * RU
    beyond = SizedQuotas()
    with pytest.raises(
        BadValue, match="'1,000,001 callers' cannot be used; name at most 1,000,000"
    ):
        these.set_quotas(1, beyond)
    with pytest.raises(BadValue, match=r"budget\.quotas_ru"):
        budget(quotas_ru=beyond)


class SizedQuotas(dict[str, int]):
    """A quota for more callers than rules may name, without their memory."""

    def __len__(self) -> int:
        return NAMED_MAX + 1


# As a policy of its own, without a store.


def costing(ru: int, caller: str = "a") -> Request:
    return Request("k", caller=caller, cost=ru)


def left_ru(these: LeasedBudget, caller: str = "a", now_us: int = START) -> int:
    return max(0, these.standing(caller, now_us).level_mru) // RU


def test_a_caller_spends_its_quota_and_gets_it_anew_at_the_edge_of_an_epoch() -> None:
    these = budget(form="live", quota_ru=10)
    assert isinstance(these.admit(costing(7), START + 300_000), BudgetPermit)
    decision = these.admit(costing(4), START + 300_000)
    assert isinstance(decision, Decision)
    assert decision.reason is QUOTA_SPENT
    assert decision.rule_id == "quota"
    assert decision.remaining == 3
    assert decision.retry_after_us == 700_000
    assert isinstance(these.admit(costing(4), START + 999_999), Decision)
    assert isinstance(these.admit(costing(4), START + SECOND), BudgetPermit)
    assert isinstance(these.admit(costing(10, "b"), START), BudgetPermit)


def test_all_dispatchers_fill_at_the_same_instants_whenever_they_began() -> None:
    early, late = budget(form="live", quota_ru=5), budget(form="live", quota_ru=5)
    early.admit(costing(5), START + 10)
    late.admit(costing(5), START + 990_000)
    assert left_ru(early, now_us=START + 999_999) == left_ru(late, now_us=START + 999_999) == 0
    assert left_ru(early, now_us=START + SECOND) == left_ru(late, now_us=START + SECOND) == 5


def test_what_was_unwound_is_given_back_once_and_what_was_done_is_not() -> None:
    these = budget(form="live", quota_ru=10)
    permit = these.admit(costing(6), START)
    assert isinstance(permit, BudgetPermit)
    assert permit.end(Outcome.IGNORE, START, spent=False)
    assert not permit.end(Outcome.IGNORE, START, spent=False)
    assert left_ru(these) == 10
    permit = these.admit(costing(6), START)
    assert isinstance(permit, BudgetPermit)
    permit.end(Outcome.IGNORE, START)
    assert left_ru(these) == 4


def test_a_refund_after_its_epoch_fills_no_fuller_than_full() -> None:
    these = budget(form="live", quota_ru=10)
    permit = these.admit(costing(6), START)
    assert isinstance(permit, BudgetPermit)
    permit.end(Outcome.IGNORE, START + 2 * SECOND, spent=False)
    assert left_ru(these, now_us=START + 2 * SECOND) == 10


def test_what_costs_more_than_a_bucket_is_admitted_full_and_owes_the_rest() -> None:
    these = budget(form="live", quota_ru=10, debt_epochs=1)
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


def test_without_a_store_settling_stops_at_the_deepest_debt() -> None:
    these = budget(form="live", quota_ru=10, debt_epochs=1)
    these.settle("a", 500_000, START)
    assert left_ru(these, now_us=START + SECOND) == 0
    assert left_ru(these, now_us=START + 2 * SECOND) == 10


def test_in_the_form_of_mussel_each_dispatcher_has_an_equal_part() -> None:
    these = budget(form="live", quota_ru=100, live=4)
    assert left_ru(these) == 25
    these.charge("a", 25_000, START)
    these.set_live(2)
    assert left_ru(these, now_us=START + SECOND) == 50
    these.set_live(10)
    assert left_ru(these, now_us=START + 2 * SECOND) == 10


def test_equal_parts_admit_a_fifth_of_a_demand_that_comes_through_two_of_ten() -> None:
    fleet = [budget(form="live", quota_ru=100, live=10) for _ in range(10)]
    dice = random.Random(4)
    admitted = 0
    for epoch in range(20):
        for _ in range(90):
            admitted += fleet[dice.randrange(2)].charge("a", 1_000, START + epoch * SECOND).allowed
    assert admitted < 0.25 * 20 * 90


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 900)), max_size=80))
def test_equal_parts_never_bring_more_than_the_quota_an_epoch(
    requests: list[tuple[int, int, int]],
) -> None:
    fleet = [budget(form="live", quota_ru=50, live=3) for _ in range(3)]
    for one in fleet:
        one.charge("a", 0, START)
    spent = [0] * 3
    now_us = START + 10 * SECOND
    for place, ru, ms in requests:
        if (now_us + ms * 1_000) // SECOND != now_us // SECOND:
            spent = [0] * 3
        now_us += ms * 1_000
        if fleet[place].charge("a", ru * RU, now_us):
            spent[place] += ru * RU
        standings = [one.standing("a", now_us) for one in fleet]
        assert sum(standing.brought_mru for standing in standings) <= 50 * RU
        for standing, charged_mru in zip(standings, spent, strict=True):
            owed_mru = max(-standing.level_mru, 0)
            assert charged_mru <= standing.brought_mru + owed_mru


def test_callers_beyond_the_bound_share_one_account_and_never_that_of_a_named_one() -> None:
    these = budget(form="live", quota_ru=10, quotas_ru={"vip": 500}, callers_max=2)
    for name in ["x", "y", "z", "w"]:
        these.charge(name, 4_000, START)
    assert left_ru(these, "q") == 2, "z, w and q share one of 10"
    assert left_ru(these, "vip") == 500
    assert these.stats().shared == 3


def test_a_clock_that_goes_back_fills_nothing() -> None:
    these = budget(form="live", quota_ru=10)
    these.charge("a", 10_000, START + 5 * SECOND)
    assert left_ru(these, now_us=START) == 0
    assert left_ru(these, now_us=START + 5 * SECOND) == 0
    assert left_ru(these, now_us=START + 6 * SECOND) == 10


def test_a_bad_number_of_dispatchers_is_named() -> None:
    with pytest.raises(BadValue, match="live"):
        budget().set_live(0)
