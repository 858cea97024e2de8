from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.windowed_quantile import Scale, Sketch, WindowedQuantile, quantile

SECOND = 1_000_000
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)

values_in_range = st.one_of(st.floats(1.0, 3.6e9), st.integers(1, 5_000), st.floats(90.0, 110.0))
any_values = st.one_of(values_in_range, st.floats(0.0, 0.999), st.floats(3.7e9, 1e12))


def sketched(values: list[float], scale: Scale | None = None) -> Sketch:
    sketch = Sketch(Scale() if scale is None else scale)
    for value in values:
        sketch.add(value)
    return sketch


def exact(values: list[float], q: float) -> float:
    return sorted(values)[int(q * (len(values) - 1))]


def state(sketch: Sketch) -> tuple[int, list[int], int, int]:
    return (sketch.low if sketch.counts else 0, sketch.counts, sketch.zeros, sketch.count)


def assert_within_alpha(estimate: float | None, truth: float, alpha: float = 0.01) -> None:
    assert estimate is not None
    assert abs(estimate - truth) <= alpha * truth


# One sketch.


@pytest.mark.parametrize(
    "draw",
    [
        lambda r: r.uniform(1, 1e6),
        lambda r: r.expovariate(1e-4) + 1,
        lambda r: r.lognormvariate(9, 2),
        lambda r: r.paretovariate(0.5),
        lambda r: r.gauss(500, 20) if r.random() < 0.94 else r.gauss(50_000, 5_000),
        lambda r: float(r.choice([1, 1_000, 1_000_000, 3_600_000_000])),
        lambda _: 12_345.678,
    ],
    ids=["uniform", "exponential", "lognormal", "pareto", "bimodal", "far apart", "constant"],
)
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05, 0.2])
def test_every_quantile_of_every_shape_is_within_alpha(
    draw: Callable[[random.Random], float], alpha: float
) -> None:
    chance = random.Random(1)
    values = [min(max(draw(chance), 1.0), 3.6e9) for _ in range(3_000)]
    sketch = sketched(values, Scale(alpha, buckets_max=1 << 16))
    for q in QUANTILES:
        assert_within_alpha(sketch.quantile(q), exact(values, q), alpha)


@given(st.lists(values_in_range, min_size=1, max_size=60), st.floats(0, 1))
def test_any_quantile_of_any_values_in_range_is_within_alpha(values: list[float], q: float) -> None:
    assert_within_alpha(sketched(values).quantile(q), exact(values, q))


@given(st.floats(1.0, 3.6e9), st.sampled_from([0.001, 0.01, 0.03, 0.2]))
def test_one_value_is_within_alpha_of_itself(value: float, alpha: float) -> None:
    assert_within_alpha(sketched([value], Scale(alpha)).quantile(0.5), value, alpha)


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.2])
def test_values_at_the_very_edges_of_buckets_are_within_alpha(alpha: float) -> None:
    gamma = (1 + alpha) / (1 - alpha)
    for power in range(0, int(math.log(3.6e9) / math.log(gamma)), 7):
        edge = gamma**power
        for value in (edge, math.nextafter(edge, 0), math.nextafter(edge, math.inf)):
            if 1.0 <= value <= 3.6e9:
                assert_within_alpha(sketched([value], Scale(alpha)).quantile(1), value, alpha)


def test_quantiles_0_and_1_are_the_lowest_and_the_highest_within_alpha() -> None:
    sketch = sketched([3.0, 700.0, 41_000.0])
    assert_within_alpha(sketch.quantile(0.0), 3.0)
    assert_within_alpha(sketch.quantile(1.0), 41_000.0)
    assert sketch.quantile(1.0) != 41_000.0


def test_the_rank_is_the_whole_part_of_q_times_one_less_than_the_count() -> None:
    sketch = sketched([10.0, 20.0, 40.0, 80.0, 160.0])
    for q, truth in ((0.24, 10.0), (0.25, 20.0), (0.49, 20.0), (0.5, 40.0), (0.99, 80.0)):
        assert_within_alpha(sketch.quantile(q), truth)


