"""Multi-gets: the rows at many places, in their order; all, or an error where they are too much.

As many places are read at a time as the response should have room for (`response_memory.py`). Rows
of one partition are read together, and none by itself from the cache: they are of one instant. Once
it is hot, a multi-get of one partition is cached as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from itertools import chain as chained
from typing import final

from sluicegate.apps.kv.admission import Admission, attributes_of, next_part
from sluicegate.apps.kv.chain import MULTI_GET
from sluicegate.apps.kv.operations.get import Gets
from sluicegate.apps.kv.operations.hot_range import ask
from sluicegate.apps.kv.response_memory import VALUES_BYTES_MAX, ResponseMemory
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.shield.ranges import RangeAnswer, RangeQuestion, RangeShield
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Place
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.policies.cache.hot_key import COLD, FRESH, NEGATIVE
from sluicegate.policies.stack import StackPermit


@final
class MultiGets:
    """Reads of many places each."""

    __slots__ = (
        "_admission",
        "_clock",
        "_gets",
        "_hot",
        "_memory",
        "_one_shard",
        "_tables",
    )

    def __init__(
        self,
        admission: Admission,
        tables: Tables,
        hot: HotReads | None,
        clock: Clock,
        gets: Gets,
        memory: ResponseMemory,
        *,
        one_shard: bool,
    ) -> None:
        self._admission = admission
        self._tables = tables
        self._hot = hot
        self._clock = clock
        self._gets = gets
        self._memory = memory
        self._one_shard = one_shard

    def get_each(
        self, table: str, places: Sequence[Place], call: CallContext
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The rows at these places."""
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
            permit = self._admission.at_once(request, now_us)
            if permit is not None:
                return self._read_each(permit, table, missing, cold, rows, size, now_us)
        return self._get_in_groups(table, places, rows, cold, warm, size, call)

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
        shard = self._tables.shard_of(table, partition)
        state, answer = ranges.look(question, now_us, shard)
        if state == COLD:
            return self._get_places(table, places, call)
        if state == FRESH and answer is not None:
            self._admission.cached(call.identity.name, now_us, call, ranges.shield, question.key)
            return answer.rows
        fetch = partial(self._fetch_places, ranges, question, table, places)
        request = self._many(table, places, call)
        return self._rows_of(
            ask(self._admission, self._clock, ranges, question, state, answer, request, fetch)
        )

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
            strong = call.strong or partition in together
            shard = self._tables.shard_of(table, partition)
            state, row = shield.look(key, now_us, shard, strong=strong)
            if state == COLD:
                cold.append(at)
            elif state == FRESH or state == NEGATIVE:  # noqa: PLR1714, SIM109 - as above
                self._admission.cached(call.identity.name, now_us, call, shield, key)
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
                    if first < len(group):
                        await asyncio.sleep(0)  # thousands of rows would hold up the loop
            for one in warm:
                self._memory.check()
                later = self._gets.get(table, places[one][0], places[one][1], call)
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
        return next_part(call, request)

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
