"""A WebSocket of the service, spoken by a kept client, and by hand."""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import PATIENCE_S


class Talk:
    """Asks and hears; what comes unasked is kept until it is taken."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = itertools.count(1)
        self.kept: list[Any] = []
        self.message_bytes_max = 0  # until the service has said it

    def ask(self, kind: str, **fields: object) -> Any:
        """Ask, and return the reply."""
        request_id = self.send(kind, **fields)
        while (told := self._hear()).get("id") != request_id:
            self.kept.append(told)
        return told

    def send(self, kind: str, **fields: object) -> int:
        """Ask, and wait for nothing; the id."""
        request_id = next(self._ids)
        self.connection.send(json.dumps({"type": kind, "id": request_id, **fields}))
        return request_id

    def next(self) -> Any:
        """What is told next."""
        return self.kept.pop(0) if self.kept else self._hear()

    def take(self, count: int) -> list[Any]:
        """The data of the next messages."""
        found = []
        for _ in range(count):
            told = self.next()
            assert told["type"] == "message", told
            found.append(told["data"])
        return found

    def _hear(self) -> Any:
        told = json.loads(self.connection.recv(timeout=PATIENCE_S))
        if told["type"] != "welcome":
            return told
        self.message_bytes_max = told["message_bytes_max"]
        return self._hear()


def url_of(server: PubSubProcess) -> str:
    """Where its WebSocket is."""
    return f"ws://127.0.0.1:{server.port}/v1/socket"


@contextmanager
def talk(server: PubSubProcess, token: str = "", **options: Any) -> Iterator[Talk]:
    """A connection."""
    if token:
        options["additional_headers"] = {"Authorization": f"Bearer {token}"}
    with connect(url_of(server), open_timeout=PATIENCE_S, **options) as connection:
        yield Talk(connection)


def handshake(port: int, *more: str, key: str = "", version: str = "13") -> bytes:
    """A request for a WebSocket."""
    key = key or base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /v1/socket HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {key}",
        f"Sec-WebSocket-Version: {version}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    """A client's frame."""
    return Frame(opcode, data, fin).serialize(mask=True)
