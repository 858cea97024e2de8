"""HTTP: real callers of a shape, one connection for each request. Nothing here is a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS
from sluicegate.lab.zoo.service import HEALTH, caller_of
from sluicegate.lab.zoo.shape import DEADLINE, SECOND_US, ShapeTraffic, ZooRequest
from tests.prove.zoo.load import Call

CALLER: Final = "x-caller"
WORK_US: Final = "x-work-us"
HEALTH_EVERY_S: Final = 0.1
PARTS: Final = 4  # of an upload or a stream
END: Final = b"the end"


def claims_of(ask: ZooRequest, kind: ShapeTraffic, *, deadline: bool = True) -> dict[str, str]:
    """Return the caller, the work and the claims of a request as header fields."""
    claims = {
        CALLER: caller_of(kind, ask.caller),
        WORK_US: str(ask.work_us),
        CRITICALITY.decode(): kind.criticality.name.lower().replace("_", "-"),
    }
    if deadline and kind.tells == DEADLINE and kind.patience_us:
        claims[DEADLINE_MS.decode()] = str(kind.patience_us // 1_000)
    return claims


async def fetch(
    port: int, path: str, fields: Mapping[str, str], *, upload_s: float = 0.0
) -> tuple[int, bytes]:
    """Return the status and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    method = "POST" if upload_s else "GET"
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    try:
        if upload_s:
            lines.append("transfer-encoding: chunked")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for _ in range(PARTS if upload_s else 0):
            await asyncio.sleep(upload_s / PARTS)
            writer.write(b"1\r\nx\r\n")
        if upload_s:
            writer.write(b"0\r\n\r\n")
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()  # a caller that gives up hangs up
    if not head:
        raise ConnectionError("closed without an answer")
    return int(head.split(b" ", 2)[1]), body


def http_caller(port: int) -> Call:
    """Return what sends the requests of a service."""

    async def call(ask: ZooRequest, kind: ShapeTraffic) -> bool:
        if kind.socket:
            return await _converse(port, ask, kind)
        status, body = await fetch(
            port, f"/{kind.name}", claims_of(ask, kind), upload_s=kind.upload_us / SECOND_US
        )
        return status == 200 and END in body

    return call


async def _converse(port: int, ask: ZooRequest, kind: ShapeTraffic) -> bool:
    from websockets.asyncio.client import connect

    url = f"ws://127.0.0.1:{port}/{kind.name}"
    async with connect(url, additional_headers=claims_of(ask, kind), proxy=None) as socket:
        return [message async for message in socket] == [END]


async def watch_health(port: int, span_s: float) -> list[float]:
    """Ask for health all the while; return how long each answer took, infinite for a refusal."""
    loop = asyncio.get_running_loop()

    async def ask(at_s: float) -> float:
        await asyncio.sleep(at_s)
        began = loop.time()
        status, _ = await fetch(port, HEALTH, {})
        return loop.time() - began if status == 200 else float("inf")

    count = int(span_s / HEALTH_EVERY_S)
    return await asyncio.gather(*(ask(number * HEALTH_EVERY_S) for number in range(count)))
