"""Handing: books go to whoever puts them in force, in the thread where that must happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.following.fleet_books import FleetBooks

LOOK_S: Final = 0.1
LOOKS_MAX: Final = 600  # an event loop that needs a minute to take books is stuck

PutInForce = Callable[[FleetBooks], None]


@final
class Handing:
    """Calls `put` in the loop's thread; without a loop, or before the start, in that which asks."""

    __slots__ = ("_closed", "_loop", "_put", "started")

    def __init__(
        self, put: PutInForce, loop: asyncio.AbstractEventLoop | None, closed: Event
    ) -> None:
        self._put = put
        self._loop = loop
        self._closed = closed
        self.started = False  # until then, who asks is whoever starts, in the loop's own thread

    def over(self, books: FleetBooks) -> None:
        """Put them in force where that must happen; what is raised there is raised here."""
        loop = self._loop
        if loop is None or not self.started:
            self._put(books)
            return
        done = Event()
        failed: list[Exception] = []

        def put() -> None:
            try:
                self._put(books)
            except Exception as error:
                failed.append(error)
            finally:
                done.set()

        try:
            loop.call_soon_threadsafe(put)
        except RuntimeError as error:
            raise Unavailable("the event loop", str(error)) from None
        for _ in range(LOOKS_MAX):
            if done.wait(LOOK_S):
                break
            if self._closed.is_set():
                # Whoever closes may be what the loop is busy with.
                raise Unavailable("the event loop", "it has not taken the rules before the end")
        else:
            raise Unavailable("the event loop", "it has not taken the new rules")
        if failed:
            raise failed[0]
