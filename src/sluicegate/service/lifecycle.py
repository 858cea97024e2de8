"""Lifecycle: one worker of a service from its first socket to its last.

SIGTERM begins the end: first the worker is not ready and serves on, until load balancers have
noticed; then it accepts no connection, and work in flight has its grace; then the parts are closed.
SIGINT skips the first wait, and each further signal the wait that is left. SIGHUP reloads.
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

    def leave(self) -> None:
        """Report not ready, but accept and serve."""
        ...

    async def close(self, grace_s: float) -> None:
        """Accept nothing more, let open work finish within the grace, and end."""
        ...


class EndTimes(Protocol):
    """How long an end may take; read when it begins, since a reload may change it."""

    @property
    def leave_s(self) -> float:
        """Time to be not ready and still serve."""
        ...

    @property
    def grace_s(self) -> float:
        """Time to finish work in flight."""
        ...


async def serve(
    served: Served,
    times: Callable[[], EndTimes],
    ready: Callable[[str], None],
    log: logging.Logger,
) -> None:
    """Serve until a signal ends it."""
    loop = asyncio.get_running_loop()
    ended, left, hurried = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def end(signum: int) -> None:
        if not ended.is_set():
            ended.set()
            if signum == signal.SIGINT:  # a user at a terminal, and no load balancer
                left.set()
        else:
            (hurried if left.is_set() else left).set()

    def reload() -> None:
        try:
            served.reload()
        except SluicegateError as error:
            log.warning("not reloaded: %s", error)

    for signum in END_SIGNALS:
        loop.add_signal_handler(signum, end, signum)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        line = await served.open()
        _relax_collector()
        ready(line)
        await ended.wait()
        served.leave()
        leave_s = times().leave_s
        if leave_s > 0 and not left.is_set():
            log.info("leaving: not ready, but serving for %g s", leave_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(left.wait(), leave_s)
        left.set()
        grace_s = times().grace_s
        log.info("ending: work in flight has %g s", grace_s)
        closing = asyncio.ensure_future(served.close(grace_s))
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
