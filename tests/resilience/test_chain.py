"""FastAPI asks gRPC asks Flask, in three processes, and what is between the last two breaks.

Whatever breaks: each caller has an answer within its time, health is answered, the store is asked
little more often than there are callers, the chain is well again soon after, and nothing is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final, final

import grpc.aio
import httpx

from tests.resilience import chain_services
from tests.resilience.chain_services import STATS
from tests.resilience.service_process import running

PATIENCE_S: Final = 1.0
SLACK_S: Final = 10.0  # for a busy machine; what waits for nothing would wait longer
CALLS: Final = 20
HOUR_S: Final = 3_600
SERVICES: Final = chain_services.__name__
GARBAGE: Final = b"\x00\xff no protocol at all\r\n\r\n"


@final
class Breaker:
    """What is between two services, and how it breaks: `mode` holds for each new connection."""

    def __init__(self) -> None:
        self.mode = "well"
        self.port = 0
        self.backend = 0
        self.asked = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request, or break."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def close(self) -> None:
        """End what hangs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        mode = self.mode
        if mode == "flapping":
            mode = "well" if self.asked % 8 else "dead"
        if mode == "dead":
            writer.transport.abort()
            return
        if mode == "garbage":
            writer.write(GARBAGE)
            return
        if mode == "half-open":
            await reader.read()  # until the caller gives up
            return
        if mode == "slow":
            await asyncio.sleep(0.5)
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.backend)
        with contextlib.closing(ours):  # also when `close` ends this while the store answers
            ours.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            writer.write(await theirs.read())
        await ours.wait_closed()


@final
class Chain:
    """All of it, and a caller."""

    def __init__(self, link: Breaker, edge: int, middle: int, store: int) -> None:
        self.link = link
        self._edge = f"http://127.0.0.1:{edge}"
        self._store = f"http://127.0.0.1:{store}"
        self._channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{middle}")
        below = httpx.AsyncHTTPTransport(verify=False)
        self.driver = httpx.AsyncClient(transport=below, timeout=60)

    async def ask(self) -> tuple[int, float]:
        """Return the status and how long it took."""
        fields = {"x-sluicegate-deadline-ms": str(int(PATIENCE_S * 1_000))}
        began_s = time.monotonic()
        found = await self.driver.get(f"{self._edge}/page", headers=fields)
        return found.status_code, time.monotonic() - began_s

    async def held(self) -> int:
        """What the three of them hold."""
        edge = (await self.driver.get(f"{self._edge}/stats")).json()
        store = (await self.driver.get(f"{self._store}/stats")).json()
        middle = json.loads(await self._channel.unary_unary(STATS)(b"", timeout=10))
        return sum([*edge.values(), *middle.values(), *store.values()])

    async def until(self, what: str, tries: int = 200) -> None:
        """Wait until the chain is `well`, or holds nothing (`empty`)."""
        for _ in range(tries):
            with contextlib.suppress(httpx.HTTPError, grpc.aio.AioRpcError):
                if what == "well" and (await self.ask())[0] == 200:
                    return
                if what == "empty" and await self.held() == 0:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError(f"the chain is not {what}")

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()
        await self.driver.aclose()


@contextlib.asynccontextmanager
async def chain(skew_s: int = 0) -> AsyncIterator[Chain]:
    link = Breaker()
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    with (
        running(SERVICES, "store", "0", str(-skew_s)) as store,
        running(SERVICES, "middle", str(link.port), str(skew_s)) as middle,
        running(SERVICES, "edge", str(middle), "0") as edge,
    ):
        link.backend = store
        found = Chain(link, edge, middle, store)
        try:
            await found.until("well", tries=2_000)  # three processes begin, on a busy machine
            yield found
        finally:
            await found.close()
            server.close()
            await link.close()


async def play(found: Chain, mode: str) -> list[int]:
    """Ask again and again while it is broken; the statuses."""
    found.link.mode, before = mode, found.link.asked
    answers = []
    for _ in range(CALLS):
        status, took_s = await found.ask()
        assert took_s < PATIENCE_S + SLACK_S, f"{mode}: {status} after {took_s:.2f} s"
        answers.append(status)
    # Ten in a hundred may be repeated, and there is a reserve for the first seconds.
    assert found.link.asked - before <= CALLS * 1.2 + 15, f"{mode}: {found.link.asked - before}"
    found.link.mode = "well"
    await found.until("well")
    await found.until("empty")
    return answers


def test_whatever_breaks_callers_have_their_answer_and_nothing_is_held() -> None:
    """The clocks of the three are an hour off, each from the next, and that changes nothing."""

    async def story() -> None:
        async with chain(HOUR_S) as found:
            assert set(await play(found, "well")) == {200}
            flapping = await play(found, "flapping")
            assert flapping.count(200) >= 0.95 * CALLS, "one in eight breaks, and is mended"
            for mode in ("slow", "dead", "garbage", "half-open"):
                statuses = set(await play(found, mode))
                assert statuses <= {502, 503, 504}, f"{mode}: {statuses}"
            await hang_up_often(found)

    asyncio.run(story())


async def hang_up_often(found: Chain) -> None:
    """Callers leave at all instants of a call, and leave nothing held."""
    found.link.mode = "slow"

    async def hang_up(after_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await found.ask()

    await asyncio.gather(*[hang_up(0.002 * number + 0.001) for number in range(30)])
    found.link.mode = "well"
    await found.until("empty")
    await found.until("well")
