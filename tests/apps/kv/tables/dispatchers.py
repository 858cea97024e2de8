"""Dispatchers for the tests: tables on one engine, by a clock moved by hand, that may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from sluicegate.apps.kv.tables.catalogue import Catalogue
from sluicegate.apps.kv.tables.jobs import TableJobs
from sluicegate.apps.kv.tables.keeper import TableKeeper
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.apps.kv.tables.uploads import TableUploads
from sluicegate.contracts.access import EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.engine import Change, Engine, Entry, KeyRange, Place, Update
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import CallContext
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.stores.engines.memory import MemoryEngine
from sluicegate.testing import HandClock

ANYBODY = CallContext(Identity("loader", (), {"*": EVERY_TABLE_GRANT}))
SETTINGS = TableSettings(fold_rows=3, fold_at_once=2, sweep_rows=4)


async def freely(_ask: CallContext, _rows: int, _bytes: int) -> Any:
    return NOTHING_HELD


class Crash(Unavailable):
    """The engine, or we, went away in the middle."""

    def __init__(self) -> None:
        super().__init__("the engine", "crashed")


class Crashing:
    """An engine whose n-th call that changes something fails, before or after it was made.

    With `later`, what it answers it answers by an awaitable.
    """

    def __init__(self, inner: Engine, *, later: bool = False) -> None:
        self.inner = inner
        self.later = later
        self.calls_left: int | None = None
        self.after = False
        self.calls = 0

    def _counted(self) -> bool:
        self.calls += 1
        if self.calls_left is None:
            return False
        self.calls_left -= 1
        return self.calls_left == 0

    async def _made(self, work: Awaitable[Any]) -> Any:
        crash = self._counted()
        if crash and not self.after:
            work.close()  # type: ignore[attr-defined]
            raise Crash
        made = await work
        if crash:
            raise Crash
        return made

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def durability(self) -> str:
        return self.inner.durability

    @property
    def shared(self) -> bool:
        return self.inner.shared

    def read(self, space: str, places: Sequence[Place]) -> Any:
        if not self.later:
            return self.inner.read(space, places)

        async def read_later() -> Any:
            await asyncio.sleep(0)
            return self.inner.read(space, places)

        return read_later()

    def scan(self, space: str, partition: bytes, span: KeyRange) -> Any:
        if not self.later:
            return self.inner.scan(space, partition, span)

        async def read_later() -> Any:
            await asyncio.sleep(0)
            return self.inner.scan(space, partition, span)

        return read_later()

    async def write(self, changes: Sequence[Change]) -> None:
        await self._made(self.inner.write(changes))

    async def swap(self, change: Change, expected: bytes | None) -> bool:
        done: bool = await self._made(self.inner.swap(change, expected))
        return done

    async def update(self, update: Update) -> bool:
        done: bool = await self._made(self.inner.update(update))
        return done

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        await self._made(self.inner.load(space, entries))

    async def walk(self, space: str, after: Place | None, rows_max: int) -> Sequence[Entry]:
        return await self.inner.walk(space, after, rows_max)

    async def drop(self, space: str) -> None:
        await self._made(self.inner.drop(space))

    def shard_of(self, space: str, partition: bytes) -> str:
        return self.inner.shard_of(space, partition)

    async def close(self) -> None:
        await self.inner.close()


class Node:
    """One dispatcher's tables. It looks at the book only when it must, or is told to."""

    def __init__(
        self,
        engine: Engine,
        clock: HandClock,
        settings: TableSettings = SETTINGS,
        *,
        holder: str = "a",
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.settings = settings
        self.catalogue = Catalogue(engine, clock, settings)
        self.tables = Tables(engine, self.catalogue, clock, settings)
        # Two, so that a test may hold up the one and not the other.
        self.jobs, self.upload_jobs = [
            TableJobs(engine, self.catalogue, clock, settings, freely, holder=holder)
            for _ in range(2)
        ]
        self.keeper = TableKeeper(self.jobs)
        self.uploads = TableUploads(self.upload_jobs, self.keeper, pause=self.pause)

    async def pause(self, pause_s: float) -> None:
        self.clock.advance(s=pause_s)
        await asyncio.sleep(0)

    async def until_normal(self, table: str) -> None:
        """Keep until the table is normal and nothing is to be dropped."""
        for _ in range(200):
            await self.catalogue.refresh()
            book = self.catalogue.state
            if book.tables[table].phase == "normal" and not book.dropping:
                return
            await self.keeper.step()
            self.clock.advance(us=self.settings.stale_us)
        raise AssertionError("it does not end")


class Through:
    """An engine whose methods a test may replace; those of a compiled one cannot be."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def memory() -> Any:
    return Through(MemoryEngine())
