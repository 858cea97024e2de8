"""Host: workers of an app, from their parts to the last open call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar, final

from sluicegate.doors.listener import new_loop
from sluicegate.service import lifecycle
from sluicegate.service.app import AnyApp, AppFactory
from sluicegate.service.common_settings import ServiceSettings
from sluicegate.service.file_modes import FileModes, GuardedFile
from sluicegate.service.listeners import Listeners
from sluicegate.service.live_settings import changes, reread
from sluicegate.service.siblings import WorkerId
from sluicegate.service.workers import run_workers

S = TypeVar("S", bound=ServiceSettings)


def serve(
    name: str,
    settings: S,
    factory: AppFactory,
    workers: int = 1,
    read: Callable[[], S] | None = None,
) -> int:
    """Serve until a signal ends it, in this process or several below it; return the exit code.

    With `read` a reload reads the settings again.
    """
    return run_workers(name, workers, partial(_serve_worker, settings, factory, workers, read))


def _serve_worker(
    settings: S,
    factory: AppFactory,
    workers: int,
    read: Callable[[], S] | None,
    folder: str,
    number: int,
    ready: Callable[[str], None],
) -> int:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        worker = WorkerId(number, workers, folder)
        runner.run(_run(settings, factory, worker, read, ready))
    return 0


async def _run(
    settings: S,
    factory: AppFactory,
    worker: WorkerId,
    read: Callable[[], S] | None,
    ready: Callable[[str], None],
) -> None:
    app = factory(settings, worker)
    log = logging.getLogger(f"sluicegate.{app.name}")
    try:
        await app.start()
        await lifecycle.serve(_Served(app, read, log), lambda: app.settings, ready, log)
    finally:
        await app.end()


@final
class _Served:
    """An app and its listeners, as `lifecycle` sees them."""

    def __init__(
        self, app: AnyApp, read: Callable[[], ServiceSettings] | None, log: logging.Logger
    ) -> None:
        self._app = app
        self._read = read
        self._log = log
        self._listeners = Listeners(app)
        self._modes = FileModes()

    async def open(self) -> str:
        self._check_modes()
        self._listeners.open()
        app = self._app
        several = f", {app.worker.workers} workers" if app.worker.workers > 1 else ""
        summary = f"; {app.summary()}" if app.summary() else ""
        return f"sluicegate {app.name} is ready: {self._listeners.summary()}{summary}{several}"

    def reload(self) -> None:
        self._change_settings()
        self._check_modes()
        self._app.reload()
        self._listeners.reload()

    def _change_settings(self) -> None:
        app = self._app
        if self._read is None:
            return
        before: ServiceSettings = app.settings
        after = reread(before, self._read, self._log)
        if after is not before:
            logging.getLogger().setLevel(after.log.upper())
            app.settings = after
            if app.tracing is not None:
                app.tracing.change(after)
            app.change(before)
            self._log.info("in force from now on: %s", ", ".join(changes(before, after).live))

    def _check_modes(self) -> None:
        if self._app.worker.number == 0:  # of several workers, one logs
            settings = self._app.settings
            self._modes.check(
                (
                    GuardedFile("--access", settings.access, False),
                    GuardedFile("--tls-key", settings.tls_key, True),
                )
            )

    def leave(self) -> None:
        self._app.draining = True
        self._listeners.leave()

    async def close(self, grace_s: float) -> None:
        await self._listeners.close(grace_s)
