"""Gradient2 of Netflix's concurrency-limits, with its published defaults, and its window.

The limit follows tolerance * slow mean of the latency / latency, between a half and one, and a few
slots for a queue. It is smooth, and right for load that comes and goes. For load that stays it is
wrong: the slow mean takes in the queue, and the limit drifts to its maximum. It never goes below
20, so it cannot protect what has fewer slots. Written from the description of the algorithm.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.policies.settings import within

INITIAL: Final = 20
LIMIT_MIN: Final = 20
LIMIT_MAX: Final = 200
GRADIENT2_TOLERANCE: Final = 1.5
GRADIENT2_SMOOTHING: Final = 0.2
GRADIENT2_LONG_WINDOW: Final = 600
GRADIENT2_WARM_UP: Final = 10
GRADIENT2_QUEUE: Final = 4
SAMPLES_MAX: Final = 1 << 20
SPAN_US_MAX: Final = 3_600_000_000
STALE_WINDOWS: Final = 10
SAMPLES_ENOUGH: Final = 300


class WindowSample(NamedTuple):
    """One window: mean latency of what succeeded, most units at work, whether any was dropped."""

    rtt_us: int
    inflight: int
    dropped: bool


@final
class SampleWindow:
    """Gathers samples until there is a window of them and enough.

    The mean is of what was not dropped; a silence of `STALE_WINDOWS` windows forgets a begun one.
    With `rounds` a window also ends once every place was used so many times (and 300 units have
    ended): where much is done, a mean is known sooner.
    """

    __slots__ = (
        "_answered",
        "_begun_us",
        "_count",
        "_inflight_max",
        "_rounds",
        "_rtt_us_min",
        "_rtt_us_sum",
        "_samples_min",
        "_seen_us",
        "_window_us",
    )

    def __init__(
        self,
        *,
        window_us: int = 1_000_000,
        samples_min: int = 10,
        rtt_us_min: int = 100,
        rounds: int = 0,
    ) -> None:
        within("window_us", window_us, 1, SPAN_US_MAX)
        within("samples_min", samples_min, 1, SAMPLES_MAX)
        within("rtt_us_min", rtt_us_min, 1, SPAN_US_MAX)
        within("rounds", rounds, 0, SAMPLES_MAX)
        self._rounds = rounds
        self._window_us = window_us
        self._samples_min = samples_min
        self._rtt_us_min = rtt_us_min
        self._begun_us = 0
        self._seen_us = 0
        self._count = 0
        self._answered = 0
        self._rtt_us_sum = 0
        self._inflight_max = 0

    def add(self, rtt_us: int, inflight: int, dropped: bool, now_us: int) -> WindowSample | None:
        """Take in one finished unit; the window, if this unit completes it."""
        if not dropped and rtt_us < self._rtt_us_min:
            return None
        if now_us - self._seen_us > STALE_WINDOWS * self._window_us:
            self._clear()
        if self._count == 0 or now_us < self._begun_us:
            self._begun_us = now_us
        self._seen_us = now_us
        self._count += 1
        if not dropped:
            self._answered += 1
            self._rtt_us_sum += rtt_us
        if inflight > self._inflight_max:
            self._inflight_max = inflight
        if self._count < self._samples_min:
            return None
        if now_us - self._begun_us < self._window_us and not self._enough():
            return None
        rtt_us_mean = self._rtt_us_sum // self._answered if self._answered else 0
        sample = WindowSample(rtt_us_mean, self._inflight_max, self._answered < self._count)
        self._clear()
        return sample

    def _enough(self) -> bool:
        """Whether the window may end before its time."""
        count, rounds = self._count, self._rounds
        return rounds > 0 and count >= SAMPLES_ENOUGH and count >= rounds * self._inflight_max

    def _clear(self) -> None:
        self._count = 0
        self._answered = 0
        self._rtt_us_sum = 0
        self._inflight_max = 0


@final
class PublishedGradient2:
    """Gradient2."""

    __slots__ = ("_estimate", "_long_us", "_updates")

    def __init__(self) -> None:
        self._estimate = float(INITIAL)
        self._long_us = 0.0
        self._updates = 0

    @property
    def limit(self) -> int:
        """How many may be at work."""
        return int(self._estimate)

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one window; drops say nothing to it."""
        if rtt_us < 1:
            return self.limit
        if self._updates < GRADIENT2_WARM_UP:
            self._updates += 1
            self._long_us += (rtt_us - self._long_us) / self._updates
        else:
            self._long_us += (rtt_us - self._long_us) * 2 / (GRADIENT2_LONG_WINDOW + 1)
        if self._long_us > 2 * rtt_us:
            self._long_us *= 0.95
        if inflight * 2 >= self._estimate:
            gradient = max(0.5, min(1.0, GRADIENT2_TOLERANCE * self._long_us / rtt_us))
            target = gradient * self._estimate + GRADIENT2_QUEUE
            smoothing = GRADIENT2_SMOOTHING
            estimate = self._estimate * (1 - smoothing) + target * smoothing
            self._estimate = max(float(LIMIT_MIN), min(float(LIMIT_MAX), estimate))
        return self.limit
