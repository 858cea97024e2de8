"""Parts of a replay: what a limiter meets in a replay instead of the world.

The instant is that of the request at hand, nothing is shed, and the ledger keeps of each decision
only what the response does not say. Nothing here decides.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.contracts.checks import STATUS_NORMAL
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit


@final
class VirtualClock:
    """A clock that stands where the replay has put it."""

    __slots__ = ("at_us",)

    def __init__(self, at_us: int = 0) -> None:
        self.at_us = at_us

    def now_us(self) -> int:
        """The instant of the request at hand."""
        return self.at_us


@final
class CalmGate:
    """Sheds nothing: a replay shows what the rules do, not what stress would have done."""

    __slots__ = ()

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """Nothing is shed."""
        return None

    def status(self) -> str:
        """All is calm."""
        return STATUS_NORMAL

    def node_status(self) -> str:
        """So it is here."""
        return STATUS_NORMAL


@final
class DecisionLedger:
    """A ledger of one decision: the first rule that refused, and trials that would have."""

    __slots__ = ("refusing", "trials")

    def __init__(self) -> None:
        self.refusing = ""
        self.trials: Final[list[str]] = []

    def begin(self) -> None:
        """Begin the next decision."""
        self.refusing = ""
        self.trials.clear()

    def record_decision(
        self,
        entity: str,
        rule_id: str,
        cost: int,
        priority: Criticality,
        decision: Decision,
        began_us: int,
        limit: Limit | None = None,
    ) -> None:
        """Keep what a rule has refused."""
        if decision.reason is None:
            return
        if decision.shadow:
            self.trials.append(rule_id)
        elif not decision.allowed and not self.refusing:
            self.refusing = rule_id
