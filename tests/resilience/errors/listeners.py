"""Servers that end each connection: after a handshake of TLS, or at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from types import TracebackType
from typing import Self


class TlsServer:
    """Shakes hands with each connection of a listener for a block, and closes it."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        self._listener = listener
        self._context = context
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                self._context.wrap_socket(connection, server_side=True).close()


class Closing:
    """Closes each connection after its first bytes and the answer to them, or after a moment."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(10 if self._answer else 0.05)
                with contextlib.suppress(TimeoutError):
                    connection.recv(65_536)
                    connection.sendall(self._answer)
                    if self._answer:  # with anything unread the peer would see a reset
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65_536):
                            pass
