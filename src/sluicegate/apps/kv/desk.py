"""Desk: what people and machines may see of a running dispatcher, and have it do.

What each part says of itself is put together by the overview; this adds the hot keys and backups.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.engine import Engine
from sluicegate.contracts.errors import BadValue
from sluicegate.service.plain_values import plain
from sluicegate.service.status import Overview
from sluicegate.system import now_us

HOT_KEYS: Final = 100


@final
class Desk:
    """A `doors.http.kv_desk.KvDesk`."""

    __slots__ = ("_backups", "_engine", "_hot", "_overview")

    def __init__(self, overview: Overview, *, hot: Callable[[int], object], engine: Engine) -> None:
        self._overview = overview
        self._hot = hot
        self._engine = engine
        self._backups: dict[str, asyncio.Task[int]] = {}

    def state(self, by: Identity) -> Mapping[str, object]:
        """What this worker is doing now."""
        return self._overview.state(by)

    def hot(self, by: Identity) -> Mapping[str, object]:
        """The hottest keys of this worker."""
        by.must(Grant.AUDIT)
        return {"at_us": now_us(), "keys": plain(self._hot(HOT_KEYS))}

    def metrics(self) -> str | Awaitable[str]:
        """All metrics as Prometheus text."""
        return self._overview.metrics()

    def not_ready(self) -> str:
        """Why this instance should get no traffic; empty if it should."""
        return self._overview.not_ready()

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


def _check_empty(folder: str) -> None:
    """Told before the engine is asked, as what it is: a mistake of whoever asks."""
    if os.path.isdir(folder) and os.listdir(folder):
        raise BadValue("folder", folder, "give an empty one; what is there is never written over")
