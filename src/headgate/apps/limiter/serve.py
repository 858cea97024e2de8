"""Serve: one worker from its first socket to its last, in the order that can be read below.

What has been started is ended whatever happens in between: no new connections, what is under way
has its grace, then the parts are given back. A second signal cuts the grace short.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headgate.apps.limiter.assembly import Assembly
from headgate.apps.limiter.doors import Doors
from headgate.apps.limiter.settings import Settings
from headgate.contracts.errors import HeadgateError
from headgate.doors.listener import new_loop
from headgate.lines import counted

COLLECT_EVERY: Final = 50_000  # objects made and not yet gone
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_log: Final = logging.getLogger("headgate.limiter")


def serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    """Serve until told to end; `folder` is where workers find each other, "" if it is alone."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, folder, worker, ready))


async def _serve(settings: Settings, folder: str, worker: int, ready: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    ended, hurried = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurried if ended.is_set() else ended).set()

    for signum in END_SIGNALS:
        loop.add_signal_handler(signum, end)
    assembly = Assembly(settings, worker)
    try:
        assembly.load()
        await assembly.connect()
        doors = Doors(settings, assembly, folder, worker)
        loop.add_signal_handler(signal.SIGHUP, _reload, assembly, doors)
        try:
            await doors.open()
            if assembly.monitor is not None:
                assembly.monitor.start()
            _calm_the_collector()
            ready(_words(settings, assembly, doors))
            await ended.wait()
            _log.info("ending: what is under way has %g s", settings.grace_s)
            assembly.draining = True
            closing = asyncio.ensure_future(doors.close(settings.grace_s))
            cut = asyncio.ensure_future(hurried.wait())
            await asyncio.wait((closing, cut), return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()
            if not closing.done():
                closing.cancel()
                with suppress(asyncio.CancelledError):
                    await closing
        finally:
            await doors.close(0.0)
    finally:
        await assembly.close()
    return 0


def _calm_the_collector() -> None:
    """What is here now stays, and decisions leave no rings behind: look for those less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 20, 100)


def _reload(assembly: Assembly, doors: Doors) -> None:
    """SIGHUP: rules, callers and certificates are read again; what is bad changes nothing."""
    if assembly.rules is not None:
        assembly.rules.reload()
    try:
        doors.reload()
    except HeadgateError as error:
        _log.warning("not reloaded: %s", error)


def _words(settings: Settings, assembly: Assembly, doors: Doors) -> str:
    """The one line that says it is ready."""
    rules = "no rules" if assembly.book is None else counted(len(assembly.book), "rule")
    version = "" if assembly.book is None else f" (version {assembly.book.version})"
    store = "memory" if not settings.shared else settings.store.partition(":")[0]
    secure = " over TLS" if settings.tls_cert else ""
    several = f", {settings.workers} workers" if settings.workers > 1 else ""
    languages = "RESP and HTTP" if settings.grpc == "grpcio" else "gRPC, RESP and HTTP"
    grpcio = f", grpcio on {doors.grpc_address}" if doors.grpc_address else ""
    return (
        f"headgate limiter is ready: {languages}{secure} on {' and '.join(doors.addresses)}"
        f"{grpcio}; {rules}{version}, counts in {store}{several}"
    )
