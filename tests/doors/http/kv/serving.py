"""A listener with the key-value door behind it, and httpx in front."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from sluicegate.doors.http.kv.handler import KvHttp
from sluicegate.doors.http.kv.settings import KvHttpSettings
from sluicegate.doors.http.protocol import HttpDoor
from sluicegate.doors.http.settings import HttpSettings
from sluicegate.doors.listener import Language, Listener
from tests.doors.listening import WAIT_S
from tests.doors.memory_service import Keeper, MemoryService


class RunningDoor(NamedTuple):
    """Where it listens, what it serves, and a client of it."""

    port: int
    service: MemoryService
    client: httpx.AsyncClient

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request; a path under /v1/tables unless it begins with a slash."""
        url = path if path.startswith("/") else f"/v1/tables/{path}"
        return await self.client.request(method, url, **more)


@asynccontextmanager
async def running_door(
    *,
    service: MemoryService | None = None,
    everybody: bool = True,
    token: str = "",
    **settings: Any,
) -> AsyncIterator[RunningDoor]:
    """A door that listens, and is closed afterwards."""
    memory = MemoryService() if service is None else service
    bounds = KvHttpSettings(**settings)
    kv = KvHttp(memory, memory, Keeper(everybody=everybody), memory.clock, bounds)
    door = HttpDoor(kv.handle, memory.clock, HttpSettings(body_bytes_max=bounds.body_bytes_max))
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with Listener(["127.0.0.1:0"], {Language.HTTP1: door}) as listening:
        port = listening.addresses[0].port
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=WAIT_S
        ) as client:
            yield RunningDoor(port, memory, client)
