"""Story: the child process that loads the services of the demo, over real HTTP.

Run as `python -m sluicegate.apps.up.story CONTROL NAME=URL ...`; it prints each scene as it
begins, makes a shard of the dispatcher's engine slow by the file CONTROL, is the origin of the
pictures, and ends when its standard input closes. Requests that find `WAITING_MAX` before them are
left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sluicegate.apps.up.load import SEED, WAITING_MAX, ask_in_turn, until_stdin_closes
from sluicegate.apps.up.story_parts import (
    PICTURES,
    SLOW_SHARD,
    STREAMS,
    Ask,
    Scene,
    image_stream,
    picture,
    scene_at,
)
from sluicegate.testing import SeededChance

CONNECTIONS: Final = 6  # for each caller
TICK_S: Final = 0.02
MISSING: Final = 10  # pictures that the origin does not have


class _Lines:
    """A line of waiting requests for each caller of each service, and its connections."""

    def __init__(self, urls: dict[str, str], group: asyncio.TaskGroup) -> None:
        self._urls = urls
        self._group = group
        self._waiting: dict[tuple[str, str], asyncio.Queue[bytes]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, ask: Ask) -> None:
        """Have it sent as soon as a connection of its caller is free."""
        where = urlsplit(self._urls[ask.service])
        waiting = self._waiting.get((ask.service, ask.line))
        if waiting is None:
            waiting = self._waiting[ask.service, ask.line] = asyncio.Queue(WAITING_MAX)
            self.tasks += [
                self._group.create_task(ask_in_turn(where.hostname or "", where.port or 0, waiting))
                for _ in range(CONNECTIONS)
            ]
        length = f"Content-Length: {len(ask.body)}\r\n" if ask.body else ""
        head = f"{ask.method} {ask.path} HTTP/1.1\r\nHost: {where.netloc}\r\n{ask.headers}{length}"
        with contextlib.suppress(asyncio.QueueFull):
            waiting.put_nowait(f"{head}\r\n{ask.body}".encode())


async def tell(control: Path, urls: dict[str, str]) -> None:
    """Load the services until standard input closes."""
    async with await asyncio.start_server(_serve_picture, "127.0.0.1", 0) as origin:
        port = origin.sockets[0].getsockname()[1]
        async with asyncio.TaskGroup() as group:
            lines = _Lines(urls, group)
            telling = group.create_task(_tell(control, lines, urls, f"http://127.0.0.1:{port}"))
            await until_stdin_closes()
            for task in (telling, *lines.tasks):
                task.cancel()


async def _tell(control: Path, lines: _Lines, urls: dict[str, str], origin: str) -> None:
    chance = SeededChance(SEED)
    streams = [one for one in (*STREAMS, image_stream(origin)) if one.service in urls]
    owed = [0.0] * len(streams)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    told: Scene | None = None
    while True:
        scene = scene_at(loop.time() - begun_s)
        if scene is not told:
            told = scene
            control.write_text(
                json.dumps({"slow_shard": SLOW_SHARD, "slow_times": scene.slow_times}),
                encoding="utf-8",
            )
            sys.stdout.write(scene.words + "\n")
            sys.stdout.flush()
        for at, stream in enumerate(streams):
            owed[at] += stream.rate_of(scene) * TICK_S
            while owed[at] >= 1:
                owed[at] -= 1
                lines.send(stream.make(scene, chance))
        await asyncio.sleep(TICK_S)


async def _serve_picture(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The origin: /7.png is the seventh picture; the last ones are not there."""
    with contextlib.suppress(OSError, EOFError, ValueError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            number = int(head.split()[1].strip(b"/").partition(b".")[0])
            body = picture(number) if number < PICTURES - MISSING else b""
            status = b"200 OK" if body else b"404 Not Found"
            writer.write(
                b"HTTP/1.1 %b\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n%b"
                % (status, len(body), body)
            )
            await writer.drain()
    writer.close()


def main(arguments: Sequence[str]) -> None:
    """The child: CONTROL NAME=URL..."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control, *targets = arguments
    urls = dict(one.split("=", 1) for one in targets)
    asyncio.run(tell(Path(control), urls))


if __name__ == "__main__":
    main(sys.argv[1:])
