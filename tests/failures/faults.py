"""Faults: one server broken in one way, and mended. Each says how often its state is lost.

A fault is a block: within it the server is broken, and what is under way when it begins is broken
too. Nothing here asks for decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from redis import RedisError

from tests.stores.redis.live import PATIENCE_S, within

if TYPE_CHECKING:
    from tests.engines.redis import RedisServer

Broken = Callable[["RedisServer"], AbstractAsyncContextManager[None]]


class Fault(NamedTuple):
    """One way to break a server."""

    name: str
    broken: Broken
    losses: int = 0  # how often its state is lost
    lasts_s: float = 0.5


@asynccontextmanager
async def killed(server: RedisServer) -> AsyncIterator[None]:
    """Kill -9; it comes back over what its disk holds."""
    await asyncio.to_thread(server.kill)
    yield
    await asyncio.to_thread(server.restart)


@asynccontextmanager
async def killed_and_emptied(server: RedisServer) -> AsyncIterator[None]:
    """Kill -9; it comes back without its disk."""
    await asyncio.to_thread(server.kill)
    yield
    await asyncio.to_thread(lambda: server.restart(empty=True))


@asynccontextmanager
async def paused(server: RedisServer) -> AsyncIterator[None]:
    """SIGSTOP, SIGCONT."""
    server.pause()
    yield
    server.resume()


@asynccontextmanager
async def busy(server: RedisServer) -> AsyncIterator[None]:
    """A script that does not end: silence at first, then BUSY."""
    before = server.ask("CONFIG", "GET", "lua-time-limit")[1]
    server.ask("CONFIG", "SET", "lua-time-limit", 100)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'EVAL "while true do end" 0\r\n')

    def is_busy() -> bool:
        with suppress(RedisError):
            server.ask("PING")
            return False
        return True

    await within(PATIENCE_S, is_busy, "BUSY")
    yield
    server.ask("SCRIPT", "KILL")
    server.ask("CONFIG", "SET", "lua-time-limit", before)
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def loading(server: RedisServer) -> AsyncIterator[None]:
    """It loads its data, slowly, and answers LOADING meanwhile."""
    # It looks up from loading every 2 MB, so the cargo must be heavy; 2 ms a piece, 1.4 s in all.
    server.ask("DEBUG", "POPULATE", 700, "cargo", 50_000)
    server.ask("CONFIG", "SET", "rdbcompression", "no")
    server.ask("CONFIG", "SET", "key-load-delay", 2_000)
    reload = asyncio.create_task(asyncio.to_thread(server.ask, "DEBUG", "RELOAD"))

    def is_loading() -> bool:
        try:
            server.ask("GET", "cargo:0")
        except RedisError as error:
            return "loading" in str(error).lower()
        return False

    await within(PATIENCE_S, is_loading, "LOADING")
    yield
    await reload


def _set(name: str, broken: int, well: int) -> Broken:
    @asynccontextmanager
    async def of(server: RedisServer) -> AsyncIterator[None]:
        server.ask("CONFIG", "SET", name, broken)
        yield
        server.ask("CONFIG", "SET", name, well)

    return of


@asynccontextmanager
async def demoted(server: RedisServer) -> AsyncIterator[None]:
    """It is told to follow a master that it cannot reach: READONLY."""
    server.ask("REPLICAOF", "127.0.0.1", 1)
    yield
    server.ask("REPLICAOF", "NO", "ONE")


FAULTS = (
    Fault("killed and emptied", killed_and_emptied, losses=1),
    Fault("paused", paused, lasts_s=1.5),
    Fault("BUSY", busy),
    Fault("LOADING", loading),
    Fault("READONLY", demoted),
    Fault("OOM", _set("maxmemory", 1, 0)),
    Fault("NOREPLICAS", _set("min-replicas-to-write", 1, 0)),
)
