"""Inversion: CRITICAL work that shares something with BULK does not wait like BULK.

A queue by class is not enough. A critical read that joins a fetch of a crawler's stands in line
with the crawler; a payment that needs the lock of a compaction waits until that has had its turn,
and is done. Priority has to pass on: a fetch that matters more is moved in the queue while it
waits, and a long job lets go of its lock after each chunk, for whoever matters most. The goal is
that CRITICAL, with BULK asking for more than all workers can do, is hardly slower than alone.

To be raised tells where many want one thing: before eight locks those of BULK who wait for the one
that a write needs are served before it, and it takes 1.6 times as long (`without-raise`). Of 64
locks few are wanted by two, and in the line before the workers no fetch of BULK stands for long
enough that its p99 would show who was moved.

The rig: work that matters waits for work that does not, because they share something.

Two things to share. A *read*: BULK began to fetch a key, a CRITICAL read of the same key joins it,
and the fetch stands in line as what it was. A *lock*: a BULK job holds a stripe for as long as it
takes, and a CRITICAL write needs that stripe. Both stand before the same few workers, which are
overloaded by BULK. A run is played twice with one seed, with BULK and without it, and what CRITICAL
got is compared; whoever is refused or late has waited for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.caches import SingleFlight
from sluicegate.lab.baselines.queues import FifoPool
from sluicegate.lab.clients import run_callers
from sluicegate.lab.durations import Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import quantile
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.scenario import AS_BARS, PLACES, Figures, PlotSpec, Scenario, candidate_maker
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.quota.request_units import RequestUnits, RequestUnitsSettings
from sluicegate.policies.settings import one_of
from sluicegate.policies.stack import Stack, waits

READ: Final = "read"
LOCK: Final = "lock"
MEAN_US: Final = 10_000
ROW_US: Final = 1_000
DONE: Final = 0
ROWS: Final = "rows"  # what `request_units` reads the size of a job from


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Inversion:
    """What is shared, by whom, and how much there is of either."""

    shared: str
    names: int  # keys, or stripes
    workers: int = 16
    critical_load: float = 0.3
    bulk_load: float = 1.7
    bulk_rows: int = 100  # of a job that holds a lock, a millisecond each
    chunk_ru: int = 10
    timeout_us: int = 500_000
    job_timeout_us: int = 5_000_000
    span_us: int = 10_000_000
    warm_us: int = 1_000_000

    def __post_init__(self) -> None:
        one_of("shared", self.shared, (READ, LOCK))
        if self.names < 1:
            raise BadValue("names", self.names, "give at least one key or stripe")

    def kind(self, criticality: Criticality) -> WorkKind:
        """Who comes, of that class."""
        critical = criticality is Criticality.CRITICAL
        job_us, timeout_us = MEAN_US, self.timeout_us
        if self.shared == LOCK and not critical:
            job_us, timeout_us = self.bulk_rows * ROW_US, self.job_timeout_us
        load = self.critical_load if critical else self.bulk_load
        return WorkKind(
            name=criticality.name.lower(),
            arrivals=Poisson(load * self.workers * 1e6 / job_us),
            criticality=criticality,
            timeout_us=timeout_us,
            callers=self.names,  # a caller is whoever wants this key, or this stripe
        )


class _Site(Protocol):
    """The service: it does what is asked, or raises `Refused`."""

    async def work(self, request: Request) -> None: ...


MakeSite: TypeAlias = Callable[[Inversion, World], _Site]


@final
class _WorkerPool:
    """A few workers, and who waits for them."""

    def __init__(self, world: World, places: WaitingPolicy, workers: int) -> None:
        self._world = world
        self._places = Stack(waits("places", places))
        self._backend = Backend(world, Exponential(float(MEAN_US)), workers=workers)

    async def do(
        self, request: Request, work_us: int | None = None, lock: Stack | None = None
    ) -> None:
        """At a place, and with the lock if there is one; `work_us` is drawn if it is not given."""
        clock = self._world.clock
        async with self._places.enter(request, clock):
            if work_us is None:
                work_us = self._backend.draw_us()
            if lock is None:
                await self._backend.serve(work_us)
                return
            async with lock.enter(request, clock):
                await self._backend.serve(work_us)


@final
class SharedReads:
    """Reads through `coalesce`, before a queue by class."""

    def __init__(self, rig: Inversion, world: World, *, raises: bool = True) -> None:
        queue = Gate(GateSettings(slots=rig.workers))
        self._world = world
        self._workers = _WorkerPool(world, queue, rig.workers)
        self._coalesce: Coalesce[None] = Coalesce(
            CoalesceSettings(), queue.requeue if raises else None
        )

    async def work(self, request: Request) -> None:
        """With whoever else asks for it."""
        await self._coalesce.share(stripe(request), request, self._world.clock, self._fetch)

    async def _fetch(self, flight: Flight[None]) -> None:
        await self._workers.do(flight.request)


@final
class _NaiveReads:
    """Reads through a dict of tasks: what the first one was, all are."""

    def __init__(self, rig: Inversion, world: World, *, places: WaitingPolicy) -> None:
        self._workers = _WorkerPool(world, places, rig.workers)
        self._leaders: dict[str, Request] = {}
        self._flights = SingleFlight(self._fetch, shielded=True)

    async def work(self, request: Request) -> None:
        self._leaders[stripe(request)] = self._leaders.get(stripe(request), request)
        await self._flights.share(Request(stripe(request)))

    async def _fetch(self, key: str) -> int:
        try:
            await self._workers.do(self._leaders[key])
        finally:
            del self._leaders[key]
        return 0


@final
class _LockedWrites:
    """Writes under a lock for each stripe.

    The product's locks are queues of one place, so they go by class; and a job that is long enters
    in chunks, and lets go of its lock between them. It takes a place before it takes the lock: who
    holds a lock is at work, and never waits in a line behind those who want it. A bulkhead lets in
    as many jobs as there are workers: of more that are all begun, few would ever end.
    """

    def __init__(
        self,
        rig: Inversion,
        world: World,
        *,
        places: WaitingPolicy,
        make_lock: Callable[[], WaitingPolicy],
        in_chunks: bool = True,
    ) -> None:
        self._world = world
        self._workers = _WorkerPool(world, places, rig.workers)
        self._make_lock = make_lock
        self._locks: dict[str, Stack] = {}
        self._units = RequestUnits(RequestUnitsSettings())
        self._chunk_ru = rig.chunk_ru if in_chunks else rig.bulk_rows * 2

    async def work(self, request: Request) -> None:
        """One write; one that is long is `rows` of a millisecond each."""
        name = stripe(request)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = Stack(waits("lock", self._make_lock()))
        if ROWS not in request.attributes:
            await self._workers.do(request, None, lock)
            return
        for chunk in self._units.chunks(request, self._chunk_ru):
            await self._do_chunk(chunk, lock)

    async def _do_chunk(self, chunk: Request, lock: Stack) -> None:
        """What is refused comes again when it was told to: a job is not lost for a chunk."""
        while True:
            wait_us = await self._try_chunk(chunk, lock)
            if wait_us == DONE:
                return
            await self._world.sleep_us(wait_us)

    async def _try_chunk(self, chunk: Request, lock: Stack) -> int:
        """When to try again; DONE if it is."""
        try:
            await self._workers.do(chunk, int(chunk.attributes[ROWS]) * ROW_US, lock)
        except Refused as refusal:
            if refusal.decision.retry_after_us <= 0:
                raise
            return refusal.decision.retry_after_us
        return DONE


def stripe(request: Request) -> str:
    """What it shares: the number after the name of its kind."""
    return request.caller.rpartition("-")[2]


def _site(
    rig: Inversion,
    world: World,
    *,
    raises: bool = True,
    shares: bool = True,
    in_chunks: bool = True,
    queued: bool = True,
) -> _Site:
    places = _queue(rig) if queued else FifoPool(rig.workers)
    if rig.shared == READ:
        if shares:
            return SharedReads(rig, world, raises=raises)
        return _NaiveReads(rig, world, places=places)
    make_lock = _lock if raises else lambda: FifoPool(1)
    return _LockedWrites(rig, world, places=places, make_lock=make_lock, in_chunks=in_chunks)


chain: Final = _site
# Nobody is raised to the class of who waits for it: locks go by arrival.
without_raise: Final = partial(_site, raises=False)
# A job holds its lock until all of it is done.
without_chunks: Final = partial(_site, in_chunks=False)
# A queue by class, and what is shared as one writes it in six lines.
naive: Final = partial(_site, raises=False, shares=False, in_chunks=False)
# The same behind a plain pool.
fifo: Final = partial(naive, queued=False)


def _queue(rig: Inversion) -> Gate:
    return Gate(GateSettings(slots=rig.workers))


def _lock() -> Gate:
    # Whoever asks for it is at work: he is told to go by nothing but his deadline.
    return Gate(GateSettings(name="lock", slots=1))


class InversionRun(NamedTuple):
    """How long CRITICAL took, by itself and with BULK; refused or late is for ever."""

    alone_us: list[float]
    beside_us: list[float]
    bulk_done: int


def play(rig: Inversion, make_site: MakeSite, seed: int) -> InversionRun:
    """Two runs of one seed."""
    alone_us, _ = _play(rig, make_site, seed, (Criticality.CRITICAL,))
    beside_us, bulk = _play(rig, make_site, seed, (Criticality.CRITICAL, Criticality.BULK))
    return InversionRun(alone_us, beside_us, bulk)


def _play(
    rig: Inversion, make_site: MakeSite, seed: int, classes: tuple[Criticality, ...]
) -> tuple[list[float], int]:
    async def main(world: World) -> tuple[list[float], int]:
        site = make_site(rig, world)
        took_us: dict[Criticality, list[float]] = {each: [] for each in Criticality}
        job = {ROWS: str(rig.bulk_rows)}

        async def ask(request: Request) -> None:
            begun_us = world.elapsed_us
            if rig.shared == LOCK and request.criticality is Criticality.BULK:
                request.attributes = job
            took = inf
            with suppress(Refused):
                await site.work(request)
                if request.remaining_us(world.clock.now_us()):
                    took = float(world.elapsed_us - begun_us)
            if begun_us >= rig.warm_us:
                took_us[request.criticality].append(took)

        calls = [(rig.kind(each), ask) for each in classes]
        await run_callers(world, calls, until_us=rig.span_us)
        bulk = sum(took < inf for took in took_us[Criticality.BULK])
        return took_us[Criticality.CRITICAL], bulk

    return run(main, seed).value


def measure(rig: Inversion, ended: InversionRun) -> Figures:
    """The p99 of CRITICAL beside BULK, and how many times that is of the p99 without."""
    alone_ms = quantile(ended.alone_us, 0.99) / 1000
    beside_ms = quantile(ended.beside_us, 0.99) / 1000
    done = sum(took < inf for took in ended.beside_us)
    return {
        "p99_ratio": beside_ms / alone_ms if alone_ms < inf else inf,
        "p99_ms": beside_ms,
        "p99_alone_ms": alone_ms,
        "success": done / len(ended.beside_us) if ended.beside_us else 0.0,
        "bulk_per_s": ended.bulk_done * 1e6 / (rig.span_us - rig.warm_us),
    }


candidate: Final = candidate_maker(play)


SCENARIO: Final = Scenario(
    number=8,
    name="inversion",
    title="Priority inversion: a shared read, and a lock that is held for long",
    why="What matters must not wait for what does not, not even by a detour.",
    rigs={
        "shared read": Inversion(shared=READ, names=400),
        "lock": Inversion(shared=LOCK, names=64),
        "few locks": Inversion(shared=LOCK, names=8, critical_load=0.1),
    },
    candidates={
        "chain": candidate(chain),
        "without-raise": candidate(without_raise),
        "without-chunks": candidate(without_chunks),
        "naive": candidate(naive),
        "fifo": candidate(fifo),
    },
    ours="chain",
    must_fail=("naive", "without-chunks", "without-raise"),
    own_settings={
        **PLACES,
        "queue of a lock: form none": "whoever asks for it is at work already, and goes by "
        "his deadline alone",
        "bulkhead.cap and pool as many as workers": "jobs that wait for a lock hold a worker each",
    },
    goals=(Goal(figure="p99_ratio", at_most=1.2),),
    measure=measure,
    columns=("p99_ratio", "p99_ms", "p99_alone_ms", "success", "bulk_per_s"),
    plots=(PlotSpec("CRITICAL beside BULK, over alone", ("p99_ratio",), AS_BARS, "times the p99"),),
    scale="half the workers of the other rigs; jobs of 100 ms under 64 locks, or 8",
)
