"""Serve: one worker of the limiter, its parts made before it listens and closed after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from sluicegate.apps.limiter.assembly import Assembly
from sluicegate.apps.limiter.doors import Doors
from sluicegate.apps.limiter.settings import Settings
from sluicegate.command_line.text import counted
from sluicegate.doors.listener import new_loop
from sluicegate.service import lifecycle as serving

_log: Final = logging.getLogger("sluicegate.limiter")


def serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    """Serve until told to end; `folder` is where workers find each other, "" if it is alone."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, folder, worker, ready))


async def _serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    assembly = Assembly(settings, worker)
    try:
        assembly.load()
        await assembly.connect()
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
        if self._assembly.monitor is not None:
            self._assembly.monitor.start()
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
    rules = "no rules" if assembly.book is None else counted(len(assembly.book), "rule")
    version = "" if assembly.book is None else f" (version {assembly.book.version})"
    store = "memory" if not settings.shared else settings.store.partition(":")[0]
    secure = " over TLS" if settings.tls_cert else ""
    several = f", {settings.workers} workers" if settings.workers > 1 else ""
    return (
        f"sluicegate limiter is ready: gRPC, RESP and HTTP{secure} on "
        f"{' and '.join(doors.addresses)}; {rules}{version}, counts in {store}{several}"
    )
