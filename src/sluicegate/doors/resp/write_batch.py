"""Write batch: the replies of all connections in one tick of the loop leave together.

A write to a socket wakes whoever waits at its other end, which costs more than making the reply.
Written one by one between the reads, each reply finds its client idle again and pays for waking
it; written together, the first wakes it and the others find it awake.

No reply waits longer than the tick in which it is made: the loop writes the batch before it looks
for more to read.

Bounds: the connections that were read in the tick; what each writes is bounded where it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final


@final
class WriteBatch:
    """Calls that are made when the tick ends; at most one a connection."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Make this call when the tick ends."""
        if not self._calls:
            loop.call_soon(self.flush)
        self._calls.append(call)

    def flush(self) -> None:
        """Make all calls. One that fails is reported, and stops no other."""
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a connection could not be written to", "exception": error}
                )
