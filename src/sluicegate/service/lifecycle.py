"""Lifecycle: one worker of a service from its first socket to its last.

What has been started is ended whatever happens in between: no new connections, open work has its
grace, then the parts are closed. A second signal cuts the grace short. SIGHUP reloads.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from sluicegate.contracts.errors import SluicegateError

GC_THRESHOLD: Final = 50_000  # objects made and not yet freed
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Served(Protocol):
    """What listens. `close` is called once more at the end, without grace."""

    async def open(self) -> str:
        """Listen; return the line that says it is ready."""
        ...

    def reload(self) -> None:
        """Read callers, certificates and rules again; what is bad changes nothing."""
        ...

    def drain(self) -> None:
        """Tell whoever balances load that new work is not welcome any more."""
        ...

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let open work finish within the grace, and end."""
        ...


async def serve(
    served: Served, grace_s: Callable[[], float], ready: Callable[[str], None], log: logging.Logger
) -> None:
    """Serve until a signal ends it."""
    loop = asyncio.get_running_loop()
    ended, hurried = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurried if ended.is_set() else ended).set()

    def reload() -> None:
        try:
            served.reload()
        except SluicegateError as error:
            log.warning("not reloaded: %s", error)

    for signum in END_SIGNALS:
        loop.add_signal_handler(signum, end)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        line = await served.open()
        _relax_collector()
        ready(line)
        await ended.wait()
        log.info("ending: open work has %g s", grace_s())
        served.drain()
        closing = asyncio.ensure_future(served.close(grace_s()))
        cut = asyncio.ensure_future(hurried.wait())
        await asyncio.wait((closing, cut), return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if not closing.done():
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
    finally:
        await served.close(0.0)
        for signum in (*END_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(signum)  # the default action counts again


def _relax_collector() -> None:
    """Freeze what is here now, and look for cycles less often: decisions leave none behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 100)
