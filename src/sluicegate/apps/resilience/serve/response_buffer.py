"""Response buffer: a response between the worker and a client that reads slowly.

A thread that has finished must not wait for its client, or a few slow readers hold all slots. So
`BYTES_AHEAD_MAX` of each response are kept here until the client reads them, and of all responses
together `ALL_BYTES_MAX`. Beyond either bound the worker waits for the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

from sluicegate.doors.asgi import Message, Send

BYTES_AHEAD_MAX: Final = 256 * 1024  # most pages and API responses are smaller
ALL_BYTES_MAX: Final = 64 * 1024 * 1024


@final
class HeldBytes:
    """Bytes that all responses hold."""

    def __init__(self) -> None:
        self.count = 0


@final
class ResponseBuffer:
    """One response; `send` is for the application."""

    def __init__(self, send: Send, held: HeldBytes) -> None:
        self._send = send
        self._all = held
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._whole = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._write())

    async def send(self, message: Message) -> None:
        """Take a message; wait only if too much is held."""
        if self._task.done():
            self._task.result()  # the error of the server
        size = len(message.get("body", b""))
        self._messages.append(message)
        self._bytes += size
        self._all.count += size
        self._news.set()
        while not self._task.done() and (
            self._bytes > BYTES_AHEAD_MAX or (self._bytes and self._all.count > ALL_BYTES_MAX)
        ):
            self._room.clear()
            await self._room.wait()

    async def finish(self) -> None:
        """Wait until the server has taken everything."""
        self._whole = True
        self._news.set()
        await self._task

    def close(self) -> None:
        """Drop what is left."""
        self._task.cancel()
        self._all.count -= self._bytes
        self._bytes = 0
        self._messages.clear()

    async def _write(self) -> None:
        try:
            while self._messages or not self._whole:
                if not self._messages:
                    self._news.clear()
                    await self._news.wait()
                    continue
                message = self._messages.popleft()
                await self._send(message)
                size = len(message.get("body", b""))
                self._bytes -= size
                self._all.count -= size
                self._room.set()
        finally:
            self._room.set()
