"""Gets: the row at one place, from memory, from a read that others wait for too, or by itself.

A read that need not wait is answered without a coroutine; most need not.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import final

from sluicegate.apps.kv.admission import Admission
from sluicegate.apps.kv.chain import GET
from sluicegate.apps.kv.shield.hot_reads import HotReads
from sluicegate.apps.kv.shield.keys import key_of
from sluicegate.apps.kv.shield.shield import Shield
from sluicegate.apps.kv.tables.tables import Tables
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.key_values import CallContext, Row
from sluicegate.contracts.request import Request
from sluicegate.policies.cache.coalesce import Flight
from sluicegate.policies.cache.hot_key import COLD, FRESH, MISS, NEGATIVE, REFRESH, Fill
from sluicegate.policies.stack import StackPermit


@final
class Gets:
    """Reads of one place each."""

    __slots__ = ("_admission", "_at_once", "_clock", "_hot", "_tables")

    def __init__(
        self, admission: Admission, tables: Tables, hot: HotReads | None, clock: Clock
    ) -> None:
        self._admission = admission
        self._at_once = True  # whether the last read of the engine needed no waiting
        self._tables = tables
        self._hot = hot
        self._clock = clock

    def get(
        self, table: str, partition: bytes, sort: bytes, call: CallContext
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place."""
        now_us = self._clock.now_us()
        shield = None if self._hot is None else self._hot.keys
        shard = self._tables.shard or self._tables.shard_of(table, partition)
        if shield is None:
            key = key_of(table, partition, sort)
            request = self._admission.request(GET, table, key, shard, call)
            return self._read_one(table, partition, sort, request, now_us)
        key = shield.key(table, partition, sort)
        state, row = shield.look(key, now_us, shard, strong=call.strong)
        if state == COLD:
            request = self._admission.request(GET, table, key, shard, call)
            return self._read_one(table, partition, sort, request, now_us)
        if state == FRESH or state == NEGATIVE:  # noqa: PLR1714, SIM109 - as mypyc likes it
            self._admission.cached(call.identity.name, now_us, call, shield, key)
            return row
        request = self._admission.request(GET, table, key, shard, call)
        fetch = _Fetch(self, table, partition, sort)
        if state == REFRESH:
            shield.fetch_ahead(key, request, self._clock, fetch.fly)
            self._admission.cached(call.identity.name, now_us, call, shield, key)
            return row
        stale = None if state == MISS else row
        if self._at_once:
            return self._read_hot(shield, key, stale, request, fetch, now_us)
        return self._share(shield, key, stale, request, fetch)

    def _read_hot(
        self,
        shield: Shield[Row],
        key: str,
        stale: Row | None,
        request: Request,
        fetch: _Fetch,
        now_us: int,
    ) -> MaybeAwaitable[Row | None]:
        """Read and keep a row of an engine that answers at once, so no reader can join."""
        admission = self._admission
        try:
            permit = admission.at_once(request, now_us)
            if permit is None:
                return self._share(shield, key, stale, request, fetch)
            fill = shield.begin(key, now_us, request.shard)
            row = self._read(permit, fetch.table, fetch.partition, fetch.sort, now_us)
        except (Refused, Unavailable):
            if stale is None or not shield.stand_in(key, stale, now_us):
                raise
            admission.cached(request.caller, now_us, request)
            return stale
        if row is None or isinstance(row, Row):
            admission.done(permit, now_us, 1, 0 if row is None else row.size_bytes)
            shield.land_at_once(fill, row, now_us)
            return row
        later = admission.guarded(permit, self._finish(permit, row, now_us))
        return self._land_later(shield, fill, stale, request, later)

    async def _land_later(
        self,
        shield: Shield[Row],
        fill: Fill[Row],
        stale: Row | None,
        request: Request,
        later: Awaitable[Row | None],
    ) -> Row | None:
        """Keep a row that the engine, which answered at once before, returns later."""
        try:
            row = await later
        except (Refused, Unavailable):
            now_us = self._clock.now_us()
            if stale is None or not shield.stand_in(fill.key, stale, now_us):
                raise
            self._admission.cached(request.caller, now_us, request)
            return stale
        shield.land_at_once(fill, row, self._clock.now_us())
        return row

    def _read(
        self, permit: StackPermit, table: str, partition: bytes, sort: bytes, now_us: int
    ) -> MaybeAwaitable[Row | None]:
        """Read the tables; end the permit if that fails."""
        try:
            row = self._tables.read_one(table, partition, sort, now_us)
        except BaseException as error:
            self._admission.failed(permit, error)
            raise
        self._at_once = row is None or isinstance(row, Row)
        return row

    async def _share(
        self, shield: Shield[Row], key: str, stale: Row | None, request: Request, fetch: _Fetch
    ) -> Row | None:
        row = await shield.read(key, stale, request, self._clock, fetch.fly)
        measured = request.measured
        if measured is not None and measured.from_cache:
            self._admission.cached(request.caller, self._clock.now_us(), request)
        return row

    def _read_one(
        self, table: str, partition: bytes, sort: bytes, request: Request, now_us: int
    ) -> MaybeAwaitable[Row | None]:
        """Through the chain; without waiting, if that can be."""
        admission = self._admission
        permit = admission.at_once(request, now_us)
        if permit is None:
            return self.read_later(table, partition, sort, request)
        row = self._read(permit, table, partition, sort, now_us)
        if row is None or isinstance(row, Row):
            admission.done(permit, now_us, 1, 0 if row is None else row.size_bytes)
            return row
        return admission.guarded(permit, self._finish(permit, row, now_us))

    async def read_later(
        self, table: str, partition: bytes, sort: bytes, request: Request
    ) -> Row | None:
        """Through the chain, after whatever has to be waited for."""
        permit = await self._admission.later(request)
        now_us = self._clock.now_us()
        row = self._read(permit, table, partition, sort, now_us)
        if row is None or isinstance(row, Row):
            self._admission.done(permit, now_us, 1, 0 if row is None else row.size_bytes)
            return row
        return await self._finish(permit, row, now_us)

    async def _finish(
        self, permit: StackPermit, later: Awaitable[Row | None], began_us: int
    ) -> Row | None:
        row = await self._admission.in_time(permit, later)
        self._admission.done(permit, began_us, 1, 0 if row is None else row.size_bytes)
        return row


@final
class _Fetch:
    """The read of one place, for all its waiters."""

    __slots__ = ("_gets", "partition", "sort", "table")

    def __init__(self, gets: Gets, table: str, partition: bytes, sort: bytes) -> None:
        self._gets = gets
        self.table = table
        self.partition = partition
        self.sort = sort

    async def fly(self, flight: Flight[Row | None]) -> Row | None:
        """Read with the request of the flight, which has the highest class of its waiters."""
        return await self._gets.read_later(self.table, self.partition, self.sort, flight.request)
