"""Schemes: the product's two sides of suppression, as a cluster of `accounts` asks them."""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.request import Request
from sluicegate.lab.rigs.accounts import ACCOUNT, AccountRig, Master, Node, Scheme
from sluicegate.lab.world import World
from sluicegate.policies.suppress import FactorMessage, Suppress, SuppressReport, SuppressSettings
from sluicegate.policies.suppress_master import (
    MEAN,
    AccountLimit,
    SuppressMaster,
    SuppressMasterSettings,
)

_OPERATION: Final = Request("operation", caller=ACCOUNT)

# The seed's form: a report every two seconds at most, a mean of 24 s, no fuse.
SEED_NODE: Final = SuppressSettings(
    interval_us=2_000_000, heartbeat_us=2_000_000, doubt_us=8_000_000, fuse_ratio=0
)
SEED_MASTER: Final = SuppressMasterSettings(form=MEAN, valid_us=8_000_000, silent_us=4_000_000)


@final
class SuppressingNode:
    """`policies.suppress` on a node."""

    __slots__ = ("_policy",)

    def __init__(self, name: str, chance: Chance, settings: SuppressSettings | None) -> None:
        self._policy = Suppress(name, 1, chance, settings)

    def admit(self, now_us: int) -> bool:
        """Whether one operation passes; it ends at once."""
        return not isinstance(self._policy.admit(_OPERATION, now_us), Decision)

    def report(self, now_us: int) -> SuppressReport | None:
        """As the policy says."""
        return self._policy.report(now_us)

    def hear(self, message: object, now_us: int) -> None:
        """To the policy."""
        assert isinstance(message, FactorMessage)
        self._policy.hear(message, now_us)


@final
class SuppressingMaster:
    """`policies.suppress_master`; the limit's burst is one second of it, as by default."""

    __slots__ = ("_policy",)

    def __init__(self, per_s: int, now_us: int, settings: SuppressMasterSettings | None) -> None:
        limit = AccountLimit(per_s)
        self._policy = SuppressMaster("master", 1, lambda _: limit, now_us, settings)

    def hear(self, source: str, message: object, now_us: int) -> FactorMessage | None:
        """To the policy."""
        assert isinstance(message, SuppressReport)
        return self._policy.hear(message, now_us)


def suppressing(
    node: SuppressSettings | None = None, master: SuppressMasterSettings | None = None
) -> Scheme:
    """The product's scheme; what is not given is as in production."""

    def make_node(rig: AccountRig, number: int, world: World) -> Node:
        return SuppressingNode(f"node-{number}", world.chance(f"suppress/{number}"), node)

    def make_master(rig: AccountRig, world: World) -> Master:
        return SuppressingMaster(rig.per_s, world.clock.now_us(), master)

    settings = SuppressSettings() if node is None else node
    return Scheme(make_node, make_master, settings.interval_us)
