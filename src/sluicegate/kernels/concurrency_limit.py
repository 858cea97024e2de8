"""Concurrency limits that find themselves: how many units may be at work at once.

Source: Netflix's concurrency-limits library (2018), itself from TCP congestion control: additive
increase and multiplicative decrease (Chiu and Jain, 1989) and TCP Vegas (Brakmo and Peterson,
1994). By Little's law the best limit is throughput * unloaded latency. Below it capacity is wasted,
above it only a queue grows, and the queue shows as latency. Each class here computes that *number*
from what was measured; who waits or is refused is a policy's business. All are fed the same:

    Aimd        a drop, or a latency above `timeout_us`:  limit * 0.9       else  limit + 1
    Vegas       queue = limit * (1 - unloaded / latency), with g = log10(limit), at least 1:
                    queue <= g: + 6g     < 3g: + g     > 6g: - g     between: as it is
    Gradient2   limit' = limit * clamp(1.5 * baseline / latency, 0.5, 1) + 4, smoothed by 0.2

None grows while fewer than half of the limit were at work: an idle limit proves nothing. A drop
reduces every one of them, loaded or not. `SampleWindow` makes one update of a second of samples, at
least 10; Vegas and Gradient2 need it, for a single latency says more about the request than about
the queue.

What was changed, and why. Both latency forms compare with an unloaded latency that nobody measures.
Gradient2's baseline is a slow mean of all latencies: at saturation it takes up the queue, the
gradient returns to 1, and the limit drifts up to its maximum. Vegas keeps the least latency it has
seen, which among noisy windows is a lucky one and holds the limit too low, and now and then
believes the present one instead, queue and all. Done seldom, a service that became slower stays
throttled for minutes; done often, the limit climbs.

So here a probe drains first: for two updates the limit is halved, one to empty the queue and one to
measure, and only that is believed. Between probes a loaded baseline only falls, and slowly.
Gradient2 probes after `probe_updates` updates, Vegas after `probe_multiplier` times its limit, both
times a jitter of 0.5 to 1 from the draw, so that a fleet does not probe in step. A limit that is
less than half used has no queue of its own, and needs no drain. The original forms are
`probe_updates=0`, and `drain=False` with `probe_multiplier=30`.

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

Also changed: a drop reduces Gradient2, which ignored drops, and teaches it no baseline; Vegas
counts in whole numbers; a window keeps its samples until there are enough, instead of losing the
drops of a quiet second.

Not good at: a limit of 1 or 2, where half is nothing; `Aimd` with a timeout near the service time
(it collapses when that doubles) or far above it (it holds that much queue); a load so low that a
window never fills; bimodal latency, whose mean moves with the mix.

Cost: a few multiplications an update, a handful of additions a sample. Bounds: 1 <= limit_min <=
initial <= limit_max <= LIMIT_MAX. A latency below 1 us, which a clock that went back can produce,
changes nothing.
"""

from __future__ import annotations

from math import isfinite, log10
from typing import Final, NamedTuple, final

from sluicegate.kernels.bounds import within

LIMIT_MAX: Final = 1 << 20
SPAN_US_MAX: Final = 3_600_000_000

STALE_WINDOWS: Final = 10
SAMPLES_ENOUGH: Final = 300

_WARM_UP: Final = 10
_DRAINING: Final = 1
_MEASURING: Final = 2


class AdaptiveNumber:
    """A limit between two bounds; each class below says how a sample moves it."""

    __slots__ = ("_limit_max", "_limit_min", "limit")

    def __init__(self, initial: int, limit_min: int, limit_max: int) -> None:
        within("limit_max", limit_max, 1, LIMIT_MAX)
        within("limit_min", limit_min, 1, limit_max)
        within("initial", initial, limit_min, limit_max)
        self._limit_min = limit_min
        self._limit_max = limit_max
        self.limit = initial


