from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.p2_quantile import VALUE_MAX, P2Quantile, parabola

# The example of the paper's Table I: twenty observations, then the positions of the three middle
# markers and the heights of all but the first (which stays at 0.02) after each from the fifth on.
OBSERVATIONS = [
    *(0.02, 0.15, 0.74, 3.39, 0.83, 22.37, 10.15, 15.43, 38.62, 15.92),
    *(34.60, 10.28, 1.47, 0.40, 0.05, 11.39, 0.27, 0.42, 0.09, 11.37),
]
MARKERS = {
    5: ((2, 3, 4), (0.15, 0.74, 0.83, 3.39)),
    6: ((2, 3, 4), (0.15, 0.74, 0.83, 22.37)),
    7: ((2, 3, 5), (0.15, 0.74, 4.465, 22.37)),
    8: ((2, 4, 6), (0.15, 2.178, 8.592, 22.37)),
    9: ((3, 5, 7), (0.869, 4.753, 15.517, 38.62)),
    10: ((3, 5, 7), (0.869, 4.753, 15.517, 38.62)),
    11: ((3, 6, 8), (0.869, 9.275, 21.573, 38.62)),
    12: ((3, 6, 9), (0.869, 9.275, 21.573, 38.62)),
    13: ((4, 7, 10), (2.132, 9.275, 21.573, 38.62)),
    14: ((5, 8, 11), (2.132, 9.275, 21.573, 38.62)),
    15: ((5, 8, 12), (0.731, 6.297, 21.573, 38.62)),
    16: ((5, 8, 13), (0.731, 6.297, 21.573, 38.62)),
    17: ((5, 9, 13), (0.589, 6.297, 17.204, 38.62)),
    18: ((6, 10, 14), (0.589, 6.297, 17.204, 38.62)),
    19: ((6, 10, 15), (0.494, 4.441, 17.204, 38.62)),
    20: ((6, 10, 16), (0.494, 4.441, 17.204, 38.62)),
}


class SlowP2:
    """The oracle: the five boxes of the paper, one after the other, in lists."""

    def __init__(self, p: float) -> None:
        self.increments = [0.0, p / 2, p, (1 + p) / 2, 1.0]
        self.heights: list[float] = []
        self.positions = [1, 2, 3, 4, 5]

    def add(self, x: float) -> None:
        q, n = self.heights, self.positions
        if len(q) < 5:
            q.append(x)
            q.sort()
            return
        if x < q[0]:
            q[0] = x
        q[4] = max(q[4], x)
        n[4] += 1
        for i in (1, 2, 3):
            if x < q[i]:
                n[i] += 1
        for i in (1, 2, 3):
            desired = 1 + (n[4] - 1) * self.increments[i]
            d = desired - n[i]
            if (d >= 1 and n[i + 1] - n[i] > 1) or (d <= -1 and n[i - 1] - n[i] < -1):
                sign = 1 if d > 0 else -1
                moved = q[i] + sign / (n[i + 1] - n[i - 1]) * (
                    (n[i] - n[i - 1] + sign) * (q[i + 1] - q[i]) / (n[i + 1] - n[i])
                    + (n[i + 1] - n[i] - sign) * (q[i] - q[i - 1]) / (n[i] - n[i - 1])
                )
                if not q[i - 1] < moved < q[i + 1]:
                    j = i + sign
                    moved = q[i] + sign * (q[j] - q[i]) / (n[j] - n[i])
                q[i] = moved
                n[i] += sign


def fed(q: float, values: list[float]) -> P2Quantile:
    estimator = P2Quantile(q)
    for value in values:
        estimator.add(value)
    return estimator


def value_of(estimator: P2Quantile) -> float:
    value = estimator.value()
    assert value is not None
    return value


def exact(q: float, values: list[float]) -> float:
    return sorted(values)[math.ceil(q * len(values)) - 1]


@pytest.mark.parametrize("count", MARKERS)
def test_the_worked_example_of_the_paper_marker_by_marker(count: int) -> None:
    positions, heights = MARKERS[count]
    markers = fed(0.5, OBSERVATIONS[:count]).markers()
    assert [n for n, _ in markers] == [1, *positions, count]
    assert [h for _, h in markers] == pytest.approx([0.02, *heights], abs=0.0006)


def test_the_worked_example_ends_at_the_median_of_the_paper() -> None:
    estimator = fed(0.5, OBSERVATIONS)
    assert round(value_of(estimator), 2) == 4.44
    assert [h for _, h in estimator.markers()] == pytest.approx(
        [0.02, 0.493895, 4.440634, 17.203904, 38.62], abs=1e-6
    )


@pytest.mark.parametrize("q", [0.05, 0.5, 0.75, 0.95, 0.999])
def test_below_five_observations_it_is_exact(q: float) -> None:
    estimator, values = P2Quantile(q), []
    assert estimator.value() is None
    assert estimator.markers() == []
    for value in (4.0, 1.0, 3.0, 2.0):
        estimator.add(value)
        values.append(value)
        assert estimator.value() == exact(q, values)
        assert [h for _, h in estimator.markers()] == sorted(values)


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.integers(0, 5)), max_size=120), st.data())
def test_it_does_what_the_five_boxes_of_the_paper_do(
    values: list[float], data: st.DataObject
) -> None:
    q = data.draw(st.sampled_from([0.5, 0.25, 0.75, 0.875, 0.9375, 0.0625]))
    estimator, oracle = P2Quantile(q), SlowP2(q)
    for value in values:
        estimator.add(value)
        oracle.add(value)
        markers = estimator.markers()
        assert [h for _, h in markers] == pytest.approx(oracle.heights, rel=1e-9, abs=1e-9)
        assert [n for n, _ in markers] == oracle.positions[: len(markers)]


