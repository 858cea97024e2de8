"""Whoever keeps on slowing the service down pays more, and nobody else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.penalty import ONE_MILLI, Penalty, PenaltySettings
from sluicegate.testing import HandClock

S = 1_000_000
NOW = HandClock().now_us()


class HandTrouble:
    """The shards that a test says have too much to do."""

    def __init__(self, *shards: str) -> None:
        self.shards = set(shards)

    def is_troubled(self, shard: str, now_us: int) -> bool:
        return shard in self.shards


def price(
    penalty: Penalty, caller: str, now_us: int, *, ru: int = 0, shard: str = "s", **claims: Any
) -> int:
    """What a caller pays that asks for so much."""
    request = Request("k", caller=caller, shard=shard, **claims)
    request.cost_mru = ru * 1_000
    return penalty.price_milli(request, now_us)


def windows(penalty: Penalty, count: int, first: int = 0, shard: str = "s", **asked_ru: int) -> int:
    """So many windows in which each caller asks a shard for so much; the next one."""
    for window in range(first, first + count):
        for caller, ru in asked_ru.items():
            price(penalty, caller, NOW + window * S, ru=ru, shard=shard)
    return first + count


def test_who_asks_for_most_of_a_shard_in_trouble_pays_more_each_window_up_to_a_bound() -> None:
    penalty = Penalty(HandTrouble("s"), PenaltySettings(times_max=4, strikes_min=3))
    at = windows(penalty, 3, scraper=800, shop=50, app=50)
    assert penalty.stats().prices_milli == {}  # two strikes
    prices = []
    for window in range(at, at + 6):
        prices.append(price(penalty, "scraper", NOW + window * S))
        windows(penalty, 1, window, scraper=800, shop=50, app=50)
    assert prices == [1_500, 2_250, 3_375, 4_000, 4_000, 4_000]
    assert penalty.stats().prices_milli == {"scraper": 4_000}


def test_on_another_shard_the_same_caller_pays_what_everybody_pays() -> None:
    penalty = Penalty(HandTrouble("s"))
    for window in range(8):
        for shard in ("s", "other"):
            windows(penalty, 1, window, shard, scraper=800, shop=50, app=50)
    assert price(penalty, "scraper", NOW + 8 * S) > ONE_MILLI
    assert price(penalty, "scraper", NOW + 8 * S, shard="other") == ONE_MILLI


def test_when_trouble_ends_prices_fall_within_three_windows_and_are_forgotten() -> None:
    trouble = HandTrouble("s")
    penalty = Penalty(trouble)
    at = windows(penalty, 9, scraper=800, shop=50, app=50)
    trouble.shards.clear()
    windows(penalty, 3, at, scraper=800, shop=50, app=50)
    assert penalty.stats().prices_milli == {}
    assert penalty.stats().bad_windows > 0


def test_critical_pays_what_everybody_pays_whatever_it_asks() -> None:
    penalty = Penalty(HandTrouble("s"))
    at = windows(penalty, 8, checkout=800, shop=50, app=50)
    paid = price(penalty, "checkout", NOW + at * S, criticality=Criticality.CRITICAL)
    assert paid == ONE_MILLI


def test_who_is_left_when_the_others_are_refused_is_not_blamed() -> None:
    """All ask for the same; what is done for them is nobody's fault."""
    penalty = Penalty(HandTrouble("s"))
    windows(penalty, 10, checkout=300, bulk=300, batch=300)
    assert penalty.stats().prices_milli == {}


def test_who_is_alone_or_small_is_not_blamed() -> None:
    penalty = Penalty(HandTrouble("s"))
    windows(penalty, 10, alone=900)
    assert penalty.stats().prices_milli == {}
    small = Penalty(HandTrouble("s"), PenaltySettings(floor_ru=50))
    windows(small, 10, most=40, least=1, other=1)
    assert small.stats().prices_milli == {}


def test_callers_beyond_the_bound_are_not_blamed_and_cost_no_memory() -> None:
    penalty = Penalty(HandTrouble("s"), PenaltySettings(accounts_max=2))
    windows(penalty, 8, a=100, b=100, scraper=900)
    assert price(penalty, "scraper", NOW + 8 * S) == ONE_MILLI


@given(
    st.lists(
        st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2_000))),
        max_size=40,
    )
)
def test_a_price_stays_between_one_and_the_bound(story: list[tuple[bool, dict[str, int]]]) -> None:
    trouble = HandTrouble()
    penalty = Penalty(trouble, PenaltySettings(times_max=3))
    for window, (bad, asked) in enumerate(story):
        trouble.shards = {"s"} if bad else set()
        for caller, ru in asked.items():
            price(penalty, caller, NOW + window * S, ru=ru)
        for caller in "abc":
            assert ONE_MILLI <= price(penalty, caller, NOW + window * S) <= 3 * ONE_MILLI
    trouble.shards.clear()
    windows(penalty, 4, len(story), a=1, b=1, c=1)
    assert penalty.stats().prices_milli == {}


def test_a_bound_that_cannot_be_is_told_by_name() -> None:
    with pytest.raises(BadValue, match=r"penalty\.times_max"):
        PenaltySettings(times_max=0)
