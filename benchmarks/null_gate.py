"""Null gate: a service's gate and ledger where nothing happens, for tests and measurements."""

from __future__ import annotations

from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit


@final
class NullGate:
    """A `contracts.checks.CheckGate` that sheds nobody, and a `Ledger` that keeps nothing."""

    __slots__ = ()

    def refusal(self, priority: Criticality, caller: str) -> Decision | None:
        """Nobody is refused."""
        return None

    def status(self) -> str:
        """Return all is calm."""
        return ""

    def node_status(self) -> str:
        """Return so it is here."""
        return ""

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
        """Heard, and forgotten."""
