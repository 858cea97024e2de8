"""A plain HTTP server of the tests: answers what it is given, in order, and counts what came."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import final

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
FAILING = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LIMITED = b"HTTP/1.1 429 Limited\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
GARBAGE = b"\x00\xff no protocol at all\r\n\r\n"
HANGS = b""


@final
class ScriptedServer:
    """The last answer of the script is repeated."""

    def __init__(self, script: Sequence[bytes]) -> None:
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self.received = 0
        self.hanging = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of whoever hangs."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in self._held:
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._read_head(connection):
                connection.close()
                continue
            answer = self._script[min(self.received, len(self._script) - 1)]
            self.received += 1
            if answer == HANGS:
                self._held.append(connection)
                self.hanging.set()
                continue
            with connection, contextlib.suppress(OSError):
                connection.sendall(answer)

    def _read_head(self, connection: socket.socket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65_536)
            if not received:
                return False
            head += received
        return True


@contextlib.contextmanager
def serving(*script: bytes) -> Iterator[ScriptedServer]:
    """A server for a block."""
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()
