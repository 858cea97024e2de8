"""Leaving server: uvicorn that serves on for `leave_s` after SIGTERM, while its front is not ready.

Ctrl-C, and a second signal, skip the wait. The rest of the end is uvicorn's.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from types import FrameType
from typing import Final, final

import uvicorn

from sluicegate.apps.resilience.serve.front import Front

_log: Final = logging.getLogger("sluicegate.resilience.serve")


@final
class LeavingServer(uvicorn.Server):
    """A server of one front; make it within the loop that serves."""

    def __init__(self, config: uvicorn.Config, front: Front, leave_s: float) -> None:
        super().__init__(config)
        self._front = front
        self._leave_s = leave_s
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave at the first SIGTERM; end at any other signal."""
        if sig == signal.SIGTERM and self._leave_s and not self._front.leaving:
            self._front.leaving = True
            self._loop.call_soon_threadsafe(self._leave)
        else:
            super().handle_exit(sig, frame)

    def _leave(self) -> None:
        # Here, because a handler of signals may interrupt a write to the same log.
        _log.info("leaving: not ready, but serving for %g s", self._leave_s)
        self._loop.call_later(self._leave_s, self._end)

    def _end(self) -> None:
        self.should_exit = True
