"""Ordinary services at defaults: `protect` serves as much as they do without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from sluicegate.doors.asgi import App
from sluicegate.lab.world import World, run
from sluicegate.resilience.settings import Resilience
from tests.resilience.server.virtual_client import Answer, ask, at_rate, protected, reply

SPAN_S = 20.0
Handler = Callable[[World, Any, Any], Awaitable[None]]


def io_of(work_s: float) -> Handler:
    """Return a handler that waits for something else."""

    async def handle(world: World, receive: Any, send: Any) -> None:
        await asyncio.sleep(work_s)
        await reply(send)

    return handle


async def stream(world: World, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(30):
        await asyncio.sleep(0.1)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def background(world: World, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.005)
    await reply(send)
    await asyncio.sleep(2.0)


async def varied(world: World, receive: Any, send: Any) -> None:
    """One in a hundred takes a hundred times as long."""
    await asyncio.sleep(1.0 if world.chance("work").draw() < 0.01 else 0.01)
    await reply(send)


async def upload(world: World, receive: Any, send: Any) -> None:
    read = 0
    while True:
        message = await receive()
        read += len(message["body"])
        await asyncio.sleep(0.1)
        if not message["more_body"]:
            break
    await reply(send, str(read).encode())


class Row(NamedTuple):
    """A service that carries its load, and its clients."""

    handle: Handler
    per_s: float
    patience_s: float = 0.0  # 0: unlimited
    told: bool = False
    body: tuple[bytes, ...] = (b"",)


ROWS = {
    "I/O of 500 ms": Row(io_of(0.5), 40),
    "I/O of 500 ms, 2 s told": Row(io_of(0.5), 40, 2.0, told=True),
    "I/O of 500 ms, 2 s not told": Row(io_of(0.5), 40, 2.0),
    "stream of 3 s": Row(stream, 12),
    "stream of 3 s, left after 4 s": Row(stream, 12, 4.0),
    "background task of 2 s": Row(background, 20),
    "LLM call of 3 s": Row(io_of(3.0), 10),
    "LLM call of 3 s, 60 s told": Row(io_of(3.0), 10, 60.0, told=True),
    "LLM call of 3 s, 5 s not told": Row(io_of(3.0), 10, 5.0),
    "long poll of 5 s": Row(io_of(5.0), 8),
    "long poll of 5 s, left after 6 s": Row(io_of(5.0), 8, 6.0),
    "I/O of 100 ms": Row(io_of(0.1), 450),
    "I/O of 100 ms, 500 ms told": Row(io_of(0.1), 450, 0.5, told=True),
    "1 in 100 takes 100 x, 3 s told": Row(varied, 100, 3.0, told=True),
    "upload of 1 s": Row(upload, 10, body=(b"x" * 1_000,) * 10),
}


def play(row: Row, protect: bool, settings: Resilience | None = None, seed: int = 1) -> float:
    """Return the share of requests that is served."""

    async def main(world: World) -> list[Answer]:
        async def service(scope: Any, receive: Any, send: Any) -> None:
            await row.handle(world, receive, send)

        app: App = protected(world, service, settings) if protect else service
        patience_us = int(row.patience_s * 1e6)
        return await at_rate(
            world,
            row.per_s,
            SPAN_S,
            lambda: ask(world, app, patience_us=patience_us, told=row.told, body=row.body),
        )

    answers = run(main, seed, leaks_allowed=True).value
    return sum(answer.served for answer in answers) / len(answers)


@pytest.mark.parametrize("name", ROWS)
def test_ordinary_service_at_defaults_loses_nothing(name: str) -> None:
    row = ROWS[name]
    assert play(row, protect=True) >= 0.999 * play(row, protect=False)


def workers_of(count: int, work_s: float) -> Handler:
    """Return a handler that needs one of `count` workers, with an unbounded queue for them."""
    free: dict[World, asyncio.Semaphore] = {}

    async def handle(world: World, receive: Any, send: Any) -> None:
        async with free.setdefault(world, asyncio.Semaphore(count)):
            await asyncio.sleep(work_s)
        await reply(send)

    return handle


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("work_s", "patience_s"), [(0.5, 2.0), (0.5, 1.0), (0.05, 1.0)])
def test_known_slots_at_twice_capacity_serve_all_slots_can(
    work_s: float, patience_s: float, told: bool
) -> None:
    row = Row(workers_of(16, work_s), 2 * 16 / work_s, patience_s, told=told)
    assert play(row, protect=False) < 0.2
    assert play(row, protect=True, settings=Resilience(slots=16)) >= 0.95 * 0.5


@pytest.mark.parametrize("told", [True, False])
def test_found_limit_at_twice_capacity_serves_most(told: bool) -> None:
    row = Row(workers_of(16, 0.2), 160, 2.0, told=told)
    assert play(row, protect=True) >= 0.8 * 0.5
