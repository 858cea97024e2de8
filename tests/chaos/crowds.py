"""Crowds: one for each client of a store, that ask only for what names itself.

A crowd counts its answers and the foreign ones among them. A call that fails with `Unavailable` is
counted and not repeated.
"""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sluicegate.contracts.engine import Change, KeyRange
from sluicegate.contracts.errors import SluicegateError, Unavailable
from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Ruling, Store
from sluicegate.limits.wait_lines import finish
from sluicegate.stores.engines.redis.engine import RedisEngine, open_redis
from sluicegate.stores.redis.client import open_client
from sluicegate.stores.redis.connection import RedisClient
from sluicegate.stores.redis.script import Script
from sluicegate.stores.redis.settings import parse_url
from sluicegate.stores.redis.store import RedisStore
from sluicegate.stores.redis.threads import RedisThreads
from sluicegate.stores.service.store import ServiceStore
from sluicegate.system import now_us
from sluicegate.testing import SeededChance

KEYS = 500
TASKS = 8
BURST = 16  # calls of one task at once
THREADS = 4
FAILED_WAIT_S = 0.002  # as a caller with other requests to look at
SPACE = "chaos"
ARGUMENT = Script("return ARGV[1]", name="argument")
# Each key has a different limit, so its remaining count names the key.
LIMITS = [
    Limit(1_000 + number, period_us=86_400_000_000, algorithm=Algorithm.FIXED_WINDOW)
    for number in range(KEYS)
]


class Tally:
    """Outcomes of calls, from any thread."""

    def __init__(self) -> None:
        self.answers = 0
        self.failed = 0
        self.foreign: list[str] = []
        self.raised: list[str] = []
        self.last_good_began = 0.0  # of the bursts whose calls were all answered, the latest start
        self._lock = threading.Lock()

    def add(self, began: float, answers: int, failed: int, foreign: Sequence[str]) -> None:
        with self._lock:
            self.answers += answers
            self.failed += failed
            self.foreign += foreign
            if not failed:
                self.last_good_began = max(self.last_good_began, began)


class Crowd(ABC):
    """Asks until it is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tally = Tally()
        self.running = True
        self.draw = random.Random(1)

    @abstractmethod
    async def prepare(self) -> None:
        """Open the client, while nothing is broken."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def ask(self) -> None:
        """Run all tasks."""
        async with asyncio.TaskGroup() as group:
            for number in range(TASKS):
                group.create_task(self._task(number))

    async def _task(self, number: int) -> None:
        time = asyncio.get_running_loop().time
        while self.running:
            began, answers, failed = time(), 0, 0
            foreign: list[str] = []
            calls = self.burst(number)
            for expected, call in calls:
                try:
                    answer = await call
                except Unavailable:
                    failed += 1
                    continue
                except Exception as error:
                    self.tally.raised.append(repr(error))
                    continue
                answers += 1
                if not self.belongs(expected, answer):
                    foreign.append(f"{answer!r} for {expected!r}")
            self.tally.add(began, answers, failed, foreign)
            await asyncio.sleep(FAILED_WAIT_S if failed else 0)

    def burst(self, task: int) -> list[tuple[Any, Awaitable[Any]]]:
        """Some calls of one task, and what each of them is to be answered with."""
        raise NotImplementedError

    def belongs(self, expected: Any, answer: Any) -> bool:
        """Whether this is the answer to that question."""
        return bool(answer == expected)


class ClientCrowd(Crowd):
    """Asks by plain commands and by scripts, of one server or a cluster."""

    client: RedisClient

    async def prepare(self) -> None:
        self.client = open_client(parse_url(self.url), SeededChance(1))
        await self.client.connect()
        for number in range(KEYS):
            await until_answered(lambda key=b"key:%d" % number: self.set(key))  # type: ignore[misc]

    def set(self, key: bytes) -> Awaitable[Any]:
        return self.client.call("SET", key, b"value of " + key, key=key)

    async def close(self) -> None:
        await self.client.close()

    def burst(self, task: int) -> list[tuple[Any, Awaitable[Any]]]:
        calls: list[tuple[Any, Awaitable[Any]]] = []
        client, draw = self.client, self.draw
        for _ in range(draw.randrange(1, 2 * BURST)):
            key = b"key:%d" % draw.randrange(KEYS)
            kind = draw.randrange(4)
            if kind == 0:
                word = b"%d" % draw.getrandbits(40)
                calls.append((word, client.call("ECHO", word, key=key)))
            elif kind == 1:
                word = b"%d" % draw.getrandbits(40)
                calls.append((word, client.run_script(ARGUMENT, [key], [word])))
            else:
                calls.append((b"value of " + key, client.call("GET", key, key=key)))
        return calls


