"""Whoever keeps on slowing the service down pays more, and nobody else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.policies.penalty import ONE_MILLI, Penalty, PenaltySettings
from sluicegate.policies.stress import StressLevel, StressState
from sluicegate.testing import HandClock

S = 1_000_000
NOW = HandClock().now_us()


class HandStress:
    """A picture that the test draws."""

    def __init__(self) -> None:
        self.slow = False

    def read(self, now_us: int) -> StressState:
        level = StressLevel.STRESSED if self.slow else StressLevel.CALM
        return StressState(now_us, level, (), self.slow, False, 0.0, 0.3, "get", None, None, None)


def work(penalty: Penalty, caller: str, ms: int, now_us: int, *, cached: bool = False) -> None:
    request = Request("k", caller=caller)
    request.measured = Measured(ms * 1_000, 1, 1, cached)
    penalty.record_end(request, Outcome.SUCCESS, now_us)


def windows(penalty: Penalty, count: int, first: int = 0, **took_ms: int) -> int:
    """So many windows in which each caller has so many milliseconds of work done; the last one."""
    for window in range(first, first + count):
        now_us = NOW + window * S
        penalty.price_milli("", now_us)  # the window before ends here
        for caller, ms in took_ms.items():
            work(penalty, caller, ms, now_us + 1)
    return first + count


def test_who_has_most_of_the_time_of_slow_windows_pays_more_each_window_up_to_a_bound() -> None:
    stress = HandStress()
    stress.slow = True
    penalty = Penalty(stress, PenaltySettings(times_max=4, strikes_min=3))
    at = windows(penalty, 3, scraper=800, shop=50, app=50)
    assert penalty.price_milli("scraper", NOW + 3 * S - 1) == ONE_MILLI  # two strikes
    prices = []
    for window in range(at, at + 6):
        windows(penalty, 1, window, scraper=800, shop=50, app=50)
        prices.append(penalty.price_milli("scraper", NOW + window * S + 2))
    assert prices == [1_500, 2_250, 3_375, 4_000, 4_000, 4_000]
    assert penalty.price_milli("shop", NOW + 8 * S + 2) == ONE_MILLI


def test_in_calm_windows_prices_fall_again_and_are_forgotten() -> None:
    stress = HandStress()
    stress.slow = True
    penalty = Penalty(stress)
    at = windows(penalty, 6, scraper=800, shop=50, app=50)
    stress.slow = False
    windows(penalty, 12, at, scraper=800, shop=50, app=50)
    assert penalty.stats().prices_milli == {}
    assert penalty.stats().slow_windows > 0


def test_who_is_alone_or_small_is_not_blamed() -> None:
    stress = HandStress()
    stress.slow = True
    penalty = Penalty(stress, PenaltySettings(floor_us=50_000))
    windows(penalty, 10, alone=900)
    assert penalty.stats().prices_milli == {}
    small = Penalty(stress, PenaltySettings(floor_us=50_000))
    windows(small, 10, most=40, least=1, other=1)
    assert small.stats().prices_milli == {}


def test_what_came_from_a_cache_or_took_no_time_counts_for_nothing() -> None:
    stress = HandStress()
    stress.slow = True
    penalty = Penalty(stress)
    for window in range(10):
        now_us = NOW + window * S
        penalty.price_milli("", now_us)
        work(penalty, "fan", 900, now_us + 1, cached=True)
        work(penalty, "shop", 60, now_us + 1)
        work(penalty, "app", 60, now_us + 1)
    assert penalty.stats().prices_milli == {}


def test_callers_beyond_the_bound_are_not_blamed_and_cost_no_memory() -> None:
    stress = HandStress()
    stress.slow = True
    penalty = Penalty(stress, PenaltySettings(callers_max=2))
    windows(penalty, 8, a=100, b=100, scraper=900)
    assert penalty.price_milli("scraper", NOW + 8 * S) == ONE_MILLI


@given(
    st.lists(
        st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 2_000))),
        max_size=40,
    )
)
def test_a_price_stays_between_one_and_the_bound(story: list[tuple[bool, dict[str, int]]]) -> None:
    stress = HandStress()
    penalty = Penalty(stress, PenaltySettings(times_max=3))
    for window, (slow, took) in enumerate(story):
        stress.slow = slow
        windows(penalty, 1, window, **took)
        for caller in "abc":
            price = penalty.price_milli(caller, NOW + window * S + 2)
            assert ONE_MILLI <= price <= 3 * ONE_MILLI


def test_a_bound_that_cannot_be_is_told_by_name() -> None:
    with pytest.raises(BadValue, match=r"penalty\.times_max"):
        PenaltySettings(times_max=0)
