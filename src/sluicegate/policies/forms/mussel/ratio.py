"""Latency ratio of Mussel: long-term p95 over short-term p95, by P2, with a threshold of 0.3.

Near 1 work takes what it usually takes; at 0.3 it takes three times that. P2 cannot forget
(`kernels/p2_quantile.py`), so each estimator starts over when its span ends, and the last complete
span is the answer. The long span fills with slow work too: after ten minutes slow is usual.

Cost: two P2 observations for each end of work. Bounds: four estimators.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.p2_quantile import P2Quantile

NEUTRAL: Final = 1.0
ENTER: Final = 0.3  # the threshold of the source
LEAVE: Final = 0.85  # what the source calls a safe range
SECOND_US: Final = 1_000_000
SHORT_US: Final = 5 * SECOND_US
LONG_US: Final = 600 * SECOND_US
SAMPLES_MIN: Final = 200  # a p95 of fewer is too often off by a third
_SPAN_US_MAX: Final = 1 << 53


@final
class P2Span:
    """A P2 estimate over spans of time that follow each other.

    A span with too few samples says nothing: the estimate is then not known, or what it was if it
    `keeps`.
    """

    __slots__ = ("_end_us", "_estimate", "_keeps", "_live", "_samples_min", "_span_us")

    def __init__(self, q: float, span_us: int, samples_min: int, *, keeps: bool = True) -> None:
        if not 1 <= span_us <= _SPAN_US_MAX:
            raise ValueError(f"a span must be from 1 to 2^53 us, not {span_us}")
        self._live = P2Quantile(q)
        self._span_us = span_us
        self._samples_min = samples_min
        self._keeps = keeps
        self._estimate = 0.0
        self._end_us = 0

    def add(self, value: float, now_us: int) -> None:
        """Record one value."""
        self.roll(now_us)
        self._live.add(value)

    def roll(self, now_us: int) -> None:
        """End the span in progress if its time has come."""
        if now_us < self._end_us:
            return
        live = self._live
        if live.count >= self._samples_min:
            self._estimate = live.value() or 0.0
        elif not self._keeps:
            self._estimate = 0.0
        self._live = P2Quantile(live.q)
        self._end_us = (now_us // self._span_us + 1) * self._span_us

    def value(self) -> float:
        """The last span with enough samples; before the first, the one in progress; or 0.0."""
        if self._estimate == 0.0 and self._live.count >= self._samples_min:
            return self._live.value() or 0.0
        return self._estimate


@final
class P2Ratio:
    """The ratio, and whether it is below its threshold, with hysteresis."""

    __slots__ = ("_enter", "_leave", "_long", "_short", "stressed")

    def __init__(
        self,
        short_us: int = SHORT_US,
        long_us: int = LONG_US,
        *,
        quantile: float = 0.95,
        samples_min: int = SAMPLES_MIN,
        enter: float = ENTER,
        leave: float = LEAVE,
    ) -> None:
        if not 0.0 <= enter <= leave <= 1.0:
            raise ValueError(
                f"enter and leave must be from 0 to 1, enter the lower, not {enter} and {leave}"
            )
        if not short_us < long_us:
            raise ValueError(f"short_us must be below long_us, not {short_us} and {long_us}")
        if samples_min < 1:
            raise ValueError(f"samples_min must be from 1, not {samples_min}")
        self._short = P2Span(quantile, short_us, samples_min, keeps=False)
        self._long = P2Span(quantile, long_us, samples_min)
        self._enter = enter
        self._leave = leave
        self.stressed = False

    def add(self, latency_us: float, now_us: int) -> None:
        """Record the latency of one piece of work that has just ended."""
        if not latency_us >= 0.0:
            raise ValueError(f"latency_us must be 0 or more, not {latency_us}")
        self._short.add(latency_us, now_us)
        self._long.add(latency_us, now_us)

    def ratio(self, now_us: int) -> float:
        """From 1 (healthy, or too little known) towards 0 (slow)."""
        self._short.roll(now_us)
        self._long.roll(now_us)
        long, short = self._long.value(), self._short.value()
        ratio = min(NEUTRAL, long / short) if long > 0.0 and short > 0.0 else NEUTRAL
        self.stressed = ratio < (self._leave if self.stressed else self._enter)
        return ratio

    def slow_us(self) -> float:
        """Work that takes longer than this is slow by the threshold; 0.0 while not known."""
        return self._long.value() / self._enter if self._enter > 0.0 else 0.0
