"""Ledger: every decision of the service, told to the counts, the audit and the dead letters.

It stands on the way of each answer, so it does three small things and nothing else. What was
decided without the store is offered to the dead letters; offering never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.rule import Limit
from sluicegate.system import now_us
from sluicegate.telemetry.audit_ring import AuditRing
from sluicegate.telemetry.service_metrics import ServiceMetrics

# Entity, rule, weight, priority, decision, when it was made, and the limit if there was one.
Offer = Callable[[str, str, int, Criticality, Decision, int, "Limit | None"], None]


@final
class ServiceLedger:
    """A `contracts.checks.Ledger`.

    `asked` and `refused` count, for each class, what was decided since `count_anew`.
    """

    __slots__ = ("_offer", "asked", "refused", "ring", "tally")

    def __init__(self, tally: ServiceMetrics, ring: AuditRing, offer: Offer | None) -> None:
        self.tally = tally
        self.ring = ring
        self._offer = offer
        self.count_anew()

    def beside(self) -> ServiceLedger:
        """One that tells the same, and counts by itself."""
        return ServiceLedger(self.tally, self.ring, self._offer)

    def count_anew(self) -> None:
        """Other rules are in force."""
        self.asked = [0] * len(Criticality)
        self.refused = [0] * len(Criticality)

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
        """Take note of one decision."""
        at_us = now_us()
        self.asked[priority] += 1
        if not decision.allowed:
            self.refused[priority] += 1
        self.tally.record_decision(rule_id, priority, decision, at_us - began_us)
        self.ring.record(entity, rule_id, cost, priority, decision, at_us)
        if decision.degraded and self._offer is not None:
            self._offer(entity, rule_id, cost, priority, decision, at_us, limit)
