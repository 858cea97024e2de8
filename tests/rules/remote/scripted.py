"""A server that says to each connection what it was told to, whatever it is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

# What is done on one connection, once its request was read.
Script = Callable[[socket.socket], None]


def says(status: int, body: bytes = b"{}", *headers: str, length: int | None = None) -> Script:
    """Answer so."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {size}", *headers]
    whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda peer: peer.sendall(whole)


def hangs_up(_: socket.socket) -> None:
    """End without a word."""


class Scripted:
    """The server; `asked` are the requests as they came, one a connection."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = list(scripts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(60)
                self.requests.append(_request(peer))
                try:
                    script(peer)
                except OSError:
                    continue

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.ended.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


def _request(peer: socket.socket) -> bytes:
    """A whole request."""
    problem = b""
    while b"\r\n\r\n" not in problem:
        some = peer.recv(65_536)
        if not some:
            return problem
        problem += some
    head, _, body = problem.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length: "):
            length = int(line.partition(b": ")[2])
    while len(body) < length:
        body += peer.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted(*scripts: Script) -> Iterator[Scripted]:
    """A server for so many connections."""
    here = Scripted(scripts)
    here.open()
    try:
        yield here
    finally:
        here.close()
