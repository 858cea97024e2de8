"""A plain HTTP server of the tests: answers what it is given, in order, and counts what came.

Each connection has a thread, so that a peer that is silent or resets its connection keeps nobody
else from an answer, and none of them outlives the block.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Final, final

HEAD_BYTES_MAX: Final = 65_536
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
GARBAGE = b"\x00\xff no protocol at all\r\n\r\n"
HANGS = b""
LOST = b"H"  # the connection is closed amid the answer


def refusing(*fields: str, status: str = "503 Busy") -> bytes:
    """An answer without a body, with these fields."""
    head = [f"HTTP/1.1 {status}", *fields, "Content-Length: 0", "Connection: close", "", ""]
    return "\r\n".join(head).encode("latin-1")


FAILING = refusing()
LIMITED = refusing(status="429 Limited")


@final
class ScriptedServer:
    """The last answer of the script is repeated; `heads` are those of the requests that came."""

    def __init__(self, script: Sequence[bytes]) -> None:
        self._script = list(script)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self.heads: list[str] = []
        self.hanging = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def received(self) -> int:
        """How many requests came, whole heads alone."""
        return len(self.heads)

    def then(self, *script: bytes) -> None:
        """Answer by this script from the next request on."""
        with self._lock:
            self._script = self._script[:1] * len(self.heads) + list(script)

    def close(self) -> None:
        """Stop, and let go of whoever hangs."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        with self._lock:
            self._closed = True
            left = dict(self._open)
        for connection, thread in left.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except ConnectionError:
                continue  # it was reset before it was taken
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=[connection], daemon=True)
            with self._lock:
                self._open[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = _read_head(connection)
            if head is not None:
                with self._lock:
                    answer = self._script[min(len(self.heads), len(self._script) - 1)]
                    self.heads.append(head)
                if answer == HANGS:
                    self.hanging.set()
                    while connection.recv(HEAD_BYTES_MAX):
                        pass
                connection.sendall(answer)
        with self._lock:
            if not self._closed:
                del self._open[connection]


def _read_head(connection: socket.socket) -> str | None:
    """Return the head of a request; None if the peer leaves before its end."""
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(HEAD_BYTES_MAX)
        if not received or len(head) > HEAD_BYTES_MAX:
            return None
        head += received
    return head.decode("latin-1")


@contextlib.contextmanager
def serving(*script: bytes) -> Iterator[ScriptedServer]:
    """A server for a block."""
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()
