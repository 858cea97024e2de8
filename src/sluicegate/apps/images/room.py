"""Room: the bytes that all downloads under way hold together, bounded.

A download takes room for what has come, in steps, never for what an origin says that will come:
who claims 32 MiB and sends nothing holds none. Where there is no room it waits in line, which stops
its reading, and who waits too long is refused.

Many that each wait for a little more could wait for each other for ever, all of them holding what
the others need. So room for one whole download is kept apart: whoever comes first to an account
that is spent has it, grows as far as one may, ends, and frees all it held; then the next has it.

    bytes_max  =  (bytes_max - one_max) for all  +  one_max for the one that needs it to end

Bound: `bytes_max` at any time, whatever comes. What a socket has read ahead (128 KiB a download) is
not in it, nor is the copy that is made of one body at a time as it ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import OVERLOADED

STEP_BYTES: Final = 256 << 10
RETRY_US: Final = 1_000_000


@final
class Held:
    """What one download holds."""

    __slots__ = ("_room", "alone", "size", "used")

    def __init__(self, room: Room) -> None:
        self.used = 0  # bytes that came
        self.size = 0  # and the room for them
        self.alone = False
        self._room = room

    async def add(self, count: int, wait_s: float) -> None:
        """So many bytes more; wait for their room, and raise `Refused` after so long."""
        self.used += count
        more = self.used - self.size
        if more > 0:
            await self._room.take(self, -(-more // STEP_BYTES) * STEP_BYTES, wait_s)

    def free(self) -> None:
        """Hold nothing; once more is no error."""
        self.used = 0
        self._room.give(self)


class _Waiter(NamedTuple):
    held: Held
    more: int
    turn: asyncio.Future[None]


@final
class Room:
    """The account. For one event loop."""

    def __init__(self, bytes_max: int, one_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.used_max = 0
        self.refused = 0
        # The last step may be one that is not filled.
        self._shared = bytes_max - one_max - STEP_BYTES
        self._alone: Held | None = None
        self._waiting: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    async def take(self, held: Held, more: int, wait_s: float) -> None:
        """Let it hold so much more, or raise `Refused`."""
        if held.alone or (not self._waiting and self._may(held, more)):
            self._grow(held, more)
            return
        waiter = _Waiter(held, more, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(wait_s):
                await waiter.turn
        except TimeoutError:
            self._leave(waiter)
            self.refused += 1
            raise Refused(Decision(False, 0, RETRY_US, RETRY_US, OVERLOADED, "downloads")) from None
        except BaseException:
            self._leave(waiter)
            raise

    def give(self, held: Held) -> None:
        """Take back all that it holds."""
        self.used -= held.size
        held.size = 0
        if self._alone is held:
            self._alone, held.alone = None, False
        self._wake()

    def _may(self, held: Held, more: int) -> bool:
        """Whether there is room; who finds none, and nobody before it, is the one that needs it."""
        if self._of_shared() + more <= self._shared:
            return True
        if self._alone is None:
            self._alone, held.alone = held, True
            return True
        return False

    def _of_shared(self) -> int:
        return self.used - (0 if self._alone is None else self._alone.size)

    def _grow(self, held: Held, more: int) -> None:
        held.size += more
        self.used += more
        self.used_max = max(self.used_max, self.used)

    def _wake(self) -> None:
        while self._waiting and self._may(self._waiting[0].held, self._waiting[0].more):
            waiter = self._waiting.popleft()
            self._grow(waiter.held, waiter.more)
            waiter.turn.set_result(None)

    def _leave(self, waiter: _Waiter) -> None:
        """Out of the line; what it was given at the same moment is freed with all it holds."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._wake()
