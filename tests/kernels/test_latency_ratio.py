from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.kernels.latency_ratio import (
    MUSSEL_ENTER,
    NEUTRAL,
    Baseline,
    LatencyRatio,
    RatioSettings,
    is_stressed,
)
from sluicegate.kernels.windowed_quantile import Scale, Sketch
from sluicegate.policies.forms.mussel.ratio import P2Ratio

SECOND = 1_000_000
MINUTE = 60 * SECOND
RATE = 60  # samples a second
MEAN_US = 10_000
P95_US = math.log(20) * MEAN_US  # of an exponential distribution
LATENCIES_US = [-math.log(1 - random.Random(i).random()) * MEAN_US for i in range(7_919)]


class Load:
    """Feeds a ratio with exponential latencies, second by second, and keeps what it said."""

    def __init__(self, ratio: LatencyRatio | P2Ratio, rate: int = RATE) -> None:
        self.ratio, self.rate = ratio, rate
        self.second = 0
        self.sample = 0

    def run(self, seconds: int, factor: Callable[[int], float] | float = 1.0) -> list[float]:
        ratios = []
        for passed in range(seconds):
            times = factor if isinstance(factor, float) else factor(passed)
            for i in range(self.rate):
                now_us = self.second * SECOND + i * SECOND // self.rate
                self.ratio.add(LATENCIES_US[self.sample % len(LATENCIES_US)] * times, now_us)
                self.sample += 1
            self.second += 1
            ratios.append(self.ratio.ratio(self.second * SECOND - 1))
        return ratios

    @property
    def now_us(self) -> int:
        return self.second * SECOND - 1


def after_healthy(settings: RatioSettings | None = None, seconds: int = 200) -> Load:
    load = Load(LatencyRatio(settings))
    load.run(seconds)
    return load


def is_under_stress(load: Load) -> bool:
    return load.ratio.stressed


def baseline_us(load: Load) -> float:
    assert isinstance(load.ratio, LatencyRatio)
    return load.ratio.baseline_us()


def first(ratios: list[float], condition: Callable[[float], bool]) -> int | None:
    """In which second after the start something was said first."""
    return next((i + 1 for i, ratio in enumerate(ratios) if condition(ratio)), None)


# The default form.


def test_it_is_neutral_while_cold_even_if_latency_jumps() -> None:
    ratio = LatencyRatio()
    assert ratio.ratio(0) == NEUTRAL
    load = Load(ratio)
    assert set(load.run(30)) == {NEUTRAL}
    assert set(load.run(20, 10.0)) == {NEUTRAL}
    assert ratio.baseline_us() == 0.0
    load.run(20, 10.0)
    assert ratio.baseline_us() > 0.0


def test_a_step_is_seen_within_two_seconds_and_reads_as_what_it_is() -> None:
    load = after_healthy()
    ratios = load.run(60, 4.0)
    assert first(ratios, lambda ratio: ratio < 0.6) == 2
    assert is_under_stress(load)
    assert sum(ratios[10:]) / 50 == pytest.approx(0.25, abs=0.02)


def test_getting_faster_is_not_more_than_healthy() -> None:
    load = after_healthy()
    assert set(load.run(30, 0.1)[6:]) == {NEUTRAL}


def test_a_30_minute_slow_down_of_4_times_never_heals_falsely_and_then_clears() -> None:
    load = after_healthy(seconds=1_200)
    ratios = load.run(1_800, 4.0)
    assert first(ratios, lambda ratio: ratio < 0.6) == 1
    assert max(ratios[3:]) < 0.4
    assert is_under_stress(load)
    # The leak is what moved it: from 0.25 by a hundredth a minute.
    assert sum(ratios[-60:]) / 60 == pytest.approx(0.25 * 1.01**30, abs=0.02)
    assert first(load.run(60), lambda ratio: ratio >= 0.85) == 5
    assert not is_under_stress(load)
    # The leak is kept, and the next slow down is seen though the baseline is a third too high.
    assert baseline_us(load) == pytest.approx(P95_US * 1.01**30, rel=0.05)
    assert min(load.run(10, 4.0)) < 0.6


