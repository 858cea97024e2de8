"""A service for drills, as one is written who has not thought of it, or as one who has.

    python drilled_service.py KIND PORT [DEPENDENCY]

`fifo`: a bounded pool before which everybody waits. `warming`: the same, ten times slower in its
first two seconds. `naive`: the same, with a dependency that is
waited for as long as it takes. `careful`: the dependency has places and a time of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from sluicegate.contracts.errors import Refused
from sluicegate.resilience.kit import build_dependencies
from sluicegate.resilience.plan_settings import DependencySettings
from sluicegate.resilience.settings import Resilience
from sluicegate.system import now_us

kind, port = sys.argv[1], int(sys.argv[2])
places = asyncio.Semaphore(4)
warm_us = now_us() + 2_000_000
trends = build_dependencies(
    Resilience(dependencies={"trends": DependencySettings(soft=True, timeout_us=50_000)})
)["trends"]


async def fetch() -> bytes:
    host, _, at = sys.argv[3].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(at))
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


async def work(path: str) -> None:
    if kind == "careful" and path == "/page":
        await trends.call(fetch, default=bytes)
        return
    async with places:
        if kind == "warming" and now_us() < warm_us:
            await asyncio.sleep(0.2)
        elif kind in {"fifo", "warming"} or path == "/beside":
            await asyncio.sleep(0.02)
        else:
            await fetch()


async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    status = 200
    if scope["path"] != "/healthz":
        try:
            await work(scope["path"])
        except (OSError, Refused):
            status = 502
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


if __name__ == "__main__":
    quiet: Any = {"log_level": "critical", "access_log": False, "lifespan": "off"}
    uvicorn.run(app, port=port, timeout_graceful_shutdown=0, **quiet)
