"""Fault proxy: TCP on loopback between a service and one dependency, whose faults are switched.

    pass    bytes go through as they are
    slow    each piece of an answer comes so much later
    dead    connections are reset, and what was open is too

One instance is one listener; `mode` may change at any moment and holds for what is open as well.
Bounds: `CONNECTIONS_MAX` at once, `PIECE_BYTES` of each direction in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final, final

CONNECTIONS_MAX: Final = 2_000
PIECE_BYTES: Final = 65_536

PASS: Final = "pass"
SLOW: Final = "slow"
DEAD: Final = "dead"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@final
class FaultProxy:
    """Forwards each connection to `target`; `start` returns the port it listens on."""

    def __init__(self, target: tuple[str, int], delay_us: int) -> None:
        self._target = target
        self._delay_us = delay_us
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.mode = PASS
        self.connections = 0  # that ever came

    async def start(self, port: int = 0) -> int:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def switch(self, mode: str) -> None:
        """Take another mode; a dead one resets what is open."""
        self.mode = mode
        if mode == DEAD:
            for writer in list(self._writers):
                _reset(writer)

    async def close(self) -> None:
        """Stop, and let go of everything."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            if self.mode == DEAD or len(self._writers) > CONNECTIONS_MAX:
                _reset(writer)
                return
            # Only `close` cancels it, and what has been cancelled is an error to asyncio.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                back_reader, back_writer = await asyncio.open_connection(*self._target)
                try:
                    there = asyncio.create_task(self._copy(reader, back_writer, late=False))
                    back = asyncio.create_task(self._copy(back_reader, writer, late=True))
                    try:
                        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
                        if there.done() and not back.done():
                            await back  # who has sent all may still read
                    finally:
                        there.cancel()
                        back.cancel()
                        await asyncio.gather(there, back, return_exceptions=True)
                finally:
                    back_writer.close()
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                if late and self.mode == SLOW:
                    await asyncio.sleep(self._delay_us / 1_000_000)
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a host does on which nothing listens any more."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
