"""Tables over an engine's spaces: what is visible, and how writes are made.

A request uses this process's view of the table; `catalogue.py` explains how views change, and why
nothing acknowledged is lost when they do. All writes go to the table's one live space. A read looks
there first; only while an upload is being folded in is there anything beside.

What the engine answers at once costs a look-up, one call and a look at the envelope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, final

from sluicegate.apps.kv.tables.catalogue import Catalogue, TableView
from sluicegate.apps.kv.tables.catalogue_state import live_space
from sluicegate.apps.kv.tables.scan import ScanResult, scan_rows
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.updates import ConditionalWrite, Expiry, Removal
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.engine import Change, Engine, KeyRange, Place, Update
from sluicegate.contracts.errors import BadValue, OutcomeUnknown, Unavailable
from sluicegate.contracts.key_values import (
    TAG_BYTES,
    PlacePage,
    Row,
    RowsUpdate,
    Write,
    WriteCondition,
    WriteIfResult,
    check_key,
)
from sluicegate.stores.engines.batches import raise_change_error
from sluicegate.wire.row_envelope import EXPIRES_US_MAX, PLAIN, RowEnvelope, open_row, seal_row

_IN_LIVE: Final = b"L"
_IN_BESIDE: Final = b"B"


@final
class Tables:
    """The tables of one engine, as one process sees them."""

    __slots__ = ("_catalogue", "_clock", "_engine", "_reads_at_once", "_settings", "shard")

    def __init__(
        self, engine: Engine, catalogue: Catalogue, clock: Clock, settings: TableSettings
    ) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._clock = clock
        self._settings = settings
        self._reads_at_once = True  # until the engine has answered otherwise
        # The only shard of an embedded engine; empty: `shard_of` returns that of a partition.
        self.shard: str = getattr(engine, "shard", "")

    def read_one(
        self, table: str, partition: bytes, sort: bytes, now_us: int
    ) -> MaybeAwaitable[Row | None]:
        """The row at one place."""
        catalogue = self._catalogue
        view = catalogue.views.get(table)
        if view is None or not view.plain or now_us > catalogue.fresh_until_us:
            return self._read_one(table, partition, sort, now_us)
        until_us = catalogue.fresh_until_us
        values = self._engine.read(view.live, ((partition, sort),))
        if isinstance(values, (list, tuple)):
            stored: bytes | None = values[0]
            if stored is None:
                return None
            return _visible_row(sort, stored, now_us)
        return self._later_one(values, table, view, until_us, partition, sort, now_us)

    async def _later_one(
        self,
        pending: MaybeAwaitable[Sequence[bytes | None]],
        table: str,
        view: TableView,
        until_us: int,
        partition: bytes,
        sort: bytes,
        now_us: int,
    ) -> Row | None:
        values = await pending if isinstance(pending, Awaitable) else pending
        if not await self._still(table, view, until_us):
            return await self._read_one(table, partition, sort, self._clock.now_us())
        stored = values[0]
        return None if stored is None else _visible_row(sort, stored, now_us)

    async def _read_one(self, table: str, partition: bytes, sort: bytes, now_us: int) -> Row | None:
        rows = await self._read(table, ((partition, sort),), now_us)
        return rows[0]

    def read(
        self, table: str, places: Sequence[Place], now_us: int
    ) -> MaybeAwaitable[Sequence[Row | None]]:
        """The rows at these places, in their order."""
        catalogue = self._catalogue
        view = catalogue.views.get(table)
        if view is None or not view.plain or now_us > catalogue.fresh_until_us:
            return self._read(table, places, now_us)
        until_us = catalogue.fresh_until_us
        values = self._engine.read(view.live, places)
        if isinstance(values, (list, tuple)):
            return _visible_rows(places, values, now_us)
        return self._later(values, table, view, until_us, places, now_us)

    async def _later(
        self,
        pending: MaybeAwaitable[Sequence[bytes | None]],
        table: str,
        view: TableView,
        until_us: int,
        places: Sequence[Place],
        now_us: int,
    ) -> Sequence[Row | None]:
        values = await pending if isinstance(pending, Awaitable) else pending
        if not await self._still(table, view, until_us):
            return await self._read(table, places, self._clock.now_us())
        return _visible_rows(places, values, now_us)

    async def _read(self, table: str, places: Sequence[Place], now_us: int) -> Sequence[Row | None]:
        old = await self._catalogue.readable(table)
        if old is not None:
            effective, _ = await self._look(old, places)
            if all(one is None or one.epoch <= old.epoch for one in effective):
                return _rows_of(places, effective, now_us)
        return await self._read_fresh(table, places, now_us)

    async def _read_fresh(
        self, table: str, places: Sequence[Place], now_us: int
    ) -> Sequence[Row | None]:
        for _ in range(self._settings.swap_tries_max):
            view = await self._catalogue.current(table)
            until_us = self._catalogue.fresh_until_us
            effective, _ = await self._look(view, places)
            if await self._still(table, view, until_us):
                return _rows_of(places, effective, now_us)
        raise _too_slow(table)

    async def _look(
        self, view: TableView, places: Sequence[Place]
    ) -> tuple[list[RowEnvelope | None], Sequence[bytes | None]]:
        """What holds at these places, and what the live space has there."""
        result = self._engine.read(view.live, places)
        self._reads_at_once = not isinstance(result, Awaitable)
        live = await result if isinstance(result, Awaitable) else result
        if view.plain:
            return _opened(live), live
        older = [at for at, one in enumerate(_opened(live)) if _is_older(one, view)]
        under: list[bytes | None] = [None] * len(places)
        if older:
            result = self._engine.read(view.overlay, [places[at] for at in older])
            values = await result if isinstance(result, Awaitable) else result
            for at, stored in zip(older, values, strict=True):
                under[at] = stored
        return overlaid(view, live, under), live

    async def scan(self, table: str, partition: bytes, span: KeyRange, now_us: int) -> ScanResult:
        """Rows of one partition, and what it took to find them."""
        _check_span(span)
        for _ in range(self._settings.swap_tries_max):
            view = await self._catalogue.current(table)
            until_us = self._catalogue.fresh_until_us
            result = await scan_rows(
                self._engine, view, partition, span, now_us, self._settings.scan_rows_max
            )
            if await self._still(table, view, until_us):
                return result
            now_us = self._clock.now_us()
        raise _too_slow(table)

    async def write(self, table: str, writes: Sequence[Write], now_us: int) -> None:
        """Put and delete, durably; those in one partition all or none."""
        view = await self._writable_view(table)
        until_us = self._catalogue.fresh_until_us
        await self._engine.write([self.change(view, one, now_us) for one in writes])
        await self._acknowledge(table, view, until_us)

    async def write_if(
        self, table: str, write: Write, condition: WriteCondition, now_us: int
    ) -> WriteIfResult:
        """Write if the condition holds, as one."""
        _check_condition(condition)
        work = ConditionalWrite(write, condition)
        size = 0 if write.value is None else len(write.value)
        await self.update(
            table, RowsUpdate(write.partition, (write.sort,), work.decide, size), now_us
        )
        return work.result

    async def remove(self, table: str, places: Sequence[Place], now_us: int) -> int:
        """Delete these; return how many were there: of several who do, one counts a row."""
        by_partition: dict[bytes, list[bytes]] = {}
        for partition, sort in dict.fromkeys(places):
            by_partition.setdefault(partition, []).append(sort)
        removals = [Removal(partition, sorts) for partition, sorts in by_partition.items()]
        at_once = min(len(removals), self._settings.removals_at_once)
        queue = iter(removals)
        removed = 0

        async def remove_some() -> None:
            nonlocal removed
            for one in queue:
                await self.update(table, RowsUpdate(one.partition, one.sorts, one.decide), now_us)
                removed += one.count

        if len(removals) == 1:  # no task for the usual case
            await remove_some()
            return removed
        works = [remove_some() for _ in range(at_once)]
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        raise_change_error(outcomes, some_made=removed > 0)
        return removed

    async def expire(
        self, table: str, partition: bytes, sort: bytes, ttl_us: int, now_us: int
    ) -> bool:
        """Let what is there expire after so long (0: never); whether there was anything."""
        work = Expiry(partition, ttl_us)
        await self.update(table, RowsUpdate(partition, (sort,), work.decide), now_us)
        return work.done

    async def update(self, table: str, update: RowsUpdate, now_us: int) -> None:
        """Read rows of one partition, and make what is decided for them, as one."""
        places = [(update.partition, sort) for sort in update.sorts]
        for partition, sort in places:
            check_key(partition, sort)
        for _ in range(self._settings.swap_tries_max):
            view = await self._catalogue.current(table)
            until_us = self._catalogue.fresh_until_us
            # What changes nothing is settled by a read, if that is at hand, and makes no table.
            changes = True
            if self._reads_at_once or not view.exists:
                effective, _ = await self._look(view, places)
                changes = bool(update.decide(_rows_of(places, effective, now_us), now_us))
            if changes and not view.exists:
                await self._writable_view(table)
                continue
            if changes:
                decision = await self._decision(view, update, places, now_us)
                size = update.size_bytes + decision.size_bytes
                changes = await self._engine.update(
                    Update(view.live, update.partition, update.sorts, decision.decide, size)
                )
            if changes:
                await self._acknowledge(table, view, until_us)
                return
            if await self._still(table, view, until_us):
                return
            now_us = self._clock.now_us()
        raise _too_slow(table)

    async def _decision(
        self, view: TableView, update: RowsUpdate, places: Sequence[Place], now_us: int
    ) -> ViewDecision:
        """Return a decision on live values that sees what lies under them: that never changes."""
        under: Sequence[bytes | None] = ()
        if not view.plain:
            result = self._engine.read(view.overlay, places)
            under = await result if isinstance(result, Awaitable) else result
        return ViewDecision(self, view, update, places, under, now_us)

    async def walk(self, table: str, after: Place | None, rows_max: int, now_us: int) -> PlacePage:
        """Places of the whole table in no order to rely on. Some may be told twice.

        The `after` that is told is not a place: it is opaque, and its first part a byte longer.
        """
        view = await self._catalogue.current(table)
        space, start = view.live, None
        if after is not None:
            stage = after[0][:1]
            if stage not in (_IN_LIVE, _IN_BESIDE):
                raise BadValue("after", after[0], "send what the walk told, or nothing to begin")
            start = (after[0][1:], after[1])
            if stage == _IN_BESIDE and view.plain:
                start = None  # everything is in the table by now
            elif stage == _IN_BESIDE:
                space = view.overlay
        elif not view.plain:
            space = view.overlay
        rows_max = min(rows_max, self._settings.scan_rows_max)
        entries = await self._engine.walk(space, start, rows_max)
        places: list[Place] = [(entry[0], entry[1]) for entry in entries]
        if not places:
            if space == view.live:
                return PlacePage((), None)
            return await self.walk(table, (_IN_LIVE, b""), rows_max, now_us)
        last = places[-1]
        stage = _IN_BESIDE if space == view.overlay else _IN_LIVE
        if view.plain:
            alive = [
                (entry[0], entry[1])
                for entry in entries
                if _visible_row(entry[1], entry[2], now_us) is not None
            ]
        else:
            effective, _ = await self._look(view, places)
            alive = [
                place
                for place, one in zip(places, effective, strict=True)
                if one is not None and _row(place[1], one, now_us) is not None
            ]
        return PlacePage(alive, (stage + last[0], last[1]))

    def shard_of(self, table: str, partition: bytes) -> str:
        """The part of the engine that serves this partition."""
        view = self._catalogue.views.get(table)
        space = live_space(table) if view is None else view.live
        return self._engine.shard_of(space, partition)

    def change(self, view: TableView, write: Write, now_us: int) -> Change:
        """Return the change of the engine that a write is."""
        partition, sort, value, ttl_us = write
        check_key(partition, sort)
        if value is None:
            if not view.buries:
                return Change(view.live, partition, sort, None)
            return Change(
                view.live, partition, sort, seal_row(None, expires_us=0, epoch=view.epoch)
            )
        if len(value) > self._settings.value_bytes_max:
            remedy = f"use up to {self._settings.value_bytes_max:,} bytes"
            raise BadValue("value", value[:16], remedy)
        expires_us = _expiry(ttl_us, now_us)
        stored = seal_row(value, expires_us=expires_us, epoch=view.epoch)
        purge_us = 0
        if expires_us and not view.buries:
            purge_us = expires_us + self._settings.purge_after_us
        return Change(view.live, partition, sort, stored, purge_us)

    async def _writable_view(self, table: str) -> TableView:
        view = await self._catalogue.current(table)
        if view.exists:
            return view
        try:
            return await self._catalogue.create_table(table)
        except OutcomeUnknown as error:  # of the table: no row was written
            raise Unavailable(error.what, error.detail) from error

    async def _still(self, table: str, view: TableView, until_us: int) -> bool:
        """Whether what was just done by this view, good until then, is as good as done now."""
        if self._clock.now_us() <= until_us + self._settings.write_timeout_us:
            return True
        return (await self._catalogue.current(table)).same(view)

    async def _acknowledge(self, table: str, view: TableView, until_us: int) -> None:
        """Nothing, unless it took so long that others no longer reckon with it."""
        try:
            still = await self._still(table, view, until_us)
        except Unavailable as error:
            raise OutcomeUnknown(error.what, error.detail) from error
        if not still:
            raise OutcomeUnknown(f"the table {table}", "the write took too long")


@final
class ViewDecision:
    """What an engine is to decide by: the rows of a view, from live values and those under them."""

    __slots__ = ("_now_us", "_places", "_tables", "_under", "_update", "_view", "size_bytes")

    def __init__(
        self,
        tables: Tables,
        view: TableView,
        update: RowsUpdate,
        places: Sequence[Place],
        under: Sequence[bytes | None],
        now_us: int,
    ) -> None:
        self._tables = tables
        self._view = view
        self._update = update
        self._places = places
        self._under = under
        self._now_us = now_us
        self.size_bytes = sum([0 if one is None else len(one) for one in under])

    def decide(self, live: Sequence[bytes | None]) -> list[Change]:
        """Return the changes; called on the engine's thread."""
        view, now_us = self._view, self._now_us
        effective = _opened(live) if view.plain else overlaid(view, live, self._under)
        rows = _rows_of(self._places, effective, now_us)
        writes = self._update.decide(rows, now_us)
        return [self._tables.change(view, one, now_us) for one in writes]