def test_nothing_has_no_quantile() -> None:
    assert Sketch(Scale()).quantile(0.5) is None
    assert quantile([Sketch(Scale()), Sketch(Scale())], 0.5) is None


def test_what_is_below_the_range_counts_as_zero() -> None:
    sketch = sketched([0.0, 0.5, math.nextafter(1.0, 0.0), 1.0])
    assert (sketch.zeros, sketch.count) == (3, 4)
    assert [sketch.quantile(q) for q in (0.0, 0.5, 0.67)] == [0.0, 0.0, 0.0]
    assert_within_alpha(sketch.quantile(1.0), 1.0)
    assert sketched([0.0]).quantile(1.0) == 0.0


def test_what_is_above_the_range_counts_as_its_upper_end() -> None:
    sketch = sketched([1e12, 3.6e9, math.nextafter(3.6e9, math.inf)])
    assert sketch.counts == [3]
    assert_within_alpha(sketch.quantile(1.0), 3.6e9)


def test_the_lowest_buckets_collapse_when_values_spread_too_wide() -> None:
    scale = Scale(0.01, buckets_max=100)  # a factor of e^2 below the highest
    sketch = sketched([1.0, 2.0, 3.0, 1_000.0], scale)
    assert len(sketch.counts) == 100
    assert_within_alpha(sketch.quantile(1.0), 1_000.0)
    # The three low values are answered by the lowest bucket that is kept: too high, and in order.
    assert sketch.quantile(0.0) == sketch.quantile(0.67) == pytest.approx(1_000 / 7.3, rel=0.02)


def test_a_collapse_loses_no_count() -> None:
    scale = Scale(0.01, buckets_max=50)
    sketch = Sketch(scale)
    for bucket in range(200):
        sketch.add(1.0203**bucket)
        assert sum(sketch.counts) == sketch.count == bucket + 1
        assert len(sketch.counts) <= 50
    assert sketch.counts == [151] + [1] * 49


@given(st.lists(any_values, max_size=60), st.integers(16, 1_300), st.randoms(use_true_random=False))
def test_a_sketch_depends_on_what_was_added_and_not_on_the_order(
    values: list[float], buckets_max: int, chance: random.Random
) -> None:
    scale = Scale(buckets_max=buckets_max)
    mixed = values[:]
    chance.shuffle(mixed)
    assert state(sketched(values, scale)) == state(sketched(mixed, scale))


@given(st.lists(any_values, max_size=60), st.integers(16, 1_300))
def test_a_sketch_counts_what_a_plain_dictionary_counts(
    values: list[float], buckets_max: int
) -> None:
    alpha = 0.01 * (1 - 1e-9)  # as the kernel has it: a hair finer
    gamma = (1 + alpha) / (1 - alpha)
    zeros, buckets = 0, dict[int, int]()
    for value in values:
        if value < 1.0:
            zeros += 1
        else:
            key = math.floor(math.log(min(value, 3.6e9)) / math.log(gamma)) + 1
            buckets[key] = buckets.get(key, 0) + 1
    low = max(buckets, default=0) - buckets_max + 1
    expected = {key: hits for key, hits in buckets.items() if key > low}
    expected[low] = sum(hits for key, hits in buckets.items() if key <= low)
    sketch = sketched(values, Scale(buckets_max=buckets_max))
    got = {sketch.low + i: hits for i, hits in enumerate(sketch.counts) if hits}
    assert (sketch.zeros, sketch.count) == (zeros, len(values))
    assert got == {key: hits for key, hits in expected.items() if hits}
    assert len(sketch.counts) <= buckets_max


