"""Status: what people and machines may see of a running limiter; read-only.

To the state and the metrics of every service it adds the rules and the audit, of all workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, final
from urllib.parse import quote

from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.status import WorkerStatus
from sluicegate.system import now_us
from sluicegate.telemetry.audit_ring import AuditRing


@final
class LimiterStatus:
    """A `contracts.checks.ServiceStatus`."""

    __slots__ = ("_ring", "_rules", "_worker", "metrics", "not_ready", "state")

    def __init__(
        self, worker: WorkerStatus, rules: Callable[[], Mapping[str, object]], ring: AuditRing
    ) -> None:
        self._worker = worker
        self._rules = rules
        self._ring = ring
        self.state = worker.state
        self.metrics = worker.metrics
        self.not_ready = worker.not_ready

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went. Needs AUDIT."""
        by.require(Grant.AUDIT)
        return self._rules()

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Sequence[Mapping[str, object]] | Awaitable[Sequence[Mapping[str, object]]]:
        """Recent decisions about a user, newest first. Needs AUDIT."""
        by.require(Grant.AUDIT)
        number = self._worker.worker.number
        found = self._ring.find(user or None, since_us=since_us or 0, count_max=count_max)
        entries = [{**entry._asdict(), "worker": number} for entry in found]
        if self._worker.alone:
            return entries
        return self._audit_of_all(user, since_us, count_max, entries)

    async def _audit_of_all(
        self, user: str, since_us: int | None, count_max: int, own: list[dict[str, Any]]
    ) -> Sequence[Mapping[str, object]]:
        age = "" if since_us is None else f"&since={-(-(now_us() - since_us) // 1_000)}ms"
        path = f"/v1/audit?user={quote(user, safe='')}&count={count_max}{age}"
        entries = [*own]
        for body in await self._worker.siblings.values(path):
            entries += body["decisions"]
        entries.sort(key=lambda entry: -int(entry["last_us"]))
        return entries[:count_max]
