"""Latency ratio: how slow the work behind us has become, as one number from 1 down to 0.

Source: Airbnb's Mussel ("From Static Rate Limiting to Adaptive Traffic Management in Airbnb's
Key-Value Store", Gaonkar, Getz and Cho, 2025), where every dispatcher computes

    ratio = long-term p95 / short-term p95

Near 1 the work takes what it usually takes; at 0.3 it takes three times that. Mind the order: it
falls when latency rises. It is clamped to 1, so being faster than usual is not more than healthy.

**Mussel's form** (`policies/forms/mussel/ratio.py`) is two P2 estimators, one over a long span and
one over a short one, and the threshold of 0.3. Its fault: the long span fills with the slow work
too, and then slow is what is usual.

**`LatencyRatio`** is built against that fault:

- Short: 5 sub-windows of 1 s of `windowed_quantile.py`, all values of the last 4 to 5 seconds.
- Long: every 10 s the p95 of that stretch, merged out of the short sub-windows as they end; the
  baseline is the median (`baseline_quantile`) of the last 60. A stretch with too few samples goes
  on for another 10 s, so that a quiet hour does not empty the baseline.
- Stress begins below `enter` and lasts until `leave` is reached. Meanwhile the baseline is
  *frozen*: nothing that is measured under stress gets into it. Between `at_once` and `enter` it
  must have been for `confirm_us`, the whole short window: a p95 of 200 values is that far off by
  chance twice in eight hours.
- Work may have become slower for good, and no baseline may be frozen for ever. So it leaks, by
  1 % a minute at most and never past the p95 of now: 4 times slower heals after two hours.
- With fewer than `samples_min` in the short window the ratio holds what it said, for `hold_us_max`
  at most, and is then neutral: shedding must not lock itself in by leaving nothing to measure.
  Until `long_windows_min` stretches have been seen it is cold, and neutral too.

Four times slower for 30 minutes, exponential latencies at 60 a second, read once a second (the
tests show it):

                                    seen after    above 0.6 again    after 30 min    then clear
    P2Ratio, 5 s and 10 min             6 s             601 s            0.96             -
    P2Ratio, 5 s and one long span      6 s             218 s            0.91             -
    LatencyRatio, never frozen          1 s             311 s            0.97             -
    LatencyRatio                        1 s             never            0.34           5 s

How many samples, and which baseline: times that stress was seen in six hours without any, lognormal
latencies (sigma 1), the ratio read ten times a second (a trial):

    samples in 4 s                       40       80      200      400
    baseline p25                        377      223       17        0
    baseline p50                        138      103        0        0

Hence 200 and the median. A p25 sees a creeping slow-down sooner: to 4 times within 5, 10 and
20 minutes, after 91, 176 and 314 s, the median after 107, 203 and 566 s. What creeps slower than
by two thirds in the five minutes that the median lags is drift to both, and never seen.

A process that begins amid a slow-down would learn it as usual. So it may begin with the baseline of
one before it (`begin_with`), as if it had seen that in as many stretches as it needs to be warm.

A clock that goes back counts into the newest sub-window and is judged as usual.

Cost: as a `WindowedQuantile.add`; a sub-window that ends is merged and judged, and reading judges
once each `refresh_us` and otherwise answers what it holds. Measured here on one core: `add` 360 ns
interpreted, 55 compiled (P2Ratio 1,240 and 90); a judgement, which is a p95 of 5 sub-windows, 58 us
and 4 us. Memory: six sketches, and one float for each long stretch.
Bounds: every one is a field of `RatioSettings`.

What it does not see. A change of the mix looks like a slow-down: keep one for each class of work,
and feed it only work that was really done, no cache hits. Refused work has no latency, so a gate
that refuses nearly all looks fine: read the queue's wait beside it. A timeout must be fed as the
time it took. Fewer than 50 units of work a second need a longer short window.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log1p
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged
from sluicegate.kernels.windowed_quantile import Scale, Sketch, WindowedQuantile

NEUTRAL: Final = 1.0
MUSSEL_ENTER: Final = 0.3
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
_NEVER_US: Final = -1
_COUNT_MAX: Final = 1 << 12
_SPAN_US_MAX: Final = 1 << 53


@final
@dataclass(frozen=True, kw_only=True)
class RatioSettings:
    """What a `LatencyRatio` is made of; every bound of it has its name here."""

    quantile: float = ranged(0.95, 0.0, 1.0)
    enter: float = ranged(0.6, 0.0, 1.0)
    leave: float = ranged(0.85, 0.0, 1.0)
    at_once: float = ranged(0.4, 0.0, 1.0)
    confirm_us: int = ranged(5 * SECOND_US, 0, _SPAN_US_MAX)
    samples_min: int = ranged(200, 1, _SPAN_US_MAX)
    short_windows: int = ranged(5, 1, _COUNT_MAX)
    short_window_us: int = ranged(SECOND_US, 1, _SPAN_US_MAX)
    long_windows: int = ranged(60, 1, _COUNT_MAX)
    long_window_us: int = ranged(10 * SECOND_US, 1, _SPAN_US_MAX)
    long_windows_min: int = ranged(6, 1, _COUNT_MAX)
    baseline_quantile: float = ranged(0.5, 0.0, 1.0)
    leak_per_minute_max: float = ranged(0.01, 0.0, 0.01)
    hold_us_max: int = ranged(30 * SECOND_US, 1, _SPAN_US_MAX)
    refresh_us: int = ranged(100_000, 0, _SPAN_US_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.enter > self.leave:
            raise ValueError(f"enter must not be above leave, not {self.enter} and {self.leave}")
        if self.long_windows_min > self.long_windows:
            raise ValueError(
                "long_windows_min must not be above long_windows, "
                f"not {self.long_windows_min} and {self.long_windows}"
            )
        if self.long_window_us < self.short_window_us:
            raise ValueError(
                "long_window_us must not be below short_window_us, "
                f"not {self.long_window_us} and {self.short_window_us}"
            )


def is_stressed(stressed: bool, ratio: float, enter: float, leave: float) -> bool:
    """Hysteresis: stress begins below `enter` and lasts until `leave` is reached."""
    return ratio < (leave if stressed else enter)


@final
class Baseline:
    """What a healthy p95 is: a quantile of the p95s of past sub-windows; 0.0 while cold."""

    __slots__ = ("_frozen", "_past", "_place", "_settings", "value")

    def __init__(self, settings: RatioSettings) -> None:
        self._settings = settings
        self._past: list[float] = []
        self._place = 0
        self._frozen = 0.0
        self.value = 0.0

    def push(self, p95: float) -> None:
        """Remember the p95 of one more sub-window, in the place of the oldest."""
        past = self._past
        if len(past) < self._settings.long_windows:
            past.append(p95)
        else:
            past[self._place] = p95
            self._place = (self._place + 1) % len(past)
        if len(past) >= self._settings.long_windows_min:
            self.value = sorted(past)[int(self._settings.baseline_quantile * (len(past) - 1))]

    def begin_with(self, p95: float) -> None:
        """Begin with what was healthy before; what is seen here outweighs it in time."""
        self._past = [p95] * self._settings.long_windows_min
        self.value = p95

    def freeze(self) -> None:
        """Stress begins: from here only `leak` moves the value."""
        self._frozen = self.value

    def leak(self, share: float, p95: float) -> None:
        """Rise by a share of itself, but not past the `p95` of now."""
        risen = self.value * (1.0 + share)
        if risen > p95:
            risen = p95
        if risen > self.value:
            self.value = risen

    def thaw(self) -> None:
        """Stress has ended: the past moves to where the leak has left the value."""
        factor = self.value / self._frozen
        self._past = [p95 * factor for p95 in self._past]


@final
class LatencyRatio:
    """The ratio with a frozen baseline: feed it every latency, ask it as often as you like."""

    __slots__ = (
        "_baseline",
        "_due_us",
        "_judged_us",
        "_leak_per_us",
        "_long",
        "_long_end_us",
        "_low_us",
        "_ratio",
        "_settings",
        "_short",
        "learned_us",
        "sampled_us",
        "stressed",
    )

    def __init__(self, settings: RatioSettings | None = None, scale: Scale | None = None) -> None:
        settings = RatioSettings() if settings is None else settings
        scale = Scale() if scale is None else scale
        self._settings = settings
        self._leak_per_us = log1p(settings.leak_per_minute_max) / MINUTE_US
        self._short = WindowedQuantile(settings.short_windows, settings.short_window_us, scale)
        self._long = Sketch(scale)
        self._baseline = Baseline(settings)
        self._long_end_us = 0
        self._judged_us = 0
        self._due_us = 0
        self.sampled_us = 0  # when there last was enough to judge by
        self._low_us = _NEVER_US  # since when the ratio has been below `enter`
        self._ratio = NEUTRAL
        self.learned_us = 0  # when the baseline was last seen to be healthy
        self.stressed = False

    def add(self, latency_us: float, now_us: int) -> None:
        """Take in the latency of one piece of work that has just ended."""
        short = self._short
        if now_us >= short.end_us:
            self._roll(now_us)
        short.current.add(latency_us)

    def ratio(self, now_us: int) -> float:
        """From 1 (healthy, or too little known) towards 0; judged anew once each refresh."""
        if now_us >= self._short.end_us:
            self._roll(now_us)
        if now_us >= self._due_us or now_us < self._judged_us:
            self._judge(now_us)
        return self._ratio

    def baseline_us(self) -> float:
        """The p95 that counts as healthy; 0.0 while cold."""
        return self._baseline.value

    def begin_with(self, baseline_us: float, learned_us: int) -> None:
        """Begin with a baseline that was learned elsewhere, unless one is known here."""
        if self._baseline.value == 0.0 and baseline_us > 0.0:
            self._baseline.begin_with(max(baseline_us, self._long.scale.value_min))
            self.learned_us = learned_us

    def _roll(self, now_us: int) -> None:
        """End the short sub-window in progress, and the long one if its time has come."""
        short = self._short
        self._judge(short.end_us - 1)
        if not self.stressed:
            self._long.merge(short.current)
        short.rotate(now_us)
        if now_us < self._long_end_us:
            return
        width_us = self._settings.long_window_us
        self._long_end_us = (now_us // width_us + 1) * width_us
        # Too few: the sub-window goes on for another width.
        if self._long.count >= self._settings.samples_min:
            p95 = self._long.quantile(self._settings.quantile) or 0.0
            self._baseline.push(max(p95, self._long.scale.value_min))
            self.learned_us = now_us
            self._long.clear()

    def _judge(self, now_us: int) -> None:
        """Compare now with the baseline, or hold for a while if there is too little to see."""
        passed_us = now_us - self._judged_us
        self._judged_us = now_us
        self._due_us = now_us + self._settings.refresh_us
        p95 = self._short_p95(now_us)
        if p95 == 0.0:
            if now_us - self.sampled_us >= self._settings.hold_us_max:
                self._settle(NEUTRAL, now_us)
            return
        self.sampled_us = now_us
        baseline = self._baseline
        if baseline.value == 0.0:
            return
        if self.stressed and passed_us > 0:
            # Silence does not leak: a gap counts as one sub-window at most.
            leak_us = min(passed_us, self._settings.short_window_us)
            baseline.leak(expm1(leak_us * self._leak_per_us), p95)
        self._settle(min(NEUTRAL, baseline.value / p95), now_us)

    def _short_p95(self, now_us: int) -> float:
        """The p95 of the short window, 0.0 if it has too few samples to say."""
        short = self._short
        if short.count(now_us) < self._settings.samples_min:
            return 0.0
        return max(short.quantile(self._settings.quantile, now_us) or 0.0, short.scale.value_min)

    def _settle(self, ratio: float, now_us: int) -> None:
        """Set the ratio, and freeze or thaw the baseline if that begins or ends stress."""
        self._ratio = ratio
        settings = self._settings
        was = self.stressed
        if ratio >= settings.enter:
            self._low_us = _NEVER_US
        elif self._low_us == _NEVER_US:
            self._low_us = now_us
        stressed = is_stressed(was, ratio, settings.enter, settings.leave)
        if stressed and not was and ratio >= settings.at_once:
            stressed = now_us - self._low_us >= settings.confirm_us
        self.stressed = stressed
        if self.stressed and not was:
            self._baseline.freeze()
            self._long.clear()
        elif was and not self.stressed:
            self._baseline.thaw()
