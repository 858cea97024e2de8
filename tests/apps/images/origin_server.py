"""An origin of ours that misbehaves on request: a real server on a port of loopback."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

FOREVER_S = 3_600.0


class Page(NamedTuple):
    """What a path answers."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    length: int | None = None  # that is said, if not that of the body
    head_after_s: float = 0.0
    stall_after: int | None = None  # bytes, after which nothing comes any more
    endless: bool = False
    reset: bool = False
    gate: threading.Event | None = None  # that is set before the head comes


class OriginServer:
    """Pages by path; `asked` counts requests, `heads` has the headers of each in their order."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: Counter[str] = Counter()
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1]
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
        }
        self.asked[path] += 1
        self.heads.append((path, headers))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._write(writer, self.pages.get(path, Page(b"", 404)), headers)
        finally:
            self._at_once -= 1

    async def _write(
        self, writer: asyncio.StreamWriter, page: Page, asked: Mapping[str, str]
    ) -> bool:
        if page.head_after_s:
            await asyncio.sleep(page.head_after_s)
        while page.gate is not None and not page.gate.is_set():
            await asyncio.sleep(0.005)
        if page.reset:
            writer.transport.abort()
            return False
        tag = page.headers.get("ETag")
        date = page.headers.get("Last-Modified")
        if page.status == 200 and (
            (tag and asked.get("if-none-match") == tag)
            or (not tag and date and asked.get("if-modified-since") == date)
        ):
            page = page._replace(status=304, body=b"")
        lines = [f"HTTP/1.1 {page.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in page.headers.items()]
        if not page.endless:
            length = len(page.body) if page.length is None else page.length
            lines.append(f"Content-Length: {length}")
        else:
            lines.append("Connection: close")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if page.stall_after is not None:
            writer.write(page.body[: page.stall_after])
            await writer.drain()
            await asyncio.sleep(FOREVER_S)
        while page.endless:
            writer.write(page.body or bytes(1 << 16))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(page.body)
        await writer.drain()
        return page.length is None
