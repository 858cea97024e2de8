"""The guides to the key-value doors: their Python runs as it stands, against a real server."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluicegate.doors.grpc.key_values import KeyValuesServicer
from sluicegate.doors.grpc.methods import Methods
from sluicegate.doors.grpc.protocol import GrpcDoor
from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener import Language, Listener
from sluicegate.system import SystemClock
from sluicegate.wire.key_values_messages import KV_BOUNDS
from tests.doors.memory_service import Keeper, MemoryService

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
# Not "python": those blocks run without a server.
BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
BOUND = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d,]+)( MiB)?", re.MULTILINE)


@contextmanager
def serving() -> Iterator[int]:
    """The port of both doors on one listener, while it serves."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kv doors")
    thread.start()
    service = MemoryService()

    async def start() -> Listener:
        settings = KvHttpSettings()
        kv = KvHttp(service, service, Keeper(), service.clock, settings)
        bounds = HttpSettings(body_bytes_max=settings.body_bytes_max)
        told = KeyValuesServicer(service, service.clock).with_metadata
        grpc_door = GrpcDoor(Methods({}, {}, with_metadata=told), Keeper(), SystemClock())
        kinds: Any = {
            Language.HTTP1: HttpDoor(kv.handle, service.clock, bounds),
            Language.HTTP2: lambda _: grpc_door(),
        }
        listener = Listener(["127.0.0.1:0"], kinds)
        listener.start()
        return listener

    try:
        listener = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        yield listener.addresses[0].port
        asyncio.run_coroutine_threadsafe(listener.close(0), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("page", ["kv-http.md", "kv-grpc.md"])
def test_the_code_of_the_page_runs_against_a_server(page: str) -> None:
    text = (GUIDES / page).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 4
    with serving() as port:
        try:
            for number, block in enumerate(blocks, 1):
                code = block.replace("127.0.0.1:7080", f"127.0.0.1:{port}")
                # No caller's patience: a busy machine is not what is tested.
                code = re.sub(r"timeout=\d+", "timeout=30", code)
                exec(compile(code, f"{page}, block {number}", "exec"), namespace)
        finally:
            for name in ("kv", "channel"):
                if name in namespace:
                    namespace[name].close()


@pytest.mark.parametrize("page", ["kv-http.md", "kv-grpc.md"])
def test_the_bounds_of_the_page_are_those_of_the_code(page: str) -> None:
    text = (GUIDES / page).read_text(encoding="utf-8").partition("## Bounds")[2]
    rows = {
        name: int(number.replace(",", "")) << (20 if unit else 0)
        for names, number, unit in BOUND.findall(text)
        for name in re.findall(r"\w+", names)
    }
    settings = KvHttpSettings()
    bounds = {name: getattr(KV_BOUNDS, name) for name in dir(KV_BOUNDS) if name.endswith("_max")}
    if page == "kv-http.md":
        bounds |= {name: getattr(settings, name) for name in ("part_bytes_max", "json_bytes_max")}
    assert rows == bounds
