"""WriteBatch: what all connections of a door have to say in one turn of the loop leaves together.

A write to a socket wakes whoever waits at its other end, which costs more than making the reply.
Written one by one between the reads, each reply finds its client idle again and pays for waking
it; written together, the first wakes it and the others find it awake.

Nobody waits longer for it than the turn lasts in which its own reply is made: the loop writes what
is here before it looks for more to read.

Bounds: the connections that were read in the turn; what each has to say is bounded where it is
made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final


@final
class WriteBatch:
    """Calls that are made when the turn ends; each connection asks for one at a time."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Make this call when the turn ends."""
        if not self._calls:
            loop.call_soon(self.flush)
        self._calls.append(call)

    def flush(self) -> None:
        """The turn has ended. One that fails is told of, and keeps no other from being made."""
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a connection could not be written to", "exception": error}
                )
