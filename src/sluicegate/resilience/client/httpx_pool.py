"""httpx pool: takes connections back that httpcore loses where a request is given up.

A request that is cancelled, or times out, after its pool has given it a new connection and before
it has begun to use it, leaves that connection behind: neither closed nor free, and nobody's. Once
there are `max_connections` of them every request ends with `PoolTimeout`, until the client is made
anew (encode/httpcore#1093, open at 1.0.9). Whoever gives attempts up, late ones and hedges that
lost, comes to that soon: 200 attempts of 10 ms to a busy server lost all of 20 connections.

What a pool has in use belongs to one of its requests. So what does not, and is neither idle nor
closed, is lost; it leaves the pool and is closed. Pools of another form are left alone.

A response whose caller is cancelled while it is being closed is lost with its connection, too: its
closing goes on here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, final

from sluicegate.contracts.errors import MissingPackage

try:
    import httpx
except ModuleNotFoundError as error:
    raise MissingPackage(error.name or "httpx", "httpx") from None

_NEEDED: Final = (
    "_assign_requests_to_connections",
    "_close_connections",
    "_connections",
    "_requests",
)


@final
class LostConnections:
    """Those of one transport of httpx."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        pool = getattr(transport, "_pool", None)
        known = all(hasattr(pool, name) for name in _NEEDED)
        self._pool: Any = pool if known else None
        self._closing: set[asyncio.Task[None]] = set()

    def reclaim(self) -> None:
        """Take back what is lost now: to be called when a request has ended without a response."""
        pool = self._pool
        if pool is None:
            return
        used = {id(request.connection) for request in pool._requests}
        lost = [one for one in pool._connections if id(one) not in used and _is_busy(one)]
        if not lost:
            return
        for one in lost:
            pool._connections.remove(one)
        lost += pool._assign_requests_to_connections()
        task = asyncio.create_task(pool._close_connections(lost))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


@final
class ClosedForSure(httpx.AsyncByteStream):
    """The body of a response, which is closed to the end once that has begun."""

    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner
        self._closing: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._inner.__aiter__()

    async def aclose(self) -> None:
        """Close it; who is cancelled meanwhile does not wait for that."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._inner.aclose())
        await asyncio.shield(self._closing)


def _is_busy(connection: Any) -> bool:
    return not (connection.is_idle() or connection.is_closed() or connection.has_expired())
