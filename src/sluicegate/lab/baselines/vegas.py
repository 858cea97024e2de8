"""Vegas: the limit of Netflix's concurrency-limits by that name, with its published defaults.

It estimates the queue as limit * (1 - least latency / latency) and holds it between 3 and 6 times
log10 of the limit, by steps of that; below one of them it leaps by six. After 15 to 30 times its
limit in updates it believes the present latency instead. It is a strong form while the least
latency is right. It is not drained before it believes, so a standing queue gets into what counts as
unloaded; and the least of many noisy windows is a lucky one, which holds the limit low for long.
"""

from __future__ import annotations

from math import log10
from typing import Final, final

from sluicegate.kernels.concurrency_limit import SampleWindow
from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.gates import GateRig
from sluicegate.lab.rigs.limit_gate import LimitGate

INITIAL: Final = 20
LIMIT_MAX: Final = 1_000
ALPHA: Final = 3
BETA: Final = 6
PROBE_MULTIPLIER: Final = 30


@final
class PublishedVegas:
    """Written from the description of the library's algorithm."""

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
        if self._updates >= self._probe_share * PROBE_MULTIPLIER * limit:
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
                limit += BETA * step
            elif queue < ALPHA * step:
                limit += step
            elif queue > BETA * step:
                limit -= step
        self.limit = max(1, min(LIMIT_MAX, limit))
        return self.limit


def vegas(rig: GateRig, dice: Dice) -> LimitGate:
    """Fed with means of a second, at least ten samples each."""
    return LimitGate(PublishedVegas(), dice.of("gate"), SampleWindow())