def _opened(stored: Sequence[bytes | None]) -> list[RowEnvelope | None]:
    return [None if one is None else open_row(one) for one in stored]


def _is_older(live: RowEnvelope | None, view: TableView) -> bool:
    """Whether an upload that is read beside hides this."""
    return live is None or live.epoch < view.epoch


def overlaid(
    view: TableView, live: Sequence[bytes | None], under: Sequence[bytes | None]
) -> list[RowEnvelope | None]:
    """Return what holds at places by what is live and what the upload has there."""
    effective = _opened(live)
    for at, stored in enumerate(under):
        if not _is_older(effective[at], view):
            continue
        if stored is not None:
            effective[at] = open_row(stored)
        elif view.hides:
            effective[at] = None
    return effective


def _visible_rows(
    places: Sequence[Place], values: Sequence[bytes | None], now_us: int
) -> list[Row | None]:
    rows: list[Row | None] = []
    for place, stored in zip(places, values, strict=True):
        rows.append(None if stored is None else _visible_row(place[1], stored, now_us))
    return rows


def _rows_of(
    places: Sequence[Place], effective: Sequence[RowEnvelope | None], now_us: int
) -> list[Row | None]:
    rows: list[Row | None] = []
    for place, one in zip(places, effective, strict=True):
        rows.append(None if one is None else _row(place[1], one, now_us))
    return rows


