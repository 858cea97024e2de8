"""Partitions: a concurrency limit of which each class has a part that counts when all is full.

*Netflix's partitions* (concurrency-limits, and "Enhancing Netflix reliability with service-level
prioritized load shedding", 2024): what is at work is counted in all and by class. While the whole
is below its limit everybody enters; at the limit a class enters only while it has less at work than
its part, max(1, ceil(limit * part)). The sum may pass the limit so. As in the article the highest
class has all of it and every other one nothing, which is one place. The limit is Gradient2 with the
library's defaults, fed with means of a second.

It is strong for what the article tells: a little of the highest class, and a surge of another. It
is not ordered between the other classes, has no queue, and does not fit its limit to what the
workers can do (`concurrency_limits.py` says how Gradient2 drifts): what is let in waits behind it,
first in, first out, whatever its class.
"""

from __future__ import annotations

from math import ceil
from typing import Final, Protocol, final

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import OVERLOADED
from sluicegate.contracts.request import Request
from sluicegate.kernels.concurrency_limit import SampleWindow
from sluicegate.lab.baselines.concurrency_limits import PublishedGradient2
from sluicegate.lab.rig import Rig
from sluicegate.lab.world import World

_FULL: Final = Decision(False, 0, 1_000, 1_000, OVERLOADED, "partitions")


class _Limit(Protocol):
    """A number that learns."""

    @property
    def limit(self) -> int: ...

    def update(self, rtt_us: int, inflight: int, dropped: bool, draw: float) -> int: ...


@final
class Partitions:
    """A waiting policy that never waits."""

    __slots__ = ("_at_work", "_by_class", "_limit", "_parts", "_window")

    def __init__(self, limit: _Limit, parts: dict[Criticality, float]) -> None:
        self._limit = limit
        self._parts = parts
        self._by_class = dict.fromkeys(Criticality, 0)
        self._at_work = 0
        self._window = SampleWindow()

    async def admit(self, request: Request, clock: Clock) -> _PartitionPermit | Decision:
        """Admit while the whole or the class's part has room."""
        of, limit = request.criticality, self._limit.limit
        if self._at_work >= limit:
            part = max(1, ceil(limit * self._parts.get(of, 0.0)))
            if self._by_class[of] >= part:
                return _FULL
        self._at_work += 1
        self._by_class[of] += 1
        return _PartitionPermit(self, of, clock.now_us())

    def release(self, of: Criticality, rtt_us: int, now_us: int) -> None:
        """Free a place, and learn from how long it was held."""
        sample = self._window.add(rtt_us, self._at_work, False, now_us)
        self._at_work -= 1
        self._by_class[of] -= 1
        if sample is not None:
            self._limit.update(sample.rtt_us, sample.inflight, sample.dropped, 0.5)


@final
class _PartitionPermit:
    """One place."""

    __slots__ = ("_begun_us", "_of", "_partitions")

    def __init__(self, partitions: Partitions, of: Criticality, begun_us: int) -> None:
        self._partitions: Partitions | None = partitions
        self._of = of
        self._begun_us = begun_us

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Give it back, once."""
        partitions, self._partitions = self._partitions, None
        if partitions is None:
            return False
        partitions.release(self._of, now_us - self._begun_us, now_us)
        return True


def partitions(rig: Rig, world: World) -> Partitions:
    """Return all of the limit for the rig's highest class, and one place for the others."""
    highest = min(kind.criticality for kind in rig.kinds)
    return Partitions(PublishedGradient2(), {highest: 1.0})
