"""Siblings: the other workers of the same service, asked for what only they have seen.

Each worker answers a part of the traffic, and keeps the decisions, counts and leases of that part.
So each also listens on a socket in a private folder, and the worker that is asked for the audit or
the metrics asks the others first. One that does not answer within `TIMEOUT_S` is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

TIMEOUT_S: Final = 2.0
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024


class WorkerId(NamedTuple):
    """Which worker of how many this is, and the folder of their sockets; "" if it is alone."""

    number: int = 0
    workers: int = 1
    folder: str = ""


ALONE: Final = WorkerId()


@final
class Siblings:
    """The sockets of all workers but this one."""

    __slots__ = ("_sockets",)

    def __init__(self, worker: WorkerId) -> None:
        others = range(worker.workers) if worker.folder else ()
        self._sockets = [
            socket_of(worker.folder, other) for other in others if other != worker.number
        ]

    def __len__(self) -> int:
        return len(self._sockets)

    async def texts(self, path: str) -> list[str]:
        """The bodies of what each sibling answers to a GET; nothing of one that does not."""
        calls = [_get(socket, path) for socket in self._sockets]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return [answer for answer in answers if isinstance(answer, str)]

    async def values(self, path: str) -> list[Any]:
        """Likewise, read as JSON."""
        return [json.loads(text) for text in await self.texts(path)]


def socket_of(folder: str, worker: int) -> str:
    """Where a worker listens for its siblings."""
    return str(Path(folder) / f"worker-{worker}.sock")


def merge_pages(pages: Sequence[str]) -> str:
    """Merge the metrics of several workers into one page that describes each family once."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for page in pages:
        family = ""
        for line in page.splitlines():
            if line.startswith("# "):
                _, _, family, *_ = line.split(" ", 3)
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line:
                samples.setdefault(family, []).append(line)
    lines = [line for family, head in heads.items() for line in head + samples.get(family, [])]
    return "\n".join([*lines, ""])


async def _get(socket: str, path: str) -> str:
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_unix_connection(socket, limit=RESPONSE_BYTES_MAX)
        try:
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = head.split(" ", 2)[1]
            if status != "200":
                raise ConnectionError(f"{socket} answered {status}")
            length = next(
                (
                    int(line.partition(":")[2])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                ),
                None,
            )
            body = await (reader.read() if length is None else reader.readexactly(length))
            return body.decode()
        finally:
            writer.close()
