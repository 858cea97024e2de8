from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.moving_rate import MovingRate, SlotRing, TwoSpeedRate, adjusted_mean

SECOND = 1_000_000

arrivals = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 99_999, 100_000, 5_999_999, 6 * SECOND, 30 * SECOND, -SECOND]),
        st.integers(0, 50),
        st.integers(0, 1_000),
    ),
    max_size=40,
)


class SlowRate:
    """The oracle: every count with its instant, and the rule said in its own words."""

    def __init__(self) -> None:
        self.now_us = 0
        self.arrivals: list[tuple[int, int]] = []

    def add(self, count: int, now_us: int) -> None:
        self.now_us = max(self.now_us, now_us)
        self.arrivals.append((self.now_us, count))

    def counts(self, slots: int, slot_us: int) -> list[int]:
        newest = self.now_us // slot_us
        return [
            sum(count for at_us, count in self.arrivals if at_us // slot_us == slot)
            for slot in range(newest - slots + 1, newest + 1)
        ]

    def moving(self) -> Fraction:
        """Units a second: 4 data points of 6 s, the last of which is in progress."""
        data = [Fraction(count, 6) for count in self.counts(4, 6 * SECOND)]
        unadjusted = sum(data, Fraction(0)) / 4
        return sum(data[:3], Fraction(0)) / 3 if data[3] < unadjusted else unadjusted

    def two_speed(self) -> Fraction:
        return max(self.moving(), Fraction(sum(self.counts(10, SECOND // 10))))


def rate_of(mean: tuple[int, int]) -> Fraction:
    count, span_us = mean
    return Fraction(count * SECOND, span_us)


def test_a_steady_rate_reads_the_same_at_every_moment_of_a_sub_interval() -> None:
    rate = MovingRate()
    for tenth in range(1_200):
        rate.add(10, tenth * SECOND // 10)
        if tenth >= 240:
            assert rate.per_s(tenth * SECOND // 10) == 100.0


def test_the_plain_mean_would_have_swung_by_a_quarter() -> None:
    # What the rule is for: of 4 sub-intervals at 100/s the newest has just begun.
    assert adjusted_mean(1_800, 3, 0) == (1_800, 3)
    assert Fraction(1_800 + 0, 4) == Fraction(3, 4) * Fraction(1_800, 3)


def test_a_spike_shows_while_its_sub_interval_is_still_in_progress() -> None:
    rate = MovingRate()
    for second in range(24):
        rate.add(100, second * SECOND)
    assert rate.mean(24 * SECOND) == (1_800, 18 * SECOND)
    rate.add(599, 24 * SECOND)
    assert rate.mean(24 * SECOND) == (1_800, 18 * SECOND)  # below the mean: left out
    rate.add(1, 24 * SECOND)
    assert rate.mean(24 * SECOND) == (2_400, 24 * SECOND)  # equal: the same rate either way
    rate.add(2_400, 24 * SECOND)
    assert rate.mean(24 * SECOND) == (4_800, 24 * SECOND)
    assert rate.per_s(24 * SECOND) == 200.0


def test_a_data_point_is_a_count_and_not_a_rate_of_the_time_passed() -> None:
    rate = MovingRate()
    rate.add(1, 6 * SECOND)
    assert rate.per_s(6 * SECOND) == 1 / 24


def test_a_count_lives_to_the_last_microsecond_of_its_window() -> None:
    for at_us, gone_us in ((0, 24 * SECOND), (6 * SECOND - 1, 24 * SECOND)):
        rate = MovingRate()
        rate.add(7, at_us)
        assert rate.mean(5_999_999) == (7, 24 * SECOND)
        assert rate.mean(6 * SECOND) == (7, 18 * SECOND)
        assert rate.mean(gone_us - 1) == (7, 18 * SECOND)
        assert rate.mean(gone_us)[0] == 0


def test_the_next_sub_interval_begins_on_the_microsecond() -> None:
    rate = MovingRate()
    rate.add(7, 6 * SECOND)
    assert rate.mean(30 * SECOND - 1)[0] == 7
    assert rate.mean(30 * SECOND)[0] == 0


def test_idle_for_a_window_is_the_same_as_new() -> None:
    idle, new = TwoSpeedRate(), TwoSpeedRate()
    idle.add(10**9, 0)
    for rate in (idle, new):
        rate.add(60, 1_000 * SECOND)
    assert idle.mean(1_000 * SECOND) == new.mean(1_000 * SECOND) == (60, SECOND)
    assert idle.mean(1_003 * SECOND) == new.mean(1_003 * SECOND)


def test_two_speeds_see_a_ten_fold_step_in_a_second_and_the_mean_in_twenty_four() -> None:
    # The table of the essay: from rest to ten times the limit of 100/s.
    moving, two_speed = MovingRate(), TwoSpeedRate()
    table = {}
    for tick in range(60_000, 62_400):
        moving.add(10, tick * 10_000)
        two_speed.add(10, tick * 10_000)
        after_us = (tick + 1) * 10_000 - 1
        table[(tick + 1 - 60_000) / 100] = (moving.per_s(after_us), two_speed.per_s(after_us))
    assert table[0.5] == pytest.approx((20.83, 500.0), abs=0.01)
    assert table[1] == pytest.approx((41.67, 1_000.0), abs=0.01)
    assert [table[s] for s in (6, 12, 18, 24)] == [(m, 1_000.0) for m in (250, 500, 750, 1_000)]


def test_the_last_second_never_says_too_much() -> None:
    rate = TwoSpeedRate()
    for millisecond in range(3_000):
        rate.add(1, millisecond * 1_000)
        assert rate.per_s(millisecond * 1_000) <= 1_000.0
    assert rate.mean(2_999_999) == (1_000, SECOND)
    assert rate.mean(3_000_000) == (900, SECOND)
    assert rate.mean(3_799_999) == (200, SECOND)
    # Only 100 are left of the last second: the mean over the window, 125 a second, is more.
    assert rate.mean(3_800_000) == (3_000, 24 * SECOND)


def test_a_recent_slot_begins_on_the_microsecond() -> None:
    rate = TwoSpeedRate()
    rate.add(50, 99_999)
    rate.add(7, 100_000)
    assert rate.mean(999_999) == (57, SECOND)
    assert rate.mean(1_000_000) == (7, SECOND)
    assert rate.mean(1_100_000) == (57, 24 * SECOND)


def test_a_clock_that_goes_back_counts_in_the_newest_slot_and_forgets_nothing() -> None:
    for rate in (MovingRate(), TwoSpeedRate()):
        rate.add(600, 20 * SECOND)
        rate.add(1_800, 3 * SECOND)
        assert rate.mean(0) == rate.mean(20 * SECOND)
    moving = MovingRate()
    moving.add(600, 20 * SECOND)
    moving.add(1_800, 3 * SECOND)
    assert moving.mean(0) == (2_400, 24 * SECOND)


def test_counts_near_two_to_the_53_stay_exact() -> None:
    rate = TwoSpeedRate()
    for _ in range(3):
        rate.add((1 << 53) + 1, 0)
    assert rate.mean(0) == (3 * ((1 << 53) + 1), SECOND)
    assert rate.mean(6 * SECOND) == (3 * ((1 << 53) + 1), 18 * SECOND)
    assert rate.mean(24 * SECOND)[0] == 0


@given(arrivals)
def test_it_reads_what_the_rule_says_in_its_own_words(history: list[tuple[int, int, int]]) -> None:
    moving, two_speed, oracle = MovingRate(), TwoSpeedRate(), SlowRate()
    now_us = 50 * SECOND
    for gap_us, more_us, count in history:
        now_us += gap_us + more_us
        for rate in (moving, two_speed, oracle):
            rate.add(count, now_us)
        assert rate_of(moving.mean(now_us)) == oracle.moving()
        assert rate_of(two_speed.mean(now_us)) == oracle.two_speed()
        assert two_speed.per_s(now_us) == float(oracle.two_speed())


@given(st.integers(0, 1_000), st.integers(1, 10), st.integers(0, 1_000))
def test_the_rule_is_the_larger_of_the_two_means(whole: int, slots: int, newest: int) -> None:
    count, stands_for = adjusted_mean(whole, slots, newest)
    assert Fraction(count, stands_for) == max(
        Fraction(whole, slots), Fraction(whole + newest, slots + 1)
    )


def test_five_sub_intervals_are_the_other_reading_of_the_rule() -> None:
    rate = MovingRate(sub_intervals=5)
    for second in range(30):
        rate.add(100, second * SECOND)
    assert rate.mean(30 * SECOND) == (2_400, 24 * SECOND)


# Bad input.


def test_a_negative_count_is_refused_and_leaves_no_trace() -> None:
    for rate in (MovingRate(), TwoSpeedRate()):
        with pytest.raises(ValueError, match="count must not be negative, not -1"):
            rate.add(-1, 0)
        assert rate.mean(0)[0] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("sub_intervals", 1), ("sub_intervals", 4_097)),
        *(("sub_interval_us", 0), ("sub_interval_us", (1 << 53) + 1)),
        *(("recent_slots", 1), ("recent_slots", 4_097)),
        *(("recent_slot_us", 0), ("recent_slot_us", (1 << 53) + 1)),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from .* not {value}"):
        TwoSpeedRate(**{field: value})


def test_count_over_span_is_that_of_each_slot() -> None:
    even, late = SlotRing(10, 100), SlotRing(10, 100)
    for at_us in range(0, 1_500, 10):
        even.add(3, at_us)
    late.add_over(3 * 150, 0, 1_500, 1_500)
    even.advance(1_500)
    for now_us in range(1_500, 2_700, 50):
        for ring in (even, late):
            ring.advance(now_us)
        assert even.total == late.total
    late.add_over(7, 2_690, 2_700, 2_705)
    assert late.total == 7
    late.add_over(5, 2_705, 2_705, 2_705)
    assert (late.total, late.in_progress) == (12, 5)
    late.add_over(9, 0, 100, 2_705)  # before all slots
    assert late.total == 12