class StoreCrowd(Crowd):
    """Looks at limits, whose counts name their keys."""

    store: Store

    async def prepare(self) -> None:
        settings = parse_url(self.url)
        self.store = RedisStore(settings, SeededChance(1))
        await until_answered(lambda: self.look(0))

    async def close(self) -> None:
        await self.store.close()

    def look(self, number: int) -> Awaitable[Ruling]:
        return self.store.take([charge_of(number)])

    def burst(self, task: int) -> list[tuple[Any, Awaitable[Any]]]:
        loop, numbers = asyncio.get_running_loop(), self.draw.sample(range(KEYS), BURST)
        return [
            (LIMITS[number].count, loop.create_task(self.look(number)))  # type: ignore[arg-type]
            for number in numbers
        ]

    def belongs(self, expected: Any, answer: Any) -> bool:
        return bool(answer.decisions[0].remaining == expected)


class ServiceCrowd(StoreCrowd):
    """Looks at the limits of a service."""

    async def prepare(self) -> None:
        self.store = ServiceStore(self.url, SeededChance(1))
        await until_answered(lambda: self.look(0))


class ThreadCrowd(Crowd):
    """Looks at limits by threads that do their own input and output."""

    store: RedisThreads

    async def prepare(self) -> None:
        self.store = RedisThreads(parse_url(self.url), SeededChance(1), now_us)
        await until_answered(lambda: self.store.take([charge_of(0)]))

    async def close(self) -> None:
        await self.store.close()

    async def ask(self) -> None:
        works = (asyncio.to_thread(self._press, number) for number in range(THREADS))
        await asyncio.gather(*works)

    def _press(self, seed: int) -> None:
        draw = random.Random(seed)
        pause = threading.Event()
        while self.running:
            began, answers, failed = now_us() / 1e6, 0, 0
            foreign: list[str] = []
            for _ in range(BURST):
                number = draw.randrange(KEYS)
                try:
                    ruling = finish(self.store.take([charge_of(number)]))
                except Unavailable:
                    failed += 1
                    pause.wait(FAILED_WAIT_S)
                    continue
                except Exception as error:
                    self.tally.raised.append(repr(error))
                    continue
                answers += 1
                if ruling.decisions[0].remaining != LIMITS[number].count:
                    foreign.append(f"{ruling.decisions[0]} for {LIMITS[number].count}")
            self.tally.add(began, answers, failed, foreign)


class EngineCrowd(Crowd):
    """Reads, scans and writes rows that name themselves, and checks acknowledged writes."""

    engine: RedisEngine

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.written = [0] * TASKS  # of each task: the last write that was acknowledged
        self.tried = [0] * TASKS

    async def prepare(self) -> None:
        self.engine = open_redis(self.url, SeededChance(1))
        for number in range(KEYS):
            await until_answered(lambda number=number: self._write(row(number), b"0"))  # type: ignore[misc]

    async def close(self) -> None:
        await self.engine.close()

    async def _write(self, partition: bytes, version: bytes) -> None:
        value = b"%b/%b" % (partition, version)
        await self.engine.write([Change(SPACE, partition, b"sort", value)])

    async def _own(self, task: int) -> tuple[bytes, bool]:
        """Write a row of the task's own and read it; whether an acknowledged write is missing."""
        partition, version = b"own:%d" % task, self.tried[task] + 1
        self.tried[task] = version
        await self._write(partition, b"%d" % version)
        self.written[task] = version
        (value,) = await self.engine.read(SPACE, [(partition, b"sort")])
        found, _, read = (value or b"/0").partition(b"/")
        return found, int(read) < version

    async def _read(self, number: int) -> tuple[bytes, bool]:
        (value,) = await self.engine.read(SPACE, [(row(number), b"sort")])
        return (value or b"").partition(b"/")[0], False

    async def _scan(self, number: int) -> tuple[bytes, bool]:
        page = await self.engine.scan(SPACE, row(number), KeyRange())
        return page.rows[0][1].partition(b"/")[0] if page.rows else b"", False

    def burst(self, task: int) -> list[tuple[Any, Awaitable[Any]]]:
        loop, draw = asyncio.get_running_loop(), self.draw
        own = loop.create_task(self._own(task))
        calls: list[tuple[Any, Awaitable[Any]]] = [((b"own:%d" % task, False), own)]
        for number in draw.sample(range(KEYS), BURST):
            work = self._scan(number) if draw.random() < 0.3 else self._read(number)
            calls.append(((row(number), False), loop.create_task(work)))
        return calls


def row(number: int) -> bytes:
    """The partition of this number."""
    return b"row:%d" % number


def charge_of(number: int) -> Charge:
    """A look at the limit of this number."""
    return Charge(f"r{number}", LIMITS[number], f"key:{number}", 0)


async def until_answered(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat it until it is answered: a busy machine may be slow at first."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except SluicegateError:
                await asyncio.sleep(0.02)


CROWDS: dict[str, type[Crowd]] = {
    "client": ClientCrowd,
    "store": StoreCrowd,
    "threads": ThreadCrowd,
    "cluster": ClientCrowd,
    "kv": EngineCrowd,
    "service": ServiceCrowd,
}
