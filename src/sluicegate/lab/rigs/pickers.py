"""Pickers: the product's balancer before a group of hosts, with its defaults and with parts out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.request import Request
from sluicegate.lab.dice import Dice
from sluicegate.lab.rigs.hosts import HostsRig, Pick
from sluicegate.policies.balance import Balance, BalanceSettings
from sluicegate.policies.outlier import Outlier, OutlierSettings

NO_EJECTION: Final = OutlierSettings(ejected_percent_max=0)
# A failure is entered as it took.
NO_PENALTY: Final = BalanceSettings(penalty_us=0)


@final
class Balanced:
    """`policies.balance`, as a rig asks it."""

    __slots__ = ("_balance", "_outlier")

    def __init__(self, balance: Balance) -> None:
        self._balance = balance
        self._outlier = balance.outlier

    def pick(self, key: str, now_us: int) -> Pick:
        """A permit, which knows its host."""
        permit = self._balance.admit(Request(key), now_us)
        assert not isinstance(permit, Decision), "a group with hosts refuses nobody"
        return permit

    def out(self) -> Collection[str]:
        """Who is ejected."""
        return self._outlier.out


def balanced(
    *, settings: BalanceSettings | None = None, outlier: OutlierSettings | None = None
) -> Callable[[HostsRig, Dice], Balanced]:
    """What makes the balancer for a rig; what is not given is as in production."""

    def make(rig: HostsRig, dice: Dice) -> Balanced:
        watch = Outlier(rig.names, dice.of("outlier"), outlier)
        return Balanced(Balance(rig.names, dice.of("balance"), settings, watch))

    return make
