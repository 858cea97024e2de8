"""One bad host of ten, in real processes: ten times too slow, fifty times, or failing at once.

    python -m benchmarks.resilience_hosts             all of them, some four minutes
    python -m benchmarks.resilience_hosts failing     one

Each host is a process of its own that can do `SLOTS` pieces of work at once, first come, first
served; the time of each is drawn. One caller asks for six tenths of what all can do, through
aiohttp and a client of ours with its defaults and a `HostGroup`. Some seconds in, one of the hosts
turns bad. What is asked with POST is never sent twice: the choice of a host alone has to do.

The bars: of the calls after the turn 0.999 are answered in time beside a slow host and 0.995 beside
one that fails; and after a second the bad host is asked for less than a tenth of its share. The
control, the same calls going round the hosts, misses both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Final, NamedTuple, final

import aiohttp
import httpx

from benchmarks.resilience_drills import Connections, Load, send_at
from benchmarks.rounds import Bars, build_of
from sluicegate.kernels.outlier import HostVerdict
from sluicegate.policies.client import balance as policy_module
from sluicegate.resilience.client.aiohttp import ResilientMiddleware
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source

HOSTS: Final = 10
SLOTS: Final = 4
WORK_S: Final = 0.16
PATIENCE_S: Final = 50 * WORK_S  # as in the lab
RATE: Final = 0.6 * HOSTS * SLOTS / WORK_S
TURN_S: Final = 8.0
SPAN_S: Final = 30.0
SOON_S: Final = 1.0
SHARE_MAX: Final = 0.1 / HOSTS


class Bad(NamedTuple):
    """How a host is bad, how it is asked, and the least part of calls to be answered."""

    slower: float = 1.0
    fails: bool = False
    method: str = "POST"
    least: float = 0.999


KINDS: Final = {
    "slow": Bad(slower=10.0),
    "slower": Bad(slower=50.0, method="GET"),
    "failing": Bad(fails=True, least=0.995),
}


@final
class Host:
    """A server of pieces of work, which remembers when it was asked."""

    def __init__(self, seed: int, bad: Bad) -> None:
        self._slots = asyncio.Semaphore(SLOTS)
        self._draw = random.Random(seed).expovariate
        self._bad = bad
        self._bad_from_s = float("inf")
        self._asked_s: list[float] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what one connection asks."""
        with suppress(EOFError, OSError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                if path.startswith("/turn-at/"):
                    self._bad_from_s = float(path.rpartition("/")[2])
                    status, body = 200, ""
                elif path == "/asked":
                    status, body = 200, json.dumps(self._asked_s)
                else:
                    self._asked_s.append(time.monotonic())
                    status, body = await self._work(), "done"
                head = f"HTTP/1.1 {status} Status\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(f"{head}{body}".encode())
        writer.close()

    async def _work(self) -> int:
        turned = time.monotonic() >= self._bad_from_s
        if turned and self._bad.fails:
            return 500
        async with self._slots:
            took_s = self._draw(1 / WORK_S) * (self._bad.slower if turned else 1.0)
            await asyncio.sleep(took_s)
        return 200


def serve(seed: int, bad: Bad, told: Connection) -> None:
    """Serve until the parent ends this process."""

    async def story() -> None:
        server = await asyncio.start_server(Host(seed, bad).serve, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(story())


@contextmanager
def running(bad: Bad) -> Iterator[list[int]]:
    """The hosts for a block; their ports."""
    context = multiprocessing.get_context("fork")  # nothing runs here yet but this thread
    processes = []
    ports: list[int] = []
    try:
        for number in range(HOSTS):
            read, told = context.Pipe(duplex=False)
            one = context.Process(target=serve, args=(number, bad, told), daemon=True)
            one.start()
            processes.append(one)
            ports.append(read.recv())
        yield ports
    finally:
        for one in processes:
            one.kill()
            one.join()


class Run(NamedTuple):
    """What callers saw, when each host was asked, and when the bad one was ejected."""

    load: Load
    turn_s: float
    asked_s: list[list[float]]  # the bad one first
    ejected_s: float  # after the turn; infinite if never

    @property
    def success(self) -> float:
        """Of the calls after the turn."""
        after = [one.ok for one in self.load.calls if one.due_s >= TURN_S]
        return sum(after) / len(after)

    @property
    def share(self) -> float:
        """The bad host's, of what is asked later than `SOON_S` after the turn."""
        later = [sum(at > self.turn_s + SOON_S for at in one) for one in self.asked_s]
        return later[0] / sum(later)

    @property
    def at_first(self) -> int:
        """What the bad host was asked in the first second."""
        return sum(self.turn_s <= at <= self.turn_s + SOON_S for at in self.asked_s[0])


Ask = Callable[[str], Awaitable[str]]


@asynccontextmanager
async def through_ours(group: HostGroup, method: str) -> AsyncIterator[Ask]:
    """Ask a host of the group."""
    middleware = ResilientMiddleware(ResilientClient(client_settings({}), group))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, middlewares=[middleware]) as session:

        async def ask(name: str) -> str:
            async with session.request(method, "http://hosts/") as response:
                await response.read()
                return "" if response.ok else str(response.status)

        yield ask


@asynccontextmanager
async def in_turns(hosts: list[httpx.AsyncClient]) -> AsyncIterator[Ask]:
    """Ask one after the other."""
    turns = cycle(hosts)

    async def ask(name: str) -> str:
        status = (await next(turns).get("/")).status_code
        return "" if status == 200 else str(status)

    yield ask


async def play(bad: Bad, ports: list[int], ours: bool) -> Run:
    """Ask for `SPAN_S`, and turn the first host bad."""
    names = [f"127.0.0.1:{port}" for port in ports]
    hosts = [
        httpx.AsyncClient(transport=Connections(port), base_url="http://hosts") for port in ports
    ]
    group = HostGroup(list_source(names))
    ejected_s: list[float] = []

    def record(verdict: HostVerdict, _: int) -> None:
        if verdict.ejected and verdict.name == names[0]:
            ejected_s.append(time.monotonic())

    group.subscribe(record)
    turn_s = time.monotonic() + TURN_S
    await hosts[0].get(f"/turn-at/{turn_s}")
    async with through_ours(group, bad.method) if ours else in_turns(hosts) as ask:
        load = await send_at(ask, RATE, SPAN_S, PATIENCE_S)
    async with aiohttp.ClientSession() as session:
        asked_s = []
        for name in names:
            async with session.get(f"http://{name}/asked") as response:
                asked_s.append(json.loads(await response.text()))
    for host in hosts:
        await host.aclose()
    first_s = min((at for at in ejected_s if at >= turn_s), default=float("inf"))
    return Run(load, turn_s, asked_s, first_s - turn_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="*", choices=[*KINDS, []], default=[])
    kinds = parser.parse_args().kind or list(KINDS)
    bars = Bars()
    print(f"{build_of(policy_module.__file__)}, {RATE:.0f} calls a second to {HOSTS} hosts")
    for name in kinds:
        bad = KINDS[name]
        for ours in (True, False):
            with running(bad) as ports:
                run = asyncio.run(play(bad, ports, ours))
            text = f"{name}, {bad.method}: {run.success:.4f} answered, the bad host got "
            text += f"{run.at_first} calls in its first second and {run.share:.2%} of all later"
            if run.ejected_s < SPAN_S:
                text += f", ejected after {run.ejected_s:.2f} s"
            text += f"; {run.load.failures}{run.load.doubtful}"
            met = run.success >= bad.least and run.share <= SHARE_MAX
            if ours:
                bars.check(met, text)
            else:
                missed = run.success < bad.least and run.share > SHARE_MAX
                bars.check(missed, f"control, in turns: {text}")
    bars.exit()


if __name__ == "__main__":
    main()
