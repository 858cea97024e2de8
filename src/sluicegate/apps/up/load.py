"""Load: the demo's callers as a child process that asks over real HTTP; both ends of it.

The child keeps a few connections open and sends what `callers` says, at its instants: open-loop,
so if we answer too slowly asks wait, and beyond `WAITING_MAX` they are left out. It lives no longer
than we do (`children.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, final
from urllib.parse import urlencode

from sluicegate.apps.up.callers import DemoRequest, demo_requests
from sluicegate.apps.up.children import ChildProcess
from sluicegate.apps.up.settings import NamedRule, parse_rules, rule_words
from sluicegate.system import now_us
from sluicegate.testing import SeededChance

CONNECTIONS: Final = 8
WAITING_MAX: Final = 500
SEED: Final = 7
STOP_S_MAX: Final = 0.5
CONNECT_GAP_S: Final = 0.2


@final
class LoadProcess:
    """The parent's end."""

    def __init__(self, child: ChildProcess, per_s: int) -> None:
        self._child = child
        self._per_s = per_s

    def words(self) -> str:
        """How it stands, for the view."""
        code = self._child.code
        if code is None:
            return f"demo load {self._per_s}/s"
        return f"demo load ended with code {code}: {self._child.complaint or 'no word why'}"


@asynccontextmanager
async def loaded(
    host: str, port: int, rules: Sequence[NamedRule], per_s: int
) -> AsyncIterator[LoadProcess | None]:
    """Have the child ask `host:port` until the block ends; none if `per_s` is 0."""
    if per_s == 0:
        yield None
        return
    child = await ChildProcess.start(__name__, host, str(port), str(per_s), *rule_words(rules))
    try:
        yield LoadProcess(child, per_s)
    finally:
        await child.stop(STOP_S_MAX)


async def send(host: str, port: int, requests: Iterator[DemoRequest]) -> None:
    """The child's end: send every ask at its instant, until standard input closes."""
    waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_in_turn(host, port, waiting)) for _ in range(CONNECTIONS)]
        tasks.append(group.create_task(_feed(requests, at, waiting)))
        await until_stdin_closes()
        for task in tasks:
            task.cancel()


async def _feed(requests: Iterator[DemoRequest], at: str, waiting: asyncio.Queue[bytes]) -> None:
    for ask in requests:
        while (early_us := ask.at_us - now_us()) > 0:
            await asyncio.sleep(early_us / 1_000_000)
        query = urlencode({"rule": ask.rule, "key": ask.key, "cost": ask.cost})
        request = f"GET /v1/check?{query} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode()
        with contextlib.suppress(asyncio.QueueFull):
            waiting.put_nowait(request)


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


async def until_stdin_closes() -> None:
    """Return when whoever started us has closed the pipe, or is gone."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while await reader.read(4096):
        pass


def main(arguments: Sequence[str]) -> None:
    """The child: HOST PORT LOAD RULE..."""
    # Ctrl-C in a terminal reaches us too; it is our parent who ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host, port, per_s, *rules = arguments
    requests = demo_requests(parse_rules(rules), float(per_s), SeededChance(SEED), now_us())
    asyncio.run(send(host, int(port), requests))


if __name__ == "__main__":
    main(sys.argv[1:])
