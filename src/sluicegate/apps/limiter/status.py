"""Status: what people and machines may see of a running limiter; read-only.

To the state and the metrics of every service it adds the rules and the audit, of all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.audit import ServiceAudit
from sluicegate.service.status import WorkerStatus
from sluicegate.telemetry.audit_ring import AuditRing


@final
class LimiterStatus:
    """A `contracts.checks.ServiceStatus`."""

    __slots__ = ("_rules", "audit", "metrics", "not_alive", "not_ready", "state")

    def __init__(
        self, worker: WorkerStatus, rules: Callable[[], Mapping[str, object]], ring: AuditRing
    ) -> None:
        self._rules = rules
        self.audit = ServiceAudit(worker, ring).find
        self.state = worker.state
        self.metrics = worker.metrics
        self.not_ready = worker.not_ready
        self.not_alive = worker.not_alive

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went. Needs AUDIT."""
        by.require(Grant.AUDIT)
        return self._rules()
