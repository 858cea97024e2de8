"""Concurrency limits that find themselves: how many units may be at work at once.

Source: Netflix's concurrency-limits library (2018), itself from TCP congestion control. By Little's
law the best limit is throughput * unloaded latency. Below it capacity is wasted, above it only a
queue grows, and the queue shows as latency. An algorithm computes that *number* from what was
measured; who waits or is refused is a policy's business. Here is what they share: the bounds of the
number, and the window that feeds it. Each has a file of its own, and all are fed the same:

    aimd         a drop, or a latency above `timeout_us`:  limit * 0.9       else  limit + 1
    vegas        queue = limit * (1 - unloaded / latency), held between 3 and 6 log10(limit)
    gradient2    limit' = limit * clamp(1.5 * baseline / latency, 0.5, 1) + 4, smoothed by 0.2
    fast_limit   limit' = limit * unloaded / latency + a small queue, a tenth of the way

None grows while fewer than half of the limit were at work: an idle limit proves nothing. A drop
reduces every one of them, loaded or not. `SampleWindow` makes one update of a second of samples, at
least 10; all but `Aimd` need it, for a single latency says more about the request than about the
queue.

The latency forms compare with an unloaded latency that nobody measures while there is a queue. So
here a probe drains first: for two updates the limit is lower (Vegas and Gradient2 halve it), one to
empty the queue and one to measure, and only that is believed. Between probes a loaded baseline only
falls, and slowly. Probes have a jitter of 0.5 to 1 from the draw, so that a fleet does not probe in
step. A limit that is less than half used has no queue of its own, and needs no drain.

Limit held, and share of capacity answered: 100 ms of service (exponential), twice the load that 32
workers can do; the capacity changes every 100 s, the first half of each phase does not count (the
simulation is in tests/kernels/test_concurrency_limit.py):

    workers                    32          16          32      32, 2x slower     32
    Aimd, timeout 300 ms     82  1.00    44  1.00    89  1.01    45  1.02     87  0.99
    Vegas                    37  0.97    20  0.98    37  1.00    36  0.99     36  0.97
      original               26  0.80    18  1.00    28  0.85    21  0.63     35  1.00
    Gradient2                53  0.99    27  0.99    52  0.99    57  0.99     50  0.98
      tolerance 1.1          40  0.97    21  0.98    39  0.99    36  0.97     40  0.98
      original               57  1.00    38  1.00    79  0.99    52  1.00    128  1.00

Also changed: a window keeps its samples until there are enough, instead of losing the drops of a
quiet second.

Not good at: a limit of 1 or 2, where half is nothing; a load so low that a window never fills;
bimodal latency, whose mean moves with the mix.

Cost: a few multiplications an update, a handful of additions a sample. Bounds: 1 <= limit_min <=
initial <= limit_max <= LIMIT_MAX. A latency below 1 us, which a clock that went back can produce,
changes nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.kernels.bounds import within

LIMIT_MAX: Final = 1 << 20
SPAN_US_MAX: Final = 3_600_000_000

STALE_WINDOWS: Final = 10
SAMPLES_ENOUGH: Final = 300


class AdaptiveNumber:
    """A limit between two bounds; each algorithm says how a sample moves it."""

    __slots__ = ("_limit_max", "_limit_min", "limit")

    def __init__(self, initial: int, limit_min: int, limit_max: int) -> None:
        within("limit_max", limit_max, 1, LIMIT_MAX)
        within("limit_min", limit_min, 1, limit_max)
        within("initial", initial, limit_min, limit_max)
        self._limit_min = limit_min
        self._limit_max = limit_max
        self.limit = initial


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
        within("samples_min", samples_min, 1, LIMIT_MAX)
        within("rtt_us_min", rtt_us_min, 1, SPAN_US_MAX)
        within("rounds", rounds, 0, LIMIT_MAX)
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


def check_draw(draw: float) -> None:
    """Refuse what is no draw."""
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"draw must be from 0 to below 1, not {draw}")
