"""AIMD: one more for every answer, a tenth less for every one that takes too long.

`aimd` is the limit of Netflix's concurrency-limits by that name with its published defaults: what
takes 5 s is too long, and the limit stays between 20 and 200. `fitted_aimd` is that at its best: it
judges means of a second by twice the service time, from 1 up. It is not able to find that time, and
holds as much of a queue as it allows.
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
BACKOFF: Final = 0.9
TIMEOUT_US: Final = 5_000_000
FITTED: Final = 2


@final
class PublishedAimd:
    """Written from the description of the library's algorithm."""

    __slots__ = ("_limit_min", "_timeout_us", "limit")

    def __init__(self, *, timeout_us: int = TIMEOUT_US, limit_min: int = LIMIT_MIN) -> None:
        self._timeout_us = timeout_us
        self._limit_min = limit_min
        self.limit = INITIAL

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int:
        """Take in one sample."""
        limit = self.limit
        if dropped or rtt_us > self._timeout_us:
            limit = int(limit * BACKOFF)
        elif inflight * 2 >= limit:
            limit += 1
        self.limit = max(self._limit_min, min(LIMIT_MAX, limit))
        return self.limit


def aimd(rig: GateRig, dice: Dice) -> LimitGate:
    """With every sample, as published."""
    return LimitGate(PublishedAimd(), dice.of("gate"), None)


def fitted_aimd(rig: GateRig, dice: Dice) -> LimitGate:
    """With means of a second, and the right time for this service."""
    number = PublishedAimd(timeout_us=int(FITTED * rig.service.mean_us), limit_min=1)
    return LimitGate(number, dice.of("gate"), SampleWindow())