@given(st.lists(st.lists(any_values, max_size=20), max_size=6), st.integers(16, 1_300))
def test_merged_sketches_are_the_sketch_of_everything(
    parts: list[list[float]], buckets_max: int
) -> None:
    scale = Scale(buckets_max=buckets_max)
    merged, sketches = Sketch(scale), [sketched(part, scale) for part in parts]
    for sketch in sketches:
        before = state(sketch)
        merged.merge(sketch)
        assert state(sketch) == before
    whole = sketched([value for part in parts for value in part], scale)
    assert state(merged) == state(whole)
    for q in QUANTILES:
        assert quantile([*sketches, Sketch(scale)], q) == whole.quantile(q)


def test_a_merged_sketch_shares_nothing_with_the_other() -> None:
    scale = Scale()
    one, other = Sketch(scale), sketched([5.0], scale)
    one.merge(other)
    one.add(5.0)
    assert other.counts == [1]


def test_a_cleared_sketch_is_like_a_new_one() -> None:
    sketch = sketched([0.0, 5.0, 1e6])
    sketch.clear()
    assert state(sketch) == state(Sketch(Scale()))
    sketch.add(70.0)
    assert_within_alpha(sketch.quantile(0.0), 70.0)


# The window.


class SlowWindow:
    """The oracle: every value with its sub-window, sorted when asked."""

    def __init__(self, windows: int, sub_window_us: int) -> None:
        self.windows, self.sub_window_us = windows, sub_window_us
        self.newest = 0
        self.values: list[tuple[int, float]] = []

    def at(self, now_us: int) -> list[float]:
        self.newest = max(self.newest, now_us // self.sub_window_us)
        return [value for slot, value in self.values if slot > self.newest - self.windows]

    def add(self, value: float, now_us: int) -> None:
        self.at(now_us)
        self.values.append((self.newest, value))


def test_a_value_lives_from_the_first_to_the_last_microsecond_of_its_window() -> None:
    window = WindowedQuantile(windows=5, sub_window_us=SECOND)
    window.add(100.0, 2 * SECOND)
    assert window.count(7 * SECOND - 1) == 1
    assert window.count(7 * SECOND) == 0
    late = WindowedQuantile(windows=5, sub_window_us=SECOND)
    late.add(100.0, 3 * SECOND - 1)
    assert late.count(7 * SECOND - 1) == 1
    assert late.count(7 * SECOND) == 0


def test_the_window_follows_a_step_within_its_length_and_forgets_it() -> None:
    window = WindowedQuantile(windows=5, sub_window_us=SECOND)
    for ms in range(20_000):
        window.add(10_000.0 if 8_000 <= ms < 12_000 else 1_000.0, ms * 1_000)
        if ms == 8_300:  # 300 of the last 4,300 are slow: above five in a hundred
            assert_within_alpha(window.quantile(0.95, ms * 1_000), 10_000.0)
        if ms in (7_999, 16_000):
            assert_within_alpha(window.quantile(0.95, ms * 1_000), 1_000.0)


def test_the_end_of_the_sub_window_in_progress_can_be_read() -> None:
    window = WindowedQuantile(windows=5, sub_window_us=SECOND)
    for now_us, end_us in ((0, 1), (999_999, 1), (SECOND, 2), (1_000 * SECOND, 1_001), (0, 1_001)):
        window.add(1.0, now_us)
        assert window.end_us == end_us * SECOND


def test_a_long_silence_empties_the_window() -> None:
    window = WindowedQuantile(windows=3, sub_window_us=SECOND)
    window.add(5.0, 0)
    assert window.quantile(0.5, 1_000 * SECOND) is None
    window.add(7.0, 1_000 * SECOND)
    assert window.count(1_000 * SECOND) == 1


def test_a_clock_that_goes_back_counts_in_the_newest_sub_window_and_revives_nothing() -> None:
    window = WindowedQuantile(windows=2, sub_window_us=SECOND)
    window.add(1_000.0, 0)
    window.add(10.0, 5 * SECOND)
    window.add(10.0, 1 * SECOND)
    assert window.count(0) == 2
    assert_within_alpha(window.quantile(1.0, 0), 10.0)
    assert window.count(7 * SECOND - 1) == 2
    assert window.count(7 * SECOND) == 0


@given(
    st.integers(1, 6),
    st.sampled_from([1, 7, 1_000, SECOND]),
    st.lists(st.tuples(st.integers(-3, 9), st.integers(-1, 1), any_values), max_size=40),
)
def test_it_answers_what_sorting_the_live_values_answers(
    windows: int, sub_window_us: int, arrivals: list[tuple[int, int, float]]
) -> None:
    window = WindowedQuantile(windows, sub_window_us)
    oracle = SlowWindow(windows, sub_window_us)
    now_us = 100 * sub_window_us
    for steps, edge_us, value in arrivals:
        now_us += steps * sub_window_us // 2 + edge_us
        window.add(value, now_us)
        oracle.add(value, now_us)
        live = [0.0 if v < 1.0 else min(v, 3.6e9) for v in oracle.at(now_us)]
        assert window.count(now_us) == len(live)
        for q in (0.0, 0.5, 0.95, 1.0):
            truth = exact(live, q)
            assert_within_alpha(window.quantile(q, now_us), truth)


# Bad input.


@pytest.mark.parametrize("value", [-1.0, -1e-9, math.nan, math.inf, -math.inf, 2.0**901])
def test_a_negative_or_non_finite_value_is_refused_and_leaves_no_trace(value: float) -> None:
    window = WindowedQuantile()
    with pytest.raises(ValueError, match="value must be from 0 to 2"):
        window.add(value, 0)
    assert window.count(0) == 0


@pytest.mark.parametrize("alpha", [0.0, 0.0009, 0.21, -1.0, math.nan])
def test_an_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be from 0.001 to 0.2, not"):
        Scale(alpha)


@pytest.mark.parametrize(
    ("value_min", "value_max"),
    [(0.0, 1.0), (2.0, 2.0), (-1.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, math.nan)],
)
def test_a_value_range_that_is_none_is_refused(value_min: float, value_max: float) -> None:
    with pytest.raises(ValueError, match="value_min must be below value_max"):
        Scale(value_min=value_min, value_max=value_max)


@pytest.mark.parametrize("buckets_max", [0, 15, (1 << 20) + 1])
def test_a_bound_of_buckets_out_of_range_is_refused(buckets_max: int) -> None:
    with pytest.raises(ValueError, match=f"buckets_max must be from 16 to 2.20, not {buckets_max}"):
        Scale(buckets_max=buckets_max)


@pytest.mark.parametrize(("windows", "sub_window_us"), [(0, 1), (4_097, 1), (1, 0), (1, 1 << 54)])
def test_a_window_of_nothing_is_refused(windows: int, sub_window_us: int) -> None:
    with pytest.raises(ValueError, match="must be from 1 to"):
        WindowedQuantile(windows, sub_window_us)


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan])
def test_a_quantile_out_of_range_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="q must be from 0 to 1"):
        sketched([1.0]).quantile(q)


def test_sketches_of_two_scales_do_not_merge() -> None:
    with pytest.raises(ValueError, match="one scale"):
        Sketch(Scale()).merge(Sketch(Scale()))


def test_the_widest_range_of_values_is_within_alpha() -> None:
    scale = Scale(0.01, value_min=2.0**-900, value_max=2.0**900, buckets_max=1 << 17)
    values = [2.0**power for power in range(-900, 901, 9)]
    sketch = sketched(values, scale)
    for q in QUANTILES:
        assert_within_alpha(sketch.quantile(q), exact(values, q))


def test_the_lowest_of_the_sub_windows_counts_those_with_enough_values() -> None:
    window = WindowedQuantile(3, SECOND)
    for second, value, count in ((0, 50.0, 10), (1, 900.0, 30), (2, 5.0, 9)):
        for _ in range(count):
            window.add(value, second * SECOND)
    assert window.lowest(0.99, 10) == pytest.approx(50.0, rel=0.01)
    assert window.lowest(0.99, 9) == pytest.approx(5.0, rel=0.01)
    assert window.lowest(0.99, 31) is None
