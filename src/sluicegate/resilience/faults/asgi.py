"""ASGI: an application with faults before it.

    app = protect(inject(app, faults), settings)

Inside of `protect` the faults are the service's own, and take its places; outside they are the
network's. A broken connection is an answer that promises more than it sends: what a server can do
with that is close. WebSockets and lifespan pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, final

from sluicegate.doors.asgi import App, Message, Send, path_in_app
from sluicegate.resilience.faults.injector import FIELD, FaultInjector

_FIELD: Final = FIELD.lower().encode("ascii")
PROMISED_BYTES: Final = 1_024  # of an answer that is broken off


@final
class FaultyApp:
    """An application that faults are put before; `inject` makes it."""

    def __init__(self, app: App, faults: FaultInjector) -> None:
        self.app = app
        self.faults = faults

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, or let it meet its fault."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        injection = self.faults.pick(path_in_app(scope), lambda name: _value(scope, name))
        if injection is None:
            return await self.app(scope, receive, send)
        mark = (_FIELD, injection.name.encode("ascii"))
        if injection.delay_us:
            await asyncio.sleep(injection.delay_us / 1_000_000)
        rule = injection.rule
        if rule.abort:
            await _start(send, 200, [mark, (b"content-length", b"%d" % PROMISED_BYTES)])
            await send({"type": "http.response.body", "body": b"\n", "more_body": True})
            return None  # the server finds it incomplete, and closes
        if rule.status:
            await _start(send, rule.status, [mark, (b"content-length", b"0")])
            await send({"type": "http.response.body", "body": b""})
            return None
        if rule.error:
            injection.fail()

        def marked(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), mark]}
            sent: Awaitable[None] = send(message)
            return sent

        return await self.app(scope, receive, marked)


def inject(app: App, faults: FaultInjector) -> FaultyApp:
    """Return the application behind these faults."""
    return FaultyApp(app, faults)


async def _start(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


def _value(scope: Any, name: str) -> str | None:
    key = name.encode("latin-1", "replace")
    return next((value.decode("latin-1") for one, value in scope["headers"] if one == key), None)
