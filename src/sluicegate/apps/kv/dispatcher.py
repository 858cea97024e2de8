"""Dispatcher: the way of each read and write, from the caller to the engine and back.

    may the caller do it, and is it valid? -- here
              -- is the key hot? serve it from memory, or read it once for all callers
              -- the policy chain admits it, now, later or not at all
              -- the tables read or write; how long that took and what it looked at is recorded
              -- the permits end -- `operations/`, a file for each kind

Nothing is decided here but what a request may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from sluicegate.apps.kv.admission import Admission
from sluicegate.apps.kv.chain import PolicyChain
from sluicegate.apps.kv.key_spans import KeySpans
from sluicegate.apps.kv.operations.get import Gets
from sluicegate.apps.kv.operations.multi_get import MultiGets
from sluicegate.apps.kv.operations.scan import Scans
from sluicegate.apps.kv.operations.write import Writes
from sluicegate.apps.kv.response_memory import ResponseMemory
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.apps.kv.tables.tokens import read_token
from sluicegate.contracts.access import TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import (
    WRITES_MAX,
    CallContext,
    PlacePage,
    Row,
    RowPage,
    RowsUpdate,
    Uploads,
    Write,
    WriteCondition,
    WriteIfResult,
    check_key,
    check_table,
)

PLACES_MAX: Final = 16_384  # of a multi-get; protocols have a bound of a command as well
BATCH_BYTES_MAX: Final = 16 << 20
SPAN_ROWS_MAX: Final = 10_000
SPAN_BYTES_MAX: Final = 16 << 20


@final
class Dispatcher:
    """A `contracts.key_values.KeyValues`."""

    __slots__ = (
        "_gets",
        "_multi_gets",
        "_value_bytes_max",
        "_writes",
        "memory",
        "scans",
        "spans",
        "uploads",
    )

    def __init__(
        self,
        admission: Admission,
        chain: PolicyChain,
        tables: Tables,
        hot: HotReads | None,
        uploads: Uploads,
        clock: Clock,
        *,
        value_bytes_max: int,
        chunk_ru: int,
        one_shard: bool = False,
    ) -> None:
        self._value_bytes_max = value_bytes_max
        self.uploads = uploads
        self.spans = KeySpans()
        self.memory = ResponseMemory(value_bytes_max)
        self._gets = Gets(admission, tables, hot, clock)
        self._multi_gets = MultiGets(
            admission, tables, hot, clock, self._gets, self.memory, one_shard=one_shard
        )
        self.scans = Scans(
            admission, chain, tables, hot, clock, self.memory, self.spans, chunk_ru=chunk_ru
        )
        self._writes = Writes(admission, tables, hot, clock, self.spans)

    # Reads.

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        check_key(partition, sort)
        return self._gets.get(table, partition, sort, call)

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The rows at these places, in their order; all, or an error where they are too much."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        if not 0 < len(places) <= PLACES_MAX:
            raise BadValue("places", len(places), f"give from 1 to {PLACES_MAX:,}")
        for partition, sort in places:
            check_key(partition, sort)
        return self._multi_gets.get_each(table, places, call)

    async def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> RowPage:
        """Rows of one partition, a chunk at a time."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        check_key(partition, b"")
        _check_span(span)
        remaining = read_token(token, table, partition, span)
        return await self.scans.scan(table, partition, remaining, call)

    async def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> PlacePage:
        """Places of the whole table."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        if not 0 < rows_max <= SPAN_ROWS_MAX:
            raise BadValue("rows_max", rows_max, f"give from 1 to {SPAN_ROWS_MAX:,}")
        return await self.scans.walk(table, after, rows_max, call)

    # Writes.

    async def write(self, table: str, writes: Sequence[Write], call: CallContext) -> None:
        """Put and delete, durably."""
        size = self._check_writes(table, writes, call)
        await self._writes.write(table, writes, size, call)

    async def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> WriteIfResult:
        """Write if the condition holds; show what stands in the way to who may read."""
        size = self._check_writes(table, (write,), call)
        if condition.tag:  # whoever guesses a value learns from this whether it is right
            call.identity.require_on(table, TableGrant.READ)
        result = await self._writes.write_if(table, write, condition, size, call)
        if not call.identity.may_on(table, TableGrant.READ):
            return WriteIfResult(result.done, None)
        return result

    async def update(self, table: str, update: RowsUpdate, call: CallContext) -> None:
        """Read rows of one partition, have it decided, and write, as one."""
        call.identity.require_on(table, TableGrant.WRITE)
        if update.reveals:
            call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        if not 0 < len(update.sorts) <= WRITES_MAX:
            raise BadValue("sorts", len(update.sorts), f"give from 1 to {WRITES_MAX:,}")
        places = [(update.partition, sort) for sort in update.sorts]
        for place in places:
            check_key(*place)
        if update.size_bytes > BATCH_BYTES_MAX:
            size = f"{update.size_bytes:,} bytes"
            raise BadValue("update", size, f"give at most {BATCH_BYTES_MAX:,}")
        await self._writes.update(table, update, places, call)

    async def remove(self, table: str, places: Sequence[Place], call: CallContext) -> int:
        """Delete these; return how many were there."""
        self._check_writes(table, [Write(*place, None) for place in places], call)
        return await self._writes.remove(table, places, call)

    async def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> bool:
        """Let what is there expire after so long."""
        self._check_writes(table, (Write(partition, sort, None),), call)
        return await self._writes.expire(table, partition, sort, ttl_us, call)

    def _check_writes(self, table: str, writes: Sequence[Write], call: CallContext) -> int:
        """Refuse invalid writes; return their bytes."""
        call.identity.require_on(table, TableGrant.WRITE)
        check_table(table)
        if not 0 < len(writes) <= WRITES_MAX:
            raise BadValue("writes", len(writes), f"give from 1 to {WRITES_MAX:,}")
        size = 0
        for partition, sort, value, ttl_us in writes:
            check_key(partition, sort)
            _check_value(value, self._value_bytes_max)
            if ttl_us < 0:
                raise BadValue("ttl_us", ttl_us, "give microseconds above 0, or 0 for ever")
            size += len(partition) + len(sort) + (0 if value is None else len(value))
        if size > BATCH_BYTES_MAX:
            raise BadValue("writes", f"{size:,} bytes", f"give at most {BATCH_BYTES_MAX:,}")
        return size


def _check_span(span: KeyRange) -> None:
    if not 0 < span.rows_max <= SPAN_ROWS_MAX:
        raise BadValue("rows_max", span.rows_max, f"give from 1 to {SPAN_ROWS_MAX:,}")
    if not 0 < span.bytes_max <= SPAN_BYTES_MAX:
        raise BadValue("bytes_max", span.bytes_max, f"give from 1 to {SPAN_BYTES_MAX:,}")


def _check_value(value: bytes | None, bytes_max: int) -> None:
    """A value within the bound of the settings."""
    if value is not None and len(value) > bytes_max:
        size = f"{len(value):,} bytes"
        raise BadValue("value", size, f"give at most {bytes_max:,} (--value-bytes-max)")
