"""Upstream: an HTTP/1.1 connection to a worker process, one exchange at a time.

The worker tells the length of each body, or sends it in chunks, so a connection that closes before
the end of a response is an error.

Bounds: the connection stops reading while `BUFFERED_BYTES_MAX` of a response wait for the client,
and `send` waits while the worker does not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, cast, final

import httptools

BUFFERED_BYTES_MAX: Final = 256 * 1024
_FIRST_FINAL: Final = 200  # lower statuses announce a later response


class WorkerLostError(Exception):
    """The worker closed the connection before the end of its response."""


class ResponseHead(NamedTuple):
    """Status and header fields; names in lower case."""

    status: int
    fields: list[tuple[bytes, bytes]]


@final
class Upstream(asyncio.Protocol):
    """A connection that is reused for as long as the worker keeps it open."""

    def __init__(self) -> None:
        self.lost = False
        self.idle_since_us = 0
        self._transport: asyncio.Transport | None = None
        self._news: asyncio.Event = asyncio.Event()
        self._writable: asyncio.Event = asyncio.Event()
        self._writable.set()
        self._parser: Any = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._head: ResponseHead | None = None
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._is_head_request = False
        self._whole = True
        self._reusable = True

    @property
    def reusable(self) -> bool:
        """Whether another exchange may follow on this connection."""
        return self._whole and self._reusable and not self.lost

    @property
    def broken(self) -> bool:
        """Whether the worker has closed it before the end of a response."""
        return self.lost and not self._whole

    async def begin(self, method: str, head: bytes) -> None:
        """Send the head of a request."""
        self._parser = httptools.HttpResponseParser(self)
        self._is_head_request = method == "HEAD"
        self._fields, self._head, self._whole, self._reusable = [], None, False, True
        await self.send(head)

    async def send(self, data: bytes) -> None:
        """Send bytes; wait while the worker does not read."""
        if self.lost or self._transport is None:
            raise WorkerLostError
        self._transport.write(data)
        await self._writable.wait()

    async def head(self) -> ResponseHead:
        """Return the head of the response."""
        while self._head is None:
            await self._change()
        return self._head

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        while True:
            if self._chunks:
                data = b"".join(self._chunks)
                self._chunks, self._chunk_bytes = [], 0
                if self._transport is not None and not self._transport.is_closing():
                    self._transport.resume_reading()
                yield data
            elif self._whole:
                return
            else:
                await self._change()

    def abort(self) -> None:
        """Close the connection; `connection_lost` follows one turn of the loop later."""
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()

    async def _change(self) -> None:
        if self.lost:
            raise WorkerLostError
        self._news.clear()
        await self._news.wait()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse a piece of the response."""
        if self._whole:  # no request was sent
            self._reusable = False
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()
        if self._chunk_bytes > BUFFERED_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake everything that waits for this connection."""
        self.lost = True
        self._writable.set()
        self._news.set()

    def pause_writing(self) -> None:
        """Let `send` wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let `send` go on."""
        self._writable.set()

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field."""
        if self._head is None:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the head of a final response."""
        status = self._parser.get_status_code()
        fields, self._fields = self._fields, []
        if status < _FIRST_FINAL:
            return
        self._head = ResponseHead(status, fields)
        if self._is_head_request:  # the parser expects a body, and none comes
            self._whole, self._reusable = True, False

    def on_body(self, data: bytes) -> None:
        """Add a piece of the body."""
        if self._is_head_request:
            return
        self._chunks.append(data)
        self._chunk_bytes += len(data)

    def on_message_complete(self) -> None:
        """Note the end of the response."""
        if self._head is not None:
            self._reusable = self._reusable and self._parser.should_keep_alive()
            self._whole = True
