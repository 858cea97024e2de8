from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.ewma import VALUE_MAX, Ewma, PeakEwma, decay_per_us, peak_step, step

SECOND = 1_000_000

gaps = st.one_of(st.just(0), st.integers(0, 100), st.integers(0, 60 * SECOND))
histories = st.lists(st.tuples(gaps, st.floats(-1e6, 1e6)), min_size=1, max_size=40)
half_lives = st.sampled_from([1, 1_000, SECOND, 10 * SECOND, 3_600 * SECOND])


def aged(history: list[tuple[int, float]], half_life_us: int) -> list[tuple[float, float]]:
    """The oracle: every value that came, with its weight as the last one comes."""
    at_us, instants = 0, []
    for gap_us, value in history:
        at_us += gap_us
        instants.append((at_us, value))
    return [(value, 2.0 ** ((then - at_us) / half_life_us)) for then, value in instants]


def fed(history: list[tuple[int, float]], half_life_us: int) -> tuple[Ewma, int]:
    average, now_us = Ewma(half_life_us), 0
    for gap_us, value in history:
        now_us += gap_us
        average.add(value, now_us)
    return average, now_us


def mean_of(average: Ewma) -> float:
    mean = average.mean()
    assert mean is not None
    return mean


def test_an_observation_counts_half_after_one_half_life() -> None:
    average = Ewma(10 * SECOND)
    average.add(3.0, 0)
    average.add(0.0, 10 * SECOND)
    # Weights 0.5 and 1: (0.5 * 3 + 1 * 0) / 1.5
    assert average.mean() == pytest.approx(1.0)
    assert average.weight(10 * SECOND) == pytest.approx(1.5)
    assert average.weight(20 * SECOND) == pytest.approx(0.75)


def test_the_first_observation_is_the_mean_and_before_it_there_is_none() -> None:
    average = Ewma(SECOND)
    assert average.mean() is None
    assert average.weight(5) == 0.0
    average.add(7.25, 123_456_789)
    assert average.mean() == 7.25
    assert average.weight(123_456_789) == 1.0


def test_observations_of_one_instant_count_alike() -> None:
    average = Ewma(SECOND)
    for value in (1.0, 2.0, 6.0):
        average.add(value, 5)
    assert average.mean() == pytest.approx(3.0, rel=1e-15)


def test_a_tie_after_a_gap_does_not_age_what_came_before_it_twice() -> None:
    average = Ewma(SECOND)
    average.add(8.0, 0)
    average.add(1.0, SECOND)
    average.add(1.0, SECOND)
    assert average.mean() == pytest.approx((0.5 * 8 + 1 + 1) / 2.5)


def test_after_a_long_silence_the_next_observation_is_the_mean() -> None:
    average = Ewma(SECOND)
    for i in range(1_000):
        average.add(1e270 if i % 2 else 1e9, i)
    assert mean_of(average) > 1e269
    average.add(2.5, 3_000 * SECOND)
    assert average.mean() == 2.5


def test_silence_alone_does_not_change_the_mean() -> None:
    average = Ewma(SECOND)
    average.add(4.0, 0)
    assert average.weight(3_600 * SECOND) == 0.0
    assert average.mean() == 4.0


@given(st.floats(-VALUE_MAX, VALUE_MAX), st.lists(gaps, max_size=30), half_lives)
def test_a_constant_stays_that_constant_to_the_last_bit(
    value: float, apart_us: list[int], half_life_us: int
) -> None:
    average, _ = fed([(0, value), *((gap_us, value) for gap_us in apart_us)], half_life_us)
    assert average.mean() == value


@given(histories, half_lives)
def test_the_mean_is_the_weighted_average_of_all_that_came(
    history: list[tuple[int, float]], half_life_us: int
) -> None:
    weighed = aged(history, half_life_us)
    weight = math.fsum(w for _, w in weighed)
    mean = math.fsum(value * w for value, w in weighed) / weight
    average, now_us = fed(history, half_life_us)
    assert average.mean() == pytest.approx(mean, rel=1e-9, abs=1e-6)
    assert average.weight(now_us) == pytest.approx(weight)


@given(histories, half_lives, st.randoms(use_true_random=False))
def test_the_order_of_a_tie_does_not_matter(
    history: list[tuple[int, float]], half_life_us: int, chance: random.Random
) -> None:
    tied = [(0, value) for _, value in history]
    mixed = tied[:]
    chance.shuffle(mixed)
    before = [(7, -3.0), (SECOND, 11.0)]
    one, _ = fed(before + tied, half_life_us)
    other, _ = fed(before + mixed, half_life_us)
    assert one.mean() == pytest.approx(mean_of(other), rel=1e-9, abs=1e-6)


