from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.cost_model import (
    BAND,
    COST_MRU_MAX,
    HELD_UP_TIMES,
    HISTORY_US,
    OUTLIER_TIMES,
    RATE,
    SECOND_US,
    SLOWER_US,
    CostEstimate,
    EstimateRow,
    Weights,
    milli_ru,
    read_weights,
    write_weights,
)

TRUE = (1.0, 0.05, 0.0005, 0.2)  # RU a request, a row, a byte, a millisecond

amounts = st.integers(0, 1 << 53)
weights = st.floats(0.0, 1e3)


# The formulas.


def test_a_read_costs_one_and_its_bytes_and_its_milliseconds() -> None:
    assert read_weights(w_r=0.001, w_l=0.1).cost_mru(99, 2_000, 3.0) == 1_000 + 2_000 + 300


def test_a_write_costs_six_and_its_pages_and_its_milliseconds() -> None:
    assert write_weights(w_b=2.0, w_l=0.1).cost_mru(99, 3 * 4_096, 3.0) == 6_000 + 6_000 + 300
    assert write_weights(w_b=2.0, w_l=0.0).cost_mru(0, 2_048, 0.0) == 7_000


def test_rows_have_a_weight_of_their_own_beside_them() -> None:
    assert read_weights(0.001, 0.1, w_rows=0.05).cost_mru(100, 2_000, 3.0) == 3_300 + 5_000
    assert write_weights(2.0, 0.1, w_rows=0.05).cost_mru(100, 4_096, 3.0) == 8_300 + 5_000


@given(weights, weights, weights, amounts, amounts, st.floats(0.0, 1e9))
def test_a_cost_is_the_formula_in_exact_fractions_rounded_up(
    w_r: float, w_l: float, w_rows: float, rows: int, size_bytes: int, latency_ms: float
) -> None:
    exact = 1 + (
        Fraction(w_r) * size_bytes + Fraction(w_l) * Fraction(latency_ms) + Fraction(w_rows) * rows
    )
    milli = min(math.ceil(exact * 1_000), COST_MRU_MAX)
    assert read_weights(w_r, w_l, w_rows).cost_mru(rows, size_bytes, latency_ms) == pytest.approx(
        milli, rel=1e-12, abs=1
    )


def test_thousandths_are_rounded_up_and_the_noise_of_floats_is_not() -> None:
    assert milli_ru(0.0) == 0
    assert milli_ru(1.3) == 1_300
    assert milli_ru(0.1 + 0.2) == 300
    assert milli_ru(1.3001) == 1_301
    assert milli_ru(1e-5) == 1
    assert milli_ru(2.0**53) == milli_ru(math.inf) == COST_MRU_MAX
    assert isinstance(milli_ru(1.5), int)


# Amounts.


def taught(lessons: int, *, said: tuple[int, int], found: tuple[int, int]) -> CostEstimate:
    estimate = CostEstimate()
    for _ in range(lessons):
        estimate.learn(*said, *found)
    return estimate


def test_estimate_without_lessons_predicts_claim() -> None:
    assert CostEstimate().predict_mru(Weights(*TRUE), 100, 2_000) == 1_000 + 5_000 + 1_000


def test_estimate_of_wrong_claim_predicts_what_was_found() -> None:
    estimate = taught(1, said=(1, 100), found=(200, 300))
    assert estimate.predict_mru(Weights(*TRUE), 1, 100) == 1_000 + 10_000 + 150
    assert estimate.predict_mru(Weights(*TRUE), 2, 200) == 1_000 + 20_000 + 300


def test_bytes_that_are_not_claimed_follow_rows() -> None:
    estimate = taught(10, said=(1, 0), found=(1, 4_000))
    assert estimate.predict_mru(Weights(*TRUE), 1, 0) == 1_000 + 50 + 2_000
    assert estimate.predict_mru(Weights(*TRUE), 3, 0) == 1_000 + 150 + 6_000


