"""Serve: one worker of the dispatcher, its parts made before it listens and closed after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from sluicegate.apps.kv.assembly import Assembly
from sluicegate.apps.kv.doors import Doors
from sluicegate.apps.kv.settings import Settings
from sluicegate.doors.listener import new_loop
from sluicegate.service import lifecycle as serving

_log: Final = logging.getLogger("sluicegate.kv")


def serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    """Serve until told to end; `folder` is where workers find each other, "" if it is alone."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, folder, worker, ready))


async def _serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    assembly = Assembly(settings, worker)
    try:
        await assembly.start()
        doors = Doors(settings, assembly, folder, worker)
        await serving.serve(_Served(settings, assembly, doors), settings.grace_s, ready, _log)
    finally:
        await assembly.close()
    return 0


@final
class _Served:
    """The worker, as `serving` sees it."""

    def __init__(self, settings: Settings, assembly: Assembly, doors: Doors) -> None:
        self._settings = settings
        self._assembly = assembly
        self._doors = doors

    async def open(self) -> str:
        await self._doors.open()
        return _words(self._settings, self._assembly, self._doors)

    def reload(self) -> None:
        if self._assembly.rules is not None:
            self._assembly.rules.reload()
        self._doors.reload()

    def drain(self) -> None:
        self._assembly.draining = True

    async def close(self, grace_s: float) -> None:
        await self._doors.close(grace_s)


def _words(settings: Settings, assembly: Assembly, doors: Doors) -> str:
    """The one line that says it is ready."""
    secure = " over TLS" if settings.tls_cert else ""
    several = f", {settings.workers} workers" if settings.workers > 1 else ""
    policy = "" if settings.policy == "layers" else f", policy {settings.policy}"
    shared = f", quotas in {settings.store.partition(':')[0]}" if settings.store else ""
    return (
        f"sluicegate kv is ready: gRPC, RESP and HTTP{secure} on {' and '.join(doors.addresses)}; "
        f"values in {assembly.engine.name}{shared}{policy}{several}"
    )
