from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from fractions import Fraction
from math import inf, nan, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.suppression import (
    PARTS,
    Diffusion,
    burst_allowance,
    exact_factor,
    flip,
    linear_factor,
    silent_factor,
)

SECOND = 1_000_000
LIMIT = 1_000.0


class SlowDiffusion:
    """The oracle: one exact balance for each magnitude of weight, in fractions."""

    def __init__(self, phase: Fraction) -> None:
        self.phase = phase
        self.balance: dict[int, Fraction] = {}

    def admit(self, keep: Fraction, weight: int) -> bool:
        lightest = 1
        while lightest * 2 <= weight:
            lightest *= 2
        balance = self.balance.setdefault(lightest, self.phase * lightest)
        if keep == 1:
            return True
        balance += keep * weight
        admitted = balance >= weight
        self.balance[lightest] = balance - weight if admitted else balance
        return admitted


# The factor is the fraction to reject.


def test_a_factor_of_a_fifth_rejects_a_fifth_and_admits_four() -> None:
    draws = [(number + 0.5) / 1_000 for number in range(1_000)]
    assert sum(flip(0.2, draw) for draw in draws) == 800
    even = Diffusion()
    assert sum(even.admit(0.2) for _ in range(1_000)) == 800


def test_the_exact_factor_leaves_just_the_limit() -> None:
    assert exact_factor(1_250.0, LIMIT) == pytest.approx(0.2)
    assert exact_factor(10_000.0, LIMIT) == pytest.approx(0.9)
    assert exact_factor(300.0, 200.0) == pytest.approx(1 / 3)
    assert [exact_factor(rate, LIMIT) for rate in (0.0, 999.0, 1_000.0)] == [0.0, 0.0, 0.0]
    assert exact_factor(1_000.1, LIMIT) > 0.0


@given(st.floats(1.0, 2.0**53), st.floats(1e-3, 2.0**53))
def test_what_the_exact_factor_admits_is_the_lesser_of_limit_and_attempt(
    attempted: float, limit: float
) -> None:
    factor = exact_factor(attempted, limit)
    assert 0.0 <= factor <= 1.0
    assert attempted * (1.0 - factor) == pytest.approx(min(attempted, limit), rel=1e-6, abs=2.0)


