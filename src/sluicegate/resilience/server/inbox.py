"""Inbox: the messages of one request, which may be read before its application asks for them.

Only reading shows that a caller has hung up. So a request is read while it waits in the queue. It
is also read after `YOUNG_S` in flight, once its whole body has been read, while the application
does not read. The application receives these messages in order when it reads.

A read ahead is never cancelled while the request lasts: a message would be lost with it.

Cost: one task for each message read ahead, and one timer for all requests in flight. Bounds: no
more is read ahead once `READ_BYTES` are held, and the server may hold the same amount.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from sluicegate.doors.asgi import Message, Receive, Scope

READ_BYTES: Final = 65_536
YOUNG_S: Final = 0.1  # a timer for each quick request would cost more than it finds
_DIGITS_MAX: Final = 20  # of a length; Python reads no number of thousands of digits
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


@final
class Inbox:
    """The messages of one request; `hung_up` is called once, if its caller hangs up."""

    __slots__ = (
        "_app_reads",
        "_complete",
        "_held_bytes",
        "_messages",
        "_reading",
        "_receive",
        "_scope",
        "ahead",
        "gone",
        "hung_up",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._messages: deque[Message] | None = None
        self._held_bytes = 0
        self._reading: asyncio.Task[Message] | None = None
        self._app_reads = 0
        self._complete = False
        self.ahead = False  # whether to go on reading ahead
        self.gone = False
        self.hung_up: Callable[[], object] | None = None

    async def receive(self) -> Message:
        """Return the next message to the application."""
        self.ahead = False
        while True:
            if self._messages:
                message = self._messages.popleft()
                self._held_bytes -= len(message.get("body", b""))
                return message
            if self._reading is None:
                break
            await asyncio.wait((self._reading,))
        self._app_reads += 1
        try:
            message = await self._receive()
        finally:
            self._app_reads -= 1
        self._note(message)
        return message

    def read_ahead(self) -> None:
        """Read until the caller hangs up or enough is held."""
        self.ahead = True
        if self._reading is None and self._held_bytes < READ_BYTES and not self.gone:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._on_read)

    def watch(self) -> bool:
        """Read the next message; return False while it could still be part of the body."""
        if self._reading is None and not self.gone:
            if self._app_reads or not (self._complete or body_bytes(self._scope) == 0):
                return False
            self.read_ahead()
        return True

    def close(self) -> None:
        """End reading after the request."""
        self.ahead = False
        self.hung_up = None
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> Message:
        return await self._receive()

    def _on_read(self, task: asyncio.Task[Message]) -> None:
        self._reading = None
        if task.cancelled() or task.exception() is not None:
            return  # the application gets the same when it reads
        message = task.result()
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self._held_bytes += len(message.get("body", b""))
        was_complete = self._complete
        self._note(message)
        if self.ahead and not was_complete:  # some clients in tests repeat their last message
            self.read_ahead()

    def _note(self, message: Message) -> None:
        if message["type"] == "http.request":
            self._complete = not message.get("more_body", False)
        elif message["type"] == "http.disconnect":
            self.gone = True
            hung_up, self.hung_up = self.hung_up, None
            if hung_up is not None:
                hung_up()


@final
class InFlight:
    """Watches the requests that have been in flight for long; one timer for all."""

    __slots__ = ("_last", "_loop", "_new")

    def __init__(self) -> None:
        self._new: list[Inbox] = []  # since the timer last fired
        self._last: list[Inbox] = []  # since it fired before
        self._loop: asyncio.AbstractEventLoop | None = None  # whose timer is set

    def add(self, inbox: Inbox) -> None:
        """Watch this one once it has been in flight for long, until its `hung_up` is None."""
        self._new.append(inbox)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.call_later(YOUNG_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        again = [one for one in self._last if one.hung_up is not None and not one.watch()]
        self._last, self._new = self._new, again
        if self._last or again:
            loop.call_later(YOUNG_S, self._sweep, loop)
        else:
            self._loop = None


def body_bytes(scope: Scope) -> int:
    """Return how long the body is; -1 if there may be one whose length is not known."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else -1
        if name == b"transfer-encoding":
            return -1
    return -1 if scope["method"] in _WITH_BODY else 0
