"""Audit: recent decisions of all workers of a service, for `sluicegate why`."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Protocol, final
from urllib.parse import quote

from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.status import WorkerStatus
from sluicegate.system import now_us


class KeptDecision(Protocol):
    """One kept decision: a named tuple that has a `last_us`."""

    def _asdict(self) -> dict[str, Any]: ...


class DecisionRing(Protocol):
    """Where one worker keeps its decisions."""

    def find(
        self, entity: str | None, *, since_us: int = 0, count_max: int = 100
    ) -> Iterable[KeptDecision]:
        """Return the entries about an entity (None: about any), the newest first."""
        ...


@final
class ServiceAudit:
    """The decisions in the ring of this worker and in those of its siblings."""

    __slots__ = ("_ring", "_worker")

    def __init__(self, worker: WorkerStatus, ring: DecisionRing) -> None:
        self._worker = worker
        self._ring = ring

    def find(
        self, user: str, *, since_us: int | None, count_max: int, by: Identity
    ) -> Sequence[Mapping[str, object]] | Awaitable[Sequence[Mapping[str, object]]]:
        """Return recent decisions about a user, newest first. Needs AUDIT."""
        by.require(Grant.AUDIT)
        number = self._worker.worker.number
        found = self._ring.find(user or None, since_us=since_us or 0, count_max=count_max)
        entries = [{**entry._asdict(), "worker": number} for entry in found]
        if self._worker.alone:
            return entries
        return self._find_in_all(user, since_us, count_max, entries)

    async def _find_in_all(
        self, user: str, since_us: int | None, count_max: int, own: list[dict[str, Any]]
    ) -> Sequence[Mapping[str, object]]:
        age = "" if since_us is None else f"&since={-(-(now_us() - since_us) // 1_000)}ms"
        path = f"/v1/audit?user={quote(user, safe='')}&count={count_max}{age}"
        entries = [*own]
        for body in await self._worker.siblings.values(path):
            entries += body["decisions"]
        entries.sort(key=lambda entry: -int(entry["last_us"]))
        return entries[:count_max]
