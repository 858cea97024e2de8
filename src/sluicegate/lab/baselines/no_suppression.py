"""No suppression: every node admits everything. It is what an account-wide limit replaces."""

from __future__ import annotations

from typing import final

from sluicegate.lab.baselines.fixed_shares import NobodysMaster
from sluicegate.lab.rigs.accounts import AccountRig, Scheme
from sluicegate.lab.world import World


@final
class OpenNode:
    """Admits."""

    __slots__ = ()

    def admit(self, now_us: int) -> bool:
        """Always."""
        return True

    def report(self, now_us: int) -> None:
        """Nothing to tell."""

    def hear(self, message: object, now_us: int) -> None:
        """Nothing to hear."""


def _node(rig: AccountRig, number: int, world: World) -> OpenNode:
    return OpenNode()


def _master(rig: AccountRig, world: World) -> NobodysMaster:
    return NobodysMaster()


no_suppression = Scheme(_node, _master)
