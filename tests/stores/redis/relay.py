"""A relay in front of a real server: it can hold answers back, and cut connections."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import Self

WAIT_S = 20.0


class Relay:
    """Passes bytes on; `answers` is clear while what the server says is held back."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.server = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.answers = threading.Event()
        self.answers.set()
        self.sent: list[bytes] = []  # what callers have sent, read by read
        self.connections = 0
        self._said = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.answers.set()
        self.cut()

    def wait_sent(self, word: bytes, times: int = 1) -> None:
        """Return when callers have sent this word so often."""
        with self._said:
            assert self._said.wait_for(lambda: self._count(word) >= times, WAIT_S), self.sent

    def cut(self) -> None:
        """End all connections."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _count(self, word: bytes) -> int:
        return b"".join(self.sent).count(word)

    def _start(self, work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            if self.tls is not None:
                try:
                    caller = self.tls.wrap_socket(caller, server_side=True)
                except OSError:
                    continue
            server = socket.create_connection(self.server)
            self.connections += 1
            self._sockets += [caller, server]
            self._start(self._ask, caller, server)
            self._start(self._answer, server, caller)

    def _ask(self, caller: socket.socket, server: socket.socket) -> None:
        with caller, suppress(OSError):
            while data := caller.recv(65_536):
                # Noted first: who has an answer finds what was asked among the sent.
                with self._said:
                    self.sent.append(data)
                    self._said.notify_all()
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, caller: socket.socket) -> None:
        with server, suppress(OSError):
            while data := server.recv(65_536):
                self.answers.wait()
                caller.sendall(data)
            caller.shutdown(socket.SHUT_RDWR)