def test_without_a_leak_the_baseline_stands_still_while_stressed() -> None:
    load = after_healthy(RatioSettings(leak_per_minute_max=0.0))
    load.run(5, 4.0)
    frozen_us = baseline_us(load)
    assert frozen_us == pytest.approx(P95_US, rel=0.1)
    load.run(1_800, 4.0)
    assert baseline_us(load) == frozen_us
    load.run(20)
    assert baseline_us(load) == frozen_us


def test_the_p2_form_heals_falsely_under_the_same_slow_down() -> None:
    # With its spans of 10 minutes: as soon as the long one has seen nothing but the slow down.
    spans = Load(P2Ratio())
    spans.run(1_200)
    ratios = spans.run(1_800, 4.0)
    assert first(ratios, lambda ratio: ratio < 0.3) == 6
    assert not any(ratio > 0.6 for ratio in ratios[6:600])
    assert min(ratios[600:]) > 0.6
    assert sum(ratios[-60:]) / 60 == pytest.approx(0.96, abs=0.02)
    # With one long span that pools everything: long before half of it has been slow.
    pooled = Load(P2Ratio(long_us=24 * 60 * MINUTE))
    pooled.run(1_800)
    ratios = pooled.run(1_800, 4.0)
    assert first(ratios, lambda ratio: ratio < 0.3) == 6
    assert first(ratios[60:], lambda ratio: ratio > 0.6) == pytest.approx(218 - 60, abs=10)
    assert sum(ratios[-60:]) / 60 == pytest.approx(0.91, abs=0.02)


