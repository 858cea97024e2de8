"""Demand shares: every node gets the part of the limit that its part of the demand is.

A node tells what it was asked for in the last second, and hears what all were; its bucket fills at
its share of the limit and holds that part of the burst. While it hears nothing it keeps its last
share. It is exact, quick, and cannot overshoot by more than its buckets hold. It is not harmless: a
conforming account whose traffic moves to another node meets a bucket made for what was before.
"""

from __future__ import annotations

from typing import NamedTuple, final

from sluicegate.kernels.moving_rate import SlotRing
from sluicegate.lab.rigs.accounts import SECOND_US, AccountRig, Scheme
from sluicegate.lab.world import World

SLOTS = 10


class Demand(NamedTuple):
    """What a node was asked for in the last second."""

    asked: int
    sent_us: int


class Share(NamedTuple):
    """What part of the limit a node may use, as of when."""

    share: float
    sent_us: int


@final
class SharingNode:
    """A bucket of its own whose rate is told."""

    __slots__ = ("_asked", "_at_us", "_per_s", "_share", "_tokens", "_told_us")

    def __init__(self, per_s: int, nodes: int) -> None:
        self._per_s = per_s
        self._asked = SlotRing(SLOTS, SECOND_US // SLOTS)
        self._share = 1.0 / nodes
        self._told_us = 0
        self._tokens = per_s * self._share
        self._at_us = 0

    def admit(self, now_us: int) -> bool:
        """If the bucket has it; refused or not, it was asked for."""
        self._asked.add(1, now_us)
        self._fill(now_us)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def report(self, now_us: int) -> Demand:
        """What was asked for."""
        self._asked.advance(now_us)
        return Demand(self._asked.total, now_us)

    def hear(self, message: object, now_us: int) -> None:
        """A new share; a late word is void."""
        assert isinstance(message, Share)
        if message.sent_us <= self._told_us:
            return
        self._fill(now_us)
        # What the bucket held grows and shrinks with it: a new share is no new burst.
        if self._share > 0.0:
            self._tokens = min(self._tokens, self._per_s * message.share)
        self._share = message.share
        self._told_us = message.sent_us

    def _fill(self, now_us: int) -> None:
        rate = self._per_s * self._share
        passed_us = max(now_us - self._at_us, 0)
        self._tokens = min(self._tokens + rate * passed_us / SECOND_US, max(rate, 1.0))
        self._at_us = now_us


@final
class SharingMaster:
    """Adds up the demand, and tells each node its part."""

    __slots__ = ("_asked", "_nodes")

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._asked: dict[str, Demand] = {}

    def hear(self, source: str, message: object, now_us: int) -> Share:
        """The part of who has just told; of nothing, everybody has the same."""
        assert isinstance(message, Demand)
        known = self._asked.get(source)
        if known is None or known.sent_us < message.sent_us:
            self._asked[source] = message
        demand = sum(told.asked for told in self._asked.values())
        share = self._asked[source].asked / demand if demand else 1.0 / self._nodes
        return Share(share, now_us)


def _node(rig: AccountRig, number: int, world: World) -> SharingNode:
    return SharingNode(rig.per_s, rig.nodes)


def _master(rig: AccountRig, world: World) -> SharingMaster:
    return SharingMaster(rig.nodes)


demand_shares = Scheme(_node, _master)
