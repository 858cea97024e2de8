"""Account schemes: an account without a limit, and with a fixed share of it at each node.

*No suppression* admits everything on every node. It is what an account-wide limit replaces.

*Fixed shares* gives every node its equal part of the limit, L / N, with its part of the burst. It
is what one does without a channel between the nodes: exact, and never above the limit. It
cannot use what the others leave: an account whose users come to a few nodes gets those nodes'
parts.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.token_bucket import TokenBucket
from sluicegate.lab.rigs.accounts import (
    SECOND_US,
    AccountScheme,
)
from sluicegate.policies.suppression.suppress import SuppressSettings

SLOTS: Final = 10
TWO_SPEED_NODE: Final = SuppressSettings(fuse_ratio=0)
TWO_SPEED_VALID_US: Final = 2_000_000


@final
class _SilentMaster:
    """Reads no report and sends none."""

    def receive(self, source: str, message: object, now_us: int) -> None:
        return None


@final
class _OpenNode:
    """Admits everything."""

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return True

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


@final
class _FixedShareNode:
    """A bucket that sends and hears nothing."""

    def __init__(self, per_s: int, nodes: int) -> None:
        self._bucket = TokenBucket(per_s, nodes * SECOND_US, max(per_s // nodes, 1))

    def admit(self, now_us: int, cost: int = 1) -> bool:
        return self._bucket.take(cost, now_us).allowed

    def report(self, now_us: int) -> None:
        return None

    def receive(self, message: object, now_us: int) -> None:
        return None


no_suppression: Final = AccountScheme(
    lambda rig, number, world: _OpenNode(), lambda rig, world: _SilentMaster()
)
fixed_shares: Final = AccountScheme(
    lambda rig, number, world: _FixedShareNode(rig.per_s, rig.nodes),
    lambda rig, world: _SilentMaster(),
)
