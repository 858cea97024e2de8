"""Gradient2: the limit of Netflix's concurrency-limits by that name, with its published defaults.

The limit follows tolerance * slow mean of the latency / latency, between a half and one, and a few
places for a queue. It is smooth, and right for load that comes and goes. It is not right for load
that stays: the slow mean takes in the queue, and the limit drifts to its maximum. It never goes
below 20, so that it cannot protect what has fewer places.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.concurrency_limit import SampleWindow
from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.gates import GateRig
from sluicegate.lab.rigs.limit_gate import LimitGate

INITIAL: Final = 20
LIMIT_MIN: Final = 20
LIMIT_MAX: Final = 200
TOLERANCE: Final = 1.5
SMOOTHING: Final = 0.2
LONG_WINDOW: Final = 600
WARM_UP: Final = 10
QUEUE: Final = 4


@final
class PublishedGradient2:
    """Written from the description of the library's algorithm."""

    __slots__ = ("_estimate", "_long_us", "_seen")

    def __init__(self) -> None:
        self._estimate = float(INITIAL)
        self._long_us = 0.0
        self._seen = 0

    @property
    def limit(self) -> int:
        """As it is now."""
        return int(self._estimate)

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one window; drops say nothing to it."""
        if rtt_us < 1:
            return self.limit
        if self._seen < WARM_UP:
            self._seen += 1
            self._long_us += (rtt_us - self._long_us) / self._seen
        else:
            self._long_us += (rtt_us - self._long_us) * 2 / (LONG_WINDOW + 1)
        if self._long_us > 2 * rtt_us:
            self._long_us *= 0.95
        if inflight * 2 >= self._estimate:
            gradient = max(0.5, min(1.0, TOLERANCE * self._long_us / rtt_us))
            wanted = gradient * self._estimate + QUEUE
            estimate = self._estimate * (1 - SMOOTHING) + wanted * SMOOTHING
            self._estimate = max(float(LIMIT_MIN), min(float(LIMIT_MAX), estimate))
        return self.limit


def gradient2(rig: GateRig, dice: Dice) -> LimitGate:
    """Fed with means of a second, at least ten samples each."""
    return LimitGate(PublishedGradient2(), dice.of("gate"), SampleWindow())
