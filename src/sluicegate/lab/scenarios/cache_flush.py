"""Cache flush: the cache is emptied, and the store behind it can do a tenth of what is asked.

While the cache is warm the store sees the few that miss. After a flush it sees all, falls behind,
and whoever waits gives up before his answer comes: so nothing fills the cache, the callers try
again, and the state lasts although its cause is long gone. The goal: the hit ratio is back at 95%
of what it was within twice the least time, which is what a store at its full speed takes to bring
the keys that are needed for it, the most wanted first.

The rig: an application, a cache that it fills itself, and a store that relies on the cache. An
application that has waited too long gives up, and has nothing to put into the cache; the store does
not learn of that, and does the work. The cache is warm from the first instant: each key is in it
with the chance, and the age, that it has after a long time. It is the same for all candidates; they
differ in how they fetch.

It is the queue that brings the cache back: it keeps the store at work for those who still wait.
`coalesce` ships with it and is played, but has no part in this claim (`queue-alone` meets it too):
of so many keys the few that are fetched twice cost nothing. What it is for is in `coalescing.py`
and `hot_keys.py`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.lru_ttl import MISS, LruTtl
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.caches import PlainLookAside
from sluicegate.lab.clients import RetryingCall
from sluicegate.lab.durations import Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import timeline
from sluicegate.lab.retries import NAIVE, SMART, Retrier, Retries
from sluicegate.lab.scenario import (
    OVER_TIME,
    PLACES,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.testing import START_US

BUCKET_US: Final = 250_000
WINDOW_BUCKETS: Final = 4  # a second
RECOVERED_SHARE: Final = 0.95
VALUE_BYTES: Final = 200
_US: Final = 1e6


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LookAside:
    """Keys are asked for by Zipf's law with exponent 1."""

    retries: Retries
    per_s: float = 2_000.0
    keys: int = 5_000
    ttl_us: int = 31_000_000
    workers: int = 8
    service_us: float = 40_000.0
    timeout_us: int = 500_000
    flush_us: int = 5_000_000
    span_us: int = 40_000_000

    @property
    def capacity_per_s(self) -> float:
        """What the store can fetch."""
        return self.workers * _US / self.service_us

    def odds(self) -> list[float]:
        """How likely a read is for one of the first keys, for each number of them."""
        weights = list(accumulate(1 / rank for rank in range(1, self.keys + 1)))
        return [weight / weights[-1] for weight in weights]

    def refill_s(self, hits: float) -> float:
        """The least time in which a store can bring enough keys for so many hits: best first."""
        return (bisect_left(self.odds(), hits) + 1) / self.capacity_per_s


Fetch: TypeAlias = Callable[[str], Awaitable[int]]
Fill: TypeAlias = Callable[[str, int], None]


class _FetchPath(Protocol):
    """How an application fetches what its cache lacks, and fills the cache."""

    async def fetch(self, request: Request) -> int: ...


MakeFetchPath: TypeAlias = Callable[[World, LookAside, Fetch, Fill], _FetchPath]


class LookAsideRun(NamedTuple):
    """What one run counted, in each quarter of a second."""

    calls: list[int]
    hits: list[int]
    fetched: list[int]  # that the store began
    filled: list[int]


def play(rig: LookAside, make_path: MakeFetchPath, seed: int) -> LookAsideRun:
    """Play one run."""

    async def main(world: World) -> LookAsideRun:
        return await _Run(world, rig, make_path).play()

    return run(main, seed).value


