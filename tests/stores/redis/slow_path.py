"""A slow path to a real server: it delays each answer and keeps their order."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Self


class SlowPath:
    """Passes bytes to a server, and each of its answers back after a random delay, in order."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay_ms = (0, 0)
        self._chance = random.Random(1)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._sockets += [caller, server]
            threading.Thread(target=self._pass, args=(caller, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, caller), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)

    def _answer(self, server: socket.socket, caller: socket.socket) -> None:
        due: deque[tuple[float, bytes]] = deque()
        data = b" "
        with suppress(OSError):
            while data:
                server.settimeout(max(due[0][0] - time.monotonic(), 0.0001) if due else None)
                with suppress(TimeoutError):
                    data = server.recv(65_536)
                    delay_s = self._chance.uniform(*self.delay_ms) / 1e3
                    last_s = due[-1][0] if due else 0.0
                    due.append((max(last_s, time.monotonic() + delay_s), data))
                while due and due[0][0] <= time.monotonic():
                    caller.sendall(due.popleft()[1])
