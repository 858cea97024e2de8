"""Ledger: every decision of the service, recorded in the counts, the audit and the dead letters.

It stands on the way of each answer, so it does three small things and nothing else. What was
decided without the store is offered to the dead letters; offering never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.observer import Observer
from sluicegate.contracts.rule import Limit
from sluicegate.system import now_us
from sluicegate.telemetry.audit_ring import AuditRing
from sluicegate.telemetry.service_metrics import ServiceMetrics

# Entity, rule, cost, priority, decision, when it was made, and the limit if there was one.
Offer = Callable[[str, str, int, Criticality, Decision, int, "Limit | None"], None]


@final
class ServiceLedger:
    """A `contracts.checks.Ledger`.

    `decided` and `refused` count, for each class, what was decided since `reset_counts`.
    """

    __slots__ = ("_offer", "_spans", "decided", "metrics", "refused", "ring")

    def __init__(
        self,
        metrics: ServiceMetrics,
        ring: AuditRing,
        offer: Offer | None,
        spans: Observer | None = None,
    ) -> None:
        self.metrics = metrics
        self.ring = ring
        self._offer = offer
        self._spans = spans
        self.reset_counts()

    def fork(self) -> ServiceLedger:
        """One that records in the same places, and counts by itself."""
        return ServiceLedger(self.metrics, self.ring, self._offer, self._spans)

    def reset_counts(self) -> None:
        """Count from nothing: other rules are in force."""
        self.decided = [0] * len(Criticality)
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
        """Record one decision."""
        at_us = now_us()
        self.decided[priority] += 1
        if not decision.allowed:
            self.refused[priority] += 1
        self.metrics.record_decision(rule_id, priority, decision, at_us - began_us)
        self.ring.record(entity, rule_id, cost, priority, decision, at_us)
        if self._spans is not None:
            self._spans.record_decision(decision, entity, began_us, at_us)
        if decision.degraded and self._offer is not None:
            self._offer(entity, rule_id, cost, priority, decision, at_us, limit)
