"""A `sluicegate pubsub` as a user starts it, and a subscriber on a real socket."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.apps.server_process import ServerProcess
from tests.engines.child import PATIENCE_S


class PubSubProcess(ServerProcess):
    """One node, with its history below `folder`."""

    app = "pubsub"
    ready_s_max = 5 * PATIENCE_S  # it reads its history first, from brokers that are as busy
    log_flags: ClassVar[Callable[[Path], tuple[str, ...]]] = lambda _: ()  # files, else

    def __init__(
        self, folder: Path, *flags: str, log_folder: Path | None = None, **more: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        log = type(self).log_flags(log_folder or folder)
        super().__init__(folder, "--history", str(folder / "history"), *log, *flags, **more)

    def publish(self, channel: str, data: object, token: str = "") -> tuple[int, Any]:
        """Status and reply."""
        return self.ask(f"/v1/channels/{channel}/messages", {"data": data}, token=token)

    def accept(self, channel: str, data: object, token: str = "") -> int:
        """Publish what must be accepted; its position."""
        status, reply = self.publish(channel, data, token)
        assert status == 200, reply
        position = reply["position"]
        assert isinstance(position, int)
        return position

    def history(self, channel: str, after: int = 0, token: str = "") -> Any:
        """A channel's history: its first page, with the messages of all."""
        path = f"/v1/channels/{channel}/messages?count=1000&after="
        status, first = self.ask(f"{path}{after}", token=token)
        assert status == 200, first
        page = first
        while page["messages"]:
            status, page = self.ask(f"{path}{page['messages'][-1]['position']}", token=token)
            assert status == 200, page
            first["messages"] += page["messages"]
        return first


class Subscriber:
    """Reads events, from when it is subscribed."""

    def __init__(
        self, server: PubSubProcess, channel: str, after: int | None = None, token: str = ""
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._connection.request("GET", f"/v1/channels/{channel}/events", headers=headers)
        self._reply = self._connection.getresponse()
        self.status = self._reply.status
        if self.status == 200:
            assert self._reply.readline() == b":\n"  # the first heartbeat: it is subscribed
            assert self._reply.readline() == b"\n"

    def next(self) -> tuple[str, Any]:
        """The next event's name and data."""
        name, data = "", None
        end_s = time.monotonic() + PATIENCE_S  # heartbeats alone are no answer
        while line := self._reply.readline().decode():
            if time.monotonic() > end_s:
                raise TimeoutError(f"no event in {PATIENCE_S:g} s")
            if not line.endswith("\n"):
                break  # cut off within an event
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif not field and name:
                return name, data
        raise EOFError("the stream has ended")

    def take(self, count: int) -> list[Any]:
        """The data of the next messages."""
        found = []
        for _ in range(count):
            name, value = self.next()
            assert name == "message", value
            found.append(value["data"])
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reply.close()
        self._connection.close()
