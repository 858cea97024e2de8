"""Status: what people and machines may see of a running dispatcher, and have it do.

What each part shows is collected by `service/status.py`; this adds the hot keys,
recent refusals and backups.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Final, final

from sluicegate.apps.kv.refusals import RefusalRing
from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import BadValue
from sluicegate.service.audit import ServiceAudit
from sluicegate.service.status import WorkerStatus, to_json
from sluicegate.system import now_us

HOT_KEYS: Final = 100


@final
class KvStatus:
    """What `doors/http/kv` shows."""

    __slots__ = (
        "_backups",
        "_engine",
        "_hot",
        "_root",
        "audit",
        "metrics",
        "not_alive",
        "not_ready",
        "state",
    )

    def __init__(
        self,
        worker: WorkerStatus,
        *,
        hot: Callable[[int], object],
        refusals: RefusalRing,
        engine: Engine,
        backups: str = "",
    ) -> None:
        self.audit = ServiceAudit(worker, refusals).find
        self.state = worker.state
        self.metrics = worker.metrics
        self.not_ready = worker.not_ready
        self.not_alive = worker.not_alive
        self._hot = hot
        self._engine = engine
        self._root = backups
        self._backups: dict[str, asyncio.Task[int]] = {}

    def hot(self, by: Identity) -> Mapping[str, object]:
        """The hottest keys of this worker."""
        by.require(Grant.AUDIT)
        return {"at_us": now_us(), "keys": to_json(self._hot(HOT_KEYS))}

    async def backup(self, folder: str, by: Identity) -> int:
        """A copy of one instant into an empty folder below that of --backups; its bytes.

        It goes on where nobody waits for it any more; who asks again for the same folder waits for
        the same copy.
        """
        by.require(Grant.OPERATE)
        copy = getattr(self._engine, "backup", None)
        if copy is None:
            remedy = f"use what {self._engine.name} has for it; only embedded engines are copied"
            raise BadValue("engine", self._engine.name, remedy)
        task = self._backups.get(folder)
        if task is None:
            _check_below(self._root, folder)
            _check_empty(folder)
            task = self._backups[folder] = asyncio.ensure_future(copy(folder))
            task.add_done_callback(lambda done: self._backed_up(folder, done))
        return await asyncio.shield(task)

    def _backed_up(self, folder: str, task: asyncio.Task[int]) -> None:
        self._backups.pop(folder, None)
        if not task.cancelled():
            task.exception()  # told to whoever still waits


def _check_below(root: str, folder: str) -> None:
    """Refuse a place that whoever started this service has not set apart for copies."""
    if not root:
        raise BadValue(
            "folder", folder, "start the dispatcher with --backups DIR, a folder above it"
        )
    top, real = os.path.realpath(root), os.path.realpath(folder)
    if not os.path.isabs(folder) or os.path.commonpath((top, real)) != top:
        raise BadValue("folder", folder, f"give one below {root}, the folder of --backups")


def _check_empty(folder: str) -> None:
    """Told before the engine is asked, as what it is: a mistake of whoever asks."""
    if os.path.isdir(folder) and os.listdir(folder):
        raise BadValue("folder", folder, "give an empty one; what is there is never written over")