@given(st.lists(st.floats(-1e300, 1e300) | st.integers(-3, 3), min_size=1), st.floats(0.01, 0.99))
def test_markers_stay_in_order_within_what_was_seen(values: list[float], q: float) -> None:
    values = [value for value in values if abs(value) <= VALUE_MAX]
    estimator = fed(q, values)
    markers = estimator.markers()
    assert all(b[0] > a[0] for a, b in pairwise(markers))
    assert all(b[1] >= a[1] for a, b in pairwise(markers))
    if values:
        assert markers[0][1] == min(values)
        assert markers[-1][1] == max(values)
        assert markers[-1][0] == estimator.count == len(values)


def test_a_constant_is_that_constant() -> None:
    assert fed(0.95, [7.5] * 1_000).value() == 7.5


# What it is good at and what it is not, on seeded streams: the table of the essay, row by row. The
# bad numbers are P2's own, so a change that makes them better is as suspect as one that does not.


def stream(kind: str, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    draws: dict[str, Callable[[], float]] = {
        "uniform": lambda: chance.uniform(0, 100),
        "normal": lambda: chance.gauss(100, 10),
        "exponential": lambda: chance.expovariate(0.01),
        "lognormal": lambda: chance.lognormvariate(4, 1),
        "bimodal": lambda: chance.gauss(1, 0.1) if chance.random() < 0.94 else chance.gauss(50, 5),
    }
    return [draws[kind]() for _ in range(count)]


@pytest.mark.parametrize(
    ("kind", "mean_error_at_200", "mean_error_at_2000"),
    [
        ("uniform", 0.01, 0.00),
        ("normal", 0.00, 0.00),
        ("exponential", 0.05, 0.01),
        ("lognormal", 0.08, 0.02),
        ("bimodal", 3.96, 0.08),
    ],
)
def test_the_error_of_the_p95_by_shape(
    kind: str, mean_error_at_200: float, mean_error_at_2000: float
) -> None:
    for count, seeds, expected in ((200, 200, mean_error_at_200), (2_000, 50, mean_error_at_2000)):
        errors = []
        for seed in range(seeds):
            values = stream(kind, count, seed)
            errors.append(abs(value_of(fed(0.95, values)) / exact(0.95, values) - 1))
        assert sum(errors) / seeds == pytest.approx(expected, abs=0.006)


def test_after_a_step_it_stays_behind_and_after_a_relief_it_never_comes_back() -> None:
    chance, estimator = random.Random(1), P2Quantile(0.95)
    healthy_p95 = math.log(20)  # of an exponential with a mean of 1

    def feed(count: int, mean: float) -> float:
        for _ in range(count):
            estimator.add(chance.expovariate(1 / mean))
        return value_of(estimator) / (healthy_p95 * mean)

    assert feed(10_000, 1.0) == pytest.approx(1.01, abs=0.01)
    assert feed(100, 10.0) == pytest.approx(0.12, abs=0.01)
    assert feed(900, 10.0) == pytest.approx(0.47, abs=0.01)
    assert feed(9_000, 10.0) == pytest.approx(0.90, abs=0.01)
    assert feed(1_000, 1.0) == pytest.approx(8.75, abs=0.05)
    assert feed(49_000, 1.0) == pytest.approx(7.88, abs=0.05)


# Bad input.


@pytest.mark.parametrize("q", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_quantile_that_is_not_between_0_and_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="q must be above 0 and below 1"):
        P2Quantile(q)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2 * VALUE_MAX])
@pytest.mark.parametrize("before", [0, 4, 5, 50])
def test_a_value_that_is_not_a_finite_number_is_refused(value: float, before: int) -> None:
    estimator = fed(0.5, [1.0] * before)
    with pytest.raises(ValueError, match="value must be finite"):
        estimator.add(value)
    assert estimator.count == before


def test_the_parabola_gives_way_to_the_line_where_it_would_leave_the_order() -> None:
    # Positions 1, 2, 10; heights 0, 1, 100: the parabola and the line both stay in between.
    assert parabola(1, 1, 2, 10, 0.0, 1.0, 100.0) == pytest.approx(1 + (2 * 99 / 8 + 7) / 9)
    # A flat left side and a cliff of one step to the right: the parabola would pass the neighbour.
    assert parabola(-1, 1, 9, 10, 0.0, 1.0, 1_000.0) == pytest.approx(1 - 1 / 8)
    assert parabola(1, 1, 2, 10, -1_000.0, 0.0, 1.0) == pytest.approx(1 / 8)


def test_the_largest_values_do_not_overflow() -> None:
    estimator = fed(0.95, [VALUE_MAX if i % 3 else -VALUE_MAX for i in range(2_000)])
    assert all(math.isfinite(height) for _, height in estimator.markers())
