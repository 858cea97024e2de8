"""A million interleavings of cache, write and shared read: no read is older than its own write.

A scheduler draws what comes next: a read or a write begins, one of the messages to or from the
store arrives, a reader gives up, a fetch fails, another node writes, time passes. The oracle is the
writes acknowledged on the node.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import pytest

from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.request import Request
from sluicegate.lab.rigs.read_paths import SERVED, Lookup, ReadPath, ShieldedReads
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.hot_key import REFRESH, HotKeySettings
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.fallback import Fallback, FallbackSettings
from tests.prove.seeds import seeds

EPISODES: Final = 2_000
BATCH: Final = 50  # episodes of one read path, each with a key of its own
WRITES_MAX: Final = 3
READS_MAX: Final = 8
SETTLED_TURNS: Final = 6  # a refresh ahead is nobody's task here
FAILURES: Final = 0.08  # of all fetches
TIMES_US: Final = (1, 100, 600, 1_100, 3_200_000, 3_490_000, 3_600_000, 40_000_000)
# A race is a dozen reads of one key, and only answers of hot keys are kept.
HOT_AT_ONCE: Final = HotKeySettings(saved_min=0.0)


class RaceRun(NamedTuple):
    """The counts of one run."""

    reads: int
    served: int  # without a fetch of their own
    stale_own: int  # older than a write that this node had acknowledged before the read began
    stale_cached: int  # what the cache held at the end of an episode was older than that


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRig:
    """Episodes of several steps each."""

    episodes: int = 3_000
    steps: int = 20

    def play(self, seed: int) -> RaceRun:
        """Play one run."""

        async def main(world: World) -> RaceRun:
            run_so_far = RaceRun(0, 0, 0, 0)
            race: _Race | None = None
            for episode in range(self.episodes):
                if race is None or episode % BATCH == 0:
                    race = _Race(world, with_fallback=episode % (2 * BATCH) == 0)
                await race.episode(f"key{episode}", self.steps)
                if episode % BATCH == BATCH - 1 or episode == self.episodes - 1:
                    run_so_far = run_so_far._replace(
                        reads=run_so_far.reads + race.reads,
                        served=run_so_far.served + race.reads - race.fetches,
                        stale_own=run_so_far.stale_own + race.stale_own,
                        stale_cached=run_so_far.stale_cached + race.stale_cached,
                    )
            return run_so_far

        return run(main, seed).value


@final
class _Race:
    """One read path, and a store whose every message waits until the scheduler lets it pass."""

    def __init__(self, world: World, *, with_fallback: bool) -> None:
        self._world = world
        self._draw = world.chance("scheduler").draw
        self._path = ShieldedReads(world.clock, world.chance("front"), self._get, hot=HOT_AT_ONCE)
        self._fallback: Fallback[int] | None = None
        if with_fallback:
            self._fallback = Fallback(FallbackSettings())
        self._gates: list[asyncio.Future[None]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.Task[None]] = []
        self._versions: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self.fetches = self.reads = self.stale_own = self.stale_cached = 0

    async def episode(self, key: str, steps: int) -> None:
        """Some steps, and then all that is under way comes to its end."""
        for _ in range(steps):
            await self._step(key)
            for _ in range(int(self._draw() * 3)):
                await asyncio.sleep(0)
        idle = 0
        while idle < SETTLED_TURNS:
            idle = 0 if self._gates or not self._is_idle() else idle + 1
            self._pass_one()
            await asyncio.sleep(0)
        self._readers.clear()
        self._writers.clear()
        _, cached = self._path.look(key)
        if cached is not None and cached < self._acknowledged.get(key, 0):
            self.stale_cached += 1

    async def _step(self, key: str) -> None:
        draw = self._draw()
        loop = asyncio.get_running_loop()
        if draw < 0.30:
            if len(self._readers) < READS_MAX:
                self._readers.append(loop.create_task(self._read(key)))
        elif draw < 0.40:
            if len(self._writers) < WRITES_MAX:
                self._writers.append(loop.create_task(self._write(key)))
        elif draw < 0.86:
            self._pass_one()
        elif draw < 0.90:
            if self._readers:
                self._readers[int(self._draw() * len(self._readers))].cancel()
        elif draw < 0.94:
            self._versions[key] = self._versions.get(key, 0) + 1  # another node's
        else:
            # A moment, or long enough for what is kept to expire, or nearly.
            await self._world.sleep_us(TIMES_US[int(self._draw() * len(TIMES_US))])

    def _is_idle(self) -> bool:
        return all(task.done() for task in self._readers + self._writers)

    def _pass_one(self) -> None:
        while self._gates:
            gate = self._gates.pop(int(self._draw() * len(self._gates)))
            if not gate.done():
                gate.set_result(None)
                return

    async def _gate(self) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate

    async def _get(self, key: str) -> int:
        self.fetches += 1
        await self._gate()
        if self._draw() < FAILURES:
            raise Unavailable("the store", "it was drawn to fail")
        version = self._versions.get(key, 0)
        await self._gate()
        return version

    async def _read(self, key: str) -> None:
        now_us = self._world.clock.now_us()
        request = Request(key, arrived_us=now_us)
        if self._draw() < 0.3:
            request.deadline_us = now_us + 1_000
        least = self._acknowledged.get(key, 0)
        self.reads += 1
        try:
            version = await self._answer(request)
        except (Unavailable, Refused, TimeoutError):
            return
        if version < least:
            self.stale_own += 1

    async def _answer(self, request: Request) -> int:
        if self._fallback is None:
            return await read(self._path, request)

        async def work(_: int) -> CallResult[int]:
            return CallResult(ResultKind.OK, await read(self._path, request))

        return (await self._fallback.call(work, request, self._world.clock)).unwrap()

    async def _write(self, key: str) -> None:
        await self._gate()
        version = self._versions[key] = self._versions.get(key, 0) + 1
        await self._gate()
        self._path.invalidate(key)
        if self._fallback is not None:
            self._fallback.forget(Request(key))
        self._acknowledged[key] = max(version, self._acknowledged.get(key, 0))


async def read(front: ReadPath, request: Request) -> int:
    """Read as a handler does; a reader that has to refresh is answered from the cache as well."""
    looked = state, version = front.look(request.key)
    if version is not None and state in SERVED:
        return version
    if version is not None and state == REFRESH:
        # Nobody waits for it, so it has no deadline. The loop holds it until it is done.
        refresh = Request(request.key, arrived_us=request.arrived_us)
        asyncio.get_running_loop().create_task(_refresh(front, refresh, looked))
        return version
    return await front.fetch(request, looked)


async def _refresh(front: ReadPath, request: Request, looked: Lookup) -> None:
    try:
        await front.fetch(request, looked)
    except (Unavailable, Refused):
        return  # the next reader tries


@pytest.mark.prove
@pytest.mark.parametrize("seed", seeds(full=500, part=8))
def test_no_read_is_older_than_a_write_that_its_node_has_acknowledged(seed: int) -> None:
    totals = RaceRig(episodes=EPISODES).play(seed)
    assert (totals.stale_own, totals.stale_cached) == (0, 0), f"seed {seed}"
    assert totals.reads > 4 * EPISODES
    assert 0.3 < totals.served / totals.reads < 0.9, "the cache and the sharing are both at work"