@final
class _Run:
    def __init__(self, world: World, rig: LookAside, make_path: MakeFetchPath) -> None:
        self._world = world
        self._rig = rig
        self._odds = rig.odds()
        self._draw = world.chance("keys").draw
        self._jitter = world.chance("cache").draw
        self._loop = asyncio.get_running_loop()
        self._backend = Backend(world, Exponential(rig.service_us), workers=rig.workers)
        self._cache = self._new_cache()
        self._path = make_path(world, rig, self._fetch, self._fill)
        buckets = rig.span_us // BUCKET_US + 1
        self._counts = LookAsideRun(*([0] * buckets for _ in range(4)))
        retrier = Retrier(rig.retries, world.chance("retries"))
        self._call = RetryingCall(world, self._attempt, retrier)

    async def play(self) -> LookAsideRun:
        world, rig = self._world, self._rig
        self._warm()
        world.call_at_us(rig.flush_us, self._flush)
        for at_us in Poisson(rig.per_s).instants_us(world.chance("arrivals")):
            if at_us >= rig.span_us:
                break
            await world.until_us(at_us)
            self._arrive()
        await world.cancel_others()
        return self._counts

    def _new_cache(self) -> LruTtl[int]:
        return LruTtl(1 << 24, ttl_us=self._rig.ttl_us, beta=0.0)

    def _flush(self) -> None:
        self._cache = self._new_cache()

    def _warm(self) -> None:
        """Oldest first, because a cache's clock does not go back."""
        rig, draw = self._rig, self._world.chance("warm").draw
        ages: list[tuple[int, str]] = []
        for at, (odds, before) in enumerate(zip(self._odds, [0.0, *self._odds], strict=False)):
            asked_in_life = (odds - before) * rig.per_s * rig.ttl_us / _US
            if draw() < asked_in_life / (1 + asked_in_life):
                ages.append((int(draw() * rig.ttl_us), f"key{at}"))
        for age_us, key in sorted(ages, reverse=True):
            self._put(key, 0, START_US - age_us)

    def _put(self, key: str, version: int, now_us: int) -> None:
        epoch = self._cache.begin(key)
        self._cache.put(key, version, VALUE_BYTES, epoch=epoch, now_us=now_us, draw=self._jitter())

    def _has(self, key: str) -> bool:
        return self._cache.get(key, self._world.clock.now_us(), 0.0)[0] != MISS

    def _arrive(self) -> None:
        key = f"key{bisect_left(self._odds, self._draw())}"
        bucket = self._world.elapsed_us // BUCKET_US
        self._counts.calls[bucket] += 1
        if self._has(key):
            self._counts.hits[bucket] += 1
            return
        now_us = self._world.clock.now_us()
        request = Request(key, arrived_us=now_us, deadline_us=now_us + self._rig.timeout_us)
        # The loop holds its tasks until they are done.
        self._loop.create_task(self._one(request), name="call")

    async def _one(self, request: Request) -> None:
        await self._call(request)

    async def _attempt(self, request: Request) -> bool:
        if self._has(request.key):
            return True
        try:
            async with asyncio.timeout(self._rig.timeout_us / _US):
                await self._path.fetch(request)
        except (Refused, TimeoutError):
            return False
        return True

    async def _fetch(self, key: str) -> int:
        """The work goes on when whoever asked has gone."""
        self._counts.fetched[self._world.elapsed_us // BUCKET_US] += 1
        work = self._loop.create_task(self._backend.serve(self._backend.draw_us()), name="store")
        await asyncio.shield(work)
        return 1

    def _fill(self, key: str, version: int) -> None:
        self._counts.filled[self._world.elapsed_us // BUCKET_US] += 1
        self._put(key, version, self._world.clock.now_us())


def _ratios(rig: LookAside, counts: LookAsideRun) -> tuple[float, float]:
    """The hit ratio before the flush, and how long until it is back, for a second, at 95% of it."""
    flush = rig.flush_us // BUCKET_US
    steady = sum(counts.hits[:flush]) / sum(counts.calls[:flush])
    for end in range(flush + WINDOW_BUCKETS, rig.span_us // BUCKET_US + 1):
        window = slice(end - WINDOW_BUCKETS, end)
        if sum(counts.hits[window]) >= RECOVERED_SHARE * steady * sum(counts.calls[window]):
            return steady, (end - flush) * BUCKET_US / _US
    return steady, inf


def measure(rig: LookAside, counts: LookAsideRun) -> Figures:
    """How long the cache stays cold, and how long it had to."""
    steady, recovered_s = _ratios(rig, counts)
    least_s = rig.refill_s(RECOVERED_SHARE * steady)
    last = rig.span_us // BUCKET_US
    at_end = slice(last - WINDOW_BUCKETS, last)
    flush = rig.flush_us // BUCKET_US
    return {
        "steady_hits": steady,
        "recovered_s": recovered_s,
        "least_s": least_s,
        "refill": recovered_s / least_s,
        "hits_at_end": sum(counts.hits[at_end]) / sum(counts.calls[at_end]),
        "wasted_fetches": max(1 - sum(counts.filled[flush:]) / sum(counts.fetched[flush:]), 0.0),
    }


def curves(rig: LookAside, counts: LookAsideRun) -> Curves:
    """Over time: the hit ratio, and what the store is asked for."""
    per_s = _US / BUCKET_US
    hits = [hits / max(calls, 1) for hits, calls in zip(counts.hits, counts.calls, strict=True)]
    fetched = [count * per_s for count in counts.fetched]
    return timeline({"hit_ratio": hits, "fetched_per_s": fetched}, BUCKET_US, rig.span_us)


@final
class GuardedPath:
    """The product's `coalesce`, and `queue` with as many places as the store has workers.

    One fetch for all who want a key, in its turn; the cache is filled by the fetch and not by those
    who wait for it. Either policy can be left out.
    """

    def __init__(
        self,
        world: World,
        rig: LookAside,
        fetch: Fetch,
        fill: Fill,
        *,
        coalesce: bool = True,
        queue: bool = True,
    ) -> None:
        self._clock = world.clock
        self._fetch = fetch
        self._fill = fill
        self._queue = Gate(GateSettings(slots=rig.workers)) if queue else None
        self._shared: Coalesce[int] | None = None
        if coalesce:
            raised = self._queue.requeue if self._queue is not None else None
            self._shared = Coalesce(CoalesceSettings(), raised)

    async def fetch(self, request: Request) -> int:
        """One fetch for all who want it, in its turn."""
        if self._shared is None:
            return await self._load(request)
        return await self._shared.share(request.key, request, self._clock, self._load_flight)

    async def _load_flight(self, flight: Flight[int]) -> int:
        return await self._load(flight.request)

    async def _load(self, request: Request) -> int:
        if self._queue is None:
            version = await self._fetch(request.key)
        else:
            version = await self._load_queued(self._queue, request)
        self._fill(request.key, version)
        return version

    async def _load_queued(self, queue: Gate, request: Request) -> int:
        permit = await queue.admit(request, self._clock)
        if isinstance(permit, Decision):
            raise Refused(permit)
        begun_us = self._clock.now_us()
        outcome = Outcome.IGNORE
        try:
            version = await self._fetch(request.key)
            outcome = Outcome.SUCCESS
            return version
        finally:
            now_us = self._clock.now_us()
            request.measured = Measured(service_us=now_us - begun_us)
            permit.end(outcome, now_us)


candidate: Final = candidate_maker(play)


queue_alone: Final = partial(GuardedPath, coalesce=False)  # each reader fetches for itself
without_queue: Final = partial(GuardedPath, queue=False)  # all fetches go to the store at once

SCENARIO: Final = Scenario(
    number=5,
    name="cache-flush",
    title="A look-aside cache is flushed",
    why="A cache that the store cannot live without must come back by itself.",
    rigs={"budget": LookAside(retries=SMART), "naive": LookAside(retries=NAIVE)},
    candidates={
        "guarded": candidate(GuardedPath),
        "queue-alone": candidate(queue_alone),
        "without-queue": candidate(without_queue),
        "look-aside": candidate(lambda _, __, fetch, fill: PlainLookAside(fetch, fill)),
    },
    ours="guarded",
    must_fail=("look-aside", "without-queue"),
    own_settings=PLACES,
    goals=(Goal(figure="refill", at_most=2.0),),
    measure=measure,
    curves=curves,
    columns=("refill", "recovered_s", "least_s", "hits_at_end", "wasted_fetches"),
    plots=(
        PlotSpec("The hit ratio after a flush", ("hit_ratio",), OVER_TIME, "hits", "seconds"),
        PlotSpec(
            "What the store is asked for", ("fetched_per_s",), OVER_TIME, "a second", "seconds"
        ),
    ),
    scale="2,000 reads a second of 5,000 keys, a store of 200 a second",
)