def _visible_row(sort: bytes, stored: bytes, now_us: int) -> Row | None:
    if stored and stored[0] == PLAIN:
        return Row(sort, stored[1:])
    return _row(sort, open_row(stored), now_us)


def _row(sort: bytes, stored: RowEnvelope, now_us: int) -> Row | None:
    value = stored.value
    if value is None or 0 < stored.expires_us <= now_us:
        return None
    return Row(sort, value, stored.expires_us)


def _expiry(ttl_us: int, now_us: int) -> int:
    if not ttl_us:
        return 0
    if ttl_us < 0 or ttl_us > EXPIRES_US_MAX - now_us:
        raise BadValue("ttl_us", ttl_us, "say microseconds above 0, or 0 for ever")
    return now_us + ttl_us


def _check_condition(condition: WriteCondition) -> None:
    if condition.absent + condition.present + bool(condition.tag) != 1:
        raise BadValue("condition", condition, "say one of absent, present and tag")
    if condition.tag and len(condition.tag) != TAG_BYTES:
        raise BadValue("condition.tag", condition.tag, f"use the {TAG_BYTES} bytes of a tag")


def _check_span(span: KeyRange) -> None:
    if span.rows_max < 1:
        raise BadValue("rows_max", span.rows_max, "ask for at least 1")
    if span.bytes_max < 1:
        raise BadValue("bytes_max", span.bytes_max, "ask for at least 1")


def _too_slow(table: str) -> Unavailable:
    return Unavailable(f"the table {table}", "the engine answers too slowly to know its state")