@pytest.mark.parametrize("times", [3.0, 1 / 3])
def test_drift_is_learned_within_300_lessons(times: float) -> None:
    dice = random.Random(1)
    estimate = CostEstimate()
    for number in range(1_300):
        said = dice.randrange(20, 300)
        found = said * (times if number >= 1_000 else 1.0) * dice.lognormvariate(-0.08, 0.4)
        estimate.learn(said, 0, max(1, round(found)), 0)
    expected = 1_000 + 50 * 100 * times
    assert estimate.predict_mru(Weights(*TRUE), 100, 0) == pytest.approx(expected, rel=0.15)


def test_outlier_moves_estimate_by_bounded_share() -> None:
    estimate = taught(100, said=(1, 0), found=(10, 0))
    estimate.learn(1, 0, 1 << 53, 0)
    assert estimate.rows == pytest.approx(10 * (1 + RATE * (OUTLIER_TIMES - 1)))


@given(st.lists(st.tuples(amounts, amounts, amounts, amounts), max_size=50), amounts, amounts)
def test_prediction_is_bounded_whatever_is_learned(
    lessons: list[tuple[int, int, int, int]], rows: int, size_bytes: int
) -> None:
    estimate = CostEstimate()
    for lesson in lessons:
        estimate.learn(*lesson)
    assert 1_000 <= estimate.predict_mru(Weights(*TRUE), rows, size_bytes) <= COST_MRU_MAX


# Time.


def run(
    estimate: CostEstimate, seconds: float, service_us: int, now_us: int, per_s: int = 20
) -> tuple[int, float]:
    """Record work; return the instant of its end, and the mean of the charged times."""
    charged = 0.0
    count = round(seconds * per_s)
    for _ in range(count):
        now_us += SECOND_US // per_s
        charged += estimate.time(service_us, now_us)
    return now_us, charged / count


def test_usual_work_is_charged_its_own_time() -> None:
    estimate, now_us = CostEstimate(), 0
    for number in range(100):
        now_us += 50_000
        service_us = 8_000 + 1_000 * (number % 5)
        assert estimate.time(service_us, now_us) == service_us
    assert estimate.usual_us == pytest.approx(10_000, rel=0.05)


def test_stall_is_charged_as_usual_from_its_first_request() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 10, 10_000, 0)
    for _ in range(64):  # all that were in flight end at once
        assert estimate.time(5_000_000, now_us) == pytest.approx(10_000, rel=0.02)
    now_us, charged_us = run(estimate, 1, 10_000, now_us)
    assert charged_us == 10_000
    assert estimate.usual_us == pytest.approx(10_000, rel=0.02)


@pytest.mark.parametrize("times", [2.0, 3.0, 8.0])
def test_ten_minutes_of_slow_work_do_not_move_usual(times: float) -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 600, 10_000, 0)
    before_us = estimate.usual_us
    now_us, first_us = run(estimate, 5, round(times * 10_000), now_us)
    for _ in range(10):
        now_us, charged_us = run(estimate, 60, round(times * 10_000), now_us)
        assert charged_us <= 1.05 * before_us
    assert estimate.usual_us <= 1.05 * before_us
    assert first_us <= 1.5 * before_us
    _, charged_us = run(estimate, 60, 10_000, now_us)
    assert charged_us == pytest.approx(10_000, rel=0.01)


def test_work_within_band_moves_usual_slowly() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 3_600, 10_000, 0, per_s=5)
    now_us, _ = run(estimate, 60, 14_000, now_us)
    assert estimate.usual_us < 10_400
    now_us, _ = run(estimate, 2 * HISTORY_US / 1e6, 14_000, now_us, per_s=5)
    assert estimate.usual_us > 13_000


def test_slower_work_is_usual_after_ten_times_known_history() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 30, 10_000, 0)
    now_us, charged_us = run(estimate, 240, 30_000, now_us)
    assert charged_us < 11_500
    _, charged_us = run(estimate, 60, 30_000, now_us + 90 * SECOND_US)
    assert charged_us > 25_000


def test_work_that_stays_slower_is_usual_after_an_hour() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 600, 10_000, 0)
    now_us, charged_us = run(estimate, SLOWER_US / 1e6 - 10, 30_000, now_us, per_s=5)
    assert charged_us < 10_500
    _, charged_us = run(estimate, 60, 30_000, now_us + 10 * SECOND_US)
    assert charged_us > 29_000


