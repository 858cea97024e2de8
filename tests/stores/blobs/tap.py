"""Between a client and the real server: passes bytes on, and does harm when it is told to."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from threading import Event, Lock, Thread

from tests.engines.child import free_port

HOST = "127.0.0.1"
_BODY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
SLOW_DOWN = b"HTTP/1.1 503 Slow Down\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
PIECE = 16 * 1024
# Headers of the same length that mean nothing to a server.
DEAF = ((b"if-none-match:", b"x-nothing-nok:"), (b"if-match:", b"x-nogood:"))


class Tap:
    """A port that leads to another; each request has a connection of its own."""

    def __init__(self, to_port: int) -> None:
        self.port = free_port(HOST)
        self._to_port = to_port
        self.silent = False  # takes requests and never answers
        self.deaf = False  # hides conditions from the server
        self.answer = b""  # what is answered in the server's place
        self.failing = 0  # requests that are yet to be cut off unanswered
        self.cut_after = -1  # bytes of an answer, after which the connection ends
        self.slow_down: random.Random | None = None  # 503 for `slow_share` of the requests
        self.slow_share = 0.3
        self.slowed = [0, 0]  # refused before the server saw them, and after it had done them
        self.requests = 0
        self.passed = 0  # bytes of answers
        self._lock = Lock()
        self._over = Event()
        self._listener = socket.create_server((HOST, self.port))
        self._open: set[socket.socket] = set()
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._accepting.join(60)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
                self.requests += 1
            Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            request = _read_request(client)
            with self._lock:
                failing, self.failing = self.failing > 0, max(self.failing - 1, 0)
            if failing:
                client.shutdown(socket.SHUT_RDWR)
            elif self.silent:
                self._over.wait(60)
            elif self.answer:
                client.sendall(self.answer)
            elif self._slows_down():
                self._refuse(client, request)
            else:
                self._pass(client, request)
        with self._lock:
            self._open.discard(client)

    def _slows_down(self) -> bool:
        with self._lock:
            return self.slow_down is not None and self.slow_down.random() < self.slow_share

    def _refuse(self, client: socket.socket, request: bytes) -> None:
        assert self.slow_down is not None
        with self._lock:
            done = self.slow_down.random() < 0.5
            self.slowed[done] += 1
        if done:
            with socket.create_connection((HOST, self._to_port), 10) as server:
                head, end, body = request.partition(b"\r\n\r\n")
                server.sendall(head + b"\r\nconnection: close" + end + body)
                while server.recv(PIECE):
                    pass
        client.sendall(SLOW_DOWN)

    def _pass(self, client: socket.socket, request: bytes) -> None:
        head, end, body = request.partition(b"\r\n\r\n")
        if self.deaf:
            for allowed, unheard in DEAF:
                head = head.replace(allowed, unheard)
        with socket.create_connection((HOST, self._to_port), 10) as server:
            server.sendall(head + b"\r\nconnection: close" + end + body)
            left = self.cut_after
            while piece := server.recv(PIECE if left < 0 else max(min(left, PIECE), 1)):
                if left == 0:
                    return
                client.sendall(piece)
                with self._lock:
                    self.passed += len(piece)
                left = left - len(piece) if left > 0 else left


def _read_request(client: socket.socket) -> bytes:
    """One request with its body, whose length its head says."""
    request, size = bytearray(), -1
    while size < 0 or len(request) < size:
        piece = client.recv(PIECE)
        if not piece:
            break
        request += piece
        if size < 0 and (end := request.find(b"\r\n\r\n")) >= 0:
            size = end + 4 + _length(bytes(request[:end]))
    return bytes(request)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, text = line.partition(b":")
        if name.lower() == b"content-length":
            return int(text)
    return 0
