"""Service times: quantiles against sorted samples, and what is expected of the next unit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from sluicegate.kernels.service_times import HALF_US, SAMPLES_MIN, ServiceTimes

MS = 1_000


def fed(took_us: list[int], every_us: int = MS, inflight: int = 1) -> tuple[ServiceTimes, int]:
    """Return times with these samples, and the instant of the last."""
    times, now_us = ServiceTimes(), 0
    for one in took_us:
        now_us += every_us
        times.record(one, inflight, now_us)
    return times, now_us


@pytest.mark.parametrize("law", ["constant", "uniform", "exponential", "two"])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantile_is_near_exact_one(law: str, share: float) -> None:
    random = Random(7)
    draws: dict[str, Callable[[], int]] = {
        "constant": lambda: 20_000,
        "uniform": lambda: random.randint(1_000, 9_000),
        "exponential": lambda: int(random.expovariate(1 / 30_000)) + 1,
        "two": lambda: 1_000_000 if random.random() < 0.2 else 10_000,
    }
    samples = [draws[law]() for _ in range(400)]  # all in one half
    times, _ = fed(samples)
    exact = sorted(samples)[int(share * (len(samples) - 1))]
    assert times.quantile_us(share) == pytest.approx(exact, rel=0.13)


def test_mean_is_exact_once_a_half_has_ended() -> None:
    samples = [1_000 * (number % 7) for number in range(HALF_US // MS)]
    times, _ = fed(samples)
    assert times.mean_us == pytest.approx(sum(samples) / len(samples))
    assert times.count == len(samples)


@pytest.mark.parametrize("took_us", [0, 1, 3, 4, 1_000, 1 << 39, 1 << 60])
def test_quantile_of_one_size_is_in_its_bucket(took_us: int) -> None:
    times, _ = fed([took_us] * 20)
    assert times.quantile_us(0.5) == pytest.approx(min(took_us, 15 << 37), rel=0.13)


def test_quantile_of_empty_record_is_zero() -> None:
    assert ServiceTimes().quantile_us(0.5) == 0
    assert ServiceTimes().quantile_us(0.5, long=True) == 0


def test_short_window_forgets_and_usual_keeps_what_was() -> None:
    times, now_us = fed([10_000] * 1_000, every_us=10 * MS)
    for _ in range(150):
        now_us += 10 * MS
        times.record(80_000, 1, now_us)
    assert times.quantile_us(0.5) == pytest.approx(80_000, rel=0.13)
    assert times.quantile_us(0.5, long=True) == pytest.approx(10_000, rel=0.13)
    assert times.usual_us < 25_000


def test_least_time_is_lower_quartile() -> None:
    samples = [1_000 * (1 + number % 20) for number in range(200)]
    times, now_us = fed(samples, every_us=10 * MS)
    assert times.least_us(1, now_us, free=True, idle=True) == pytest.approx(5_000, rel=0.13)


def test_least_time_falls_with_fewer_in_flight() -> None:
    times, now_us = fed([80_000] * 100, every_us=10 * MS, inflight=8)
    assert times.least_us(8, now_us, free=True, idle=True) == pytest.approx(80_000, rel=0.13)
    assert times.least_us(3, now_us, free=True) == times.least_us(8, now_us, free=True) // 2
    assert times.least_us(0, now_us, free=True) == times.least_us(8, now_us, free=True) // 8


def test_least_time_counts_once_units_ended_that_began_after_the_first() -> None:
    """The first unit in each of 32 slots may be slow."""
    times, now_us = fed([2_000_000] * 32)
    assert times.least_us(0, now_us, free=False) == 0
    for _ in range(SAMPLES_MIN):
        now_us += 10 * MS
        times.record(10_000, 1, now_us)
        assert times.least_us(32, now_us, free=False) == 0
    for _ in range(SAMPLES_MIN):
        now_us += 10 * MS
        times.record(10_000, 1, now_us)
    assert times.least_us(32, now_us, free=False) == pytest.approx(10_000, rel=0.13)


def test_what_was_expected_stands_while_others_work() -> None:
    times, now_us = fed([100_000] * 50, every_us=10 * MS)
    now_us += 2 * HALF_US + 300_000
    assert times.least_us(0, now_us, free=False) > 0
    assert times.least_us(0, now_us, free=True, idle=True) == 0


def test_one_trial_after_silence_replaces_what_was_expected() -> None:
    """Of two that ask, one is let in; its time alone counts then."""
    times, now_us = fed([100_000] * 50, every_us=10 * MS)
    now_us += 2 * HALF_US + 300_000
    assert times.least_us(0, now_us, free=True, idle=True) == 0
    assert times.least_us(0, now_us, free=True, idle=True) > 0
    times.record(1_000, 1, now_us + MS)
    assert times.least_us(0, now_us + MS, free=True, idle=True) == pytest.approx(1_000, rel=0.13)
