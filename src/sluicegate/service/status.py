"""Overview: what there is to see of a running service, its state and its metrics, put together.

Each part says itself what there is to see of it. Where several workers share a port, each tells its
own state, and the metrics are those of all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.service.plain_values import plain
from sluicegate.service.siblings import Peers, merged_pages
from sluicegate.system import now_us
from sluicegate.telemetry.prometheus import MetricFamily, page

Part = Callable[[], object]
Families = Callable[[], Iterable[MetricFamily]]


@final
class Overview:
    """Of one worker of `app`. One that is `alone` asks no other: it is for the others to see."""

    __slots__ = (
        "_app",
        "_families",
        "_not_ready",
        "_parts",
        "_peers",
        "_since_us",
        "_version",
        "alone",
    )

    def __init__(
        self,
        app: str,
        version: str,
        *,
        parts: Mapping[str, Part],
        families: Sequence[Families],
        not_ready: Callable[[], str],
        peers: Peers,
        alone: bool = False,
    ) -> None:
        self.alone = alone or not len(peers)
        self._app = app
        self._version = version
        self._parts = parts
        self._families = families
        self._not_ready = not_ready
        self._peers = peers
        self._since_us = now_us()

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now. Needs AUDIT."""
        by.must(Grant.AUDIT)
        at_us = now_us()
        said: dict[str, object] = {
            "app": self._app,
            "version": self._version,
            "worker": self._peers.worker,
            "workers": len(self._peers) + 1,
            "at_us": at_us,
            "up_us": at_us - self._since_us,
            "not_ready": self._not_ready(),
        }
        for name, part in self._parts.items():
            said[name] = plain(part())
        return said

    def metrics(self) -> str | Awaitable[str]:
        """All metrics as Prometheus text."""
        several = len(self._peers) > 0
        labels = {"worker": str(self._peers.worker)} if several else {}
        families = [family for source in self._families for family in source()]
        text = page(families, labels=labels).decode()
        return text if self.alone else self._metrics_of_all(text)

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._not_ready()

    async def _metrics_of_all(self, mine: str) -> str:
        return merged_pages([mine, *await self._peers.texts("/metrics")])
