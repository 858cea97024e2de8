"""A bare ASGI harness: one request, and every message that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from sluicegate.doors.asgi import App, Message, Scope

Headers = Iterable[tuple[bytes, bytes]]


def http_scope(path: str = "/", method: str = "GET", headers: Headers = (), **more: Any) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": ("192.0.2.1", 4711),
        "server": ("127.0.0.1", 80),
    } | more


def ws_scope(path: str = "/ws", **more: Any) -> Scope:
    scope = http_scope(path, **more)
    del scope["method"]
    return {**scope, "type": "websocket", "scheme": "ws", "subprotocols": []}


class Answer:
    """What an application has sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    @property
    def start(self) -> Message:
        return self.sent[0]

    @property
    def status(self) -> int:
        return int(self.start["status"])

    @property
    def headers(self) -> dict[str, str]:
        raw = [(name.decode(), value.decode()) for name, value in self.start["headers"]]
        assert len(dict(raw)) == len(raw), f"a header is there twice: {raw}"
        return dict(raw)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def ask(app: App, scope: Scope, *incoming: Message) -> Answer:
    """Call `app` once; `incoming` is what it may receive, a whole request or handshake if empty."""
    first = "http.request" if scope["type"] == "http" else "websocket.connect"
    queue = list(incoming) or [{"type": first, "body": b"", "more_body": False}]
    answer = Answer()

    async def receive() -> Message:
        if not queue:
            await asyncio.Event().wait()  # the client says nothing more
        return queue.pop(0)

    async def send(message: Message) -> None:
        answer.sent.append(message)

    await app(scope, receive, send)
    return answer
