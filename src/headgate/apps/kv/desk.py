"""Desk: what people and machines may see of a running dispatcher, and have it do.

Each part says itself what there is to see of it; this puts the parts together and asks for the
grant. Where several workers share a port, each tells of itself, and metrics are those of all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, final

from headgate import __version__
from headgate.contracts.access import Grant, Identity
from headgate.contracts.engine import Engine
from headgate.contracts.errors import BadValue
from headgate.peers import Peers, merged_pages
from headgate.plain_values import plain
from headgate.system import now_us
from headgate.telemetry.prometheus import Family, page

Part = Callable[[], object]
Families = Callable[[], Iterable[Family]]
HOT_KEYS: Final = 100


@final
class Desk:
    """A `doors.http.kv_desk.KvDesk`. `alone` is for the peers: it asks nobody else."""

    __slots__ = (
        "_alone",
        "_backups",
        "_engine",
        "_families",
        "_hot",
        "_not_ready",
        "_parts",
        "_peers",
        "_since_us",
    )

    def __init__(
        self,
        *,
        parts: Mapping[str, Part],
        families: Sequence[Families],
        hot: Callable[[int], object],
        not_ready: Callable[[], str],
        engine: Engine,
        peers: Peers,
        alone: bool = False,
    ) -> None:
        self._alone = alone or not len(peers)
        self._parts = parts
        self._families = families
        self._hot = hot
        self._not_ready = not_ready
        self._engine = engine
        self._peers = peers
        self._since_us = now_us()
        self._backups: dict[str, asyncio.Task[int]] = {}

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now."""
        by.must(Grant.AUDIT)
        at_us = now_us()
        said: dict[str, object] = {
            "app": "kv",
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

    def hot(self, by: Identity) -> Mapping[str, object]:
        """The hottest keys of this worker."""
        by.must(Grant.AUDIT)
        return {"at_us": now_us(), "keys": plain(self._hot(HOT_KEYS))}

    def metrics(self) -> str | Awaitable[str]:
        """All metrics as Prometheus text."""
        several = len(self._peers) > 0
        labels = {"worker": str(self._peers.worker)} if several else {}
        families = [family for source in self._families for family in source()]
        text = page(families, labels=labels).decode()
        return text if self._alone else self._metrics_of_all(text)

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._not_ready()

    async def backup(self, folder: str, by: Identity) -> int:
        """A copy of one instant into an empty folder of this machine; its bytes.

        It goes on where nobody waits for it any more; who asks again for the same folder waits for
        the same copy.
        """
        by.must(Grant.OPERATE)
        copy = getattr(self._engine, "backup", None)
        if copy is None:
            remedy = f"use what {self._engine.name} has for it; only embedded engines are copied"
            raise BadValue("engine", self._engine.name, remedy)
        task = self._backups.get(folder)
        if task is None:
            _check_empty(folder)
            task = self._backups[folder] = asyncio.ensure_future(copy(folder))
            task.add_done_callback(lambda done: self._backed_up(folder, done))
        return await asyncio.shield(task)

    def _backed_up(self, folder: str, task: asyncio.Task[int]) -> None:
        self._backups.pop(folder, None)
        if not task.cancelled():
            task.exception()  # told to whoever still waits

    async def _metrics_of_all(self, mine: str) -> str:
        return merged_pages([mine, *await self._peers.texts("/metrics")])


def _check_empty(folder: str) -> None:
    """Told before the engine is asked, as what it is: a mistake of whoever asks."""
    if os.path.isdir(folder) and os.listdir(folder):
        raise BadValue("folder", folder, "give an empty one; what is there is never written over")
