from __future__ import annotations

import pytest

from sluicegate.kernels.gradient2 import Gradient2
from tests.kernels.adaptive_numbers import updated

MS = 1_000


def test_gradient2_grows_by_its_queue_allowance_while_latency_is_within_the_tolerance() -> None:
    gradient2 = Gradient2(initial=100, queue=4, smoothing=0.5, tolerance=1.5)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert updated(gradient2, 100 * MS) == 102
    assert updated(gradient2, 150 * MS) == 104


def test_gradient2_falls_in_proportion_to_the_latency_and_by_half_at_most() -> None:
    for rtt_us, limit in ((300 * MS, 54), (200 * MS, 79), (30_000 * MS, 54)):
        gradient2 = Gradient2(initial=100, queue=4, smoothing=1.0, tolerance=1.5)
        updated(gradient2, 100 * MS, times=10, inflight=0)
        assert updated(gradient2, rtt_us) == limit


def test_gradient2_warms_up_with_the_plain_mean_and_goes_on_with_a_slow_one() -> None:
    gradient2 = Gradient2(long_updates=9, probe_updates=0)
    for rtt_us in range(1, 11):
        gradient2.update(rtt_us, 0, False, 0.5)
    assert gradient2.baseline_us == pytest.approx(5.5)
    gradient2.update(10, 0, False, 0.5)
    assert gradient2.baseline_us == pytest.approx(5.5 + 4.5 * 0.2)


def test_gradient2_comes_down_quickly_when_latency_has_more_than_halved() -> None:
    gradient2 = Gradient2(long_updates=1_000_000)
    updated(gradient2, 1_000, times=10, inflight=0)
    updated(gradient2, 500, inflight=0)
    assert gradient2.baseline_us > 999
    updated(gradient2, 499, inflight=0)
    assert gradient2.baseline_us == pytest.approx(950, rel=0.001)


def test_a_loaded_baseline_falls_and_does_not_rise() -> None:
    gradient2 = Gradient2(long_updates=9, probe_updates=1_000)
    updated(gradient2, 100, times=10, inflight=0)
    updated(gradient2, 150)
    assert gradient2.baseline_us == 100
    updated(gradient2, 90)
    assert gradient2.baseline_us == pytest.approx(98)
    updated(gradient2, 198, inflight=0)
    assert gradient2.baseline_us == pytest.approx(118)
    original = Gradient2(long_updates=9, probe_updates=0)
    updated(original, 100, times=10, inflight=0)
    updated(original, 150)
    assert original.baseline_us == pytest.approx(110)


def test_gradient2_probes_by_halving_its_limit_and_believes_only_the_second_update() -> None:
    gradient2 = Gradient2(initial=40, probe_updates=4, smoothing=1.0, queue=4, limit_max=48)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert updated(gradient2, 150 * MS, times=4) == 48
    assert gradient2.update(150 * MS, 48, False, 0.0) == 24
    assert gradient2.update(150 * MS, 48, False, 0.0) == 24
    assert gradient2.baseline_us == 100 * MS
    assert gradient2.update(120 * MS, 24, False, 0.0) == 48
    assert gradient2.baseline_us == 120 * MS
    # A draw of 0 brings the next one after half as many updates.
    assert [gradient2.update(180 * MS, 48, False, 0.5) for _ in range(3)] == [48, 48, 24]


def test_a_drop_reduces_gradient2_teaches_it_nothing_and_calls_off_its_probe() -> None:
    gradient2 = Gradient2(initial=100, probe_updates=1)
    updated(gradient2, 100 * MS, times=10, inflight=0)
    assert gradient2.update(1, 0, True, 0.5) == 90
    assert gradient2.baseline_us == 100 * MS
    updated(gradient2, 100 * MS, times=2)
    assert gradient2.limit == 45
    assert gradient2.update(1, 0, True, 0.5) == 81
    updated(gradient2, 130 * MS, times=2)
    assert gradient2.baseline_us == 100 * MS  # the probe begins anew


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"tolerance": 0.99}, "tolerance"),
        ({"tolerance": float("inf")}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": 1.1}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"queue": 0}, "queue"),
        ({"long_updates": 0}, "long_updates"),
        ({"probe_updates": -1}, "probe_updates"),
    ],
)
def test_gradient2_refuses_settings_outside_their_range(
    settings: dict[str, float], field: str
) -> None:
    with pytest.raises(ValueError, match=f"{field} must be"):
        Gradient2(**settings)  # type: ignore[arg-type]
