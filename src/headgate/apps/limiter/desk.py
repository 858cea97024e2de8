"""Desk: what people and machines may see of a running limiter.

Each part of the service says itself what there is to see of it; this puts the parts together, adds
the other workers where there are several, and asks for the grant. Nothing here can be changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, final
from urllib.parse import quote

from headgate import __version__
from headgate.contracts.access import Grant, Identity
from headgate.peers import Peers, merged_pages
from headgate.plain_values import plain
from headgate.system import now_us
from headgate.telemetry.audit_ring import AuditRing
from headgate.telemetry.prometheus import Family, page

Part = Callable[[], object]
Families = Callable[[], Iterable[Family]]


@final
class LimiterDesk:
    """A `contracts.checks.Desk`. `alone` is for the peers: it asks nobody else."""

    __slots__ = (
        "_alone",
        "_families",
        "_not_ready",
        "_parts",
        "_peers",
        "_ring",
        "_rulebook",
        "_since_us",
    )

    def __init__(
        self,
        *,
        parts: Mapping[str, Part],
        families: Sequence[Families],
        rulebook: Callable[[], Mapping[str, object]],
        not_ready: Callable[[], str],
        ring: AuditRing,
        peers: Peers,
        alone: bool = False,
    ) -> None:
        self._alone = alone or not len(peers)
        self._parts = parts
        self._families = families
        self._rulebook = rulebook
        self._not_ready = not_ready
        self._ring = ring
        self._peers = peers
        self._since_us = now_us()

    def rulebook(self, by: Identity) -> Mapping[str, object]:
        """Which rules are in force, and how the last load went."""
        by.must(Grant.AUDIT)
        return self._rulebook()

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now."""
        by.must(Grant.AUDIT)
        at_us = now_us()
        said: dict[str, object] = {
            "app": "limiter",
            "version": __version__,
            "worker": self._peers.worker,
            "workers": len(self._peers) + 1,
            "at_us": at_us,
            "up_us": at_us - self._since_us,
            "not_ready": self._not_ready(),
        }
        for name, part in self._parts.items():
            said[name] = plain(part())
        return said

    def audit(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Sequence[Mapping[str, object]] | Awaitable[Sequence[Mapping[str, object]]]:
        """Recent decisions about a user, newest first."""
        by.must(Grant.AUDIT)
        found = self._ring.about(user or None, since_us=since_us or 0, count_max=count_max)
        entries = [{**entry._asdict(), "worker": self._peers.worker} for entry in found]
        if self._alone:
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
        several = len(self._peers) > 0
        labels = {"worker": str(self._peers.worker)} if several else {}
        families = [family for source in self._families for family in source()]
        text = page(families, labels=labels).decode()
        return text if self._alone else self._metrics_of_all(text)

    async def _metrics_of_all(self, mine: str) -> str:
        return merged_pages([mine, *await self._peers.texts("/metrics")])

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._not_ready()
