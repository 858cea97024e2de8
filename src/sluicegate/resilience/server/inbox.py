"""Inbox: the messages of one request, which may be read before its application asks for them.

A body is read before its request is queued, so that a slow upload holds no slot while it arrives.
Only reading shows that a caller has hung up. So a request is read while it waits in the queue. It
is also read after `YOUNG_S` in flight, once its whole body has been read, while the application
does not read. The application receives these messages in order when it reads.

A read ahead is never cancelled while the request lasts: a message would be lost with it.

Cost: one task for each message read ahead, except of a body whose length is known, and one timer
for all requests in flight. Bounds: before the queue at most `BODY_BYTES` of a body are read, and as
many bytes of all bodies as may be queued; a body beyond that is read in its slot. In the queue no
more is read once `READ_BYTES` are held, and the server may hold the same amount.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from sluicegate.doors.asgi import Message, Receive, Scope

READ_BYTES: Final = 65_536
BODY_BYTES: Final = 1 << 20  # of one body, before its request takes a slot
PAUSE_S: Final = 1.0  # in a body of unknown length: it may wait for the response to begin
YOUNG_S: Final = 0.1  # a timer for each quick request would cost more than it finds
_DIGITS_MAX: Final = 20  # of a length; Python reads no number of thousands of digits
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


@final
class Bodies:
    """The bytes of all bodies that are being read before their requests are queued."""

    __slots__ = ("held_bytes", "held_bytes_max")

    def __init__(self, held_bytes_max: int) -> None:
        self.held_bytes = 0
        self.held_bytes_max = held_bytes_max


@final
class Inbox:
    """The messages of one request; `hung_up` is called once, if its caller hangs up."""

    __slots__ = (
        "_app_reads",
        "_complete",
        "_messages",
        "_reading",
        "_receive",
        "_scope",
        "ahead",
        "gone",
        "held_bytes",
        "hung_up",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._messages: deque[Message] | None = None
        self.held_bytes = 0
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
                self.held_bytes -= len(message.get("body", b""))
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

    async def read_body(self, size: int, bodies: Bodies) -> None:
        """Read the body, as far as the bounds allow; a `size` of -1 is an unknown length."""
        if any(name == b"expect" for name, _ in self._scope["headers"]):
            return  # its caller sends the body once the request is admitted
        held = 0
        try:
            while not self._complete and not self.gone and held < BODY_BYTES:
                if bodies.held_bytes >= bodies.held_bytes_max:
                    return
                if size >= 0:
                    self._keep(await self._receive())
                elif not await self._keep_next():
                    return
                bodies.held_bytes += self.held_bytes - held
                held = self.held_bytes
        finally:
            bodies.held_bytes -= held

    def read_ahead(self) -> None:
        """Read until the caller hangs up or enough is held."""
        self.ahead = True
        may_read = self._complete or self.held_bytes < READ_BYTES
        if may_read and self._reading is None and not self.gone:
            self._begin_read()

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

    def _begin_read(self) -> asyncio.Task[Message]:
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._reading.add_done_callback(self._on_read)
        return self._reading

    async def _keep_next(self) -> bool:
        """Keep the next message; return False if it does not arrive soon, or cannot be read."""
        reading = self._begin_read()
        done, _ = await asyncio.wait((reading,), timeout=PAUSE_S)
        return bool(done) and not reading.cancelled() and reading.exception() is None

    async def _read(self) -> Message:
        return await self._receive()

    def _on_read(self, task: asyncio.Task[Message]) -> None:
        self._reading = None
        if task.cancelled() or task.exception() is not None:
            return  # the application gets the same when it reads
        was_complete = self._complete
        self._keep(task.result())
        if self.ahead and not was_complete:  # some clients in tests repeat their last message
            self.read_ahead()

    def _keep(self, message: Message) -> None:
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self.held_bytes += len(message.get("body", b""))
        self._note(message)

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
