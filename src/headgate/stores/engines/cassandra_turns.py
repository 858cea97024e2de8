"""Turns: plain writes of a partition pass together, a swap of it alone.

A cluster gives a swap its instant by itself, and a plain write gets one here. Were both under way
at once, either could be settled behind the other and yet have the earlier instant: what was
acknowledged would be gone. Within a process they therefore take turns, partition by partition. Who
came first goes first; plain writes that stand beside each other share a turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TypeAlias, final

_Key: TypeAlias = "tuple[str, bytes]"


@final
class _Line:
    """One partition: how many are at it, and who waits."""

    __slots__ = ("alone", "inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.alone = False
        self.waiting: deque[tuple[asyncio.Future[None], bool]] = deque()


@final
class Turns:
    """The lines of all partitions that somebody is at just now; the others have none."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[_Key, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def take(self, space: str, partition: bytes, *, alone: bool) -> Turn:
        """A turn at a partition, for `async with`."""
        return Turn(self, (space, partition), alone)

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


@final
class Turn:
    """One turn, from its beginning to its end."""

    __slots__ = ("_alone", "_key", "_turns")

    def __init__(self, turns: Turns, key: _Key, alone: bool) -> None:
        self._turns = turns
        self._key = key
        self._alone = alone

    async def __aenter__(self) -> None:
        await self._turns.enter(self._key, self._alone)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns.leave(self._key)
