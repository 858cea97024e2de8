"""Glass budget: what nobody is refused for a quota while somebody has stopped enforcement of it.

Stands before the budget that request units are charged to. While the glass is broken for a caller,
or for its rule `quota:CALLER`, nothing is taken from its quota and nothing is given back; for all
others, and once it is whole again, everything is handed on.
"""

from __future__ import annotations

from typing import final

from sluicegate.kernels.verdict import Verdict
from sluicegate.limits.glass.break_glass import Glass
from sluicegate.policies.quota.budgets import Budget


@final
class GlassBudget:
    """A budget that a broken glass stands before."""

    __slots__ = ("_budget", "_glass")

    def __init__(self, budget: Budget, glass: Glass) -> None:
        self._budget = budget
        self._glass = glass

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Charge, unless that is stopped."""
        if self._is_stopped(caller, now_us):
            return Verdict(True, self._budget.payable_mru(caller, now_us), 0, 0)
        return self._budget.charge(caller, mru, now_us)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct, unless that is stopped."""
        if self._is_stopped(caller, now_us):
            return 0
        return self._budget.settle(caller, mru, now_us)

    def payable_mru(self, caller: str, now_us: int) -> int:
        """As the budget says."""
        return self._budget.payable_mru(caller, now_us)

    def _is_stopped(self, caller: str, now_us: int) -> bool:
        glass = self._glass
        if not glass.broken:
            return False
        return glass.opening_for(f"quota:{caller}", caller, now_us) is not None
