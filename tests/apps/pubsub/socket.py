"""A WebSocket of the service, spoken by a kept client, and by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.apps.pubsub.process import PubSubProcess
from tests.engines.child import PATIENCE_S


class Talk:
    """Asks and hears; what comes unasked is kept until it is taken."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = itertools.count(1)
        self._kept: list[Any] = []

    def ask(self, kind: str, **fields: object) -> Any:
        """Ask, and return the reply."""
        request_id = self.send(kind, **fields)
        while (told := self._hear()).get("id") != request_id:
            self._kept.append(told)
        return told

    def send(self, kind: str, **fields: object) -> int:
        """Ask, and wait for nothing; the id."""
        request_id = next(self._ids)
        self.connection.send(json.dumps({"type": kind, "id": request_id, **fields}))
        return request_id

    def next(self) -> Any:
        """What is told next."""
        return self._kept.pop(0) if self._kept else self._hear()

    def take(self, count: int) -> list[Any]:
        """The data of the next messages."""
        found = []
        for _ in range(count):
            told = self.next()
            assert told["type"] == "message", told
            found.append(told["data"])
        return found

    def _hear(self) -> Any:
        return json.loads(self.connection.recv(timeout=PATIENCE_S))


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
