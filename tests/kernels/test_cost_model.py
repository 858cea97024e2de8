from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.cost_model import (
    COST_MRU_MAX,
    CostModel,
    CostRatio,
    Weights,
    correction_mru,
    milli_ru,
    read_weights,
    write_weights,
)

TRUE = (1.0, 0.05, 0.0005, 0.2)  # RU a request, a row, a byte, a millisecond
NOISE = 0.41  # sigma of the lognormal noise of what a request costs

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


def test_one_row_and_a_hundred_thousand_do_not_cost_the_same() -> None:
    model = CostModel(read_weights(0.0005, 0.2, w_rows=0.05))
    assert model.predict_mru(1, 100, 1.0) == 1_300
    assert model.predict_mru(100_000, 10_000_000, 900.0) > 10_000_000


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


# Settling.


def test_a_request_ends_up_paying_its_true_cost() -> None:
    assert correction_mru(2_000, 3_500) == 1_500
    assert correction_mru(2_000, 500) == -1_500
    assert correction_mru(2_000, 2_000) == 0


def test_a_correction_is_at_most_ten_fold_either_way() -> None:
    assert correction_mru(2_000, 20_000) == 18_000
    assert correction_mru(2_000, 20_001) == 18_000
    assert correction_mru(2_000, 200) == -1_800
    assert correction_mru(2_000, 199) == -1_800
    assert correction_mru(2_001, 0) == -1_800  # a tenth, rounded up, is what stays
    assert correction_mru(2_000, 9_000, correction_max=2) == 2_000


@given(amounts, amounts, st.integers(1, 1_000))
def test_what_is_paid_in_the_end_is_within_the_bound(
    predicted: int, actual: int, correction_max: int
) -> None:
    paid = predicted + correction_mru(predicted, actual, correction_max)
    assert paid <= predicted * correction_max
    assert paid * correction_max >= predicted
    assert (actual - paid) * (actual - predicted) >= 0
    assert abs(paid - predicted) <= abs(actual - predicted)


# Learning.


class SlowModel:
    """The oracle: the update as the essay writes it, in lists."""

    def __init__(self, start: tuple[float, float, float, float], rate: float) -> None:
        self.logs = [math.log(weight) for weight in start]
        self.start, self.rate = start, rate

    def learn(self, rows: int, size_bytes: int, latency_ms: float, actual_mru: int) -> None:
        features = [1.0, rows, size_bytes, latency_ms]
        parts = [math.exp(log) * x for log, x in zip(self.logs, features, strict=True)]
        predicted = sum(parts)
        shares = [part / predicted for part in parts]
        error = min(max(actual_mru / 1_000 / predicted, 0.1), 10.0) - 1
        squares = sum(share**2 for share in shares)
        for i, share in enumerate(shares):
            log = self.logs[i] + self.rate * error * share / squares
            span, middle = math.log(1_000), math.log(self.start[i])
            self.logs[i] = min(max(log, middle - span), middle + span)


def learned(model: CostModel) -> list[float]:
    w = model.weights()
    return [w.base_ru, w.row_ru, w.byte_ru, w.ms_ru]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1_000),
            st.integers(0, 100_000),
            st.floats(0.0, 100.0),
            st.one_of(st.integers(0, 100_000), st.just(1 << 53)),
        ),
        max_size=60,
    ),
    st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)
def test_it_learns_what_the_obvious_update_learns(
    observed: list[tuple[int, int, float, int]], rate: float
) -> None:
    model, oracle = CostModel(Weights(*TRUE), rate=rate), SlowModel(TRUE, rate)
    for shape in observed:
        model.learn(*shape)
        oracle.learn(*shape)
    assert learned(model) == pytest.approx([math.exp(log) for log in oracle.logs], rel=1e-6)


def test_a_right_prediction_changes_nothing() -> None:
    model = CostModel(Weights(*TRUE))
    for rows, size_bytes in ((1, 100), (40, 9_000), (0, 0)):
        model.learn(rows, size_bytes, 5.0, model.predict_mru(rows, size_bytes, 5.0))
    assert learned(model) == pytest.approx(list(TRUE), rel=1e-4)


def test_one_update_moves_the_prediction_by_the_rate_of_the_error() -> None:
    for rows, size_bytes, latency_ms in ((1, 100, 1.0), (500, 20, 1.0), (1, 900_000, 90.0)):
        model = CostModel(Weights(*TRUE), rate=0.01)
        before = model.predict_mru(rows, size_bytes, latency_ms)
        model.learn(rows, size_bytes, latency_ms, 2 * before)
        after = model.predict_mru(rows, size_bytes, latency_ms)
        assert after / before == pytest.approx(1.01, abs=0.002)


