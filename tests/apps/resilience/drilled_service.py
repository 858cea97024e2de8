"""A service for drills, as one is written who has not thought of it, or as one who has.

    python drilled_service.py KIND PORT [DEPENDENCY]

`fifo`: a bounded pool before which everybody waits. `warming`: the same, ten times slower in its
first two seconds. `naive`: the same, with a dependency that is
waited for as long as it takes. `careful`: the dependency has places and a time of its own.

Beyond 24 in flight, `dying` ends, `failing` answers 500, and `empty` answers 200 without content.
`computing` blocks its event loop for 10 ms. `leaking` keeps 64 KiB of each request, and
`leaking-files` a file. `unsteady` fails one request of four.
"""

from __future__ import annotations

import asyncio
import itertools
import os
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
inflight = 0
numbers = itertools.count()
kept: list[bytes] = []
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
        elif kind == "computing":
            end_us = now_us() + 10_000
            while now_us() < end_us:
                pass
        elif kind not in {"naive", "careful"} or path == "/beside":
            await asyncio.sleep(0.02)
        else:
            await fetch()


def answer_of_kind() -> tuple[int, bytes] | None:
    """Return an answer that takes no work."""
    if kind == "leaking":
        kept.append(os.urandom(65_536))
    elif kind == "leaking-files":
        os.dup(0)
    elif kind == "unsteady" and next(numbers) % 4 == 3:
        return 500, b"a bug"
    if inflight > 24:
        if kind == "dying":
            sys.stderr.write("out of something\n")
            os._exit(7)
        if kind == "failing":
            return 500, b"too many"
        if kind == "empty":
            return 200, b""
    return None


async def serve(path: str) -> tuple[int, bytes]:
    global inflight  # noqa: PLW0603
    if path == "/healthz":
        return 200, b"ok"
    inflight += 1
    try:
        answer = answer_of_kind()
        if answer is not None:
            return answer
        await work(path)
    except (OSError, Refused):
        return 502, b""
    finally:
        inflight -= 1
    return 200, b"ok"


async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    status, body = await serve(scope["path"])
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    quiet: Any = {"log_level": "critical", "access_log": False, "lifespan": "off"}
    uvicorn.run(app, port=port, timeout_graceful_shutdown=0, **quiet)
