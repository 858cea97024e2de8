"""Task ticket: the one part of waiting that needs asyncio, apart since importing that takes longer
than all the rest of `import sluicegate`.
"""

from __future__ import annotations

import asyncio
from typing import final


@final
class TaskTicket:
    """The place of a task; it suspends."""

    __slots__ = ("_loop", "_woken")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake whoever holds this place."""
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return  # its loop has ended, and the task with it

    async def pause(self, us: int | None) -> None:
        """Suspend."""
        try:
            async with asyncio.timeout(None if us is None else us / 1e6):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()
