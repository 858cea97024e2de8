"""Resource groups: lend what is unused, and have it back within two epochs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.verdict import NEVER
from sluicegate.policies.quota.budgets import Budget
from sluicegate.policies.quota.group_settings import (
    ResourceGroup,
    ResourceGroupsSettings,
    read_groups,
)
from sluicegate.policies.quota.resource_groups import IDLE_EPOCHS, PART_ONE, ResourceGroups

SECOND = 1_000_000
START = 1_000_000_000_000_000
RU = 1_000
TREE: dict[str, Any] = {
    "groups": {
        "guests": {"quota_ru": 600},
        "hosts": {"quota_ru": 400, "ceiling_ru": 800},
        "payouts": {"quota_ru": 100, "parent": "hosts"},
    },
    "callers": {"search": "guests", "calendar": "hosts", "ledger": "payouts"},
}


def tree(document: dict[str, Any] = TREE) -> ResourceGroups:
    return ResourceGroups(read_groups(document))


def spend(these: Budget, caller: str, ru: int, epoch: int, at_us: int = 0) -> int:
    """Ask for so much by single units; how much is had."""
    now_us = START + epoch * SECOND + at_us
    return sum(bool(these.charge(caller, RU, now_us)) for _ in range(ru))


def test_it_stands_in_the_place_of_any_other_budget() -> None:
    budget: Budget = tree()
    assert budget.charge("search", RU, START).allowed


def test_what_one_leaves_another_borrows_up_to_its_ceiling() -> None:
    these = tree()
    assert spend(these, "search", 2_000, 0) >= 600
    assert spend(these, "search", 2_000, 1) == 960  # a tenth of the hosts' 400 is kept
    assert spend(these, "calendar", 2_000, 5) <= 800
    assert spend(these, "calendar", 2_000, 6) == 790  # and of the payouts' 100


def test_an_owner_that_comes_back_has_its_quota_within_two_epochs() -> None:
    these = tree()
    for epoch in range(5):
        spend(these, "search", 2_000, epoch)
    first = spend(these, "search", 2_000, 5) + spend(these, "calendar", 400, 5, 1)
    assert 990 <= first <= 1_000
    assert spend(these, "search", 2_000, 6) == 600
    assert spend(these, "calendar", 400, 6) == 390  # a tenth of the payouts' 100 is kept


def test_a_returning_owner_is_never_refused_outright() -> None:
    these = tree()
    for epoch in range(5):
        spend(these, "search", 2_000, epoch)
    assert spend(these, "search", 2_000, 5) == 960
    assert spend(these, "calendar", 400, 5, 1) == 36


def test_a_group_within_a_group_borrows_from_it_first() -> None:
    these = tree()
    for epoch in range(3):
        for caller in ("search", "ledger"):
            spend(these, caller, 2_000, epoch)
    assert spend(these, "search", 600, 3) == 600
    assert spend(these, "ledger", 2_000, 3) == 400


def test_callers_of_a_group_share_it_evenly() -> None:
    these = tree({"groups": {"all": {"quota_ru": 900}}, "default_group": "all"})
    for epoch in range(3):
        had = [spend(these, name, 2_000, epoch) for name in ("a", "b", "c")]
    assert had == [300, 300, 300]


def test_a_caller_and_a_group_may_have_the_same_name() -> None:
    these = tree({"groups": {"all": {"quota_ru": 9}}, "callers": {"all": "all"}})
    assert spend(these, "all", 20, 0) == 9
    assert spend(these, "all", 20, 1) == 9


def test_who_is_in_no_group_is_lent_what_is_left() -> None:
    these = tree()
    assert spend(these, "stranger", 5_000, 0) == 900
    spend(these, "search", 600, 0)
    spend(these, "calendar", 400, 0)
    assert spend(these, "search", 600, 1) == 600
    assert spend(these, "calendar", 400, 1) == 390
    assert spend(these, "stranger", 5_000, 1) == 0


def test_what_costs_more_than_its_caller_could_ever_have_owes_the_rest() -> None:
    these = tree()
    assert these.charge("calendar", 1_000 * RU, START).allowed  # 720 is what it can have
    refused = these.charge("calendar", RU, START + 1)
    assert not refused.allowed
    assert refused.retry_after_us == SECOND - 1
    assert spend(these, "calendar", 2_000, 1) == 790 - 280


def test_what_costs_far_more_is_never_admitted() -> None:
    assert tree().charge("calendar", 1_441 * RU, START).retry_after_us == NEVER


def test_a_correction_is_owed_and_a_refund_fills_no_further_than_full() -> None:
    these = tree()
    spend(these, "ledger", 100, 0)
    these.settle("ledger", 50 * RU, START)
    assert spend(these, "ledger", 50, 0) == 0 or these.charge("ledger", 0, START).remaining == 0
    these.settle("ledger", -(10**9), START + SECOND)
    assert these.charge("ledger", 0, START + SECOND).remaining <= 800 * RU


def test_demand_of_long_ago_is_none() -> None:
    these = tree()
    spend(these, "search", 2_000, 0)
    spend(these, "calendar", 2_000, 1)
    assert spend(these, "search", 1, 4) == 1
    assert spend(these, "calendar", 2_000, 5) == 796  # all but what is kept


def test_several_dispatchers_have_a_part_each() -> None:
    these = tree()
    these.set_live(4)
    assert spend(these, "search", 2_000, 0) == 240
    these.set_live(2)
    assert spend(these, "search", 2_000, 1) == 480


def test_idle_callers_are_forgotten_and_there_is_a_bound() -> None:
    settings = ResourceGroupsSettings(groups={"a": ResourceGroup(quota_ru=10)}, callers_max=2)
    these = ResourceGroups(settings)
    for name in ("x", "y", "z", "w"):
        spend(these, name, 1, 0)
    assert these.stats().callers == 2
    for epoch in range(1, IDLE_EPOCHS + 4):
        spend(these, "x", 1, epoch)
    assert these.stats().callers == 1


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"groups": {"a": {"quota": 1}}}, "groups.a.quota"),
        ({"groups": {"a": {"quota_ru": "1"}}}, "groups.a.quota_ru"),
        ({"groups": {"a": {"quota_ru": True}}}, "groups.a.quota_ru"),
        ({"groups": {"a": {"quota_ru": -1}}}, "groups.a.quota_ru"),
        ({"groups": {"a": {"quota_ru": 5, "ceiling_ru": 4}}}, "groups.a.ceiling_ru"),
        ({"groups": {"a": {"quota_ru": 5, "weight": 0}}}, "groups.a.weight"),
        ({"groups": {"a": {"quota_ru": 5, "parent": "b"}}}, "groups.a.parent"),
        (
            {"groups": {"a": {"quota_ru": 5, "parent": "b"}, "b": {"parent": "a"}}},
            "groups.a.parent",
        ),
        (
            {"groups": {"a": {"quota_ru": 5}, "b": {"quota_ru": 6, "parent": "a"}}},
            "groups.a.quota_ru",
        ),
        ({"quota_ru": 4, "groups": {"a": {"quota_ru": 5}}}, "quota_ru"),
        ({"groups": {"a": {}}}, "quota_ru"),
        ({"groups": {}}, "groups"),
        ({"groups": {"a": {"quota_ru": 5}}, "callers": {"x": "b"}}, "callers.x"),
        ({"groups": {"a": {"quota_ru": 5}}, "callers": {"x": 1}}, "callers.x"),
        ({"groups": {"a": {"quota_ru": 5}}, "default_group": "aa"}, "default_group"),
        ({"groups": [1]}, "groups"),
        ({"group": {}}, "group"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(document: dict[str, Any], path: str) -> None:
    with pytest.raises(BadValue) as caught:
        read_groups(document)
    assert caught.value.field == path


DEMANDS = st.lists(
    st.dictionaries(
        st.sampled_from(["search", "calendar", "ledger", "stranger"]), st.integers(0, 1_500)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30)
@given(demands=DEMANDS)
def test_all_together_never_spend_more_than_the_root(demands: list[dict[str, int]]) -> None:
    these = tree()
    for epoch, callers in enumerate(demands):
        had = {name: spend(these, name, ru, epoch) for name, ru in callers.items()}
        assert sum(had.values()) <= 1_000
        assert had.get("calendar", 0) + had.get("ledger", 0) <= 800


@settings(max_examples=30)
@given(demands=DEMANDS, owner=st.sampled_from([("search", 600), ("ledger", 100)]))
def test_who_demands_its_guarantee_has_it_from_the_second_epoch_on(
    demands: list[dict[str, int]], owner: tuple[str, int]
) -> None:
    caller, guarantee = owner
    these = tree()
    for epoch, callers in enumerate([*demands, *demands]):
        for name, ru in callers.items():
            if name != caller:
                spend(these, name, ru, epoch)  # all the others come first
        had = spend(these, caller, guarantee if epoch >= len(demands) else 0, epoch)
        if epoch > len(demands):
            assert had == guarantee


@settings(max_examples=20)
@given(others=st.integers(1, 20))
def test_nobody_starves_however_many_come_first(others: int) -> None:
    these = tree({"groups": {"all": {"quota_ru": 1_000}}, "default_group": "all"})
    for epoch in range(3):
        for other in range(others):
            these.charge(f"other {other}", 1_000 * RU // 2, START + epoch * SECOND)
            spend(these, f"other {other}", 100, epoch)
        had = spend(these, "late", 1_000, epoch)
    assert had >= 1_000 // (others + 1) - 1


def parts_of_two(search: int, ledger: int) -> list[ResourceGroups]:
    """Two dispatchers, of which the first has these millionths of two groups."""
    both = [tree(), tree()]
    for these, groups in zip(
        both,
        (
            {"guests": search, "payouts": ledger},
            {"guests": PART_ONE - search, "payouts": PART_ONE - ledger},
        ),
        strict=True,
    ):
        these.set_live(2)
        these.set_parts(groups)
    return both


@pytest.mark.parametrize("part", [0, 1, 250_000, 900_000, PART_ONE])
def test_parts_of_all_dispatchers_add_up_to_the_whole(part: int) -> None:
    both = parts_of_two(part, PART_ONE - part)
    whole = {it.name: it.quota_mru for it in tree().groups(0)}
    parts = [{it.name: it.quota_mru for it in these.groups(0)} for these in both]
    for name, quota in whole.items():
        added = sum(one[name] for one in parts)
        assert quota - 8 <= added <= quota  # thousandths of a unit, of rounding


def test_a_group_that_is_asked_for_at_one_dispatcher_has_its_quota_there() -> None:
    here, there = parts_of_two(900_000, 500_000)
    assert spend(here, "search", 2_000, 0) > 2 * spend(there, "search", 2_000, 0)


def test_another_tree_is_in_force_from_the_next_epoch_and_debts_stay() -> None:
    def tree_of(quota: int) -> ResourceGroupsSettings:
        group = ResourceGroup(quota_ru=quota, ceiling_ru=quota)
        return ResourceGroupsSettings(groups={"a": group}, callers={"x": "a"}, kept_milli=0)

    these = ResourceGroups(tree_of(100))
    assert spend(these, "x", 60, 0) == 60
    these.replace(tree_of(10), START)
    assert spend(these, "x", 60, 0) == 0  # a lower ceiling holds at once
    assert spend(these, "x", 60, 1) == 10
    these.replace(tree_of(20), START + SECOND)
    assert spend(these, "x", 60, 1) == 0  # a higher quota comes with the next epoch
    these.settle("x", 5 * RU, START + SECOND)  # owed
    these.replace(tree_of(20), START + SECOND)
    assert spend(these, "x", 60, 2) == 15


def test_a_tree_of_another_epoch_is_refused() -> None:
    these = tree()
    with pytest.raises(BadValue, match="epoch_us"):
        these.replace(
            ResourceGroupsSettings(groups={"a": ResourceGroup(quota_ru=1)}, epoch_us=5_000), 0
        )
