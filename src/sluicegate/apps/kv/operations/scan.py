"""Scans: rows of a partition, and places of a table, a chunk at a time.

A scan enters anew for every `chunk_ru` of what it looks at, so that others pass between two chunks.
Ranges that are hot are cached as a whole.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import final

from sluicegate.apps.kv.admission import Admission, attributes_of, next_part
from sluicegate.apps.kv.chain import SCAN, PolicyChain
from sluicegate.apps.kv.key_spans import KeySpans
from sluicegate.apps.kv.operations.hot_range import ask
from sluicegate.apps.kv.response_memory import ResponseMemory
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.shield.ranges import RangeAnswer, RangeQuestion, RangeShield
from sluicegate.apps.kv.tables.scan import ScanResult
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.apps.kv.tables.tokens import span_after, token_after
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import KeyRange, Place
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.key_values import CallContext, PlacePage, Row, RowPage
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.policies.cache.hot_key import COLD, FRESH


@final
class Scans:
    """Reads of ranges."""

    __slots__ = (
        "_admission",
        "_clock",
        "_hot",
        "_memory",
        "_spans",
        "_tables",
        "_units",
        "chunk_ru",
    )

    def __init__(
        self,
        admission: Admission,
        chain: PolicyChain,
        tables: Tables,
        hot: HotReads | None,
        clock: Clock,
        memory: ResponseMemory,
        spans: KeySpans,
        *,
        chunk_ru: int,
    ) -> None:
        self._admission = admission
        self._tables = tables
        self._hot = hot
        self._clock = clock
        self._memory = memory
        self._spans = spans
        self._units = chain.units if chain.layered else None
        self.chunk_ru = chunk_ru

    async def scan(
        self, table: str, partition: bytes, span: KeyRange, call: CallContext
    ) -> RowPage:
        """Rows of one partition, a chunk at a time."""
        if self._hot is not None and not call.strong:
            return await self._scan_hot(self._hot, table, partition, span, call)
        page, _ = await self._scan(table, partition, span, call)
        return page

    async def walk(
        self, table: str, after: Place | None, rows_max: int, call: CallContext
    ) -> PlacePage:
        """Places of the whole table."""
        shard = self._tables.shard_of(table, b"")
        known = attributes_of(rows_max, 0)
        request = self._admission.request(SCAN, table, table, shard, call, known)
        permit = await self._admission.later(request)
        began_us = self._clock.now_us()
        work = self._tables.walk(table, after, rows_max, began_us)
        page = await self._admission.in_time(permit, work)
        self._admission.done(permit, began_us, max(1, len(page.places)), 0)
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

    async def _scan_hot(
        self, hot: HotReads, table: str, partition: bytes, span: KeyRange, call: CallContext
    ) -> RowPage:
        """A range from its shield."""
        ranges = hot.ranges
        question = ranges.of_range(table, partition, span)
        shard = self._tables.shard_of(table, partition)
        state, answer = ranges.look(question, self._clock.now_us(), shard)
        if state == COLD:
            page, _ = await self._scan(table, partition, span, call)
            return page
        if state == FRESH and answer is not None:
            now_us = self._clock.now_us()
            self._admission.cached(call.identity.name, now_us, call, ranges.shield, question.key)
        else:
            fetch = partial(self._fetch_range, ranges, question, table, partition, span, call)
            known = attributes_of(span.rows_max)
            request = self._admission.request(SCAN, table, table, shard, call, known)
            answer = await ask(
                self._admission, self._clock, ranges, question, state, answer, request, fetch
            )
        return RowPage([row for row in answer.rows if row is not None], answer.token)

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
            likely = self._spans.rows_between(table, partition, span._replace(rows_max=rows_max))
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
        self._spans.scan(table, partition, chunk, result)
        return result, next_part(call, request)
