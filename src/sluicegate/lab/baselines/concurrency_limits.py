"""Concurrency limits: three of Netflix's concurrency-limits, and a plain gate around each.

All are written from the descriptions of the library's algorithms, with its published defaults.

*AIMD* adds one for every answer and takes a tenth away for every one that takes too long. `aimd` is
as published: what takes 5 s is too long, and the limit stays between 20 and 200. `fitted_aimd` is
AIMD at its best: it judges means of a second by twice the service time, from 1 up. It cannot find
that time by itself, and holds as much of a queue as it allows.

*Gradient2* follows tolerance * slow mean of the latency / latency, between a half and one, and a
few places for a queue. It is smooth, and right for load that comes and goes. For load that stays it
is wrong: the slow mean takes in the queue, and the limit drifts to its maximum. It never goes below
20, so that it cannot protect what has fewer places.

*Vegas* estimates the queue as limit * (1 - least latency / latency) and holds it between 3 and 6
times log10 of the limit, by steps of that; below one of them it leaps by six. After 15 to 30 times
its limit in updates it takes the present latency for the least instead. It is strong while the
least latency is right. It does not drain the queue before it measures, so a standing queue gets
into what counts as unloaded; and the least of many noisy windows is a lucky one, which holds the
limit low for long.
"""

from __future__ import annotations

from math import log10
from typing import Final, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.lab.baselines.sample_window import SampleWindow
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.rigs.gates import GateRig

INITIAL: Final = 20
LIMIT_MIN: Final = 20
LIMIT_MAX: Final = 200

AIMD_BACKOFF: Final = 0.9
AIMD_TIMEOUT_US: Final = 5_000_000
AIMD_FITTED_TIMES: Final = 2

GRADIENT2_TOLERANCE: Final = 1.5
GRADIENT2_SMOOTHING: Final = 0.2
GRADIENT2_LONG_WINDOW: Final = 600
GRADIENT2_WARM_UP: Final = 10
GRADIENT2_QUEUE: Final = 4

VEGAS_LIMIT_MAX: Final = 1_000
VEGAS_ALPHA: Final = 3
VEGAS_BETA: Final = 6
VEGAS_PROBE_MULTIPLIER: Final = 30

_FULL: Final = Decision(False, 0, 1_000, 1_000, OVERLOADED, "limit_gate")


class _ConcurrencyLimit(Protocol):
    @property
    def limit(self) -> int: ...

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int: ...


@final
class _LimitGate:
    """Admits up to a limit that learns from means of a second, or from each sample."""

    __slots__ = ("_chance", "_inflight", "_limit", "_window")

    def __init__(
        self, limit: _ConcurrencyLimit, chance: Chance, window: SampleWindow | None
    ) -> None:
        self._limit = limit
        self._chance = chance
        self._window = window
        self._inflight = 0

    @property
    def limit(self) -> int:
        return self._limit.limit

    def admit(self, request: Request, now_us: int) -> _LimitPermit | Decision:
        if self._inflight >= self._limit.limit:
            return _FULL
        self._inflight += 1
        return _LimitPermit(self, now_us)

    def release(self, rtt_us: int, now_us: int) -> None:
        """Free a place, and learn from how long it was held."""
        inflight = self._inflight
        self._inflight -= 1
        if self._window is None:
            self._limit.update(rtt_us, inflight, False, self._chance.draw())
            return
        sample = self._window.add(rtt_us, inflight, False, now_us)
        if sample is not None:
            draw = self._chance.draw()
            self._limit.update(sample.rtt_us, sample.inflight, sample.dropped, draw)


@final
class _LimitPermit:
    """One place of a `_LimitGate`."""

    __slots__ = ("_begun_us", "_gate")

    def __init__(self, gate: _LimitGate, begun_us: int) -> None:
        self._gate = gate
        self._begun_us = begun_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give it back; in these rigs it ends once, and well."""
        self._gate.release(now_us - self._begun_us, now_us)
        return True


@final
class PublishedAimd:
    """AIMD."""

    __slots__ = ("_limit_min", "_timeout_us", "limit")

    def __init__(self, *, timeout_us: int = AIMD_TIMEOUT_US, limit_min: int = LIMIT_MIN) -> None:
        self._timeout_us = timeout_us
        self._limit_min = limit_min
        self.limit = INITIAL

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample."""
        limit = self.limit
        if dropped or rtt_us > self._timeout_us:
            limit = int(limit * AIMD_BACKOFF)
        elif inflight * 2 >= limit:
            limit += 1
        self.limit = max(self._limit_min, min(LIMIT_MAX, limit))
        return self.limit


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


@final
class PublishedVegas:
    """Vegas."""

    __slots__ = ("_least_us", "_probe_share", "_updates", "limit")

    def __init__(self) -> None:
        self.limit = INITIAL
        self._least_us = 0
        self._updates = 0
        self._probe_share = 1.0

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one window."""
        limit = self.limit
        step = max(int(log10(limit)), 1)
        self._updates += 1
        if self._updates >= self._probe_share * VEGAS_PROBE_MULTIPLIER * limit:
            self._updates = 0
            self._probe_share = 0.5 + draw / 2
            self._least_us = rtt_us
            return limit
        if self._least_us == 0 or rtt_us < self._least_us:
            self._least_us = rtt_us
            return limit
        if dropped:
            limit -= step
        elif inflight * 2 >= limit:
            queue = -(-limit * (rtt_us - self._least_us) // rtt_us)
            if queue <= step:
                limit += VEGAS_BETA * step
            elif queue < VEGAS_ALPHA * step:
                limit += step
            elif queue > VEGAS_BETA * step:
                limit -= step
        self.limit = max(1, min(VEGAS_LIMIT_MAX, limit))
        return self.limit


def aimd(rig: GateRig, random_source: RandomSource) -> _LimitGate:
    """Return AIMD fed with every sample, as published."""
    return _LimitGate(PublishedAimd(), random_source.of("gate"), None)


def fitted_aimd(rig: GateRig, random_source: RandomSource) -> _LimitGate:
    """Return AIMD fed with means of a second, and the right time for this service."""
    limit = PublishedAimd(timeout_us=int(AIMD_FITTED_TIMES * rig.service.mean_us), limit_min=1)
    return _LimitGate(limit, random_source.of("gate"), SampleWindow())


def gradient2(rig: GateRig, random_source: RandomSource) -> _LimitGate:
    """Return Gradient2 fed with means of a second, at least ten samples each."""
    return _LimitGate(PublishedGradient2(), random_source.of("gate"), SampleWindow())


def vegas(rig: GateRig, random_source: RandomSource) -> _LimitGate:
    """Return Vegas fed with means of a second, at least ten samples each."""
    return _LimitGate(PublishedVegas(), random_source.of("gate"), SampleWindow())