def test_what_a_request_does_not_use_is_not_blamed() -> None:
    model = CostModel(Weights(*TRUE))
    for _ in range(100):
        model.learn(0, 50_000, 0.0, 60_000)
    _, row_ru, byte_ru, ms_ru = learned(model)
    assert (row_ru, ms_ru) == (TRUE[1], TRUE[3])
    assert byte_ru > 1.5 * TRUE[2]


def test_a_weight_of_zero_is_switched_off_and_stays_so() -> None:
    model = CostModel(Weights(1.0, 0.0, 0.001, 0.1))
    for _ in range(100):
        model.learn(1_000, 100, 1.0, 900_000)
    assert learned(model)[1] == 0.0


def shapes(chance: random.Random) -> Iterator[tuple[int, int, float]]:
    """Point reads, multi-gets, scans and blobs, each with the latency of its class."""
    while True:
        kind = chance.random()
        if kind < 0.5:
            yield 1, int(chance.lognormvariate(5, 1)), chance.choice([1.0, 2.0, 4.0])
        elif kind < 0.8:
            rows = chance.randint(2, 60)
            yield rows, int(rows * chance.lognormvariate(4, 0.5)), 5.0
        elif kind < 0.95:
            rows = chance.randint(50, 400)
            yield rows, rows * 40, chance.choice([8.0, 30.0])
        else:
            yield 1, chance.randint(10_000, 200_000), 20.0


class Drift:
    """3,000 requests as calibrated, then one true weight times three; what predictions were worth.

    WAPE is the sum of absolute errors over the sum of costs; its floor is what knowing the true
    weights would leave, since the noise of single requests cannot be predicted.
    """

    def __init__(
        self, seed: int, field: int, rate: float, requests: int, margin: float | None = None
    ) -> None:
        chance = random.Random(seed)
        truth = list(TRUE)
        model = CostModel(Weights(*TRUE), rate=rate, margin_quantile=margin)
        error = floor = charged = cost = 0.0
        covered = 0
        for i, (rows, size_bytes, ms) in enumerate(islice(shapes(chance), requests + 4_000)):
            if i == 3_000:
                truth[field] *= 3
            expected = truth[0] + truth[1] * rows + truth[2] * size_bytes + truth[3] * ms
            actual = expected * math.exp(chance.gauss(-(NOISE**2) / 2, NOISE))
            if i >= 3_000 + requests:
                predicted = model.predict_mru(rows, size_bytes, ms) / 1_000
                error += abs(predicted - actual)
                floor += abs(expected - actual)
                charged += predicted
                cost += actual
                covered += actual <= predicted
            model.learn(rows, size_bytes, ms, int(actual * 1_000))
        self.over_floor = error / floor
        self.bias = charged / cost
        self.covered = covered / 1_000


@pytest.mark.parametrize("field", range(4), ids=["request", "row", "byte", "millisecond"])
def test_a_three_fold_drift_is_learned_within_2000_requests(field: int) -> None:
    for seed in range(3):
        drift = Drift(seed, field, rate=0.02, requests=2_000)
        assert drift.over_floor <= 1.1
        assert 0.9 <= drift.bias <= 1.1


@pytest.mark.parametrize(("field", "over_floor", "bias"), [(1, 1.39, 0.65), (2, 1.59, 0.53)])
def test_without_learning_the_same_drift_stays_a_loss(
    field: int, over_floor: float, bias: float
) -> None:
    trials = [Drift(seed, field, rate=0.0, requests=2_000) for seed in range(3)]
    assert sum(trial.over_floor for trial in trials) / 3 == pytest.approx(over_floor, abs=0.1)
    assert sum(trial.bias for trial in trials) / 3 == pytest.approx(bias, abs=0.05)


@pytest.mark.parametrize("quantile", [0.5, 0.7, 0.9])
def test_with_a_margin_that_part_of_requests_costs_less_than_charged(quantile: float) -> None:
    drift = Drift(1, 1, rate=0.02, requests=2_000, margin=quantile)
    assert drift.covered == pytest.approx(quantile, abs=0.03)


def test_a_margin_is_bounded_by_the_correction() -> None:
    high = CostModel(Weights(*TRUE), rate=1.0, span_max=1.0, margin_quantile=0.9)
    low = CostModel(Weights(*TRUE), rate=1.0, span_max=1.0, margin_quantile=0.1)
    assert high.margin() == 1.0
    for _ in range(100):
        high.learn(1, 1, 1.0, 1 << 53)
        low.learn(1, 1, 1.0, 0)
    assert high.margin() == 10.0
    assert low.margin() == pytest.approx(0.1)
    assert CostModel(Weights(*TRUE)).margin() == 1.0


