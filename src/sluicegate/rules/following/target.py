"""Target: what a rollout means for one node, and why a node would not follow it.

Pure. A pin for the node goes before everything. A canary of nodes is, for
a node in its share, what it runs; a canary of callers is run beside the live release.

Rollouts are followed by their numbers, each higher than any seen before, so nobody can bring a node
back to an old one by showing it again. A live release older than that of the rollout before is
followed only where the rollout says `back`, or one in between, which this node has missed, did.
What a pin or a canary brought to this node alone is no such floor: it may always be let go of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.contracts.rulebook import BY_NODES, Rollout
from sluicegate.rules.following.fleet_books import in_share


class RolloutTarget(NamedTuple):
    """What a node is to run: a version, and another for a share of its callers, 0 for none."""

    version: int
    canary: int = 0
    share: int = 0
    salt: str = ""

    @property
    def versions(self) -> tuple[int, ...]:
        """All that must be there."""
        return (self.version, self.canary) if self.canary else (self.version,)


def choose(rollout: Rollout, node: str) -> RolloutTarget:
    """What this node is to run by this rollout."""
    pinned = rollout.pins.get(node)
    if pinned is not None:
        return RolloutTarget(pinned)
    canary = rollout.canary
    if canary is None or canary.share == 0 or canary.version == rollout.live:
        return RolloutTarget(rollout.live)
    if canary.by == BY_NODES:
        is_canary = in_share(node, share=canary.share, salt=canary.salt)
        return RolloutTarget(canary.version if is_canary else rollout.live)
    return RolloutTarget(rollout.live, canary.version, canary.share, canary.salt)


def is_older(rollout: Rollout, current: Rollout | None) -> bool:
    """Whether these would lead to an older live version without saying that they mean it."""
    return current is not None and rollout.live < current.live and not rollout.back


def is_older_after(rollout: Rollout, current: Rollout, between: Sequence[Rollout]) -> bool:
    """The same, for a node that has missed rollouts: those between, the oldest first."""
    for missed in between:
        if not is_older(missed, current):
            current = missed
    return is_older(rollout, current)