def test_a_clock_that_goes_back_counts_as_no_time_at_all() -> None:
    back, steady = Ewma(SECOND), Ewma(SECOND)
    for average, third_us in ((back, 1 * SECOND), (steady, 5 * SECOND)):
        average.add(1.0, 0)
        average.add(2.0, 5 * SECOND)
        average.add(9.0, third_us)
        average.add(4.0, 6 * SECOND)
    assert back.mean() == steady.mean()
    assert back.weight(0) == back.weight(6 * SECOND) == steady.weight(6 * SECOND)
    fast = Ewma(half_life_us=1)
    for now_us in (5, 4, 3, 0):
        fast.add(1.0, now_us)
    assert fast.weight(5) == 4.0


def test_the_bare_step_and_the_object_agree() -> None:
    average, decay = Ewma(SECOND), decay_per_us(SECOND)
    mean, weight, at_us = 0.0, 0.0, 0
    for i in range(50):
        average.add(float(i * i % 17), i * 300_000)
        mean, weight, at_us = step(mean, weight, at_us, float(i * i % 17), i * 300_000, decay)
    assert (average.mean(), average.weight(at_us)) == (mean, weight)


# The peak.


def test_a_peak_rises_at_once_and_decays_by_half() -> None:
    peak = PeakEwma(10 * SECOND)
    assert peak.peak(0) == 0.0
    peak.add(1.0, 0)
    peak.add(80.0, SECOND)
    assert peak.peak(SECOND) == 80.0
    assert peak.peak(11 * SECOND) == pytest.approx(40.0)
    peak.add(1.0, 11 * SECOND)
    assert peak.peak(31 * SECOND) == pytest.approx(10.0)


def test_a_lower_value_does_not_pull_the_peak_down() -> None:
    peak = PeakEwma(10 * SECOND)
    peak.add(100.0, 0)
    for _ in range(1_000):
        peak.add(1.0, 0)
    assert peak.peak(0) == 100.0


@given(histories, half_lives)
def test_the_peak_is_the_highest_of_all_that_came_as_they_have_decayed(
    history: list[tuple[int, float]], half_life_us: int
) -> None:
    positive = [(gap_us, abs(value)) for gap_us, value in history]
    peak, now_us = PeakEwma(half_life_us), 0
    for gap_us, value in positive:
        now_us += gap_us
        peak.add(value, now_us)
    highest = max(value * weight for value, weight in aged(positive, half_life_us))
    assert peak.peak(now_us) == pytest.approx(highest, rel=1e-9)


def test_a_peak_does_not_decay_while_the_clock_is_behind() -> None:
    peak = PeakEwma(SECOND)
    peak.add(8.0, 10 * SECOND)
    assert peak.peak(0) == 8.0
    peak.add(1.0, 0)
    assert peak.peak(0) == 8.0
    assert peak.peak(11 * SECOND) == pytest.approx(4.0)


def test_the_bare_peak_step_and_the_object_agree() -> None:
    peak, decay = PeakEwma(SECOND), decay_per_us(SECOND)
    height, at_us = 0.0, 0
    for i in range(50):
        peak.add(float(i * i % 17), i * 300_000)
        height, at_us = peak_step(height, at_us, float(i * i % 17), i * 300_000, decay)
    assert peak.peak(at_us) == height


# Bad input.


@pytest.mark.parametrize("half_life_us", [0, -1, (1 << 53) + 1])
def test_a_half_life_out_of_range_is_refused(half_life_us: int) -> None:
    for kind in (Ewma, PeakEwma):
        with pytest.raises(
            ValueError, match=f"half_life_us must be from 1 to 2.53, not {half_life_us}"
        ):
            kind(half_life_us)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2 * VALUE_MAX])
def test_a_value_that_is_not_a_finite_number_is_refused_and_leaves_no_trace(value: float) -> None:
    average, peak = Ewma(SECOND), PeakEwma(SECOND)
    average.add(1.0, 0)
    peak.add(1.0, 0)
    with pytest.raises(ValueError, match="value must be"):
        average.add(value, SECOND)
    with pytest.raises(ValueError, match="value must be"):
        peak.add(value, SECOND)
    assert (average.mean(), average.weight(0), peak.peak(0)) == (1.0, 1.0, 1.0)


def test_a_negative_peak_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 2"):
        PeakEwma(SECOND).add(-1.0, 0)


def test_the_largest_values_do_not_overflow() -> None:
    average = Ewma(SECOND)
    for i in range(10):
        average.add(VALUE_MAX if i % 2 else -VALUE_MAX, i)
    assert math.isfinite(mean_of(average))
