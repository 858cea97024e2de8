"""An event loop that does one thing when it is told to, so that a test chooses what comes next.

Callbacks run in the order they were scheduled, as asyncio promises; what the test chooses is how
many of them run before the world outside (an engine, a clock, a client who leaves) moves again.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from sluicegate.testing import HandClock


class StepLoop:
    """Ready callbacks in their order, and timers by a clock that is moved by hand.

    It has what tasks, futures and timers ask of a loop, and nothing else.
    """

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.errors: list[dict[str, Any]] = []
        self._count = 0
        self._loop: Any = self  # as asyncio's types want it

    def __enter__(self) -> StepLoop:
        events._set_running_loop(self._loop)
        return self

    def __exit__(self, *_: object) -> None:
        events._set_running_loop(None)

    def step(self) -> None:
        """Run one callback."""
        handle = self.ready.popleft()
        if not handle.cancelled():
            handle._run()

    def drain(self) -> None:
        """Run callbacks until there are none."""
        while self.ready:
            self.step()

    def advance(self, us: int) -> None:
        """Move the clock; the timers that are due become ready, in their order."""
        self.clock.advance(us=us)
        now = self.time()
        while self.timers and self.timers[0][0] <= now:
            self.ready.append(heapq.heappop(self.timers)[2])

    # What tasks, futures and timers ask of a loop.

    def time(self) -> float:
        return self.clock.now_us() / 1e6

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(self, coro: Any, **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._loop)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop, context)
        self.ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self._loop, context)
        self._count += 1
        heapq.heappush(self.timers, (when, self._count, timer))
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays where it is, and does nothing when its time comes."""
