from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.fixed_window import FixedWindow
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000

steps = st.lists(st.tuples(st.integers(0, 2 * SECOND), st.integers(0, 15)), max_size=50)


def test_the_limit_passes_in_each_window_and_the_windows_are_aligned_to_the_epoch() -> None:
    window = FixedWindow(2, SECOND)
    assert [window.take(1, 900_000).allowed for _ in range(3)] == [True, True, False]
    assert window.take(1, 999_999).retry_after_us == 1
    assert window.take(1, SECOND)


def test_twice_the_limit_can_pass_around_an_edge_which_is_its_known_flaw() -> None:
    window = FixedWindow(10, SECOND)
    assert window.take(10, SECOND - 1)
    assert window.take(10, SECOND)


def test_a_refused_unit_is_not_counted_and_does_not_bar_a_smaller_one() -> None:
    window = FixedWindow(10, SECOND)
    assert window.take(8, 0)
    assert not window.take(8, 0)
    assert window.take(2, 0)


def test_a_cost_above_the_limit_never_passes() -> None:
    assert FixedWindow(10, SECOND).take(11, 0).retry_after_us == NEVER


def test_a_verdict_counts_down_and_says_when_the_window_ends() -> None:
    window = FixedWindow(10, SECOND)
    assert window.take(0, 5).reset_after_us == 0
    verdict = window.take(3, 250_000)
    assert (verdict.remaining, verdict.reset_after_us) == (7, 750_000)


def test_a_clock_that_goes_back_stays_in_the_later_window() -> None:
    window = FixedWindow(1, SECOND)
    assert window.take(1, 5 * SECOND)
    assert window.take(1, 3 * SECOND).retry_after_us == 3 * SECOND
    assert not window.take(1, 5 * SECOND)


def test_counts_near_two_to_the_53_stay_exact() -> None:
    limit = 1 << 53
    window = FixedWindow(limit, SECOND)
    assert window.take(limit - 1, 0)
    assert window.take(1, 0)
    assert not window.take(1, 0)


@given(st.integers(1, 20), st.sampled_from([1, 7, 1_000, SECOND]), steps)
def test_it_agrees_with_a_counter_of_admitted_units_by_window(
    limit: int, period_us: int, arrivals: list[tuple[int, int]]
) -> None:
    window, admitted = FixedWindow(limit, period_us), Counter[int]()
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        at = now_us // period_us
        allowed = admitted[at] + cost <= limit
        admitted[at] += cost if allowed else 0
        verdict = window.take(cost, now_us)
        assert (verdict.allowed, verdict.remaining) == (allowed, limit - admitted[at])


@given(st.integers(1, 20), st.sampled_from([1, 7, 1_000, SECOND]), steps, st.integers(1, 25))
def test_retry_after_is_exact_to_the_microsecond(
    limit: int, period_us: int, arrivals: list[tuple[int, int]], cost: int
) -> None:
    def make() -> FixedWindow:
        window, now_us = FixedWindow(limit, period_us), 0
        for gap_us, spent in arrivals:
            now_us += gap_us
            window.take(spent, now_us)
        return window

    end_us = sum(gap_us for gap_us, _ in arrivals)
    verdict = make().take(cost, end_us)
    if verdict.retry_after_us > 0:
        assert not make().take(cost, end_us + verdict.retry_after_us - 1)
        assert make().take(cost, end_us + verdict.retry_after_us)
    assert (verdict.retry_after_us == NEVER) == (cost > limit)


def test_what_is_given_back_can_be_taken_again_and_no_more() -> None:
    window = FixedWindow(10, SECOND)
    window.take(8, 0)
    window.settle(-3, 0)
    assert window.take(0, 0).remaining == 5
    window.settle(-100, 0)
    assert window.take(0, 0).remaining == 10


def test_a_charge_after_the_fact_fills_the_window_and_goes_no_further() -> None:
    window = FixedWindow(10, SECOND)
    window.settle(100, 0)
    assert window.take(1, 0).retry_after_us == SECOND
    assert window.take(10, SECOND)


def test_what_was_taken_in_a_window_that_has_passed_cannot_be_given_back() -> None:
    window = FixedWindow(10, SECOND)
    window.take(10, 0)
    window.settle(-10, SECOND)
    assert window.take(0, SECOND).remaining == 10


def test_what_turned_out_cheaper_is_given_back_only_to_the_window_it_was_taken_in() -> None:
    window = FixedWindow(10, SECOND)
    window.take(10, SECOND - 1)
    window.take(6, SECOND)
    window.settle(-10, SECOND, taken_us=SECOND - 1)
    assert window.take(0, SECOND).remaining == 4
    window.settle(-2, SECOND + 7, taken_us=SECOND)
    assert window.take(0, SECOND + 7).remaining == 6


def test_what_turned_out_dearer_is_charged_now_whenever_it_was_taken() -> None:
    window = FixedWindow(10, SECOND)
    window.take(1, 0)
    window.settle(4, 5 * SECOND, taken_us=0)
    assert window.take(0, 5 * SECOND).remaining == 6


def test_a_clock_that_went_back_gives_back_where_it_took() -> None:
    window = FixedWindow(10, SECOND)
    window.take(5, 5 * SECOND)
    window.take(2, 3 * SECOND)
    window.settle(-2, 3 * SECOND, taken_us=3 * SECOND)
    assert window.take(0, 5 * SECOND).remaining == 5
    window.settle(-2, 4 * SECOND, taken_us=3 * SECOND)
    assert window.take(0, 5 * SECOND).remaining == 5


@pytest.mark.parametrize(("limit", "period_us", "field"), [(0, 1, "limit"), (1, 0, "period_us")])
def test_a_bad_setting_is_named(limit: int, period_us: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        FixedWindow(limit, period_us)


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cost must not be negative"):
        FixedWindow(1, 1).take(-1, 0)
