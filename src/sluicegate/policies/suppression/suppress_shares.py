"""Suppress shares: an account's limit divided among nodes by what each attempts.

The other way for nodes to hold an account that is over (L, B) to it. Whether it is over, the master
of `suppress_master.py` judges as ever; then it says no fraction to reject, but what part of (L, B)
each node may have, and the node holds a bucket of it:

    share of a node that attempts d_n of d     rate L * d_n / d     burst B * d_n / d

A fraction of a surge is a surge; a bucket admits no more than it holds, whatever comes. It begins
empty, for who is over has spent its burst. While an account is not over there are no shares, so
one that conforms is never held to what its nodes had before its traffic moved.

What it costs: who is over has its traffic refused where it has just moved, until a second shows it;
a fraction is the same on every node. And a share is a whole number of at least one a second, so
limits should be well above the number of nodes. Figures: docs/decisions/0009.

Cost: a ring an account and node at the master; an addition and a division a report, the sum over
the nodes once a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, final

from sluicegate.kernels.moving_rate import SECOND_US, SlotRing

SLOTS: Final = 10
SLOT_US: Final = SECOND_US // SLOTS


class NodeShare(NamedTuple):
    """What one node may have of an account's limit."""

    per_s: int
    burst: int


def new_demand() -> SlotRing:
    """What an account attempts at one node, in the last second."""
    return SlotRing(SLOTS, SLOT_US)


def demand_per_s(rings: Iterable[SlotRing], now_us: int) -> float:
    """What all of them show, a second."""
    # Slots begin at whole multiples: nine of them, and what the tenth has had.
    span_us = (SLOTS - 1) * SLOT_US + now_us % SLOT_US + 1
    count = 0
    for ring in rings:
        ring.advance(now_us)
        count += ring.total
    return count * SECOND_US / span_us


def share_of(own: float, demand: float, per_s: float, burst: int) -> NodeShare:
    """The part of (`per_s`, `burst`) of a node that attempts `own` of the account's `demand`."""
    part = own / max(own, demand, 1.0)
    return NodeShare(max(round(per_s * part), 1), max(round(burst * part), 1))


@final
class ShareBucket:
    """A bucket whose rate and size change; it begins empty.

    An operation that is heavier than the bucket passes when that is full, and is paid off.
    """

    __slots__ = ("_at_us", "_tokens", "burst", "per_s")

    def __init__(self, now_us: int) -> None:
        self.per_s = 0.0
        self.burst = 0.0
        self._tokens = 0.0
        self._at_us = now_us

    def change(self, per_s: float, burst: float, now_us: int) -> None:
        """From now on another rate and size; what it holds stays, as far as there is room."""
        self._fill(now_us)
        self.per_s = per_s
        self.burst = burst
        self._tokens = min(self._tokens, burst)

    def take(self, cost: int, now_us: int) -> bool:
        """Whether so much is there, and take it."""
        self._fill(now_us)
        if self._tokens < min(float(cost), self.burst):
            return False
        self._tokens -= float(cost)
        return True

    def give_back(self, cost: int) -> None:
        """Undo a `take`."""
        self._tokens = min(self._tokens + float(cost), self.burst)

    def _fill(self, now_us: int) -> None:
        if now_us > self._at_us:
            gained = self.per_s * (now_us - self._at_us) / SECOND_US
            self._tokens = min(self._tokens + gained, self.burst)
        self._at_us = now_us
