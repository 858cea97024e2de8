from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.sliding_window import (
    SlidingCells,
    SlidingLog,
    SlidingWindow,
    cells_settle,
    cells_step,
    cells_within,
    log_settle,
)
from sluicegate.kernels.verdict import NEVER

SECOND = 1_000_000

Window = SlidingWindow | SlidingCells | SlidingLog
steps = st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 12)), max_size=50)
limits = st.integers(1, 30)
windows_us = st.sampled_from([12, 1_200, 600_000, 1_200_000])


class SlowCells:
    """The oracle: every admitted unit by its cell, the estimate as an exact fraction."""

    def __init__(self, limit: int, window_us: int, cells: int) -> None:
        self.limit = limit
        self.cells = cells
        self.cell_us = window_us // cells
        self.admitted = Counter[int]()

    def estimate(self, now_us: int) -> Fraction:
        cell, elapsed = divmod(now_us, self.cell_us)
        whole = sum(self.admitted[cell - back] for back in range(self.cells))
        left = Fraction(self.cell_us - elapsed, self.cell_us)
        return whole + self.admitted[cell - self.cells] * left

    def take(self, cost: int, now_us: int) -> bool:
        if self.estimate(now_us) + cost > self.limit:
            return False
        self.admitted[now_us // self.cell_us] += cost
        return True


def check_retry(make: Callable[[], Window], cost: int, limit: int, now_us: int) -> None:
    verdict = make().take(cost, now_us)
    assert (verdict.retry_after_us == NEVER) == (cost > limit)
    if verdict.retry_after_us > 0:
        assert not make().take(cost, now_us + verdict.retry_after_us - 1)
        assert make().take(cost, now_us + verdict.retry_after_us)


def after(window: Window, arrivals: list[tuple[int, int]]) -> Window:
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        window.take(cost, now_us)
    return window


# The two counters.


def test_the_previous_window_counts_by_what_is_left_of_it() -> None:
    window = SlidingWindow(50, 60 * SECOND)
    window.take(42, 0)
    window.take(18, 75 * SECOND)
    # 42 * 45/60 + 18 = 49.5: half a unit of room, so one more must wait.
    assert window.take(1, 75 * SECOND).retry_after_us > 0
    assert window.take(0, 75 * SECOND).remaining == 0


def test_no_burst_of_twice_the_limit_passes_an_edge() -> None:
    window = SlidingWindow(10, SECOND)
    assert window.take(10, SECOND - 1)
    assert not window.take(1, SECOND)
    assert window.take(1, SECOND + 100_000)


def test_a_full_window_waits_past_its_edge_when_the_current_count_stands_in_the_way() -> None:
    window = SlidingWindow(10, SECOND)
    window.take(10, 500_000)
    assert window.take(5, 500_000).retry_after_us == SECOND


def test_what_is_two_windows_old_is_forgotten() -> None:
    window = SlidingWindow(10, SECOND)
    assert window.take(10, 0).reset_after_us == 2 * SECOND
    assert window.take(0, SECOND).reset_after_us == SECOND
    assert window.take(10, 2 * SECOND)


def test_a_clock_that_goes_back_brings_nothing_back() -> None:
    window = SlidingWindow(10, SECOND)
    window.take(10, 5 * SECOND)
    assert not window.take(1, 3 * SECOND)
    assert window.take(1, 5 * SECOND).retry_after_us == SECOND + 100_000


def test_counts_near_two_to_the_53_stay_exact() -> None:
    limit = 1 << 53
    window = SlidingWindow(limit, 86_400 * SECOND)
    assert window.take(limit - 1, 0).remaining == 1
    assert window.take(1, 0).remaining == 0
    assert not window.take(1, 86_400 * SECOND)


@given(limits, windows_us, steps)
def test_two_counters_agree_with_the_estimate_in_fractions(
    limit: int, window_us: int, arrivals: list[tuple[int, int]]
) -> None:
    window, oracle = SlidingWindow(limit, window_us), SlowCells(limit, window_us, 1)
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        verdict = window.take(cost, now_us)
        assert verdict.allowed == oracle.take(cost, now_us)
        assert verdict.remaining == max((limit - oracle.estimate(now_us)) // 1, 0)


@given(limits, windows_us, steps, st.integers(1, 35))
def test_two_counters_know_their_retry_to_the_microsecond(
    limit: int, window_us: int, arrivals: list[tuple[int, int]], cost: int
) -> None:
    end_us = sum(gap_us for gap_us, _ in arrivals)
    check_retry(lambda: after(SlidingWindow(limit, window_us), arrivals), cost, limit, end_us)


@pytest.mark.parametrize("make", [SlidingWindow, lambda n, w: SlidingCells(n, w, 4), SlidingLog])
def test_what_is_given_back_can_be_taken_again_and_no_more(
    make: Callable[[int, int], Window],
) -> None:
    window = make(10, SECOND)
    window.take(3, 0)
    window.take(5, 500_000)
    window.settle(-6, 500_000)
    assert window.take(0, 500_000).remaining == 8
    window.settle(-100, 500_000)
    assert window.take(0, 500_000).remaining == 10


@pytest.mark.parametrize("make", [SlidingWindow, lambda n, w: SlidingCells(n, w, 4), SlidingLog])
def test_a_charge_after_the_fact_fills_the_window_and_goes_no_further(
    make: Callable[[int, int], Window],
) -> None:
    window = make(10, SECOND)
    window.take(4, 0)
    window.settle(100, 0)
    assert window.take(0, 0).remaining == 0
    assert window.take(10, 2 * SECOND)


@pytest.mark.parametrize("make", [SlidingWindow, lambda n, w: SlidingCells(n, w, 4), SlidingLog])
@given(limit=limits, arrivals=steps, cost=st.integers(0, 30))
def test_giving_back_at_once_is_as_if_nothing_had_been_taken(
    make: Callable[[int, int], Window],
    limit: int,
    arrivals: list[tuple[int, int]],
    cost: int,
) -> None:
    end_us = sum(gap_us for gap_us, _ in arrivals)
    untouched, settled = make(limit, SECOND), make(limit, SECOND)
    after(untouched, arrivals)
    after(settled, arrivals)
    if settled.take(cost, end_us):
        settled.settle(-cost, end_us)
    for ahead_us in (0, 1, 300_000, SECOND, 2 * SECOND):
        assert repr(settled.take(0, end_us + ahead_us)) == repr(
            untouched.take(0, end_us + ahead_us)
        )


def test_what_is_given_back_beyond_the_current_window_comes_from_the_one_before() -> None:
    window = SlidingWindow(10, SECOND)
    window.take(8, 0)
    window.take(1, SECOND)
    window.settle(-5, SECOND)
    # 8 - 4 of the previous window are left, all of which still count at its edge.
    assert window.take(0, SECOND).remaining == 6


# Cells.


@given(limits, windows_us, steps, st.sampled_from([1, 2, 3, 6, 12]))
def test_cells_agree_with_the_estimate_in_fractions(
    limit: int, window_us: int, arrivals: list[tuple[int, int]], cells: int
) -> None:
    window, oracle = SlidingCells(limit, window_us, cells), SlowCells(limit, window_us, cells)
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        verdict = window.take(cost, now_us)
        assert verdict.allowed == oracle.take(cost, now_us)
        assert verdict.remaining == max((limit - oracle.estimate(now_us)) // 1, 0)
        reset_us = now_us + verdict.reset_after_us
        assert oracle.estimate(reset_us) == 0
        if verdict.reset_after_us:
            assert oracle.estimate(reset_us - 1) > 0


@given(limits, windows_us, steps, st.integers(1, 35), st.sampled_from([1, 2, 3, 6, 12]))
def test_cells_know_their_retry_to_the_microsecond(
    limit: int, window_us: int, arrivals: list[tuple[int, int]], cost: int, cells: int
) -> None:
    end_us = sum(gap_us for gap_us, _ in arrivals)
    check_retry(lambda: after(SlidingCells(limit, window_us, cells), arrivals), cost, limit, end_us)


def test_more_cells_come_closer_to_the_log() -> None:
    draw = random.Random(7)
    log = SlidingLog(100, SECOND)
    rows = {cells: SlidingCells(100, SECOND, cells) for cells in (1, 4, 20)}
    wrong = dict.fromkeys(rows, 0)
    now_us = 0
    for _ in range(20_000):
        # Bursts and pauses, so that units are far from even within a window.
        now_us += 50 if draw.random() < 0.95 else draw.randrange(400_000)
        exact = log.take(1, now_us).allowed
        for cells, row in rows.items():
            wrong[cells] += row.take(1, now_us).allowed != exact
    assert wrong[1] > wrong[4] > wrong[20]


@given(limits, steps, st.integers(1, 35), st.integers(0, 3 * SECOND))
def test_cells_know_their_retry_when_the_clock_went_back(
    limit: int, arrivals: list[tuple[int, int]], cost: int, back_us: int
) -> None:
    end_us = sum(gap_us for gap_us, _ in arrivals) - back_us
    check_retry(lambda: after(SlidingCells(limit, SECOND, 4), arrivals), cost, limit, end_us)


def test_cells_stand_still_when_the_clock_goes_back() -> None:
    window = SlidingCells(10, SECOND, 10)
    window.take(10, 5 * SECOND)
    refused = window.take(1, 3 * SECOND)
    assert not refused
    assert window.take(1, 3 * SECOND + refused.retry_after_us)


def test_one_cell_is_the_two_counters_whatever_is_done() -> None:
    draw = random.Random(11)
    for _ in range(300):
        limit, now_us = draw.choice([1, 7, 30]), 5_000
        counter, cells = SlidingWindow(limit, 1_000), SlidingCells(limit, 1_000, 1)
        for _ in range(40):
            now_us += draw.choice([0, 1, -5, 300, draw.randrange(2_500)])
            cost, taken_us = draw.randrange(-9, 9), now_us - draw.choice([0, 0, 400, 1_300, 3_000])
            if draw.random() < 0.4:
                counter.settle(cost, now_us, taken_us)
                cells.settle(cost, now_us, taken_us)
            else:
                assert repr(counter.take(abs(cost), now_us)) == repr(cells.take(abs(cost), now_us))


def test_what_is_given_back_comes_out_of_the_cell_it_was_taken_in() -> None:
    def full() -> tuple[int, ...]:
        return (10, 1, 2, 3, 4)  # cell 10 of three, from 1,000 us; what expires is of cell 7

    assert cells_settle(full(), 1_050, -2, 950, 100, 3, 20) == (10, 1, 2, 1, 4)
    assert cells_settle(full(), 1_050, -9, 950, 100, 3, 20) == (10, 1, 2, 0, 4)
    assert cells_settle(full(), 1_050, -9, 799, 100, 3, 20) == (10, 0, 2, 3, 4)
    assert cells_settle(full(), 1_050, -9, 699, 100, 3, 20) == full()
    assert cells_settle(full(), 1_050, -9, 1_000, 100, 3, 20) == (10, 1, 2, 3, 0)


def test_what_was_taken_just_now_comes_out_of_the_current_cell_and_then_of_the_oldest() -> None:
    state = (10, 1, 2, 3, 4)
    assert cells_settle(state, 1_050, -3, 1_050, 100, 3, 20) == (10, 1, 2, 3, 1)
    assert cells_settle(state, 1_050, -5, 1_050, 100, 3, 20) == (10, 1, 1, 3, 0)
    assert cells_settle(state, 1_050, -9, 1_050, 100, 3, 20) == (10, 1, 0, 0, 0)
    assert cells_settle(state, 1_050, -99, 1_050, 100, 3, 20) == (10, 0, 0, 0, 0)
    # A clock that went back takes in the latest cell, and gives back there.
    assert cells_settle(state, 650, -3, 650, 100, 3, 20) == (10, 1, 2, 3, 1)


def test_a_charge_fills_the_whole_cells_and_leaves_them_as_they_are_if_they_are_full() -> None:
    assert cells_settle((10, 1, 2, 3, 4), 1_050, 99, 0, 100, 3, 20) == (10, 1, 2, 3, 15)
    assert cells_settle((10, 1, 2, 3, 4), 1_050, 2, 0, 100, 3, 20) == (10, 1, 2, 3, 6)
    assert cells_settle((10, 1, 2, 3, 4), 1_050, 1, 0, 100, 3, 5) == (10, 1, 2, 3, 4)
    assert cells_settle((), 1_050, 5, 0, 100, 3, 20) == (10, 0, 0, 0, 5)


def test_a_step_of_cells_changes_nothing_it_was_given_and_takes_nothing_for_nothing() -> None:
    state = (10, 1, 2, 3, 4)
    assert cells_step(state, 1_050, 0, 100, 3, 20)[0] == state
    assert cells_step(state, 1_350, 1, 100, 3, 20)[0] == (13, 4, 0, 0, 1)
    assert cells_step(state, 1_450, 1, 100, 3, 20)[0] == (14, 0, 0, 0, 1)
    assert cells_step(state, 1_050, 21, 100, 3, 20)[:2] == (state, False)


@pytest.mark.parametrize(
    ("window_us", "cells", "within"),
    [(60 * SECOND, 10, 10), (SECOND, 12, 10), (997, 10, 1), (14, 10, 7), (1, 1_000, 1), (6, 6, 6)],
)
def test_cells_that_do_not_divide_a_window_become_the_most_that_do(
    window_us: int, cells: int, within: int
) -> None:
    assert cells_within(window_us, cells) == within


# The log.


def test_what_is_given_back_to_a_log_comes_out_of_the_entry_of_its_instant_and_of_no_other() -> (
    None
):
    log = (9, 100, 2, 200, 3, 300, 4)
    assert log_settle(log, 350, -2, 200, 1_000, 20) == (7, 100, 2, 200, 1, 300, 4)
    assert log_settle(log, 350, -9, 200, 1_000, 20) == (6, 100, 2, 300, 4)
    assert log_settle(log, 350, -9, 201, 1_000, 20) == log
    # What has left the window is not given back a second time.
    assert log_settle(log, 1_100, -9, 100, 1_000, 20) == (7, 200, 3, 300, 4)
    assert log_settle((5, 100, 2, 200, 3), 1_100, -2, 1_100, 1_000, 20) == (1, 200, 1)
    assert log_settle((2, 100, 2), 350, -2, 100, 1_000, 20) == ()


def test_what_was_logged_just_now_comes_out_of_the_entry_of_now_and_then_of_the_oldest() -> None:
    log = (9, 100, 2, 200, 3, 300, 4)
    assert log_settle(log, 300, -3, 300, 1_000, 20) == (6, 100, 2, 200, 3, 300, 1)
    assert log_settle(log, 300, -5, 300, 1_000, 20) == (4, 100, 1, 200, 3)
    assert log_settle(log, 310, -3, 310, 1_000, 20) == (6, 200, 2, 300, 4)
    # A clock that went back logs at the latest instant, and gives back there.
    assert log_settle(log, 50, -3, 50, 1_000, 20) == (6, 100, 2, 200, 3, 300, 1)


def test_the_log_admits_the_limit_in_any_window_whatever() -> None:
    log = SlidingLog(3, SECOND)
    for at_us in (0, 400_000, 800_000):
        assert log.take(1, at_us)
    assert log.take(1, 900_000).retry_after_us == 100_000
    assert log.take(1, SECOND)
    assert not log.take(1, 1_399_999)
    assert log.take(1, 1_400_000)


@given(limits, st.sampled_from([1, 1_000, SECOND]), steps)
def test_the_log_agrees_with_counting_every_admitted_unit_anew(
    limit: int, window_us: int, arrivals: list[tuple[int, int]]
) -> None:
    log, admitted = SlidingLog(limit, window_us), list[tuple[int, int]]()
    now_us = 0
    for gap_us, cost in arrivals:
        now_us += gap_us
        used = sum(spent for at_us, spent in admitted if at_us > now_us - window_us)
        allowed = used + cost <= limit
        if allowed:
            admitted.append((now_us, cost))
            used += cost
        verdict = log.take(cost, now_us)
        assert (verdict.allowed, verdict.remaining) == (allowed, limit - used)


@given(limits, st.sampled_from([1, 1_000, SECOND]), steps, st.integers(1, 35))
def test_the_log_knows_its_retry_to_the_microsecond(
    limit: int, window_us: int, arrivals: list[tuple[int, int]], cost: int
) -> None:
    end_us = sum(gap_us for gap_us, _ in arrivals)
    check_retry(lambda: after(SlidingLog(limit, window_us), arrivals), cost, limit, end_us)


def test_the_log_of_a_thousand_windows_stays_as_small_as_its_limit() -> None:
    log = SlidingLog(5, SECOND)
    for at_us in range(0, 1_000 * SECOND, 100_000):
        log.take(1, at_us)
    assert len(log._log) <= 1 + 2 * 5


def test_units_of_one_instant_share_an_entry() -> None:
    log = SlidingLog(1_000, SECOND)
    for _ in range(1_000):
        log.take(1, 7)
    assert len(log._log) == 1 + 2


def test_the_log_stands_still_when_the_clock_goes_back() -> None:
    log = SlidingLog(1, SECOND)
    log.take(1, 5 * SECOND)
    assert log.take(1, 2 * SECOND).retry_after_us == 4 * SECOND
    assert log.take(1, 6 * SECOND)


def test_a_log_that_would_grow_too_large_says_what_to_use_instead() -> None:
    with pytest.raises(ValueError, match=r"at most entries_max \(1000\).*use the counter"):
        SlidingLog(1_001, SECOND)


# Bad input.


@pytest.mark.parametrize("make", [SlidingWindow, SlidingLog, lambda n, w: SlidingCells(n, w, 1)])
def test_a_zero_in_a_limit_is_named(make: Callable[[int, int], Window]) -> None:
    with pytest.raises(ValueError, match="limit"):
        make(0, SECOND)
    with pytest.raises(ValueError, match="window_us"):
        make(1, 0)
    with pytest.raises(ValueError, match="cost must not be negative"):
        make(1, SECOND).take(-1, 0)
    assert make(5, SECOND).take(6, 0).retry_after_us == NEVER


@pytest.mark.parametrize(("window_us", "cells"), [(10, 3), (10, 0), (10, 1_001)])
def test_cells_must_divide_the_window(window_us: int, cells: int) -> None:
    with pytest.raises(ValueError, match="cells must"):
        SlidingCells(1, window_us, cells)
