"""Story: the child process that loads the services of the demo, over real HTTP.

Run as `python -m sluicegate.apps.up.story CONTROL NAME=URL ...`; it prints each scene as it
begins, makes a shard of the dispatcher's engine slow by the file CONTROL, and is the origin of the
pictures. A line on its standard input pauses it, the next one lets it go on; it ends when that
closes. It is open-loop: if a service answers too slowly requests wait, and those that find
`WAITING_MAX` before them are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

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
CONNECT_GAP_S: Final = 0.2
WAITING_MAX: Final = 500
SEED: Final = 7
PAUSED: Final = "paused; Enter goes on"
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
            lines, going = _Lines(urls, group), asyncio.Event()
            going.set()
            source = f"http://127.0.0.1:{port}"
            telling = group.create_task(_tell(control, lines, urls, source, going))
            async for _ in _typed_lines():
                if going.is_set():
                    going.clear()
                    _say(PAUSED)
                else:
                    going.set()
            for task in (telling, *lines.tasks):
                task.cancel()


async def _tell(
    control: Path, lines: _Lines, urls: dict[str, str], origin: str, going: asyncio.Event
) -> None:
    chance = SeededChance(SEED)
    streams = [one for one in (*STREAMS, image_stream(origin)) if one.service in urls]
    owed = [0.0] * len(streams)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    told: Scene | None = None
    while True:
        if not going.is_set():
            stopped_s = loop.time()
            await going.wait()
            begun_s += loop.time() - stopped_s
            told = None
        scene = scene_at(loop.time() - begun_s)
        if scene is not told:
            told = scene
            control.write_text(
                json.dumps({"slow_shard": SLOW_SHARD, "slow_times": scene.slow_times}),
                encoding="utf-8",
            )
            _say(scene.words)
        for at, stream in enumerate(streams):
            owed[at] += stream.rate_of(scene) * TICK_S
            while owed[at] >= 1:
                owed[at] -= 1
                lines.send(stream.make(scene, chance))
        await asyncio.sleep(TICK_S)


async def ask_in_turn(host: str, port: int, waiting: asyncio.Queue[bytes]) -> None:
    """One connection: ask, read the whole answer, ask again; a broken one is made anew."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(CONNECT_GAP_S)
            continue
        try:
            while True:
                writer.write(await waiting.get())
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
                await reader.readexactly(int(length or b"0"))
        except (OSError, EOFError):
            await asyncio.sleep(CONNECT_GAP_S)
        finally:
            writer.close()


async def _typed_lines() -> AsyncIterator[bytes]:
    """The lines of standard input, until whoever started us has closed it, or is gone."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        yield line


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


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