def test_the_linear_factor_goes_from_the_limit_to_three_times_it() -> None:
    rates = (0.0, 1_000.0, 1_500.0, 2_000.0, 2_500.0, 3_000.0, 10_000.0)
    assert [linear_factor(rate, LIMIT) for rate in rates] == [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    assert linear_factor(2_000.0, LIMIT, ramp=5.0) == 0.25


# A conforming account is never suppressed.


def test_a_burst_adds_to_a_rate_what_it_adds_to_its_window() -> None:
    assert burst_allowance(500, SECOND) == 500.0
    assert burst_allowance(500, 24 * SECOND) == pytest.approx(500 / 24)
    assert burst_allowance(0, 1) == 0.0
    assert exact_factor(1_500.0, LIMIT, burst_allowance(500, SECOND)) == 0.0
    assert exact_factor(1_501.0, LIMIT, burst_allowance(500, SECOND)) == pytest.approx(
        1 - 1_000 / 1_501
    )


@given(
    st.integers(1, 100_000),
    st.integers(0, 100_000),
    st.sampled_from([100_000, 333_333, SECOND, 6 * SECOND, 24 * SECOND]),
)
def test_an_account_that_uses_its_limit_and_burst_to_the_last_message_conforms(
    limit: int, burst: int, window_us: int
) -> None:
    most = limit * window_us // SECOND + burst  # what a bucket of that limit passes in the window
    measured = most * SECOND / window_us
    assert exact_factor(measured, float(limit), burst_allowance(burst, window_us)) == 0.0
    above = (most + 1 + most // 1_000) * SECOND / window_us
    assert exact_factor(above, float(limit), burst_allowance(burst, window_us)) > 0.0


def test_rounding_is_not_excess() -> None:
    assert exact_factor(0.1 + 0.2, 0.3) == 0.0
    assert exact_factor(0.3 * (1 + 1e-6), 0.3) > 0.0


# Coins and diffusion.


def test_a_coin_is_admitted_from_the_factor_up() -> None:
    assert [flip(0.25, draw) for draw in (0.0, 0.2499, 0.25, 0.9)] == [False, False, True, True]
    assert flip(0.0, 0.0)
    assert not flip(1.0, 0.999_999)


def test_diffusion_spreads_what_it_admits_evenly() -> None:
    even = Diffusion(phase=0.0)
    assert [even.admit(0.75) for _ in range(8)] == [False, False, False, True] * 2
    assert not any(even.admit(1.0) for _ in range(100))
    assert all(even.admit(0.0) for _ in range(100))


def test_a_phase_decides_when_the_first_is_admitted_so_that_nodes_differ() -> None:
    assert [Diffusion().admit(factor) for factor in (0.5, 0.51)] == [True, False]
    draws = [number / 100 for number in range(100)]
    assert sum(Diffusion(draw).admit(0.7) for draw in draws) == 30
    assert sum(Diffusion(draw).admit(0.7, 1_024) for draw in draws) == 30


def test_many_operations_do_not_drift() -> None:
    factor = 1 - 1 / 3
    even, admitted = Diffusion(), 0
    for _ in range(300_000):
        admitted += even.admit(factor)
    assert admitted == 100_000


def test_a_rare_heavy_operation_is_not_starved_by_light_ones() -> None:
    even = Diffusion()
    heavy = 0
    for _ in range(100):
        for _ in range(50):
            even.admit(0.5, 1)
        heavy += even.admit(0.5, 1_001)
    assert heavy == 50


def test_two_who_take_turns_at_one_half_are_told_apart_by_coins_only() -> None:
    """What diffusion is not good at, as its essay says."""
    even, random = Diffusion(), Random(1)
    admitted = Counter((turn % 2, even.admit(0.5)) for turn in range(1_000))
    assert sorted(admitted.values()) == [500, 500]
    coins = Counter(turn % 2 for turn in range(1_000) if flip(0.5, random.random()))
    assert all(200 < count < 300 for count in coins.values())


factors = st.one_of(st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.floats(0.0, 1.0))
weights = st.one_of(st.integers(1, 4), st.integers(1, 2_000), st.just(1 << 53))


@given(st.integers(0, 999), st.lists(st.tuples(factors, weights), max_size=80))
def test_diffusion_does_what_the_obvious_balance_does(
    phase: int, operations: list[tuple[float, int]]
) -> None:
    even = Diffusion(phase / 1_000)
    oracle = SlowDiffusion(Fraction(int(phase / 1_000 * PARTS), PARTS))
    for factor, weight in operations:
        keep = 1 - Fraction(round(factor * PARTS), PARTS)
        if factor > 0.0 and keep == 1:
            continue  # below a billionth: admitted either way, the balance differs by nothing
        assert even.admit(factor, weight) == oracle.admit(keep, weight)


@given(factors, st.lists(weights, min_size=1, max_size=80))
def test_admitted_messages_stay_within_one_operation_of_the_fraction_in_every_lane(
    factor: float, operations: list[int]
) -> None:
    even = Diffusion()
    keep = 1 - Fraction(round(factor * PARTS), PARTS)
    owed: dict[int, Fraction] = {}
    for weight in operations:
        lane = weight.bit_length()
        owed[lane] = owed.get(lane, Fraction(0)) + keep * weight
        if even.admit(factor, weight):
            owed[lane] -= weight
        assert abs(owed[lane]) < 1 << lane


# A node cut off.


def alone(silence_us: int, kept: float = 300.0, attempted: float = 500.0) -> float:
    return silent_factor(
        kept, silence_us, attempted, LIMIT, 10, hold_us=10 * SECOND, decay_us=20 * SECOND
    )


def test_a_node_cut_off_keeps_what_it_had_then_goes_over_to_an_equal_share() -> None:
    assert [alone(silence) for silence in (0, SECOND, 10 * SECOND)] == [0.4, 0.4, 0.4]
    assert alone(20 * SECOND) == pytest.approx(0.6)  # half-way from 300 to 1,000 / 10: 200 of 500
    assert alone(30 * SECOND) == alone(99 * SECOND) == pytest.approx(0.8)
    assert alone(99 * SECOND, attempted=100.0) == 0.0


def test_a_node_cut_off_admits_no_more_of_a_surge_than_it_had_before() -> None:
    for silence in (0, 5 * SECOND, 10 * SECOND):
        assert alone(silence, attempted=30_000.0) == pytest.approx(0.99)
    assert alone(5 * SECOND, attempted=200.0) == 0.0, "and all of less"


def test_an_equal_share_is_its_own_however_little_it_had() -> None:
    for silence in (0, 15 * SECOND, 30 * SECOND):
        assert alone(silence, kept=0.0) == pytest.approx(0.8)


def test_without_a_decay_it_goes_over_at_once_and_a_clock_gone_back_is_no_silence() -> None:
    assert silent_factor(250.0, 2, 500.0, LIMIT, 10, hold_us=2, decay_us=0) == 0.5
    assert silent_factor(250.0, 3, 500.0, LIMIT, 10, hold_us=2, decay_us=0) == pytest.approx(0.8)
    assert alone(-(10**18)) == 0.4


def test_all_nodes_cut_off_admit_no_more_than_the_limit_together() -> None:
    random = Random(2)
    rates = [random.uniform(0.0, 900.0) for _ in range(10)]
    admitted = [rate * (1.0 - alone(60 * SECOND, attempted=rate)) for rate in rates]
    assert sum(admitted) <= LIMIT * (1 + 1e-9)


# Closed loops: a node applies the factor, the master measures, and half a second later replies.

TICK_US = 100_000
TICKS = SECOND // TICK_US


def run_loop(
    factor_of: Callable[[deque[float], deque[float]], float], *, seconds: int, step: float
) -> list[float]:
    """Rates admitted, in limits, a tick each; at 30 s attempts go from half a limit to `step`."""
    attempted: deque[float] = deque([0.0] * 24 * TICKS, maxlen=24 * TICKS)
    accepted: deque[float] = deque([0.0] * 24 * TICKS, maxlen=24 * TICKS)
    on_the_way = deque([0.0] * (TICKS // 2))
    admitted = []
    for tick in range(seconds * TICKS):
        rate = 0.5 if tick < 30 * TICKS else step
        passed = rate * (1.0 - on_the_way.popleft())
        attempted.append(rate)
        accepted.append(passed)
        admitted.append(passed)
        on_the_way.append(factor_of(attempted, accepted))
    return admitted


def mean(rates: list[float]) -> float:
    return sum(rates) / len(rates)


def two_speed(attempted: deque[float], _accepted: deque[float]) -> float:
    rates = list(attempted)
    return exact_factor(max(mean(rates), mean(rates[-TICKS:])), 1.0)


def test_a_tenfold_step_settles_within_three_seconds_with_a_two_speed_estimate() -> None:
    admitted = run_loop(two_speed, seconds=60, step=10.0)[30 * TICKS :]
    assert all(0.95 <= rate <= 1.05 for rate in admitted[3 * TICKS :])
    assert admitted[0] == 10.0
    assert sum(rate - 1.0 for rate in admitted[: 3 * TICKS]) / TICKS < 14.0


def test_the_average_alone_needs_its_whole_window() -> None:
    def slow(attempted: deque[float], _accepted: deque[float]) -> float:
        return exact_factor(mean(list(attempted)), 1.0)

    admitted = run_loop(slow, seconds=60, step=10.0)[30 * TICKS :]
    assert admitted[15 * TICKS] > 1.3
    assert all(0.95 <= rate <= 1.05 for rate in admitted[25 * TICKS :])


def test_the_linear_form_on_what_was_accepted_swings_from_all_to_nothing() -> None:
    def first_attempt(_attempted: deque[float], accepted: deque[float]) -> float:
        return linear_factor(mean(list(accepted)), 1.0)

    late = run_loop(first_attempt, seconds=180, step=100.0)[100 * TICKS :]
    assert min(late) == 0.0
    assert max(late) > 50.0


def test_the_exact_form_on_what_was_accepted_rests_at_the_wrong_place_if_it_rests() -> None:
    accepted = 10.0
    swings = []
    for _ in range(6):
        accepted = 10.0 * (1.0 - exact_factor(accepted, 1.0))
        swings.append(round(accepted, 9))
    assert swings == [1.0, 10.0] * 3

    def damped(_attempted: deque[float], accepted: deque[float]) -> float:
        return exact_factor(mean(list(accepted)[-2 * TICKS :]), 1.0)

    late = run_loop(damped, seconds=180, step=10.0)[120 * TICKS :]
    assert mean(late) == pytest.approx(sqrt(10.0), rel=0.02)


# Bad input.


@pytest.mark.parametrize("rate", [-1.0, nan, inf, 2.0**54])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"attempted must be from 0 to 2\^53, not"):
        exact_factor(rate, LIMIT)
    with pytest.raises(ValueError, match=r"allowance must be from 0 to 2\^53, not"):
        exact_factor(1.0, LIMIT, rate)
    with pytest.raises(ValueError, match=r"rate must be from 0 to 2\^53, not"):
        linear_factor(rate, LIMIT)
    with pytest.raises(ValueError, match=r"limit must be above 0 and at most 2\^53, not"):
        exact_factor(1.0, rate)
    with pytest.raises(ValueError, match=r"limit must be above 0 and at most 2\^53, not"):
        linear_factor(1.0, rate)


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be above 0"):
        exact_factor(1.0, 0.0)
    with pytest.raises(ValueError, match="limit must be above 0"):
        linear_factor(1.0, 0.0)


@pytest.mark.parametrize("ramp", [1.0, 0.0, -3.0, nan, inf])
def test_a_ramp_that_does_not_rise_is_refused(ramp: float) -> None:
    with pytest.raises(ValueError, match=r"ramp must be above 1 and at most 2\^53, not"):
        linear_factor(1.0, LIMIT, ramp)


@pytest.mark.parametrize("factor", [-0.1, 1.1, nan, inf])
def test_a_factor_out_of_range_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="factor must be from 0 to 1, not"):
        flip(factor, 0.5)
    with pytest.raises(ValueError, match="factor must be from 0 to 1, not"):
        Diffusion().admit(factor)


def test_other_numbers_out_of_range_are_refused() -> None:
    for draw in (-0.1, 1.0, nan):
        with pytest.raises(ValueError, match="draw must be from 0 to below 1, not"):
            flip(0.5, draw)
        with pytest.raises(ValueError, match="phase must be from 0 to below 1, not"):
            Diffusion(draw)
    for weight in (0, -1, (1 << 53) + 1):
        with pytest.raises(ValueError, match=rf"weight must be from 1 to 2\^53, not {weight}"):
            Diffusion().admit(0.5, weight)
    for burst in (-1, (1 << 53) + 1):
        with pytest.raises(ValueError, match=rf"burst must be from 0 to 2\^53, not {burst}"):
            burst_allowance(burst, SECOND)
    with pytest.raises(ValueError, match=r"window_us must be from 1 to 2\^53, not 0"):
        burst_allowance(1, 0)
    for nodes in (0, (1 << 20) + 1):
        with pytest.raises(ValueError, match=rf"nodes must be from 1 to 2\^20, not {nodes}"):
            silent_factor(0.5, 0, 1.0, LIMIT, nodes, hold_us=1, decay_us=1)
    with pytest.raises(ValueError, match=r"hold_us must be from 0 to 2\^53, not -1"):
        silent_factor(0.5, 0, 1.0, LIMIT, 1, hold_us=-1, decay_us=1)
    with pytest.raises(ValueError, match=r"decay_us must be from 0 to 2\^53, not -1"):
        silent_factor(0.5, 0, 1.0, LIMIT, 1, hold_us=1, decay_us=-1)
    with pytest.raises(ValueError, match=r"kept must be from 0 to 2\^53, not -1"):
        silent_factor(-1.0, 0, 1.0, LIMIT, 1, hold_us=1, decay_us=1)
