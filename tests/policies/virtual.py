"""An event loop on virtual time: whoever waits moves it, so a wait of an hour takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, final

T = TypeVar("T")
START_US = 1_000_000_000_000_000


@final
class _Leaping(selectors.SelectSelector):
    """Instead of waiting for the timeout, it moves the loop's time on by it."""

    def __init__(self) -> None:
        super().__init__()
        self.at_us = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everything waits, and nothing is to come")
        if not ready and timeout:
            self.at_us += round(timeout * 1_000_000)
        return ready


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop, and the clock of its time."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.at_us / 1_000_000

    def now_us(self) -> int:
        return START_US + self._leaping.at_us


def run(story: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a story; nothing may be left running at its end."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(story(loop))
        loop.run_until_complete(asyncio.sleep(0))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert left == [], "tasks were left running"
        return result
    finally:
        loop.close()


async def pause_us(us: int) -> None:
    await asyncio.sleep(us / 1_000_000)


async def together(*works: Awaitable[T]) -> list[T]:
    return list(await asyncio.gather(*works))
