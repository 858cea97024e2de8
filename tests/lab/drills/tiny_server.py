"""A RESP server of a few lines, in a thread: what a generator is tried on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sluicegate.wire.resp import CommandReader

# A command's parts to its reply; None hangs up.
Answer = Callable[[list[bytes]], bytes | None]


class TinyServer:
    """Answers in order; holds everything back while `gate` is closed."""

    def __init__(self, answer: Answer = lambda parts: b"+OK\r\n") -> None:
        self.answer = answer
        self.requests: list[tuple[int, list[bytes]]] = []  # by which connection
        self.writes: list[int] = []  # commands that came in one read
        self.port = 0
        self.gate = threading.Event()
        self.gate.set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class _Connection(asyncio.Protocol):
    count = 0

    def __init__(self, server: TinyServer) -> None:
        self._server = server
        self._reader = CommandReader(1 << 12, 1 << 20, 1 << 20, 1 << 12)
        _Connection.count += 1
        self._number = _Connection.count

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._server.gate.wait()
        self._reader.feed(data)
        out, count = [], 0
        while (parts := self._reader.gets()) is not None:
            count += 1
            self._server.requests.append((self._number, parts))
            reply = self._server.answer(parts)
            if reply is None:
                self._transport.close()
                return
            out.append(reply)
        self._server.writes.append(count)
        self._transport.write(b"".join(out))
