"""Clients of a protected ASGI application on virtual time: patient ones, and such that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any, final

from sluicegate.doors.asgi import App
from sluicegate.lab.world import World
from sluicegate.resilience.server.asgi import ProtectedApp, protect
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience

SECOND_US = 1_000_000
Field = tuple[bytes, bytes]


@final
@dataclass
class Answer:
    """An answer as its client received it."""

    status: int = 0
    body: bytes = b""
    done: bool = False
    in_time: bool = False
    sent_us: int = 0
    ended_us: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def served(self) -> bool:
        """Whether all of a good answer came in time."""
        return self.status == 200 and self.done and self.in_time


async def ask(
    world: World,
    app: App,
    path: str = "/",
    *,
    fields: Sequence[Field] = (),
    patience_us: int = 0,
    told: bool = False,
    body: Sequence[bytes] = (b"",),
    gap_us: int = 0,
) -> Answer:
    """Send one request, and hang up after `patience_us`, which is its deadline if `told`.

    A part of its body arrives every `gap_us`.
    """
    headers = list(fields)
    if told:
        headers.append((b"x-sluicegate-deadline-ms", str(patience_us // 1_000).encode()))
    method = "GET" if body == (b"",) else "POST"
    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    answer = Answer(sent_us=world.elapsed_us)
    parts = list(body)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def receive() -> dict[str, Any]:
        if parts:
            if gap_us:
                await world.sleep_us(gap_us)
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}
        await asyncio.shield(gone)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        answer.messages.append(message)
        if message["type"] == "http.response.start":
            answer.status = message["status"]
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")
            if not message.get("more_body", False):
                answer.done = True
                answer.ended_us = world.elapsed_us
                answer.in_time = not gone.done()
                _hang_up(gone)

    if patience_us:
        world.call_at_us(world.elapsed_us + patience_us, _hang_up, gone)
    await app(scope, receive, send)
    answer.ended_us = answer.ended_us or world.elapsed_us
    _hang_up(gone)
    return answer


def _hang_up(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


def protected(
    world: World, app: App, settings: Resilience | None = None, **more: Any
) -> ProtectedApp:
    """Return the application behind a protection on virtual time."""
    protection = Protection(settings, clock=world.clock, chance=world.chance("protect"))
    return protect(app, protection=protection, **more)


async def at_rate(
    world: World,
    per_s: float,
    span_s: float,
    send: Callable[[], Awaitable[Answer]],
) -> list[Answer]:
    """Send at random instants (Poisson) for `span_s`; return all answers."""
    chance = world.chance("arrivals")
    tasks: list[asyncio.Task[Answer]] = []

    async def one() -> Answer:
        return await send()

    at_us = 0.0
    while at_us < span_s * SECOND_US:
        await world.until_us(int(at_us))
        tasks.append(world.spawn(one(), f"client {len(tasks)}"))
        at_us += -log(1.0 - chance.draw()) * SECOND_US / per_s
    return [await task for task in tasks]


async def reply(send: Any, body: bytes = b"done", status: int = 200) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})
