"""Two speeds: the master believes the greater of a 24 s mean and the last second.

It is the quick cure for a 24 s mean, with the product's own node: a step is seen in a second. At
its best each of the two is allowed the burst that its window may show. It is not quick to let go:
the mean remembers for 24 s what is over.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.moving_rate import MovingRate, SlotRing
from sluicegate.kernels.suppression import burst_allowance, exact
from sluicegate.lab.rigs.accounts import ACCOUNT, SECOND_US, AccountRig, Scheme
from sluicegate.lab.rigs.schemes import SuppressingNode
from sluicegate.lab.world import World
from sluicegate.policies.suppress import (
    AccountFactor,
    FactorMessage,
    SuppressReport,
    SuppressSettings,
)

VALID_US = 2_000_000
SLOTS = 10
NODE = SuppressSettings(fuse_ratio=0)


@final
class TwoSpeedMaster:
    """Adds up the nodes' totals and answers with the greater of two factors."""

    __slots__ = ("_generation", "_mean", "_per_s", "_recent", "_totals")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._mean = MovingRate()
        self._recent = SlotRing(SLOTS, SECOND_US // SLOTS)
        self._totals: dict[str, int] = {}
        self._generation = 0

    def hear(self, source: str, message: object, now_us: int) -> FactorMessage | None:
        """Count what is new, and answer."""
        assert isinstance(message, SuppressReport)
        for count in message.counts:
            gained = max(count.total - self._totals.get(source, 0), 0)
            self._totals[source] = self._totals.get(source, 0) + gained
            self._mean.add(gained, now_us)
            self._recent.add(gained, now_us)
        if not message.counts:
            return None
        self._generation += 1
        told = AccountFactor(ACCOUNT, self._factor(now_us), self._per_s, self._per_s)
        nodes = max(len(self._totals), 1)
        return FactorMessage("master", 1, self._generation, VALID_US, nodes, (told,))

    def _factor(self, now_us: int) -> float:
        limit, burst = float(self._per_s), self._per_s
        count, span_us = self._mean.mean(now_us)
        slow = exact(count * SECOND_US / span_us, limit, burst_allowance(burst, span_us))
        recent = self._recent
        recent.advance(now_us)
        span_us = (recent.slots - 1) * recent.slot_us + now_us % recent.slot_us + 1
        fast = exact(recent.total * SECOND_US / span_us, limit, burst_allowance(burst, span_us))
        return max(slow, fast)


def _node(rig: AccountRig, number: int, world: World) -> SuppressingNode:
    return SuppressingNode(f"node-{number}", world.chance(f"suppress/{number}"), NODE)


def _master(rig: AccountRig, world: World) -> TwoSpeedMaster:
    return TwoSpeedMaster(rig.per_s)


two_speed = Scheme(_node, _master, NODE.interval_us)
