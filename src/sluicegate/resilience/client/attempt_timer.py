"""Attempt timer: cancels the running task when the time of its attempt is over.

It does what `asyncio.timeout` does, without the coroutines of a context manager: an attempt that
answers costs one timer that is set and cancelled, and no timer runs between calls.
"""

from __future__ import annotations

import asyncio
from typing import final


@final
class AttemptTimer:
    """Bounds one attempt; call `stop` in any case, and `is_over` if the task is cancelled."""

    __slots__ = ("_cancelling", "_expired", "_handle", "_task")

    def __init__(self, left_us: int) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._expired = False
        self._handle = loop.call_later(left_us / 1_000_000, self._expire)

    def stop(self) -> None:
        """End it; a cancellation that is its own is taken back."""
        self._handle.cancel()
        if self._expired:
            self._expired = False
            self._task.uncancel()

    def is_over(self) -> bool:
        """Whether this timer alone has cancelled the task; ask once, before `stop`."""
        if not self._expired:
            return False
        self._expired = False
        return self._task.uncancel() <= self._cancelling

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()
