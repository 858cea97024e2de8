"""Request stream: the messages of one request, read ahead of the application.

Two reasons to read ahead: a client that disconnects while its request waits is noticed, and a body
that arrives slowly takes no slot. `READ_AHEAD_BYTES` of a body are kept; the rest stays in the
server until it is received, by `protect` before it queues the request or by the application. A body
that stops for `BODY_STALL_S_MAX` raises `BodyStalledError`. A client that sends `Expect:
100-continue` is not read before its request is admitted, so that it need not send the body of a
rejected request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from sluicegate.doors.asgi import Message, Receive, Scope

READ_AHEAD_BYTES: Final = 64 * 1024
BODY_STALL_S_MAX: Final = 30.0  # without a byte of a request's body; its slot must not wait longer
_GONE: Final[Message] = {"type": "http.disconnect"}


class BodyStalledError(TimeoutError):
    """No byte of a body arrived for `BODY_STALL_S_MAX`."""


@final
class RequestStream:
    """One request's messages; `receive` is for the application."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = {name for name, _ in scope["headers"]}
        self.gone = False  # the client has disconnected, or its response is complete
        self.on_gone: Callable[[], object] | None = None
        self.has_body = bool(names & {b"content-length", b"transfer-encoding"})
        self._receive = receive
        self._expects = b"expect" in names
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._whole = False
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        if not self._expects:
            self._room.set()
        self._task = asyncio.create_task(self._read())

    async def settle(self) -> bool:
        """Wait for as much of the body as is read ahead; return False if the client is gone."""
        while self._room.is_set() and not (self._whole or self.gone):
            self._news.clear()
            await self._news.wait()
        return not self.gone

    async def receive(self) -> Message:
        """Return the next message of the body, or the disconnect."""
        self._room.set()
        while not self._messages:
            if self.gone:
                return _GONE
            self._news.clear()
            try:
                async with asyncio.timeout(None if self._whole else BODY_STALL_S_MAX):
                    await self._news.wait()
            except TimeoutError:
                raise BodyStalledError from None
        message = self._messages.popleft()
        self._bytes -= len(message.get("body", b""))
        return message

    def close(self) -> None:
        """Stop reading."""
        self.on_gone = None
        self._task.cancel()

    async def _read(self) -> None:
        while True:
            await self._room.wait()
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                self._news.set()
                if self.on_gone is not None:
                    self.on_gone()
                return
            self._messages.append(message)
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._bytes >= READ_AHEAD_BYTES and not self._whole:
                self._room.clear()
            self._news.set()
