"""Fixed shares: every node admits its equal part of the limit, L / N, with its part of the burst.

It is what one does without a channel between the nodes: exact, and never above the limit. It is not
able to use what the others leave: an account whose users come to a few nodes gets those nodes'
parts.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.rigs.accounts import SECOND_US, AccountRig, Scheme
from sluicegate.lab.world import World


@final
class FixedShare:
    """A bucket; it tells nothing and hears nothing."""

    __slots__ = ("_bucket",)

    def __init__(self, per_s: int, nodes: int) -> None:
        self._bucket = TokenBucket(per_s, nodes * SECOND_US, max(per_s // nodes, 1))

    def admit(self, now_us: int) -> bool:
        """If the bucket has it."""
        return self._bucket.take(1, now_us).allowed

    def report(self, now_us: int) -> None:
        """Nothing to tell."""

    def hear(self, message: object, now_us: int) -> None:
        """Nothing to hear."""


@final
class NobodysMaster:
    """Hears nothing and says nothing."""

    __slots__ = ()

    def hear(self, source: str, message: object, now_us: int) -> None:
        """Nothing to answer."""


def _node(rig: AccountRig, number: int, world: World) -> FixedShare:
    return FixedShare(rig.per_s, rig.nodes)


def _master(rig: AccountRig, world: World) -> NobodysMaster:
    return NobodysMaster()


fixed_shares = Scheme(_node, _master)
