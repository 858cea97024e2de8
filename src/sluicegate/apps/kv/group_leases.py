"""Group leases: a tree of quotas whose bounds are leased between dispatchers.

Each dispatcher has its own tree (`policies/quota/resource_groups.py`) with a part of each group.
The part follows the demand: the demand here, divided by the demand that heartbeats report
everywhere. So a group has its quota at any dispatcher that its callers use, and unused quota is
lent there.

Heartbeats are late by half a second, so parts may add up to more than the whole for an epoch. What
the tree admits is therefore taken from blocks of two kinds besides, leased from the store as those
of single callers are: of the whole, and of each ceiling on the way up. Together the dispatchers
never have more than either in an epoch, whatever they know of each other.

Cost: a charge of the tree, and one more for each bound. Bound: `GROUPS_MAX` accounts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final, final

from sluicegate.apps.kv.members import Members, demand_shares
from sluicegate.apps.kv.quota_leases import QuotaLeases
from sluicegate.apps.kv.tables.jobs import KEEPER
from sluicegate.kernels.cost_model import MILLI
from sluicegate.kernels.verdict import Verdict
from sluicegate.policies.quota.group_settings import ResourceGroupsSettings
from sluicegate.policies.quota.leased_budget import LIVE, RU_MAX
from sluicegate.policies.quota.resource_groups import ResourceGroups

ACCOUNT: Final = "group:"  # begins the names of the bounds in the store
KEEPER_RU: Final = 1 << 40  # what folds and sweeps has no quota, only the lowest class
_RU_MIN: Final = 1


@final
class GroupLeases:
    """A `Budget` of groups, and a `Supply` of what they lack."""

    __slots__ = ("_leases", "_members", "_quota_leases", "tree")

    def __init__(
        self, tree: ResourceGroups, quota_leases: QuotaLeases, members: Members, *, leases: bool
    ) -> None:
        self.tree = tree
        self._quota_leases = quota_leases
        self._members = members
        self._leases = quota_leases.budget if leases else None
        self._bound()

    @property
    def leases(self) -> bool:
        """Whether blocks of the bounds come out of a store."""
        return self._leases is not None

    # As a budget; what folds and sweeps is outside.

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Charge the tree, then the bounds; one that refuses gives all of it back."""
        if caller == KEEPER:
            return Verdict(True, KEEPER_RU, 0, 0)
        verdict = self.tree.charge(caller, mru, now_us)
        leases = self._leases
        if leases is None or not verdict.allowed:
            return verdict
        accounts = self._accounts(caller)
        for place, account in enumerate(accounts):
            bound = leases.charge(account, mru, now_us)
            if not bound.allowed:
                for charged in accounts[:place]:
                    leases.settle(charged, -mru, now_us)
                self.tree.settle(caller, -mru, now_us)
                return bound
        return verdict

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Settle in the tree and in its bounds; return the amount that the tree could not take."""
        if caller == KEEPER:
            return 0
        left_mru = self.tree.settle(caller, mru, now_us)
        if self._leases is not None:
            for account in self._accounts(caller):
                self._leases.settle(account, mru - left_mru, now_us)
        return left_mru

    def payable_mru(self, caller: str, now_us: int) -> int:
        """The least of what the tree and the bounds could have."""
        if caller == KEEPER:
            return KEEPER_RU
        payable = self.tree.payable_mru(caller, now_us)
        if self._leases is not None:
            for account in self._accounts(caller):
                payable = min(payable, self._leases.payable_mru(account, now_us))
        return payable

    # As a supply.

    def before(self, caller: str, now_us: int) -> Awaitable[bool] | None:
        """Before a request is judged: what to wait for; None, mostly, is nothing."""
        if self._leases is None or caller == KEEPER:
            return None
        for account in self._accounts(caller):
            coming = self._quota_leases.before(account, now_us)
            if coming is not None:
                return coming
        return None

    def more(self, caller: str) -> Awaitable[bool] | None:
        """After `QUOTA_SPENT`: what to wait for before it is judged once more; None: it stands."""
        if self._leases is None or caller == KEEPER:
            return None
        for account in self._accounts(caller):
            coming = self._quota_leases.more(account)
            if coming is not None:
                return coming
        return None

    # For the keeper.

    def follow(self, now_us: int) -> None:
        """Say what is asked for here, and take this dispatcher's parts from what all have said."""
        members, tree = self._members, self.tree
        live = max(1, members.live())
        tree.set_live(live)
        self._quota_leases.budget.set_live(live)
        if self._quota_leases.budget.settings.form == LIVE:
            return
        members.tell(tree.demands(now_us))
        if live > 1:
            tree.set_parts(demand_shares(members, tree.ceiling_mru))
        else:
            tree.set_parts({})

    def replace(self, settings: ResourceGroupsSettings, now_us: int) -> None:
        """Another tree, from the next epoch on."""
        self.tree.replace(settings, now_us)
        self._bound()

    # Inside.

    def _bound(self) -> None:
        if self._leases is not None:
            bounds: Mapping[str, int] = {
                f"{ACCOUNT}{name}": min(max(mru // MILLI, _RU_MIN), RU_MAX)
                for name, mru in self.tree.bounds().items()
            }
            self._leases.set_quotas(_RU_MIN, bounds)

    def _accounts(self, caller: str) -> list[str]:
        return [f"{ACCOUNT}{name}" for name in self.tree.bounds_of(caller)]
