"""Writes: put, delete, and what reads and writes as one step.

A key that is written leaves the cache before the write is acknowledged. No write is given up at its
deadline: nobody could tell whether it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, final

from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.chain import PUT, SWAP
from sluicegate.apps.kv.key_spans import KeySpans
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Place
from sluicegate.contracts.key_values import (
    CallContext,
    RowsUpdate,
    Write,
    WriteCondition,
    WriteIfResult,
)

T = TypeVar("T")


@final
class Writes:
    """Changes of rows."""

    __slots__ = ("_admission", "_clock", "_hot", "_spans", "_tables")

    def __init__(
        self,
        admission: Admission,
        tables: Tables,
        hot: HotReads | None,
        clock: Clock,
        spans: KeySpans,
    ) -> None:
        self._admission = admission
        self._tables = tables
        self._hot = hot
        self._clock = clock
        self._spans = spans

    async def write(
        self, table: str, writes: Sequence[Write], size: int, call: CallContext
    ) -> None:
        """Put and delete, durably; `size` is their bytes."""
        places = [(one.partition, one.sort) for one in writes]
        await self._do(PUT, table, places, size, call, partial(self._tables.write, table, writes))
        self._spans.write(table, writes)

    async def write_if(
        self, table: str, write: Write, condition: WriteCondition, size: int, call: CallContext
    ) -> WriteIfResult:
        """Write if the condition holds; return whether it did, and the row in the way."""
        work = partial(self._tables.write_if, table, write, condition)
        return await self._do(SWAP, table, ((write.partition, write.sort),), size, call, work)

    async def update(
        self, table: str, update: RowsUpdate, places: Sequence[Place], call: CallContext
    ) -> None:
        """Read these rows of one partition, have it decided, and write, as one."""
        work = partial(self._tables.update, table, update)
        await self._do(SWAP, table, places, update.size_bytes, call, work)

    async def remove(self, table: str, places: Sequence[Place], call: CallContext) -> int:
        """Delete these; return how many were there."""
        return await self._do(
            PUT, table, places, 0, call, partial(self._tables.remove, table, places)
        )

    async def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> bool:
        """Let what is there expire after so long."""
        work = partial(self._tables.expire, table, partition, sort, ttl_us)
        return await self._do(SWAP, table, ((partition, sort),), 0, call, work)

    async def _do(
        self,
        operation: str,
        table: str,
        places: Sequence[Place],
        size: int,
        call: CallContext,
        work: Callable[[int], Awaitable[T]],
    ) -> T:
        """Admit and do it; what is cached of these places is gone before that is told."""
        partition, rows = places[0][0], len(places)
        shard = self._tables.shard_of(table, partition)
        known = attributes_of(rows, size)
        request = self._admission.request(operation, table, table, shard, call, known)
        permit = await self._admission.later(request)
        began_us = self._clock.now_us()
        under_way = None if self._hot is None else self._hot.begin_writes(table, places, shard)
        try:
            result = await self._admission.at_work(permit, work(began_us))
        finally:
            if self._hot is not None and under_way is not None:
                self._hot.end_writes(under_way)
        self._admission.done(permit, began_us, rows, size)
        return result
