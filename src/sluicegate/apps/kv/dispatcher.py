"""Dispatcher: the way of each read and write, from the caller to the engine and back.

    authorise -- is the key hot? serve it from memory, or read it once for all callers
              -- the policy chain admits it, now, later or not at all
              -- the tables read or write; how long that took and what it looked at is recorded
              -- the permits end

Nothing is decided here. A read that need not wait is answered without a coroutine; most need not. A
scan enters anew for every `chunk_ru` of what it looks at, so that others pass between two chunks. A
key that is written leaves the cache before the write is acknowledged. A multi-get reads as many
places at a time as its response should have room for (`response_memory.py`). Rows of one partition
it reads together, and none by itself from the cache: they are of one instant. Ranges that are hot,
and multi-gets of one partition, are cached as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from itertools import chain as chained
from typing import Final, final

from sluicegate.apps.kv.admission import Admission, attributes_of
from sluicegate.apps.kv.chain import GET, MULTI_GET, PUT, SCAN, SWAP, PolicyChain
from sluicegate.apps.kv.key_spans import KeySpans
from sluicegate.apps.kv.names import check_key, check_table, check_value
from sluicegate.apps.kv.response_memory import VALUES_BYTES_MAX, ResponseMemory
from sluicegate.apps.kv.shield.hot_reads import HotReads, WritesUnderWay
from sluicegate.apps.kv.shield.keys import key_of
from sluicegate.apps.kv.shield.ranges import RangeAnswer, RangeFetch, RangeQuestion, RangeShield
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.apps.kv.tables.scan import ScanResult
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.apps.kv.tables.tokens import read_token, span_after, token_after
from sluicegate.contracts.access import TableGrant
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.key_values import (
    CallContext,
    PlacePage,
    Row,
    RowPage,
    RowsUpdate,
    Uploads,
    Write,
    WriteCondition,
    WriteIfResult,
)
from sluicegate.contracts.request import Request
from sluicegate.policies.coalesce import Flight
from sluicegate.policies.hot_key import COLD, FRESH, MISS, NEGATIVE, REFRESH
from sluicegate.policies.stack import StackPermit

PLACES_MAX: Final = 1_000  # of a multi-get
WRITES_MAX: Final = 1_000  # of a batch
BATCH_BYTES_MAX: Final = 16 << 20
SPAN_ROWS_MAX: Final = 10_000
SPAN_BYTES_MAX: Final = 16 << 20


@final
class Dispatcher:
    """A `contracts.key_values.KeyValues`."""

    __slots__ = (
        "_admission",
        "_clock",
        "_hot",
        "_memory",
        "_one_shard",
        "_tables",
        "_units",
        "_value_bytes_max",
        "chunk_ru",
        "spans",
        "uploads",
    )

    def __init__(
        self,
        admission: Admission,
        chain: PolicyChain,
        layers: Tables,
        hot: HotReads | None,
        uploads: Uploads,
        clock: Clock,
        *,
        value_bytes_max: int,
        chunk_ru: int,
        one_shard: bool = False,
    ) -> None:
        self._admission = admission
        self._tables = layers
        self._hot = hot
        self._clock = clock
        self._value_bytes_max = value_bytes_max
        self._units = chain.units if chain.layered else None
        self.chunk_ru = chunk_ru
        self._one_shard = one_shard
        self.spans = KeySpans()
        self._memory = ResponseMemory(value_bytes_max)
        self.uploads = uploads

    # Reads.

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        check_key(partition, sort)
        return self._get(table, partition, sort, call)

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
        if self._hot is not None and len(places) > 1 and not call.strong:
            return self._get_hot_places(self._hot, table, places, call)
        return self._get_places(table, places, call)

    def _get_places(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        rows: list[Row | None] = [None] * len(places)
        cold, warm, size = self._read_cached(table, places, rows, call)
        _check_answer(size)
        fitting = self._memory.places_at_once(table, VALUES_BYTES_MAX - size)
        if not warm and len(cold) <= fitting and self._of_one_shard(table, places, cold):
            if not cold:
                return rows
            self._memory.check()
            now_us = self._clock.now_us()
            missing = [places[at] for at in cold]
            request = self._many(table, missing, call)
            if self._admission.prompt(request, now_us):
                permit = self._admission.now(request, now_us)
                if permit is not None:
                    return self._read_each(permit, table, missing, cold, rows, size, now_us)
        return self._get_in_groups(table, places, rows, cold, warm, size, call)

    async def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext, token: bytes = b""
    ) -> RowPage:
        """Rows of one partition, a chunk at a time."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        check_key(partition, b"")
        _check_span(span)
        remaining = read_token(token, table, partition, span)
        if self._hot is not None and not call.strong:
            return await self._scan_hot(self._hot, table, partition, remaining, call)
        page, _ = await self._scan(table, partition, remaining, call)
        return page

    async def _scan(
        self,
        table: str,
        partition: bytes,
        span: KeyRange,
        call: CallContext,
        flight: Flight[RangeAnswer | None] | None = None,
    ) -> tuple[RowPage, bool]:
        """Rows of the span, and whether they are all that it asks for.

        With a flight each chunk enters as the highest class of those who wait for it.
        """
        remaining = span
        rows: list[Row] = []
        size = 0
        last_key: bytes | None = None  # the last key that was looked at
        try:
            while True:
                self._memory.check()
                chunk = remaining._replace(
                    rows_max=span.rows_max - len(rows), bytes_max=max(1, span.bytes_max - size)
                )
                try:
                    result, call = await self._scan_chunk(table, partition, chunk, call, flight)
                except Refused:
                    if last_key is None:
                        raise
                    # What has been read is paid for; the token goes on when there is more to spend.
                    return RowPage(rows, token_after(table, partition, remaining, last_key)), False
                rows += result.rows
                chunk_bytes = sum([row.size_bytes for row in result.rows])
                size += chunk_bytes
                self._memory.size_bytes += chunk_bytes
                last_key = result.last
                if not result.more or last_key is None:
                    return RowPage(rows), True
                remaining = span_after(remaining, last_key)
                if len(rows) >= span.rows_max or size >= span.bytes_max:
                    return RowPage(rows, token_after(table, partition, remaining, last_key)), True
                await asyncio.sleep(0)  # others pass between two chunks, also where nobody waits
        finally:
            self._memory.size_bytes -= size

    async def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> PlacePage:
        """Places of the whole table."""
        call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        if not 0 < rows_max <= SPAN_ROWS_MAX:
            raise BadValue("rows_max", rows_max, f"give from 1 to {SPAN_ROWS_MAX:,}")
        permit = await self._admit(SCAN, table, b"", call, rows_max, 0)
        began_us = self._clock.now_us()
        work = self._tables.walk(table, after, rows_max, began_us)
        page = await self._admission.in_time(permit, work)
        self._admission.done(permit, began_us, max(1, len(page.places)), 0)
        return page

    # Writes.

    async def write(self, table: str, writes: Sequence[Write], call: CallContext) -> None:
        """Put and delete, durably."""
        size = self._check_writes(table, writes, call)
        permit = await self._admit(PUT, table, writes[0].partition, call, len(writes), size)
        began_us = self._clock.now_us()
        keys = self._begin_writes(table, [(one.partition, one.sort) for one in writes])
        try:
            work = self._tables.write(table, writes, began_us)
            await self._admission.at_work(permit, work)
        finally:
            self._end_writes(keys)
        self._admission.done(permit, began_us, len(writes), size)
        self.spans.write(table, writes)

    async def write_if(
        self, table: str, write: Write, condition: WriteCondition, call: CallContext
    ) -> WriteIfResult:
        """Write if the condition holds; show what stands in the way to who may read."""
        size = self._check_writes(table, (write,), call)
        if condition.tag:  # whoever guesses a value learns from this whether it is right
            call.identity.require_on(table, TableGrant.READ)
        permit = await self._admit(SWAP, table, write.partition, call, 1, size)
        began_us = self._clock.now_us()
        keys = self._begin_writes(table, ((write.partition, write.sort),))
        try:
            work = self._tables.write_if(table, write, condition, began_us)
            result = await self._admission.at_work(permit, work)
        finally:
            self._end_writes(keys)
        self._admission.done(permit, began_us, 1, size)
        if not call.identity.may_on(table, TableGrant.READ):
            return WriteIfResult(result.done, None)
        return result

    async def update(self, table: str, update: RowsUpdate, call: CallContext) -> None:
        """Read rows of one partition, have it decided, and write, as one."""
        call.identity.require_on(table, TableGrant.WRITE)
        if update.reveals:
            call.identity.require_on(table, TableGrant.READ)
        check_table(table)
        partition, rows = update.partition, len(update.sorts)
        if not 0 < rows <= WRITES_MAX:
            raise BadValue("sorts", rows, f"give from 1 to {WRITES_MAX:,}")
        places = [(partition, sort) for sort in update.sorts]
        for place in places:
            check_key(*place)
        size = update.size_bytes
        if size > BATCH_BYTES_MAX:
            raise BadValue("update", f"{size:,} bytes", f"give at most {BATCH_BYTES_MAX:,}")
        permit = await self._admit(SWAP, table, partition, call, rows, size)
        began_us = self._clock.now_us()
        keys = self._begin_writes(table, places)
        try:
            work = self._tables.update(table, update, began_us)
            await self._admission.at_work(permit, work)
        finally:
            self._end_writes(keys)
        self._admission.done(permit, began_us, rows, size)

    async def remove(self, table: str, places: Sequence[Place], call: CallContext) -> int:
        """Delete these; return how many were there."""
        writes = [Write(partition, sort, None) for partition, sort in places]
        self._check_writes(table, writes, call)
        permit = await self._admit(PUT, table, places[0][0], call, len(places), 0)
        began_us = self._clock.now_us()
        keys = self._begin_writes(table, places)
        try:
            work = self._tables.remove(table, places, began_us)
            count = await self._admission.at_work(permit, work)
        finally:
            self._end_writes(keys)
        self._admission.done(permit, began_us, len(places), 0)
        return count

    async def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, call: CallContext
    ) -> bool:
        """Let what is there expire after so long."""
        self._check_writes(table, (Write(partition, sort, None),), call)
        permit = await self._admit(SWAP, table, partition, call, 1, 0)
        began_us = self._clock.now_us()
        keys = self._begin_writes(table, ((partition, sort),))
        try:
            work = self._tables.expire(table, partition, sort, ttl_us, began_us)
            done = await self._admission.at_work(permit, work)
        finally:
            self._end_writes(keys)
        self._admission.done(permit, began_us, 1, 0)
        return done

    # One place.

    def _get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        now_us = self._clock.now_us()
        shield = None if self._hot is None else self._hot.keys
        if shield is None:
            return self._read_one(
                table, partition, sort, key_of(table, partition, sort), call, now_us
            )
        key = shield.key(table, partition, sort)
        state, row = shield.look(key, now_us, strong=call.strong)
        if state == COLD:
            return self._read_one(table, partition, sort, key, call, now_us)
        if state == FRESH or state == NEGATIVE:  # noqa: PLR1714, SIM109 - as mypyc likes it
            self._admission.cached(call.identity.name, now_us)
            return row
        shard = self._tables.shard_of(table, partition)
        request = self._admission.request(GET, table, key, shard, call)
        fetch = _Fetch(self, table, partition, sort)
        if state == REFRESH:
            shield.fetch_ahead(key, request, self._clock, fetch.fly)
            self._admission.cached(call.identity.name, now_us)
            return row
        return self._share(shield, key, None if state == MISS else row, request, fetch)

    async def _share(
        self, shield: Shield[Row], key: str, stale: Row | None, request: Request, fetch: _Fetch
    ) -> Row | None:
        row = await shield.read(key, stale, request, self._clock, fetch.fly)
        measured = request.measured
        if measured is not None and measured.from_cache:
            self._admission.cached(request.caller, self._clock.now_us())
        return row

    def _read_one(
        self, table: str, partition: bytes, sort: bytes, key: str, call: CallContext, now_us: int
    ) -> MaybeAwaitable[Row | None]:
        """Through the chain; without waiting, if that can be."""
        admission = self._admission
        shard = self._tables.shard_of(table, partition)
        request = admission.request(GET, table, key, shard, call)
        if admission.prompt(request, now_us):
            permit = admission.now(request, now_us)
            if permit is not None:
                try:
                    row = self._tables.read_one(table, partition, sort, now_us)
                except BaseException as error:
                    admission.failed(permit, error)
                    raise
                if row is None or isinstance(row, Row):
                    self._complete_get(permit, key, row, now_us)
                    return row
                return admission.guarded(permit, self._finish(permit, key, row, now_us))
        return self.read_later(table, partition, sort, request)

    async def read_later(
        self, table: str, partition: bytes, sort: bytes, request: Request
    ) -> Row | None:
        """Through the chain, after whatever has to be waited for."""
        permit = await self._admission.later(request)
        now_us = self._clock.now_us()
        try:
            row = self._tables.read_one(table, partition, sort, now_us)
        except BaseException as error:
            self._admission.failed(permit, error)
            raise
        if row is None or isinstance(row, Row):
            self._complete_get(permit, request.key, row, now_us)
            return row
        return await self._finish(permit, request.key, row, now_us)

    async def _finish(
        self, permit: StackPermit, key: str, later: Awaitable[Row | None], began_us: int
    ) -> Row | None:
        row = await self._admission.in_time(permit, later)
        self._complete_get(permit, key, row, began_us)
        return row

    def _complete_get(self, permit: StackPermit, key: str, row: Row | None, began_us: int) -> None:
        size = 0 if row is None else row.size_bytes
        self._admission.done(permit, began_us, 1, size)
        if self._hot is not None:
            self._hot.keys.record_read(key, row)

    # Many places.

    def _read_cached(
        self, table: str, places: Sequence[Place], rows: list[Row | None], call: CallContext
    ) -> tuple[list[int], list[int], int]:
        """Fill in what is served from memory; where the cold ones are, the warm, and its bytes."""
        shield = None if self._hot is None else self._hot.keys
        if shield is None:
            return [*range(len(places))], [], 0
        now_us = self._clock.now_us()
        together = _partitions_of_several(places)
        cold: list[int] = []
        warm: list[int] = []
        size = 0
        for at, (partition, sort) in enumerate(places):
            key = shield.key(table, partition, sort)
            state, row = shield.look(key, now_us, strong=call.strong or partition in together)
            if state == COLD:
                cold.append(at)
            elif state == FRESH or state == NEGATIVE:  # noqa: PLR1714, SIM109 - as above
                self._admission.cached(call.identity.name, now_us)
                rows[at] = row
                if row is not None:
                    size += len(row.value)
            else:
                warm.append(at)
        return cold, warm, size

    def _read_each(
        self,
        permit: StackPermit,
        table: str,
        missing: list[Place],
        at: list[int],
        rows: list[Row | None],
        before: int,
        began_us: int,
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        try:
            self._memory.check()  # others may have read since this one began to wait
            values = self._tables.read(table, missing, began_us)
        except BaseException as error:
            self._admission.failed(permit, error)
            raise
        if isinstance(values, Sequence):
            self._fill(permit, table, values, at, rows, before, began_us)
            return rows
        later = self._finish_each(permit, table, values, at, rows, before, began_us)
        task = self._admission.guarded(permit, later)
        self._memory.reserve(table, len(at), task)
        return task

    async def _finish_each(
        self,
        permit: StackPermit,
        table: str,
        later: Awaitable[Sequence[Row | None]],
        at: list[int],
        rows: list[Row | None],
        before: int,
        began_us: int,
    ) -> Sequence[Row | None]:
        values = await self._admission.in_time(permit, later)
        self._fill(permit, table, values, at, rows, before, began_us)
        return rows

    def _fill(
        self,
        permit: StackPermit,
        table: str,
        values: Sequence[Row | None],
        at: list[int],
        rows: list[Row | None],
        before: int,
        began_us: int,
    ) -> None:
        """What was found, in its places; `before` are bytes of values that are there already."""
        size = 0
        for place, row in zip(at, values, strict=True):
            rows[place] = row
            if row is not None:
                size += row.size_bytes
                before += len(row.value)
        self._admission.done(permit, began_us, len(at), size)
        self._memory.record_size(table, size // len(at))
        _check_answer(before)

    async def _get_in_groups(
        self,
        table: str,
        places: Sequence[Place],
        rows: list[Row | None],
        cold: list[int],
        warm: list[int],
        size: int,
        call: CallContext,
    ) -> Sequence[Row | None]:
        """The hot ones each for itself, the others by shard, as many at a time as should fit."""
        pending_bytes = 0  # of them, what has been read here
        try:
            for group in self._by_shard(table, places, cold):
                first = 0
                while first < len(group):
                    self._memory.check()
                    fitting = self._memory.places_at_once(table, VALUES_BYTES_MAX - size)
                    at = group[first : self._end_of_group(table, places, group, first, fitting)]
                    first += len(at)
                    call = await self._get_group(table, places, at, rows, size, call)
                    read_bytes = _values_bytes(rows, at)
                    size += read_bytes
                    pending_bytes += read_bytes
                    self._memory.size_bytes += read_bytes
            for one in warm:
                self._memory.check()
                later = self._get(table, places[one][0], places[one][1], call)
                row = await later if isinstance(later, Awaitable) else later
                rows[one] = row
                if row is not None:
                    read_bytes = len(row.value)
                    size += read_bytes
                    _check_answer(size)
                    pending_bytes += read_bytes
                    self._memory.size_bytes += read_bytes
        finally:
            self._memory.size_bytes -= pending_bytes
        return rows

    async def _get_group(
        self,
        table: str,
        places: Sequence[Place],
        at: list[int],
        rows: list[Row | None],
        size: int,
        call: CallContext,
    ) -> CallContext:
        """Read one group into its places; return the context of the next."""
        missing = [places[one] for one in at]
        request = self._many(table, missing, call)
        permit = await self._admission.later(request)
        now_us = self._clock.now_us()
        result = self._read_each(permit, table, missing, at, rows, size, now_us)
        if isinstance(result, Awaitable):
            await result
        return _continue(call, request)

    def _of_one_shard(self, table: str, places: Sequence[Place], cold: list[int]) -> bool:
        if self._one_shard or len(cold) < 2:
            return True
        first = self._tables.shard_of(table, places[cold[0]][0])
        return all(self._tables.shard_of(table, places[at][0]) == first for at in cold)

    def _by_shard(
        self, table: str, places: Sequence[Place], cold: list[int]
    ) -> Iterable[list[int]]:
        """Those that enter together need the same shard: one that is slow holds its own up."""
        by_shard: dict[str, dict[bytes, list[int]]] = {}
        for at in cold:
            partition = places[at][0]
            partitions = by_shard.setdefault(self._tables.shard_of(table, partition), {})
            partitions.setdefault(partition, []).append(at)
        # Those of one partition stand together, to be read together.
        return [[*chained.from_iterable(partitions.values())] for partitions in by_shard.values()]

    def _end_of_group(
        self, table: str, places: Sequence[Place], group: list[int], first: int, fitting: int
    ) -> int:
        """Where a group ends that should fit: between two partitions, as far as that can be."""
        end = min(first + fitting, len(group))
        if end == len(group):
            return end
        partition = places[group[end]][0]
        begin = end
        while begin > first and places[group[begin - 1]][0] == partition:
            begin -= 1
        if begin > first:
            return begin
        most = min(len(group), first + self._memory.places_of_partition(table))
        while end < most and places[group[end]][0] == partition:
            end += 1
        return end

    def _many(self, table: str, places: Sequence[Place], call: CallContext) -> Request:
        shard = self._tables.shard_of(table, places[0][0])
        known = attributes_of(len(places))
        return self._admission.request(MULTI_GET, table, table, shard, call, known)

    def _get_hot_places(
        self, hot: HotReads, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The same from the shield of ranges, if all are of one partition."""
        partition = places[0][0]
        sorts = [place[1] for place in places if place[0] == partition]
        if len(sorts) < len(places) or len(sorts) > self._memory.places_of_partition(table):
            return self._get_places(table, places, call)
        ranges, now_us = hot.ranges, self._clock.now_us()
        question = ranges.of_places(table, partition, sorts)
        state, answer = ranges.look(question, now_us)
        if state == COLD:
            return self._get_places(table, places, call)
        if state == FRESH and answer is not None:
            self._admission.cached(call.identity.name, now_us)
            return answer.rows
        fetch = partial(self._fetch_places, ranges, question, table, places)
        request = self._many(table, places, call)
        return self._rows_of(self._ask(ranges, question, state, answer, request, fetch))

    async def _rows_of(self, asked: Awaitable[RangeAnswer]) -> Sequence[Row | None]:
        return (await asked).rows

    async def _fetch_places(
        self,
        ranges: RangeShield,
        question: RangeQuestion,
        table: str,
        places: Sequence[Place],
        flight: Flight[RangeAnswer | None],
    ) -> RangeAnswer:
        """Read places of one partition together, for all who wait."""
        permit = await self._admission.later(flight.request)
        now_us = self._clock.now_us()
        rows: list[Row | None] = [None] * len(places)
        at = [*range(len(places))]
        result = self._read_each(permit, table, [*places], at, rows, 0, now_us)
        if isinstance(result, Awaitable):
            await result
        return ranges.answer(question, rows, b"", now_us)

    # Many rows.

    async def _scan_hot(
        self, hot: HotReads, table: str, partition: bytes, span: KeyRange, call: CallContext
    ) -> RowPage:
        """A range from its shield."""
        ranges = hot.ranges
        question = ranges.of_range(table, partition, span)
        state, answer = ranges.look(question, self._clock.now_us())
        if state == COLD:
            page, _ = await self._scan(table, partition, span, call)
            ranges.record_read(question, page.rows)
            return page
        if state == FRESH and answer is not None:
            self._admission.cached(call.identity.name, self._clock.now_us())
        else:
            fetch = partial(self._fetch_range, ranges, question, table, partition, span, call)
            shard = self._tables.shard_of(table, partition)
            known = attributes_of(span.rows_max)
            request = self._admission.request(SCAN, table, table, shard, call, known)
            answer = await self._ask(ranges, question, state, answer, request, fetch)
        return RowPage([row for row in answer.rows if row is not None], answer.token)

    async def _ask(
        self,
        ranges: RangeShield,
        question: RangeQuestion,
        state: int,
        held: RangeAnswer | None,
        request: Request,
        fetch: RangeFetch,
    ) -> RangeAnswer:
        """The answer of a question that is not cold, from the cache or by a shared fetch."""
        if state == REFRESH and held is not None:
            ranges.fetch_ahead(question, request, self._clock, fetch)
            self._admission.cached(request.caller, self._clock.now_us())
            return held
        stale = None if state == MISS else held
        answer = await ranges.read(question, stale, request, self._clock, fetch)
        measured = request.measured
        if measured is not None and measured.from_cache:
            self._admission.cached(request.caller, self._clock.now_us())
        return answer

    async def _fetch_range(
        self,
        ranges: RangeShield,
        question: RangeQuestion,
        table: str,
        partition: bytes,
        span: KeyRange,
        call: CallContext,
        flight: Flight[RangeAnswer | None],
    ) -> RangeAnswer:
        """Scan for all who wait."""
        now_us = self._clock.now_us()
        page, whole = await self._scan(table, partition, span, call, flight)
        return ranges.answer(question, page.rows, page.token, now_us, whole=whole)

    async def _scan_chunk(
        self,
        table: str,
        partition: bytes,
        span: KeyRange,
        call: CallContext,
        flight: Flight[RangeAnswer | None] | None,
    ) -> tuple[ScanResult, CallContext]:
        """One admission's worth, and as what the next chunk is to ask.

        That has this one's deadline, and arrives when it comes: the time that a scan takes is no
        queue of ours.
        """
        shard = self._tables.shard_of(table, partition)
        known = attributes_of(span.rows_max)
        request = self._admission.request(SCAN, table, table, shard, call, known)
        rows_max = span.rows_max
        if self._units is not None:
            rows_max = self._units.chunk_rows(request, self.chunk_ru)
            likely = self.spans.rows_between(table, partition, span._replace(rows_max=rows_max))
            request.attributes = attributes_of(likely)
        if flight is not None:
            request.criticality = flight.request.criticality
            request.deadline_us = flight.request.deadline_us
            flight.request = request  # whoever joins raises this one
        permit = await self._admission.later(request)
        began_us = self._clock.now_us()
        chunk = span._replace(rows_max=rows_max)
        work = self._tables.scan(table, partition, chunk, began_us)
        result = await self._admission.in_time(permit, work)
        self._admission.done(permit, began_us, max(1, result.rows_scanned), result.bytes_scanned)
        self.spans.scan(table, partition, chunk, result)
        return result, _continue(call, request)

    # What writes share.

    async def _admit(
        self, operation: str, table: str, partition: bytes, call: CallContext, rows: int, size: int
    ) -> StackPermit:
        shard = self._tables.shard_of(table, partition)
        known = attributes_of(rows, size)
        request = self._admission.request(operation, table, table, shard, call, known)
        return await self._admission.later(request)

    def _check_writes(self, table: str, writes: Sequence[Write], call: CallContext) -> int:
        """Refuse invalid writes; return their bytes."""
        call.identity.require_on(table, TableGrant.WRITE)
        check_table(table)
        if not 0 < len(writes) <= WRITES_MAX:
            raise BadValue("writes", len(writes), f"give from 1 to {WRITES_MAX:,}")
        size = 0
        for partition, sort, value, ttl_us in writes:
            check_key(partition, sort)
            check_value(value, self._value_bytes_max)
            if ttl_us < 0:
                raise BadValue("ttl_us", ttl_us, "give microseconds above 0, or 0 for ever")
            size += len(partition) + len(sort) + (0 if value is None else len(value))
        if size > BATCH_BYTES_MAX:
            raise BadValue("writes", f"{size:,} bytes", f"give at most {BATCH_BYTES_MAX:,}")
        return size

    def _begin_writes(self, table: str, places: Iterable[Place]) -> WritesUnderWay | None:
        """Tell the shields that these are being written."""
        return None if self._hot is None else self._hot.begin_writes(table, places)

    def _end_writes(self, writes: WritesUnderWay | None) -> None:
        """Tell them that the writes have ended, however they did."""
        if self._hot is not None and writes is not None:
            self._hot.end_writes(writes)


@final
class _Fetch:
    """The read of one place, for all its waiters."""

    __slots__ = ("_dispatcher", "_partition", "_sort", "_table")

    def __init__(self, dispatcher: Dispatcher, table: str, partition: bytes, sort: bytes) -> None:
        self._dispatcher = dispatcher
        self._table = table
        self._partition = partition
        self._sort = sort

    async def fly(self, flight: Flight[Row | None]) -> Row | None:
        """Read with the request of the flight, which has the highest class of its waiters."""
        return await self._dispatcher.read_later(
            self._table, self._partition, self._sort, flight.request
        )


def _partitions_of_several(places: Sequence[Place]) -> set[bytes]:
    """Of which several rows are wanted: they are of one instant, so none comes from a cache."""
    sorts: dict[bytes, bytes] = {}
    found: set[bytes] = set()
    for partition, sort in places:
        if sorts.setdefault(partition, sort) != sort:
            found.add(partition)
    return found


def _values_bytes(rows: list[Row | None], at: list[int]) -> int:
    """Of the rows at these."""
    size = 0
    for one in at:
        row = rows[one]
        if row is not None:
            size += len(row.value)
    return size


def _check_answer(size: int) -> None:
    """Whether what a multi-get has found may be answered; nothing further is read if not."""
    if size > VALUES_BYTES_MAX:
        remedy = f"ask for fewer at a time: an answer has at most {VALUES_BYTES_MAX:,} bytes"
        raise BadValue("places", f"{size:,} bytes and more", remedy)


def _continue(call: CallContext, request: Request) -> CallContext:
    """Return the context of a request's next part: the same deadline, a new arrival."""
    return CallContext(
        call.identity,
        criticality=call.criticality,
        deadline_us=request.deadline_us,
        strong=call.strong,
    )


def _check_span(span: KeyRange) -> None:
    if not 0 < span.rows_max <= SPAN_ROWS_MAX:
        raise BadValue("rows_max", span.rows_max, f"give from 1 to {SPAN_ROWS_MAX:,}")
    if not 0 < span.bytes_max <= SPAN_BYTES_MAX:
        raise BadValue("bytes_max", span.bytes_max, f"give from 1 to {SPAN_BYTES_MAX:,}")