def test_work_that_stays_quicker_is_usual_after_a_minute() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 600, 10_000, 0)
    now_us, charged_us = run(estimate, 90, 2_000, now_us)
    assert charged_us == 2_000
    assert estimate.usual_us == pytest.approx(2_000, rel=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_memoryless_work_is_charged_nearly_its_mean(seed: int) -> None:
    dice = random.Random(seed)
    estimate, now_us, charged, took = CostEstimate(), 0, 0.0, 0
    for _ in range(10_000):
        now_us += 20_000
        service_us = round(dice.expovariate(1 / 10_000)) + 1
        took += service_us
        charged += estimate.time(service_us, now_us)
    assert 0.85 < charged / took < 1.0
    assert estimate.usual_us == pytest.approx(10_000, rel=0.15)


def test_clock_that_goes_back_keeps_usual_time() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 60, 10_000, 10 * HISTORY_US)
    now_us, _ = run(estimate, 60, 30_000, now_us)
    _, charged_us = run(estimate, 60, 30_000, now_us - 5 * HISTORY_US)
    assert charged_us <= 10_500


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 1 << 40)), max_size=60))
def test_charged_time_never_exceeds_own_time(work: list[tuple[int, int]]) -> None:
    estimate, now_us = CostEstimate(), 0
    for service_us, passed_us in work:
        now_us += passed_us
        before_us = estimate.usual_us
        charged_us = estimate.time(service_us, now_us)
        assert 0.0 < charged_us <= max(service_us, estimate.usual_us)
        if before_us and service_us <= HELD_UP_TIMES * before_us / BAND:
            assert charged_us <= service_us


def test_time_of_lost_work_teaches_nothing() -> None:
    estimate = CostEstimate()
    run(estimate, 10, 10_000, 0)
    row = estimate.row()
    assert estimate.charged_us(900_000) == pytest.approx(10_000)
    assert estimate.charged_us(12_000) == 12_000
    assert estimate.row() == row


def test_restored_estimate_knows_what_is_usual() -> None:
    estimate = taught(100, said=(1, 0), found=(2, 500))
    now_us, _ = run(estimate, 60, 10_000, 0)
    again = CostEstimate()
    again.restore(EstimateRow(*estimate.row()), now_us)
    assert again.predict_mru(Weights(*TRUE), 1, 0) == estimate.predict_mru(Weights(*TRUE), 1, 0)
    _, charged_us = run(again, 30, 50_000, now_us)
    assert charged_us == pytest.approx(10_000, rel=0.02)


def test_estimate_that_begins_with_another_keeps_its_incident() -> None:
    estimate = CostEstimate()
    now_us, _ = run(estimate, 60, 10_000, 0)
    now_us, _ = run(estimate, 60, 30_000, now_us)
    other = CostEstimate()
    other.begin_with(estimate)
    _, charged_us = run(other, 1, 30_000, now_us)
    assert charged_us == pytest.approx(10_000, rel=0.03)


# Bad input.


@pytest.mark.parametrize(
    ("rows", "size_bytes", "latency_ms"),
    [
        *((-1, 0, 0.0), (0, -1, 0.0), (0, 0, -0.1), (0, 0, math.nan), (0, 0, math.inf)),
        *(((1 << 53) + 1, 0, 0.0), (0, (1 << 53) + 1, 0.0), (0, 0, 2.0**54)),
    ],
)
def test_a_negative_or_non_finite_shape_is_refused(
    rows: int, size_bytes: int, latency_ms: float
) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 2"):
        Weights(*TRUE).cost_mru(rows, size_bytes, latency_ms)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, 1e7])
@pytest.mark.parametrize("field", range(4))
def test_a_weight_out_of_range_is_refused(field: int, weight: float) -> None:
    given_weights = list(TRUE)
    given_weights[field] = weight
    name = ("base_ru", "row_ru", "byte_ru", "ms_ru")[field]
    with pytest.raises(ValueError, match=f"{name} must be from"):
        Weights(*given_weights)


def test_a_request_that_costs_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="base_ru must be from 1e-06"):
        Weights(0.0, 1.0, 1.0, 1.0)
