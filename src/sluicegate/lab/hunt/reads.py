"""Reads: the front of a store, hot keys kept, readers of one key sharing a fetch, writes between.

A value is the number of the write that made it, so a stale answer is a smaller number. A write
takes time, lands at an instant within it, and invalidates cache and coalescer before it is
acknowledged. Readers may give up at any await; fetches may be slow, fail or hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Request
from sluicegate.lab.durations import Exponential
from sluicegate.lab.hunt.record import CANCELLED, DONE, REFUSED, HuntRecord, HuntUnit
from sluicegate.lab.hunt.setup import HuntLoad, Setup
from sluicegate.lab.hunt.stage import MS, active, play_callers, recheck
from sluicegate.lab.world import World
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from sluicegate.policies.cache.coalesce import Coalesce, CoalesceSettings, Flight
from sluicegate.policies.cache.hot_key import (
    COLD,
    MISS,
    REFRESH,
    STALE,
    Fill,
    HotKey,
    HotKeySettings,
)

VALUE_BYTES: Final = 100
HANG_US: Final = 30_000_000
COOL_US: Final = 120_000_000
RETRIES_MAX: Final = 2  # a reader that gets an error tries again at once


@final
class _VersionStore:
    """What is really so: the write that each key is of, and the one that was acknowledged."""

    __slots__ = ("acknowledged", "next", "values")

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.next = 0


@final
class _Reads:
    """Cache and coalescer, the store behind them, and the readers."""

    def __init__(self, world: World, setup: Setup, record: HuntRecord) -> None:
        self.world, self.setup, self.record = world, setup, record
        knob, chance = setup.knob, world.chance
        self.store = _VersionStore()
        self.hot: HotKey[int] = HotKey(
            HotKeySettings(
                counters=knob("counters", 200),
                window_us=knob("window_ms", 1_000) * MS,
                saved_min=knob("reads_min", 4) * knob("ttl_ms", 300) / knob("window_ms", 1_000),
                ttl_us=knob("ttl_ms", 300) * MS,
                negative_ttl_us=max(knob("ttl_ms", 300) // 3, 1) * MS,
                stale_us=knob("stale_ms", 3_000) * MS,
                cache_bytes_max=knob("cache_bytes", 100_000),
                entry_bytes_max=min(knob("cache_bytes", 100_000), 1 << 20),
            )
        )
        self.waiters_max = knob("waiters_max", 10_000)
        self.flights_max = knob("flights_max", 10_000)
        places = knob("places", 0)
        self.queue = Gate(GateSettings(slots=places, length_max=50)) if places else None
        self.shared: Coalesce[int] = Coalesce(
            CoalesceSettings(waiters_max=self.waiters_max, flights_max=self.flights_max),
            None if self.queue is None else self.queue.requeue,
        )
        self.fetch_us = Exponential(float(knob("fetch_us", 5_000))).sampler(chance("fetch"))
        self.draw = chance("cache").draw
        self.reading = self.refreshing = 0
        # When those began that are in the air, of what was begun after the last write.
        self.fetching: dict[str, list[int]] = {}
        self.shares: set[asyncio.Task[None]] = set()
        bounds = record.bounds
        bounds["fetches at once"] = places
        bounds["keys counted"] = knob("counters", 200)
        bounds["bytes cached"] = knob("cache_bytes", 100_000)
        bounds["flights"] = self.flights_max
        bounds["waiters"] = self.flights_max * self.waiters_max

    async def one(self, number: int, load: HuntLoad) -> None:
        draw = self.world.chance(f"who/{load.name}").draw
        # The first keys are read most.
        key = f"k{int(draw() * draw() * load.keys)}"
        if draw() * 1_000 < load.writes_permille:
            await self._write(key)
            return
        now_us = self.world.clock.now_us()
        deadline_us = now_us + load.timeout_ms * MS if load.timeout_ms else None
        request = Request(
            key,
            caller=load.name,
            criticality=load.allowed,
            arrived_us=now_us,
            deadline_us=deadline_us,
        )
        unit = HuntUnit(number, now_us, deadline_us)
        self.record.units.append(unit)
        self.reading += 1
        unit.status = CANCELLED
        arrived_at_us = self.world.elapsed_us
        try:
            await self._read(request, unit)
        finally:
            self.reading -= 1
            unit.ended_us = self.world.clock.now_us()
            unit.waited_us = self.world.elapsed_us - arrived_at_us

    async def _read(self, request: Request, unit: HuntUnit) -> None:
        key = request.key
        for _ in range(RETRIES_MAX + 1):
            acknowledged = self.store.acknowledged.get(key, 0)
            try:
                value = await self._answer(key, request)
            except Refused as refused:
                reason = refused.decision.reason
                unit.status, unit.reason = REFUSED, "" if reason is None else reason.name
                return
            except Unavailable as error:
                if error.what == "the shared fetch":
                    sentence = f"a reader of {key} was told of another's end: {error.detail}"
                    self.record.add_violation("nobody's end is another's", sentence)
                continue
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    sentence = f"a reader of {key} who was not cancelled was told so"
                    self.record.add_violation("nobody's end is another's", sentence)
                raise
            unit.status = DONE
            if value < acknowledged:
                self.record.add_violation(
                    "own reads",
                    f"a read of {key} brought write {value}, and {acknowledged} was acknowledged",
                )
            return
        unit.status = DONE

    async def _answer(self, key: str, request: Request) -> int:
        clock, hot = self.world.clock, self.hot
        state, value = hot.look(key, clock.now_us(), self.draw())
        if state == REFRESH:
            task = self.world.spawn(self._refresh(key, hot.begin(key, clock.now_us())), "refresh")
            self.shares.add(task)
            task.add_done_callback(self.shares.discard)
        if value is not None and state != STALE:
            return value
        fetch = partial(self._fetch, keep=state in {MISS, STALE})
        stale, acknowledged = value, self.store.acknowledged.get(key, 0)
        try:
            return await self.shared.share(key, request, clock, fetch)
        except Unavailable:
            # Served after an error; a write has taken it out of the cache, so look again.
            again, value = hot.look(key, clock.now_us(), self.draw())
            if stale is None or again == COLD or value is None:
                raise
            return value if acknowledged <= self.store.acknowledged.get(key, 0) else stale

    async def _fetch(self, flight: Flight[int], *, keep: bool) -> int:
        key, clock = flight.key, self.world.clock
        fill: Fill[int] | None = self.hot.begin(key, clock.now_us()) if keep else None
        alone = self.shared.stats().flights >= self.flights_max
        since = self.store.acknowledged.get(key, 0)
        begun_us = flight.begun_us  # what is flown again is as old as it was
        if not alone and not flight.void:
            self._check_fetches(key, begun_us)
        try:
            value = await self._through_the_queue(flight)
        finally:
            begun = self.fetching.get(key, [])
            if begun_us in begun and self.store.acknowledged.get(key, 0) == since:
                begun.remove(begun_us)
        if fill is not None:
            fill.put(value, VALUE_BYTES, now_us=clock.now_us(), draw=self.draw())
        return value

    def _check_fetches(self, key: str, begun_us: int) -> None:
        """One at a time; a second one where the first is overdue, and never a third."""
        begun = self.fetching.setdefault(key, [])
        overdue_us = self.shared.settings.overdue_us
        begun.append(begun_us)
        if len(begun) > 2 or (not 0 < overdue_us <= max(begun) - min(begun) and len(begun) > 1):
            sentence = f"{len(begun)} fetches of {key} at once, and no write between"
            self.record.add_violation("one fetch", sentence)

    async def _through_the_queue(self, flight: Flight[int]) -> int:
        """Wait for a place with the class of the most important reader, and load."""
        if self.queue is None:
            return await self._load(flight.key)
        clock = self.world.clock
        permit = await self.queue.admit(flight.request, clock)
        if isinstance(permit, Decision):
            raise Refused(permit)
        outcome = Outcome.IGNORE
        try:
            value = await self._load(flight.key)
            outcome = Outcome.SUCCESS
            return value
        finally:
            permit.end(outcome, clock.now_us())

    async def _refresh(self, key: str, fill: Fill[int]) -> None:
        self.refreshing += 1
        try:
            value = await self._load(key)
            fill.put(value, VALUE_BYTES, now_us=self.world.clock.now_us(), draw=self.draw())
        except Unavailable:
            return
        finally:
            self.refreshing -= 1

    async def _load(self, key: str) -> int:
        """From the store: what it reads is of one instant of the time it takes."""
        took_us, elapsed_us = self.fetch_us(), self.world.elapsed_us
        if active(self.setup, "pause", elapsed_us, key) is not None:
            await self.world.sleep_us(HANG_US)
        slow = active(self.setup, "slow", elapsed_us, key)
        if slow is not None:
            took_us = took_us * 1_000 // max(slow.much, 1)
        at_us = int(took_us * self.draw())
        await self.world.sleep_us(at_us)
        value = self.store.values.get(key, 0)
        await self.world.sleep_us(took_us - at_us)
        fail = active(self.setup, "fail", elapsed_us, key)
        if fail is not None and self.draw() * 1_000 < fail.much:
            raise Unavailable("the store", "it was set to fail")
        return value

    async def _write(self, key: str) -> None:
        """Write, invalidate, acknowledge; a writer that gives up gets no acknowledgement."""
        store = self.store
        took_us = self.fetch_us()
        at_us = int(took_us * self.draw())
        await self.world.sleep_us(at_us)
        store.next += 1
        number = store.values[key] = store.next
        try:
            await self.world.sleep_us(took_us - at_us)
        finally:
            self.hot.invalidate(key)
            self.shared.invalidate(key)
            self.fetching.pop(key, None)
            store.acknowledged[key] = max(store.acknowledged.get(key, 0), number)

    def sample_levels(self) -> None:
        record, hot, shared = self.record, self.hot.stats(), self.shared.stats()
        record.level("keys counted", hot.counted)
        record.level("bytes cached", hot.cached_bytes)
        record.level("flights", shared.flights)
        if self.queue is not None:
            record.level("fetches at once", self.queue.inflight)
        record.level("waiters", shared.waiting)

    def disagreements(self) -> Iterator[str]:
        """More wait for a shared answer than read at all."""
        waiting = self.shared.stats().waiting
        if waiting > self.reading:
            yield f"{waiting} wait for a shared answer, and {self.reading} read"


async def play_reads(world: World, setup: Setup, record: HuntRecord) -> None:
    """The whole play."""
    reads = _Reads(world, setup, record)

    async def sample() -> None:
        reads.sample_levels()
        for sentence in await recheck(reads.disagreements):
            record.add_violation("conserved", sentence)

    await play_callers(world, setup, reads.one, sample)
    # A fetch that nobody waits for is cancelled; one that hangs shows here.
    await world.sleep_us(1)
    shared = reads.shared.stats()
    record.left["flights"], record.left["waiters"] = shared.flights, shared.waiting
    if reads.queue is not None:
        record.left["fetches at once"] = reads.queue.inflight
        record.left["fetches in line"] = reads.queue.stats().queued
    if reads.shares:
        await asyncio.wait(list(reads.shares))
    await world.sleep_us(COOL_US)
    for number in range(max(load.keys for load in setup.loads)):
        state, _ = reads.hot.look(f"k{number}", world.clock.now_us(), reads.draw())
        if state != COLD and setup.knob("reads_min", 4) > 0:
            record.add_violation("let go", f"k{number} is hot after two minutes of silence")
            break