@final
class Aimd(AdaptiveNumber):
    """Additive increase, multiplicative decrease: it reacts to failures and timeouts only."""

    __slots__ = ("_backoff", "_timeout_us")

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        backoff: float = 0.9,
        timeout_us: int = 5_000_000,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        if not 0.5 <= backoff < 1.0:
            raise ValueError(f"backoff must be from 0.5 to below 1, not {backoff}")
        within("timeout_us", timeout_us, 1, SPAN_US_MAX)
        self._backoff = backoff
        self._timeout_us = timeout_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit. The draw is not used."""
        check_draw(draw)
        limit = self.limit
        if dropped or rtt_us > self._timeout_us:
            limit = max(self._limit_min, int(limit * self._backoff))
        elif rtt_us >= 1 and inflight * 2 >= limit:
            limit = min(self._limit_max, limit + 1)
        self.limit = limit
        return limit


@final
class Vegas(AdaptiveNumber):
    """Keeps a small queue: it estimates how many units wait, and holds that between 3g and 6g."""

    __slots__ = (
        "_drain",
        "_estimate",
        "_phase",
        "_probe_multiplier",
        "_probe_share",
        "_unloaded_us",
        "_updates",
    )

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        probe_multiplier: int = 2,
        drain: bool = True,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        within("probe_multiplier", probe_multiplier, 1, LIMIT_MAX)
        self._probe_multiplier = probe_multiplier
        self._probe_share = 1.0
        self._drain = drain
        self._phase = 0
        self._updates = 0
        self._unloaded_us = 0
        self._estimate = initial

    @property
    def unloaded_us(self) -> int:
        """The latency that is taken for one without a queue; 0 before the first sample."""
        return self._unloaded_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit."""
        check_draw(draw)
        if dropped:
            return self._hold(self._estimate - _decade(self._estimate))
        if rtt_us < 1:
            return self.limit
        if self._phase == _DRAINING:
            self._phase = _MEASURING
            return self.limit
        if self._phase == _MEASURING:
            self._unloaded_us = rtt_us
            return self._hold(self._estimate)
        self._updates += 1
        due = self._updates >= self._probe_share * self._probe_multiplier * self._estimate
        if due:
            self._updates = 0
            self._probe_share = 0.5 + draw / 2
            if self._drain and inflight * 2 >= self._estimate:
                self._phase = _DRAINING
                self.limit = max(self._limit_min, self._estimate // 2)
                return self.limit
        if due or self._unloaded_us == 0 or rtt_us < self._unloaded_us:
            if due or self._unloaded_us == 0 or not self._drain:
                self._unloaded_us = rtt_us
            else:  # The least of many windows is luck: a quarter of the way.
                self._unloaded_us += (rtt_us - self._unloaded_us) // 4
            return self.limit
        if inflight * 2 < self._estimate:
            return self.limit
        return self._hold(self._estimate + self._change(rtt_us))

    def _change(self, rtt_us: int) -> int:
        decade = _decade(self._estimate)
        queue = -(-self._estimate * (rtt_us - self._unloaded_us) // rtt_us)
        if queue <= decade:
            return 6 * decade
        if queue < 3 * decade:
            return decade
        return -decade if queue > 6 * decade else 0

    def _hold(self, estimate: int) -> int:
        self._phase = 0
        self._estimate = max(self._limit_min, min(self._limit_max, estimate))
        self.limit = self._estimate
        return self.limit


@final
class Gradient2(AdaptiveNumber):
    """Follows the ratio of a slow latency baseline to the present latency."""

    __slots__ = (
        "_baseline_us",
        "_estimate",
        "_learned",
        "_long_updates",
        "_phase",
        "_probe_in",
        "_probe_updates",
        "_queue",
        "_smoothing",
        "_tolerance",
    )

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        tolerance: float = 1.5,
        smoothing: float = 0.2,
        queue: int = 4,
        long_updates: int = 600,
        probe_updates: int = 60,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        if not (isfinite(tolerance) and 1.0 <= tolerance <= 10.0):
            raise ValueError(f"tolerance must be from 1 to 10, not {tolerance}")
        if not 0.0 < smoothing <= 1.0:
            raise ValueError(f"smoothing must be above 0 and at most 1, not {smoothing}")
        within("queue", queue, 1, LIMIT_MAX)
        within("long_updates", long_updates, 1, LIMIT_MAX)
        within("probe_updates", probe_updates, 0, LIMIT_MAX)
        self._tolerance = tolerance
        self._smoothing = smoothing
        self._queue = queue
        self._long_updates = long_updates
        self._probe_updates = probe_updates
        self._probe_in = probe_updates
        self._phase = 0
        self._baseline_us = 0.0
        self._learned = 0
        self._estimate = float(initial)

    @property
    def baseline_us(self) -> float:
        """The latency that the present one is compared with; 0 before the first sample."""
        return self._baseline_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample, or one window of them; the new limit."""
        check_draw(draw)
        if dropped:
            return self._hold(0.5 * self._estimate)
        if rtt_us < 1:
            return self.limit
        if self._phase == _DRAINING:
            self._phase = _MEASURING
            return self.limit
        if self._phase == _MEASURING:
            self._phase = 0
            self._baseline_us = float(rtt_us)
            self._probe_in = int(self._probe_updates * (0.5 + draw / 2))
            self.limit = int(self._estimate)
            return self.limit
        loaded = inflight * 2 >= self._estimate
        self._learn(rtt_us, loaded)
        if not loaded:
            return self.limit
        if self._probe_updates > 0:
            self._probe_in -= 1
            if self._probe_in < 0:
                self._phase = _DRAINING
                self.limit = max(self._limit_min, self.limit // 2)
                return self.limit
        gradient = max(0.5, min(1.0, self._tolerance * self._baseline_us / rtt_us))
        return self._hold(gradient * self._estimate + self._queue)

    def _learn(self, rtt_us: int, loaded: bool) -> None:
        if self._learned < _WARM_UP:
            self._learned += 1
            self._baseline_us += (rtt_us - self._baseline_us) / self._learned
        elif self._probe_updates == 0 or not loaded or rtt_us < self._baseline_us:
            self._baseline_us += (rtt_us - self._baseline_us) * 2 / (self._long_updates + 1)
        # After a long overload the mean would take minutes to come down.
        if self._baseline_us > 2 * rtt_us:
            self._baseline_us *= 0.95

    def _hold(self, wanted: float) -> int:
        self._phase = 0
        estimate = self._estimate + (wanted - self._estimate) * self._smoothing
        self._estimate = max(float(self._limit_min), min(float(self._limit_max), estimate))
        self.limit = int(self._estimate)
        return self.limit


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


def _decade(estimate: int) -> int:
    return max(1, int(log10(estimate)))


def check_draw(draw: float) -> None:
    """Refuse what is no draw."""
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"draw must be from 0 to below 1, not {draw}")
