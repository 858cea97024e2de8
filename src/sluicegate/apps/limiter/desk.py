"""Desk: what people and machines may see of a running limiter.

What each part says of itself is put together by the overview; this adds the rules and the audit, of
all workers where there are several. Nothing here can be changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, final
from urllib.parse import quote

from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.siblings import Peers
from sluicegate.service.status import Overview
from sluicegate.system import now_us
from sluicegate.telemetry.audit_ring import AuditRing


@final
class LimiterDesk:
    """A `contracts.checks.ServiceStatus`."""

    __slots__ = ("_overview", "_peers", "_ring", "_rulebook")

    def __init__(
        self,
        overview: Overview,
        *,
        rulebook: Callable[[], Mapping[str, object]],
        ring: AuditRing,
        peers: Peers,
    ) -> None:
        self._overview = overview
        self._rulebook = rulebook
        self._ring = ring
        self._peers = peers

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went."""
        by.must(Grant.AUDIT)
        return self._rulebook()

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now."""
        return self._overview.state(by)

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Sequence[Mapping[str, object]] | Awaitable[Sequence[Mapping[str, object]]]:
        """Recent decisions about a user, newest first."""
        by.must(Grant.AUDIT)
        found = self._ring.find(user or None, since_us=since_us or 0, count_max=count_max)
        entries = [{**entry._asdict(), "worker": self._peers.worker} for entry in found]
        if self._overview.alone:
            return entries
        return self._audit_of_all(user, since_us, count_max, entries)

    async def _audit_of_all(
        self, user: str, since_us: int | None, count_max: int, mine: list[dict[str, Any]]
    ) -> Sequence[Mapping[str, object]]:
        since = "" if since_us is None else f"&since={-(-(now_us() - since_us) // 1_000)}ms"
        path = f"/v1/audit?user={quote(user, safe='')}&count={count_max}{since}"
        entries = [*mine]
        for said in await self._peers.values(path):
            entries += said["decisions"]
        entries.sort(key=lambda entry: -int(entry["last_us"]))
        return entries[:count_max]

    def metrics(self) -> str | Awaitable[str]:
        """All metrics as Prometheus text."""
        return self._overview.metrics()

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._overview.not_ready()
