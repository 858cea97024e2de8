"""Fast limit: how many units may be at work at once, by how many of them are being worked on.

Source: FAST TCP (Jin, Wei and Low, 2004), the successor of Vegas, and Little's law. What is at work
is either served or waits, and the part that is served is unloaded / latency of it. So

    limit  <-  (1 - gain) * limit + gain * (limit * unloaded / latency + queue)

rests where just `queue` units wait, a fifth of the square root of the limit and one at least. It
differs from Vegas (`vegas.py`), which adds or takes one each time, in two ways that
matter: a step is as large as the error, so half the capacity is found in a few updates; and what
one noisy window does to the limit is divided by ten (by two, if it is off by a fifth).

What was changed. FAST grows by `gain * queue` an update while nothing waits. Here what latencies
are below those of a short queue is added up, never below zero (Page's cumulative sum, 1954), and
once it is more than chance makes of a window's mean, growth is a sixteenth of the limit and
doubles, up to a half; where it ends, three updates go half of the way back. A start grows by a
quarter at once, learns the latency while that does not rise, and ends with a deep probe. `MARGIN`
is added to the unloaded latency, for one that is too low strands workers (the limit rests at queue
/ error), and one too high costs a place.

That latency is probed for: for two updates the limit is a fifth lower, one to empty the queue and
one to measure. What is measured is averaged with what was known, unless it is a surprise, a fifth
off. Then the probe goes deeper, stage by stage: if the latency falls there was a queue, and if it
does not the work itself has changed. It probes after `probe_multiplier` times its limit in updates,
times 0.5 to 1 by the draw, and at once when the limit has halved since the last probe.

It is fed with windows that end as soon as every place was used 20 times and 300 units have ended
(`SampleWindow.rounds`). The lab's scenario `tracking`, 32 workers of which half go and come back
every 20 s, ten times; the worst the limit is off after ten seconds, growth of the p99, what it
answers of what is possible, and in seconds 1 to 3 (worst of the seeds):

                                off       p99     answered    at the start
    FastLimit                  0.25      0.05       0.94         0.96
    Vegas, as it is here       0.88      0.08       0.93         0.61
    Vegas, published           0.75      0.08       0.92         0.61
    Gradient2, published       2.00      0.22       0.98         0.62

Not good at: a limit of 1 or 2; a load so low that a window never fills; bimodal latency, whose mean
moves with the mix.

Cost: a square root and a few multiplications an update. Bounds: 1 <= limit_min <= initial <=
limit_max <= LIMIT_MAX. A latency below 1 us changes nothing; drops take a tenth off, once a window.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, final

from sluicegate.kernels.bounds import within
from sluicegate.kernels.concurrency_limit import (
    LIMIT_MAX,
    SAMPLES_ENOUGH,
    AdaptiveNumber,
    check_draw,
)

QUEUE: Final = 0.2  # of the square root of the limit
MARGIN: Final = 1.05  # an unloaded latency that is too low costs more than one too high
GAIN: Final = 0.1
GAIN_FAR: Final = 0.5
FAR: Final = 0.2  # of the limit
GROWTH: Final = 1 / 16
DEVIATIONS: Final = 4.5  # of a window's mean, before what was short is not chance
RETURNING: Final = 3
ROUNDS: Final = 20  # a window has so many ends for each place, as `SampleWindow` is told
GROWTH_START: Final = 1 / 4
GROWTH_MAX: Final = 1 / 2
BACKOFF: Final = 0.9
DEPTH: Final = 0.8  # of the limit, in a probe
DEPTH_MORE: Final = 0.6  # of that, in each stage of a probe that was surprised
SURPRISE: Final = 0.2  # three times what chance does to the mean of 300 exponential latencies
UPDATES_MIN: Final = 16.0  # between two probes of a small limit
LEARN: Final = 1 / 16
_STEADY: Final = 0
_DRAINING: Final = 1
_MEASURING: Final = 2


@final
class FastLimit(AdaptiveNumber):
    """Holds a small queue, whatever the capacity; a probe keeps the unloaded latency true."""

    __slots__ = (
        "_before",
        "_before_us",
        "_deep",
        "_estimate",
        "_free",
        "_grown",
        "_learned",
        "_phase",
        "_probe_multiplier",
        "_probe_share",
        "_probed",
        "_quick_us",
        "_returning",
        "_starting",
        "_unloaded_us",
        "_updates",
    )

    def __init__(
        self,
        *,
        initial: int = 20,
        limit_min: int = 1,
        limit_max: int = 1_000,
        probe_multiplier: int = 1,
    ) -> None:
        super().__init__(initial, limit_min, limit_max)
        within("probe_multiplier", probe_multiplier, 1, LIMIT_MAX)
        self._probe_multiplier = probe_multiplier
        self._probe_share = 1.0
        self._phase = _STEADY
        self._updates = 0
        self._free = 0.0  # how far latencies were below those of a queue, added up
        self._grown = 0  # updates in a row that found nothing waiting, and grew
        self._returning = 0  # updates that go back quickly
        self._starting = True
        self._learned = 0  # windows without a queue
        self._quick_us = 0  # a latency far below the unloaded one, if the last was
        self._deep = False
        self._before = initial
        self._before_us = 0  # the latency of the stage before
        self._unloaded_us = 0.0
        self._estimate = float(initial)
        self._probed = 0.0  # the limit when it was last probed

    @property
    def unloaded_us(self) -> float:
        """The latency that is taken for one without a queue; 0 before the first sample."""
        return self._unloaded_us

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one window of samples; the new limit."""
        check_draw(draw)
        if dropped:
            return self._hold(self._estimate * BACKOFF)
        if rtt_us < 1:
            return self.limit
        if self._phase != _STEADY:
            return self._probe(rtt_us)
        if self._unloaded_us == 0.0:
            self._learn(rtt_us)
            return self.limit
        loaded = inflight * 2 >= self._estimate
        if rtt_us < self._unloaded_us * (1.0 - SURPRISE):
            if self._quick_us > 0:  # one window may be luck
                self._unloaded_us = (rtt_us + self._quick_us) / 2
            self._quick_us = rtt_us
        else:
            self._quick_us = 0
        if not loaded:
            # Nothing waits behind a limit that is less than half used.
            self._learn(rtt_us)
            return self.limit
        self._updates += 1
        due = self._probe_share * self._probe_multiplier * max(self._estimate, UPDATES_MIN)
        halved = self._estimate * 2 < self._probed
        if (self._updates >= due and not self._starting) or halved:
            self._updates = 0
            self._probe_share = 0.5 + draw / 2
            depth = DEPTH if self._probed > 0.0 else DEPTH_MORE
            return self._drain(rtt_us, depth)
        return self._hold(self._steered(rtt_us))

    def _steered(self, rtt_us: int) -> float:
        estimate = self._estimate
        queue = _queue(estimate)
        served = self._served(estimate, rtt_us)
        if self._grows(rtt_us, estimate, served, queue):
            growth = (GROWTH_START if self._starting else GROWTH) * 2.0**self._grown
            self._grown += 1
            return estimate + max(1.0, min(growth, GROWTH_MAX) * estimate)
        if self._starting:
            self._starting = False
            self._updates = LIMIT_MAX  # what was believed so far is to be seen at once
            self._grown = 1
        if self._grown > 0:  # too far, most likely
            self._grown = 0
            self._free = self._enough(estimate) / 2
            self._returning = RETURNING
        off = served + queue - estimate
        far = abs(off) > FAR * estimate or self._returning > 0
        if self._returning > 0:
            self._returning -= 1
        return estimate + (GAIN_FAR if far else GAIN) * off

    def _grows(self, rtt_us: int, estimate: float, served: float, queue: float) -> bool:
        """Whether nothing waits: at a start by this window, later by what windows add up to."""
        if self._starting:
            # A start that stops at the first unlucky window would stop low.
            if estimate - served >= FAR * estimate or self.limit == self._limit_max:
                return False
            if rtt_us < self._unloaded_us * (1.0 + SURPRISE):
                self._learn(rtt_us)  # more at work, and it takes no longer
            return True
        waits = MARGIN * estimate / (estimate - queue / 2)  # of the unloaded latency
        short = waits - rtt_us / self._unloaded_us
        enough = self._enough(estimate)
        self._free = max(0.0, min(self._free + short, 2 * enough))
        return short > 0.0 if self._grown > 0 else self._free > enough

    def _enough(self, estimate: float) -> float:
        """What is not chance: so many deviations of a window's mean."""
        return DEVIATIONS / sqrt(max(float(SAMPLES_ENOUGH), ROUNDS * estimate))

    def _learn(self, rtt_us: int) -> None:
        """One more window without a queue; the first ones count alike."""
        self._learned += 1
        self._unloaded_us += (rtt_us - self._unloaded_us) * max(LEARN, 1.0 / self._learned)

    def _served(self, at_work: float, rtt_us: int) -> float:
        """How many of those at work do not wait."""
        return min(at_work * self._unloaded_us * MARGIN / rtt_us, at_work)

    def _drain(self, rtt_us: int, depth: float) -> int:
        self._phase = _DRAINING
        self._before = self.limit
        self._before_us = rtt_us
        self.limit = max(self._limit_min, min(int(self.limit * depth), self.limit - 1))
        return self.limit

    def _probe(self, rtt_us: int) -> int:
        if self._phase == _DRAINING:
            self._phase = _MEASURING
            return self.limit
        known_us = self._unloaded_us
        if abs(rtt_us - known_us) <= SURPRISE * known_us:
            # The last of a queue may be in what is still falling.
            if not self._deep or rtt_us >= self._before_us * (1.0 - SURPRISE):
                self._learn(rtt_us)
        elif not self._deep or rtt_us < self._before_us * (1.0 - SURPRISE):
            if self.limit > self._limit_min:
                self._deep = True
                return self._drain(rtt_us, DEPTH_MORE)
            self._unloaded_us = float(rtt_us)
        else:
            self._unloaded_us = float(rtt_us)
        estimate = self._estimate
        if self._deep:
            served = self._served(float(self._before), self._before_us)
            estimate = min(max(served, float(self.limit)) + _queue(served), estimate)
        self._deep = False
        self._free = 0.0
        self._grown = 0
        self._probed = estimate
        return self._hold(estimate)

    def _hold(self, estimate: float) -> int:
        self._phase = _STEADY
        self._estimate = max(float(self._limit_min), min(float(self._limit_max), estimate))
        self.limit = int(self._estimate + 0.5)
        return self.limit


def _queue(limit: float) -> float:
    """How many should wait at that limit."""
    return max(1.0, sqrt(limit) * QUEUE)
