"""Partition locks: plain writes of a partition pass together, a swap of it alone.

A cluster gives a swap its instant, and a plain write gets one here. Were both under way at once,
either could be settled behind the other and yet have the earlier instant: an acknowledged write
would be lost. Within a process they therefore lock the partition, first come first served; plain
writes that are neighbours in the queue share it.

A lock is held until the work has ended, not until its caller goes away: what was sent is under way.
So work is a task of its own, and a cancelled caller leaves it behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar, final

_Key: TypeAlias = "tuple[str, bytes]"
T = TypeVar("T")


@final
class _Line:
    """One partition: its holders and its waiters."""

    __slots__ = ("alone", "inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.alone = False
        self.waiting: deque[tuple[asyncio.Future[None], bool]] = deque()


@final
class PartitionLocks:
    """The locks of the partitions in use; the others have none."""

    __slots__ = ("_lines", "_working")

    def __init__(self) -> None:
        self._lines: dict[_Key, _Line] = {}
        self._working: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._lines)

    async def run(
        self,
        space: str,
        partition: bytes,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        alone: bool,
    ) -> T:
        """What this work makes, in a turn at a partition. Cancelled while it waits, it never is."""
        key = (space, partition)
        await self.enter(key, alone)
        task = asyncio.get_running_loop().create_task(work())
        self._working.add(task)

        def on_end(done: asyncio.Task[T]) -> None:
            self._working.discard(done)
            self.leave(key)

        task.add_done_callback(on_end)
        return await asyncio.shield(task)

    async def enter(self, key: _Key, alone: bool) -> None:
        """Return when it is our turn."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        if not line.waiting and (line.inside == 0 or not (alone or line.alone)):
            line.inside += 1
            line.alone = alone
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append((turn, alone))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(key)  # it was ours already
            elif (turn, alone) in line.waiting:
                line.waiting.remove((turn, alone))
                self._go_on(key, line)
            raise

    def leave(self, key: _Key) -> None:
        """Our turn is over."""
        line = self._lines[key]
        line.inside -= 1
        self._go_on(key, line)

    def _go_on(self, key: _Key, line: _Line) -> None:
        while line.waiting:
            turn, alone = line.waiting[0]
            if line.inside and (alone or line.alone):
                return
            line.waiting.popleft()
            if not turn.cancelled():  # else whoever waited is about to find that out
                line.inside += 1
                line.alone = alone
                turn.set_result(None)
        if not line.inside:
            self._lines.pop(key, None)
