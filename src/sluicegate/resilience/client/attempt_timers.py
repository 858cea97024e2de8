"""Attempt timers: cancel the running task when the time of its attempt is over.

An attempt ends as in `asyncio.timeout`. All attempts of a client on a loop share one timer of the
loop, set to the end of the earliest: a timer for each attempt would cost more than the rest of the
client. When no attempt runs, the timer that is set runs out once and no other is set.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any, final


@final
class LoopTimers:
    """The attempts that run on one loop."""

    __slots__ = ("_due_s", "_handle", "_running", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._running: dict[AttemptTimer, None] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = inf

    def start(self, left_us: int) -> AttemptTimer:
        """Bound the attempt that the running task makes."""
        loop = self.loop
        until_s = loop.time() + left_us / 1_000_000
        timer = AttemptTimer(self, asyncio.current_task(loop), until_s)
        self._running[timer] = None
        if until_s < self._due_s:
            self._set(until_s)
        return timer

    def end(self, timer: AttemptTimer) -> None:
        """Forget an attempt; called by its timer."""
        self._running.pop(timer, None)

    def _set(self, until_s: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._due_s = until_s
        self._handle = self.loop.call_at(until_s, self._fire)

    def _fire(self) -> None:
        self._handle, self._due_s = None, inf
        now_s = self.loop.time()
        for timer in [one for one in self._running if one.until_s <= now_s]:
            del self._running[timer]
            timer.expire()
        if self._running:
            self._set(min(one.until_s for one in self._running))


@final
class AttemptTimer:
    """Bounds one attempt; call `stop` in any case, and `is_over` if the task is cancelled."""

    __slots__ = ("_cancelling", "_expired", "_task", "_timers", "until_s")

    def __init__(self, timers: LoopTimers, task: asyncio.Task[Any] | None, until_s: float) -> None:
        if task is None:
            raise RuntimeError("a call is made outside of a task; await it in one")
        self._timers = timers
        self._task = task
        self._cancelling = task.cancelling()
        self._expired = False
        self.until_s = until_s

    def stop(self) -> None:
        """End it; a cancellation that is its own is taken back."""
        self._timers.end(self)
        if self._expired:
            self._expired = False
            self._task.uncancel()

    def is_over(self) -> bool:
        """Whether this timer alone has cancelled the task; ask once, before `stop`."""
        if not self._expired:
            return False
        self._expired = False
        return self._task.uncancel() <= self._cancelling

    def expire(self) -> None:
        """Cancel the task; called when the time is over."""
        self._expired = True
        self._task.cancel()