@pytest.mark.parametrize(("rate", "updates"), [(0.02, 200_000), (1.0, 50_000)])
def test_updates_with_outliers_stay_positive_and_within_their_span(
    rate: float, updates: int
) -> None:
    model = CostModel(Weights(*TRUE), rate=rate, margin_quantile=0.7)
    few = list(islice(shapes(random.Random(5)), 997))
    outliers = (0, 1, 10**9, 1 << 53)
    for i in range(updates):
        rows, size_bytes, ms = few[i % 997]
        model.learn(rows, size_bytes, ms, 5_000 if i % 3 else outliers[i // 3 % 4])
        if i % 1_000 == 0:
            for weight, start in zip(learned(model), TRUE, strict=True):
                assert start / 1_000.001 <= weight <= start * 1_000.001
            assert 0 < model.predict_mru(rows, size_bytes, ms) <= COST_MRU_MAX


@pytest.mark.parametrize(
    ("field", "shape"),
    [(0, (0, 0, 0.0)), (1, (10**9, 0, 0.0)), (2, (0, 10**12, 0.0)), (3, (0, 0, 1e9))],
)
def test_a_weight_stays_within_its_span_of_where_it_started(
    field: int, shape: tuple[int, int, float]
) -> None:
    for actual_mru, factor in ((0, 0.01), (1 << 53, 100.0)):
        model = CostModel(Weights(*TRUE), rate=0.5, span_max=100.0)
        for _ in range(100):
            model.learn(*shape, actual_mru)
        assert learned(model)[field] == pytest.approx(TRUE[field] * factor)


def test_after_an_attack_of_outliers_it_finds_back() -> None:
    model = CostModel(Weights(*TRUE))
    for _ in range(10_000):
        model.learn(1, 100, 1.0, 1 << 53)
    assert model.predict_mru(1, 100, 1.0) > 100 * 1_300
    for _ in range(3_000):
        model.learn(1, 100, 1.0, 1_300)
    assert model.predict_mru(1, 100, 1.0) == pytest.approx(1_300, rel=0.05)


def test_the_heaviest_weights_and_shapes_do_not_overflow() -> None:
    model = CostModel(Weights(1e6, 1e6, 1e6, 1e6), rate=1.0, span_max=1e6)
    for actual in (0, 1 << 53, 0):
        model.learn(1 << 53, 1 << 53, 2.0**53, actual)
        assert model.predict_mru(1 << 53, 1 << 53, 2.0**53) == COST_MRU_MAX
    assert all(0 < weight <= 1e6 for weight in learned(model))


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
    model = CostModel(Weights(*TRUE))
    with pytest.raises(ValueError, match="must be from 0 to 2"):
        model.weights().cost_mru(rows, size_bytes, latency_ms)
    with pytest.raises(ValueError, match="must be from 0 to 2"):
        model.predict_mru(rows, size_bytes, latency_ms)
    with pytest.raises(ValueError, match="must be from 0 to 2"):
        model.learn(rows, size_bytes, latency_ms, 5)
    assert learned(model) == list(TRUE)


@pytest.mark.parametrize("actual_mru", [-1, (1 << 53) + 1])
def test_an_actual_cost_out_of_range_is_refused(actual_mru: int) -> None:
    with pytest.raises(ValueError, match="actual_mru must be from 0"):
        CostModel(Weights(*TRUE)).learn(1, 1, 1.0, actual_mru)
    with pytest.raises(ValueError, match="actual_mru must be from 0"):
        correction_mru(1, actual_mru)


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


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate must be from 0 to 1"):
        CostModel(Weights(*TRUE), rate=rate)


def test_the_other_settings_are_refused_by_their_names() -> None:
    for correction_max in (0, 1_001):
        with pytest.raises(ValueError, match="correction_max must be from 1 to 1000"):
            CostModel(Weights(*TRUE), correction_max=correction_max)
        with pytest.raises(ValueError, match="correction_max must be from 1 to 1000"):
            correction_mru(1, 1, correction_max)
    for span_max in (0.9, 1e7, math.nan):
        with pytest.raises(ValueError, match="span_max must be from 1"):
            CostModel(Weights(*TRUE), span_max=span_max)
    for quantile in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="margin_quantile must be above 0"):
            CostModel(Weights(*TRUE), margin_quantile=quantile)
    for ru in (-0.1, math.nan):
        with pytest.raises(ValueError, match="0 RU or more"):
            milli_ru(ru)
    with pytest.raises(ValueError, match="predicted_mru must be"):
        correction_mru(-1, 1)


def test_a_lesson_however_strong_leaves_the_weights_within_their_bounds() -> None:
    model = CostModel(Weights(1.0, 0.0, 0.0, 0.0), rate=1.0, correction_max=1000)
    model.learn(0, 0, 0.0, 1_000_000_000_000)
    assert math.isfinite(model.weights().base_ru)
    assert model.predict_mru(0, 0, 0.0) > 1_000


def test_a_new_ratio_is_learned_in_a_handful_of_lessons() -> None:
    ratio = CostRatio(0.01)
    for _ in range(10):
        ratio.learn(1_000, 200_000)
    assert ratio.times == pytest.approx(200.0, rel=0.1)
    assert ratio.scale(3_000) == pytest.approx(600_000, rel=0.1)


def test_one_outlier_moves_a_ratio_by_a_factor_of_e_at_most() -> None:
    ratio = CostRatio(0.01)
    ratio.learn(1_000, 10**12)
    assert ratio.times == pytest.approx(math.e, rel=0.001)
    settled = CostRatio(0.01)
    for _ in range(100):
        settled.learn(1_000, 1_000)
    settled.learn(1_000, 10**12)
    assert settled.times < 1.1


def test_a_ratio_follows_the_mean_of_the_noise_and_is_pulled_back_by_three_percent() -> None:
    dice = random.Random(3)
    ratio = CostRatio(0.01)
    ratios = []
    for number in range(6_000):
        ratio.learn(1_000, round(50_000 * dice.lognormvariate(-0.08, 0.4)))
        if number >= 1_000:
            ratios.append(ratio.times)
    assert 0.95 * 50 < sum(ratios) / len(ratios) < 50


def test_a_ratio_that_is_not_needed_any_more_is_pulled_back_to_one() -> None:
    ratio = CostRatio(0.01)
    for _ in range(40):
        ratio.learn(1_000, 1_200)
    assert ratio.times > 1.15
    for _ in range(5_000):
        ratio.learn(1_000, round(1_000 * ratio.times))  # the weights explain all but the ratio
    assert ratio.times == 1.0


def test_what_is_left_for_the_weights_is_what_the_ratio_does_not_explain() -> None:
    ratio = CostRatio(0.01)
    assert ratio.learn(1_000, 1_000_000) == math.floor(1_000 * math.e), "it may all be its own"
    assert ratio.learn(1_000, 0) == math.floor(1_000 / math.e)
    for _ in range(100):
        left = ratio.learn(1_000, 30_000)
    assert left == pytest.approx(1_000, rel=0.05)
    assert ratio.learn(1_000, 300_000) == pytest.approx(10_000, rel=0.2), "it is known by now"


@given(
    st.lists(st.tuples(st.integers(0, 1 << 53), st.integers(0, 1 << 53)), min_size=1, max_size=60),
    st.floats(0.001, 1.0),
    st.integers(1, 1_000),
)
def test_a_ratio_stays_within_a_thousand_times_whatever_is_fed(
    lessons: list[tuple[int, int]], rate: float, correction_max: int
) -> None:
    ratio = CostRatio(rate, correction_max)
    for usual_mru, actual_mru in lessons:
        left = ratio.learn(usual_mru, actual_mru)
        assert 0 <= left <= 1 << 53
        assert 0.000_999 < ratio.times < 1_000.1
        assert 0 <= ratio.scale(usual_mru) <= 1 << 53


def test_the_settings_of_a_ratio_are_refused_by_their_names() -> None:
    with pytest.raises(ValueError, match="rate"):
        CostRatio(0.0)
    with pytest.raises(ValueError, match="correction_max"):
        CostRatio(0.1, 0)
    with pytest.raises(ValueError, match="usual_mru"):
        CostRatio(0.1).learn(-1, 1)
    with pytest.raises(ValueError, match="actual_mru"):
        CostRatio(0.1).learn(1, -1)


def test_a_model_that_learns_with_a_ratio_learns_what_the_ratio_leaves() -> None:
    draws = random.Random(1)
    together, apart = (CostModel(read_weights(0.01, 0.1), margin_quantile=0.7) for _ in range(2))
    ratio, other = CostRatio(0.01), CostRatio(0.01)
    for _ in range(200):
        shape = draws.randrange(9), draws.randrange(1, 99), draws.random()
        actual_mru = draws.randrange(1_000, 9_000)
        usual_mru = apart.expect_mru(*shape)
        apart.learn(*shape, other.learn(usual_mru, actual_mru))
        together.learn(*shape, actual_mru, ratio)
    assert repr(together.weights()) == repr(apart.weights())
    assert (together.margin(), ratio.times) == (apart.margin(), other.times)
