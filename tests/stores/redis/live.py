"""What tests on real servers share: a client that must leave nothing behind, and a small load."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import uvloop

from sluicegate.contracts.errors import Unavailable
from sluicegate.stores.redis.client import RedisClient, open_client
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import parse_url
from sluicegate.testing import SeededChance

T = TypeVar("T")

ADD = Script("return redis.call('INCRBY', KEYS[1], ARGV[1])", name="add")
ECHO = Script("return ARGV[1]", name="echo")

# A busy machine may be slow, and only some tests are about being slow.
PATIENT_US = 5_000_000
PATIENCE_S = 60.0

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


default_loop = "asyncio"


def run(story: Coroutine[Any, Any, T], loop: str = "") -> T:
    """Run it on a new loop; fail if a task is left, or if anything complained to the loop."""
    complaints: list[dict[str, Any]] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        result = await story
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    with asyncio.Runner(loop_factory=LOOPS[loop or default_loop]) as runner:
        result = runner.run(watched())
    gc.collect()  # a socket left open complains now
    assert not complaints, complaints
    return result


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[RedisClient]:
    """A connected client."""
    redis_settings = replace(parse_url(url), **{"timeout_us": PATIENT_US} | settings)
    client = open_client(redis_settings, SeededChance(1))
    try:
        await client.connect()
        yield client
    finally:
        await client.close()


class Load:
    """Tasks that run a script over and over, and write down how it went."""

    def __init__(self, client: RedisClient, keys: list[str], pause_s: float = 0.0) -> None:
        self.client = client
        self.keys = keys
        self.pause_s = pause_s
        self.done: dict[str, list[float]] = {key: [] for key in keys}  # when
        self.failed: dict[str, list[tuple[float, float, str]]] = {key: [] for key in keys}
        self.running = True

    async def task(self, key: str) -> None:
        time = asyncio.get_running_loop().time
        while self.running:
            began = time()
            try:
                await self.client.run_script(ADD, [key], [1])
                self.done[key].append(time())
            except Unavailable as error:
                ended = time()
                self.failed[key].append((ended, ended - began, error.detail))
                await asyncio.sleep(0.001)  # as a caller with another request to look at
            if self.pause_s:
                await asyncio.sleep(self.pause_s)

    async def reach(self, count: int, keys: list[str]) -> None:
        """Wait until each of these keys has been counted so many times more."""
        least = {key: len(self.done[key]) + count for key in keys}
        await within(
            PATIENCE_S,
            lambda: all(len(self.done[key]) >= enough for key, enough in least.items()),
            f"{count} more of each of {keys}",
        )

    @asynccontextmanager
    async def pressing(self, tasks_a_key: int) -> AsyncIterator[Load]:
        async with asyncio.TaskGroup() as group:
            for key in self.keys:
                for _ in range(tasks_a_key):
                    group.create_task(self.task(key))
            try:
                yield self
            finally:
                self.running = False


async def within(seconds: float, ready: Any, what: str) -> float:
    """Wait until `ready()` is true; how long it took."""
    time = asyncio.get_running_loop().time
    began = time()
    while not ready():
        assert time() - began < seconds, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.005)
    return time() - began