def test_the_baseline_is_frozen_even_if_nobody_asks_for_the_ratio() -> None:
    load = after_healthy()
    ratio = load.ratio
    for i in range(1_200 * RATE):
        ratio.add(LATENCIES_US[i % 7_919] * 4, load.second * SECOND + i * SECOND // RATE)
    assert is_under_stress(load)
    assert ratio.ratio(load.now_us + 1_200 * SECOND) < 0.4


def test_what_keeps_it_from_healing_is_that_the_baseline_is_frozen() -> None:
    load = Load(LatencyRatio(RatioSettings(enter=0.0)))  # never stressed, never frozen
    load.run(1_200)
    ratios = load.run(400, 4.0)
    assert first(ratios, lambda ratio: ratio < 0.6) == 1
    assert first(ratios[60:], lambda ratio: ratio > 0.6) == pytest.approx(311 - 60, abs=15)


def test_a_day_that_swings_by_half_trips_nothing_even_when_it_passes_in_an_hour() -> None:
    load = after_healthy()
    ratios = load.run(3_600, lambda second: 1.0 + 0.5 * math.sin(2 * math.pi * second / 3_600))
    assert min(ratios) > 0.6


def test_a_slow_down_that_takes_ten_minutes_is_seen_and_one_that_takes_an_hour_is_drift() -> None:
    load = after_healthy()
    delay = first(load.run(600, lambda second: 4.0 ** (second / 600)), lambda ratio: ratio < 0.6)
    assert delay is not None
    assert delay < 300
    drift = after_healthy()
    assert min(drift.run(1_800, lambda second: 2.0 ** (second / 1_800))) > 0.6


def test_stress_begins_below_enter_and_ends_at_leave() -> None:
    assert not is_stressed(False, 0.6, 0.6, 0.85)
    assert is_stressed(False, 0.59, 0.6, 0.85)
    assert is_stressed(True, 0.84, 0.6, 0.85)
    assert not is_stressed(True, 0.85, 0.6, 0.85)
    assert not is_stressed(True, 1.0, 0.6, 1.0)


def test_what_is_a_little_below_enter_must_last_as_long_as_the_short_window() -> None:
    load = after_healthy()
    low = first(load.run(6, 2.0), lambda ratio: ratio < 0.6)
    assert low is not None
    assert not is_under_stress(load)
    load.run(low, 2.0)
    assert is_under_stress(load)
    deep = after_healthy(RatioSettings(confirm_us=3600 * SECOND))
    deep.run(4, 4.0)
    assert is_under_stress(deep), "below at_once it does not wait"
    shaken = after_healthy(RatioSettings(confirm_us=6 * SECOND))
    for _ in range(4):
        assert min(shaken.run(5, 2.0)) < 0.6
        assert not is_under_stress(shaken), "each has to last by itself"
        shaken.run(6)


def test_between_the_two_thresholds_it_stays_what_it_was() -> None:
    load = after_healthy()
    load.run(20, 1.0 / 0.72)
    assert not is_under_stress(load)
    load.run(20, 4.0)
    assert is_under_stress(load)
    load.run(20, 1.0 / 0.72)
    assert is_under_stress(load)
    load.run(20)
    assert not is_under_stress(load)


def test_the_threshold_of_0_3_can_be_chosen() -> None:
    load = after_healthy(RatioSettings(enter=MUSSEL_ENTER))
    load.run(20, 2.5)
    assert not is_under_stress(load)
    load.run(20, 5.0)
    assert is_under_stress(load)


def test_with_few_samples_it_holds_what_it_said_and_after_a_while_it_is_neutral() -> None:
    load = after_healthy()
    load.run(20, 4.0)
    ratio, then_us = load.ratio, load.now_us
    assert isinstance(ratio, LatencyRatio)
    reading = ratio.ratio(then_us)
    for second in range(1, 30):
        ratio.add(10.0, then_us + second * SECOND)  # one fast sample a second says nothing
        if second >= 5:
            assert ratio.ratio(then_us + second * SECOND) == pytest.approx(reading, rel=0.1)
            assert ratio.stressed
    assert ratio.ratio(then_us + 36 * SECOND) == NEUTRAL
    assert not ratio.stressed


def test_between_two_refreshes_it_holds_what_it_said() -> None:
    load = after_healthy()
    ratio, now_us = load.ratio, load.second * SECOND + 200_000
    reading = ratio.ratio(now_us)
    for _ in range(400):
        ratio.add(1e6, now_us + 1)
    assert ratio.ratio(now_us + 99_999) == reading
    assert ratio.ratio(now_us + 100_000) < 0.1


def test_the_leak_is_a_hundredth_a_minute() -> None:
    load = after_healthy()
    load.run(5, 4.0)
    before_us = baseline_us(load)
    load.run(600, 4.0)
    assert baseline_us(load) / before_us == pytest.approx(1.01**10, rel=1e-3)


def test_the_leak_stops_at_the_latency_of_now_and_never_lowers_the_baseline() -> None:
    baseline = Baseline(RatioSettings(long_windows_min=1))
    baseline.push(100.0)
    baseline.freeze()
    baseline.leak(0.05, 1_000.0)
    assert baseline.value == pytest.approx(105.0)
    baseline.leak(0.05, 107.0)
    assert baseline.value == 107.0
    baseline.leak(0.05, 80.0)
    assert baseline.value == 107.0


def test_what_has_leaked_is_kept_when_stress_ends() -> None:
    baseline = Baseline(RatioSettings(long_windows=3, long_windows_min=1))
    for p95 in (90.0, 100.0, 110.0):
        baseline.push(p95)
    baseline.freeze()
    baseline.leak(0.1, 1_000.0)
    baseline.thaw()
    baseline.push(121.0)  # in the place of the oldest: 110, 121, 121
    assert baseline.value == pytest.approx(121.0)
    baseline.push(50.0)
    assert baseline.value == pytest.approx(121.0)
    baseline.push(50.0)
    assert baseline.value == 50.0


def test_silence_does_not_leak() -> None:
    load = after_healthy(RatioSettings(hold_us_max=1 << 53))
    load.run(10, 4.0)
    before_us, later_us = baseline_us(load), load.now_us + 36_000 * SECOND
    for i in range(300):
        load.ratio.add(LATENCIES_US[i] * 4, later_us)
    assert load.ratio.ratio(later_us) < 0.5
    assert is_under_stress(load)
    assert baseline_us(load) / before_us < 1.01


def test_nothing_leaks_without_stress() -> None:
    load = after_healthy()
    load.run(1)
    before_us = baseline_us(load)
    assert min(load.run(8, 1.25)) > 0.6  # within one stretch of 10 s
    assert baseline_us(load) == before_us


def test_a_clock_that_goes_back_is_survived_and_slow_work_is_still_seen() -> None:
    load = after_healthy()
    load.run(5)
    load.second -= 300
    load.run(5)
    assert not is_under_stress(load)
    load.run(60, 10.0)
    assert is_under_stress(load)


def test_work_below_the_range_of_the_sketch_counts_as_its_lower_end() -> None:
    ratio = LatencyRatio()
    for ms in range(120_000):
        ratio.add(0.0, ms * 1_000)
    assert ratio.baseline_us() == 1.0
    assert ratio.ratio(120 * SECOND) == NEUTRAL
    for ms in range(120_000, 121_000):
        ratio.add(100.0, ms * 1_000)
    assert ratio.ratio(121 * SECOND) == pytest.approx(0.01, rel=0.02)


def test_work_that_takes_no_time_at_all_ends_stress() -> None:
    load = after_healthy()
    load.run(10, 4.0)
    assert is_under_stress(load)
    load.run(6, 0.0)
    assert not is_under_stress(load)


class SlowRatio:
    """The oracle: every latency in a list, sorted whenever a p95 is wanted. Without a leak."""

    def __init__(self, settings: RatioSettings) -> None:
        self.s = settings
        self.scale = Scale()
        self.slot = 0
        self.short: list[tuple[int, float]] = []  # of the live sub-windows
        self.long: list[float] = []
        self.long_end_us = 0
        self.p95s: list[float] = []
        self.frozen_us: float | None = None
        self.low_us: int | None = None
        self.answer = NEUTRAL
        self.sampled_us = 0

    def rounded(self, latency_us: float) -> float:
        """As the sketch would answer it, so that only the logic is compared."""
        sketch = Sketch(self.scale)
        sketch.add(latency_us)
        return sketch.quantile(1.0) or 0.0

    def p95(self, latencies: list[float]) -> float | None:
        if len(latencies) < self.s.samples_min:
            return None
        return sorted(latencies)[int(self.s.quantile * (len(latencies) - 1))]

    def baseline(self) -> float | None:
        if self.frozen_us is not None:
            return self.frozen_us
        if len(self.p95s) < self.s.long_windows_min:
            return None
        recent = sorted(self.p95s[-self.s.long_windows :])
        return recent[int(self.s.baseline_quantile * (len(recent) - 1))]

    def judge(self, now_us: int) -> None:
        short = self.p95([latency_us for _, latency_us in self.short])
        if short is None:
            if now_us - self.sampled_us >= self.s.hold_us_max:
                self.answer, self.frozen_us, self.low_us = NEUTRAL, None, None
            return
        self.sampled_us = now_us
        baseline = self.baseline()
        if baseline is None:
            return
        self.answer = min(NEUTRAL, baseline / short)
        if self.answer >= self.s.enter:
            self.low_us = None
        elif self.low_us is None:
            self.low_us = now_us
        deep = self.answer < self.s.at_once
        lasts = self.low_us is not None and now_us - self.low_us >= self.s.confirm_us
        if self.frozen_us is None and self.answer < self.s.enter and (deep or lasts):
            self.frozen_us, self.long = baseline, []
        elif self.frozen_us is not None and self.answer >= self.s.leave:
            self.frozen_us = None

    def at(self, now_us: int) -> None:
        slot = now_us // self.s.short_window_us
        if slot <= self.slot:
            return
        self.judge((self.slot + 1) * self.s.short_window_us - 1)
        if self.frozen_us is None:
            self.long += [latency_us for at, latency_us in self.short if at == self.slot]
        self.slot = slot
        self.short = [(at, us) for at, us in self.short if at > slot - self.s.short_windows]
        if now_us >= self.long_end_us:
            self.long_end_us = (now_us // self.s.long_window_us + 1) * self.s.long_window_us
            p95 = self.p95(self.long)
            if p95 is not None:
                self.p95s.append(p95)
                self.long = []

    def add(self, latency_us: float, now_us: int) -> None:
        self.at(now_us)
        self.short.append((self.slot, self.rounded(latency_us)))

    def ratio(self, now_us: int) -> float:
        self.at(now_us)
        self.judge(now_us)
        return self.answer


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [0, 1, 300_000, 999_999, SECOND, SECOND, 2_500_000, 40 * SECOND, -SECOND]
            ),
            st.integers(0, 12),
            st.sampled_from([100.0, 110.0, 130.0, 180.0, 400.0, 2_000.0]),
            st.booleans(),
        ),
        min_size=20,
        max_size=90,
    ),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_it_says_what_lists_and_sorting_say(
    bursts: list[tuple[int, int, float, bool]], baseline_quantile: float
) -> None:
    settings = RatioSettings(
        samples_min=6,
        short_windows=2,
        long_windows=4,
        long_window_us=3 * SECOND,
        long_windows_min=2,
        baseline_quantile=baseline_quantile,
        leak_per_minute_max=0.0,
        hold_us_max=20 * SECOND,
        refresh_us=0,
    )
    ratio, oracle = LatencyRatio(settings), SlowRatio(settings)
    now_us = 1_000 * SECOND
    # Ten healthy seconds first, so that most histories get past the cold start.
    for gap_us, samples, latency_us, is_read in [(SECOND, 8, 100.0, True)] * 10 + bursts:
        now_us += gap_us
        for i in range(samples):
            ratio.add(latency_us + i, now_us)
            oracle.add(latency_us + i, now_us)
        if is_read:
            assert ratio.ratio(now_us) == pytest.approx(oracle.ratio(now_us), rel=1e-9)
        assert ratio.stressed == (oracle.frozen_us is not None)


