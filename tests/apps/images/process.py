"""A `sluicegate images serve` as a user starts it, and an origin beside it, in a thread."""

from __future__ import annotations

import asyncio
import http.client
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.apps.images.origin_server import OriginServer
from tests.apps.server_process import ServerProcess
from tests.engines.child import PATIENCE_S


class Answer(NamedTuple):
    """What came back, whole."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class ImagesProcess(ServerProcess):
    """One service, with its stores below `folder`; it may ask origins on loopback."""

    app = "images"
    module = "tests.apps.images.serve"

    def __init__(self, folder: Path, *flags: str, **more: Any) -> None:
        super().__init__(folder, *stores(folder), *flags, **more)

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, "serve"]

    def get(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """One request; names of headers with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, answer.read(), found)
        finally:
            connection.close()

    def image(self, url: str, spec: str = "w=16,format=png", **headers: str) -> Answer:
        """The variant of what is at a URL."""
        return self.get(path(url, spec), body=None, **headers)


def path(url: str, spec: str = "w=16,format=png") -> str:
    return f"/img/{spec}/{quote(url, safe='')}"


def stores(folder: Path) -> tuple[str, ...]:
    """The flags that say where it keeps what it has, and whom it may ask."""
    kv, blobs = f"lmdb:{folder}/kv", f"files:{folder}/blobs"
    return "--kv", kv, "--blobs", blobs, "--origin-networks", "127.0.0.1/32"


@contextmanager
def origin_in_thread() -> Iterator[OriginServer]:
    """An origin that answers while the test waits."""
    server = OriginServer()
    ready = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with server:
            end = asyncio.Event()
            loops.append((asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        for loop, end in loops:
            loop.call_soon_threadsafe(end.set)
        thread.join()
