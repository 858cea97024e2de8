"""Staleness: a cache in front of a store must not give back what its own node has overwritten.

A fetch that read before a write and comes back after it fills the cache with the past, for as long
as the cache keeps it; and who joins a fetch that began before his own write reads the past too. So
each key has an epoch: a write moves it, a fill of an older epoch is void, and nobody joins a flight
from before. The goals: no read on the node that wrote is older than its write, in any order of
events (`races`, of which a million are played in the long proofs); and on other nodes, which hear
of nothing, none is older than the time to live and one fetch.

There are two rigs. `RaceRig` plays thousands of small episodes in which a scheduler picks by chance
what comes next: a read or a write begins, one of the messages to or from the store arrives, a
reader gives up, a fetch fails, somebody else writes, time passes. `NodesRig` is a few nodes that
read and write the same keys for a while, at the store's own pace. The oracle is the writes
acknowledged on each node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.baselines.caches import TtlCache
from sluicegate.lab.durations import Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.rigs.read_paths import Get, ReadPath, ShieldedReads, VersionedStore, read
from sluicegate.lab.scenario import AS_BARS, Figures, PlotSpec, Scenario, candidate_maker
from sluicegate.lab.world import World, run
from sluicegate.policies.cache.hot_key import HotKeySettings
from sluicegate.policies.client.call_result import CallResult, ResultKind
from sluicegate.policies.client.fallback import Fallback, FallbackSettings

MakeReadPath: TypeAlias = Callable[[Clock, Chance, Get, bool], ReadPath]  # hot at once, or as it is

BATCH: Final = 50  # episodes of one read path, each with a key of its own
WRITES_MAX: Final = 3
READS_MAX: Final = 8
SETTLED_TURNS: Final = 6  # a refresh ahead is nobody's task here
FAILURES: Final = 0.08  # of all fetches
TIMES_US: Final = (1, 100, 600, 1_100, 3_200_000, 3_490_000, 3_600_000, 40_000_000)


class FreshnessRun(NamedTuple):
    """What one run measured."""

    reads: int
    served: int  # without a fetch of their own
    stale_own: int  # older than a write that this node had acknowledged before the read began
    stale_cached: int  # what the cache held at the end of an episode was older than that
    age_us_max: int  # of what another node's write had replaced
    fetch_us_max: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRig:
    """So many episodes of so many steps each."""

    episodes: int = 3_000
    steps: int = 20

    def play(self, make_path: MakeReadPath, seed: int) -> FreshnessRun:
        """Play one run."""

        async def main(world: World) -> FreshnessRun:
            run_so_far = FreshnessRun(0, 0, 0, 0, 0, 0)
            race: _Race | None = None
            for episode in range(self.episodes):
                if race is None or episode % BATCH == 0:
                    race = _Race(world, make_path, with_fallback=episode % (2 * BATCH) == 0)
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

    def __init__(self, world: World, make_path: MakeReadPath, *, with_fallback: bool) -> None:
        self._world = world
        self._draw = world.chance("scheduler").draw
        self._path = make_path(world.clock, world.chance("front"), self._get, True)
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRig:
    """Reads and writes a second of each node, over a few keys, all alike."""

    nodes: int = 4
    keys: int = 3
    reads_per_s: float = 600.0
    writes_per_s: float = 0.5
    span_us: int = 15_000_000
    rtt_us: int = 3_000
    ttl_us: int  # what the product promises

    def play(self, make_path: MakeReadPath, seed: int) -> FreshnessRun:
        """Play one run."""

        async def main(world: World) -> FreshnessRun:
            return await _Cluster(world, self).play(make_path)

        return run(main, seed).value


@final
class _Cluster:
    """The nodes, and the one store behind them."""

    def __init__(self, world: World, rig: NodesRig) -> None:
        self._world = world
        self._rig = rig
        self._store = VersionedStore(world, Exponential(2_000.0), workers=16, rtt_us=rig.rtt_us)
        self._loop = asyncio.get_running_loop()
        self._replaced_us: dict[tuple[str, int], int] = {}  # since when there is a later version
        self._run = FreshnessRun(0, 0, 0, 0, 0, 0)
        self._fetches = self._fetch_us = 0

    async def play(self, make_path: MakeReadPath) -> FreshnessRun:
        world, rig = self._world, self._rig
        for node in range(rig.nodes):
            name = f"node{node}"
            path = make_path(world.clock, world.chance(name), self._get, False)
            acknowledged: dict[str, int] = {}
            world.spawn(self._reads(name, path, acknowledged), f"{name}/reads")
            world.spawn(self._writes(name, path, acknowledged), f"{name}/writes")
        await world.until_us(rig.span_us)
        await world.cancel_others()
        served = self._run.reads - self._fetches
        return self._run._replace(served=served, fetch_us_max=self._fetch_us)

    async def _reads(self, name: str, path: ReadPath, acknowledged: dict[str, int]) -> None:
        draw = self._world.chance(f"{name}/keys").draw
        arrivals = Poisson(self._rig.reads_per_s)
        for at_us in arrivals.instants_us(self._world.chance(f"{name}/reads")):
            await self._world.until_us(at_us)
            key = f"key{int(draw() * self._rig.keys)}"
            # The loop holds it until it is done.
            self._loop.create_task(self._read(path, key, acknowledged.get(key, 0)))

    async def _read(self, path: ReadPath, key: str, least: int) -> None:
        begun_us = self._world.elapsed_us
        version = await read(path, Request(key, arrived_us=self._world.clock.now_us()))
        replaced_us = self._replaced_us.get((key, version), begun_us)
        run_so_far = self._run
        self._run = run_so_far._replace(
            reads=run_so_far.reads + 1,
            stale_own=run_so_far.stale_own + (version < least),
            age_us_max=max(run_so_far.age_us_max, begun_us - replaced_us),
        )

    async def _writes(self, name: str, path: ReadPath, acknowledged: dict[str, int]) -> None:
        draw = self._world.chance(f"{name}/written").draw
        arrivals = Poisson(self._rig.writes_per_s)
        for at_us in arrivals.instants_us(self._world.chance(f"{name}/writes")):
            await self._world.until_us(at_us)
            key = f"key{int(draw() * self._rig.keys)}"
            version = await self._store.put(key)
            self._replaced_us[key, version - 1] = self._world.elapsed_us - self._rig.rtt_us // 2
            path.invalidate(key)
            acknowledged[key] = max(version, acknowledged.get(key, 0))

    async def _get(self, key: str) -> int:
        self._fetches += 1
        begun_us = self._world.elapsed_us
        version = await self._store.get(key)
        self._fetch_us = max(self._fetch_us, self._world.elapsed_us - begun_us)
        return version


FreshnessRig: TypeAlias = RaceRig | NodesRig


def measure(rig: FreshnessRig, result: FreshnessRun) -> Figures:
    """How often a read was stale, and by how much more than it may be."""
    bound_us = rig.ttl_us + result.fetch_us_max if isinstance(rig, NodesRig) else 0
    return {
        "stale_own": float(result.stale_own),
        "stale_refills": float(result.stale_cached),
        "others_ms": result.age_us_max / 1e3,
        "others_beyond_ms": max(result.age_us_max - bound_us, 0) / 1e3,
        "reads": float(result.reads),
        "served": result.served / result.reads,
    }


def play(rig: FreshnessRig, make_path: MakeReadPath, seed: int) -> FreshnessRun:
    """Play one run of either rig."""
    return rig.play(make_path, seed)


candidate: Final = candidate_maker(play)


DEFAULTS: Final = HotKeySettings()
RIGS: Final[dict[str, FreshnessRig]] = {
    "races": RaceRig(),
    "nodes": NodesRig(ttl_us=DEFAULTS.ttl_us),
}
HOT_AT_ONCE: Final = HotKeySettings(saved_min=0.0)


def shielded(**form: Any) -> MakeReadPath:
    """Return a maker of `hot_key` and `coalesce`, with parts of them taken out by `form`."""

    def make(clock: Clock, chance: Chance, get: Get, hot_at_once: bool) -> ShieldedReads:
        hot = HOT_AT_ONCE if hot_at_once else DEFAULTS
        return ShieldedReads(clock, chance, get, hot=hot, **form)

    return make


shield: Final = shielded()
without_epochs: Final = shielded(epochs=False)  # any fill is taken
without_parting: Final = shielded(split_on_write=False)  # readers join fetches from before a write


def ttl_cache(clock: Clock, chance: Chance, get: Get, hot_at_once: bool) -> TtlCache:
    """A dict with times, and a delete on a write."""
    return TtlCache(clock, get, ttl_us=DEFAULTS.ttl_us)


SCENARIO: Final = Scenario(
    number=12,
    name="staleness",
    title="Reads after writes, through a cache and shared fetches",
    why="Whoever changes a price and reads the old one back has found a bug, not a cache.",
    rigs=RIGS,
    candidates={
        "shield": candidate(shield),
        "without-epochs": candidate(without_epochs),
        "without-parting": candidate(without_parting),
        "ttl-cache": candidate(ttl_cache),
    },
    ours="shield",
    must_fail=("ttl-cache", "without-epochs", "without-parting"),
    own_settings={
        "hot_key.saved_min 0 in `races`": "a race is a dozen reads of one key, and only "
        "answers of hot keys are kept",
    },
    goals=(
        Goal(figure="stale_own", at_most=0.0),
        Goal(figure="stale_refills", at_most=0.0),
        Goal(figure="others_beyond_ms", at_most=0.0, cases=("nodes",)),
    ),
    measure=measure,
    columns=("stale_own", "stale_refills", "others_ms", "others_beyond_ms", "served"),
    plots=(
        PlotSpec(
            "Reads older than what their own node had written",
            ("stale_own", "stale_refills"),
            AS_BARS,
            "in all races of a run",
        ),
    ),
    scale="3,000 races a run; a million in the long proofs. Four nodes, three keys.",
)