# Bad input.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("quantile", -0.1), ("quantile", 1.1), ("quantile", math.nan)),
        *(("at_once", -0.1), ("at_once", 1.01), ("confirm_us", -1)),
        *(("enter", -0.1), ("enter", math.nan), ("leave", 1.01), ("leave", math.inf)),
        *(("samples_min", 0), ("short_windows", 0), ("short_window_us", 0)),
        *(("long_windows", 0), ("long_window_us", 0), ("long_windows_min", 0)),
        *(("baseline_quantile", 1.5), ("leak_per_minute_max", 0.011)),
        *(("leak_per_minute_max", -0.001), ("hold_us_max", 0)),
        ("refresh_us", -1),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be from .* not {value}"):
        RatioSettings(**{field: value})  # type: ignore[arg-type]


def test_settings_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="enter must not be above leave"):
        RatioSettings(enter=0.9, leave=0.8)
    with pytest.raises(ValueError, match="long_windows_min must not be above long_windows"):
        RatioSettings(long_windows=5, long_windows_min=6)
    with pytest.raises(ValueError, match="long_window_us must not be below short_window_us"):
        RatioSettings(short_window_us=SECOND, long_window_us=SECOND - 1)


@pytest.mark.parametrize("latency_us", [-1.0, math.nan, math.inf])
def test_a_latency_that_is_none_is_refused(latency_us: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        LatencyRatio().add(latency_us, 0)
