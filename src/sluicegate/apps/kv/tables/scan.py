"""Scan: the visible rows of a partition, from one space or two, in order.

A space is read in pages, and rows that expired or were deleted are skipped, so limits are exact:
`more` says whether there is another visible row. What is looked at is bounded too; a scan that
meets too many dead rows ends early, and goes on behind the last key it looked at.

The first page is as large as the limits. Where most of a page was dead the next one is larger, so
that a long dead stretch costs few calls; the loop runs others between two pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, final

from sluicegate.apps.kv.tables.catalogue import TableView
from sluicegate.contracts.engine import Engine, KeyRange
from sluicegate.contracts.key_values import Row
from sluicegate.wire.row_envelope import PLAIN, RowEnvelope, open_row

PAGE_ROWS_LEAST: Final = 128  # behind a page that was mostly dead
PAGE_ROWS_MOST: Final = 1_024  # as far as it grows beyond what is wanted; decoded in one turn
_PAGE_ROW_BYTES: Final = 512  # room for each of them


class ScanResult(NamedTuple):
    """Rows in the order asked for, whether there are more behind `last`, and what was looked at.

    `last` is the last sort key that was passed; None if there was none.
    """

    rows: Sequence[Row]
    more: bool
    last: bytes | None
    rows_scanned: int
    bytes_scanned: int


@final
class SpaceCursor:
    """One space's rows in the span, a page at a time."""

    __slots__ = (
        "_at",
        "_engine",
        "_partition",
        "_rows",
        "_space",
        "_span",
        "bytes_scanned",
        "more",
        "rows_scanned",
    )

    def __init__(self, engine: Engine, space: str, partition: bytes, span: KeyRange) -> None:
        self._engine = engine
        self._space = space
        self._partition = partition
        self._span = span
        self._rows: Sequence[tuple[bytes, bytes]] = ()
        self._at = 0
        self.more = True  # behind the page that is held
        self.rows_scanned = 0
        self.bytes_scanned = 0

    @property
    def empty(self) -> bool:
        """Whether the current page is exhausted."""
        return self._at >= len(self._rows)

    @property
    def head(self) -> tuple[bytes, bytes]:
        """The next row of the page."""
        return self._rows[self._at]

    def step(self) -> None:
        """Pass it."""
        self._at += 1

    async def fill(self, rows_max: int, bytes_max: int) -> None:
        """Hold the next page, if the one before is passed and there is one."""
        while self._at >= len(self._rows) and self.more:
            span = self._span
            if self._rows:
                last = self._rows[-1][0]
                span = (
                    span._replace(end=last) if span.reverse else span._replace(begin=last + b"\x00")
                )
                self._span = span
            span = span._replace(rows_max=rows_max, bytes_max=bytes_max)
            result = self._engine.scan(self._space, self._partition, span)
            page = await result if isinstance(result, Awaitable) else result
            self._rows, self._at = page.rows, 0
            self.more = page.more and bool(page.rows)
            self.rows_scanned += page.rows_scanned
            self.bytes_scanned += page.bytes_scanned


@final
class RowCollector:
    """Takes rows in order until a limit is reached, and then looks whether there is one more."""

    __slots__ = ("_bytes", "_bytes_max", "_rows_max", "full", "last", "more", "rows")

    def __init__(self, span: KeyRange) -> None:
        self.rows: list[Row] = []
        self._bytes = 0
        self._rows_max = span.rows_max
        self._bytes_max = span.bytes_max
        self.full = False
        self.more = False
        self.last: bytes | None = None

    def take(self, sort: bytes, value: bytes, expires_us: int) -> bool:
        """Add a visible row; False if it is one too many."""
        if self.full:
            self.more = True
            return False
        self.rows.append(Row(sort, value, expires_us))
        self._bytes += len(sort) + len(value)
        self.last = sort
        if len(self.rows) >= self._rows_max or self._bytes >= self._bytes_max:
            self.full = True
        return True

    def skip(self, sort: bytes) -> None:
        """Skip an invisible row."""
        if not self.full:
            self.last = sort

    @property
    def rows_left(self) -> int:
        """Rows that the next page may bring: what is left, and the one behind."""
        return max(self._rows_max - len(self.rows), 0) + 1

    @property
    def bytes_left(self) -> int:
        """Likewise."""
        return max(self._bytes_max - self._bytes, 1)


@final
class PageSizes:
    """How large the next page may be."""

    __slots__ = ("_collected", "_rows_least", "_scanned")

    def __init__(self) -> None:
        self._rows_least = 0
        self._scanned = 0
        self._collected = 0

    async def next(
        self, collector: RowCollector, *, rows_scanned: int, scan_rows_max: int
    ) -> tuple[int, int]:
        """Its rows and bytes; whoever waits for the loop goes first, unless it is the first page.

        Together the pages look at no more than `scan_rows_max`, as far as the engine counts.
        """
        if rows_scanned > 0:
            collected = len(collector.rows)
            gained = collected - self._collected
            if rows_scanned - self._scanned > 2 * gained:  # most of it was dead
                self._rows_least = min(max(2 * self._rows_least, PAGE_ROWS_LEAST), PAGE_ROWS_MOST)
            self._scanned, self._collected = rows_scanned, collected
            await asyncio.sleep(0)
        rows_max = max(collector.rows_left, self._rows_least)
        bytes_max = max(collector.bytes_left, self._rows_least * _PAGE_ROW_BYTES)
        return min(rows_max, max(scan_rows_max - rows_scanned, 1)), bytes_max


async def scan_rows(
    engine: Engine,
    view: TableView,
    partition: bytes,
    span: KeyRange,
    now_us: int,
    scan_rows_max: int,
) -> ScanResult:
    """Return the visible rows of the range at this instant."""
    live = SpaceCursor(engine, view.live, partition, span)
    collector = RowCollector(span)
    if view.plain:
        await _scan_live(live, collector, now_us, scan_rows_max)
        return ScanResult(
            collector.rows, collector.more, collector.last, live.rows_scanned, live.bytes_scanned
        )
    overlay = SpaceCursor(engine, view.overlay, partition, span)
    await _scan_both(live, overlay, collector, view, span.reverse, now_us, scan_rows_max)
    rows_scanned = live.rows_scanned + overlay.rows_scanned
    bytes_scanned = live.bytes_scanned + overlay.bytes_scanned
    return ScanResult(collector.rows, collector.more, collector.last, rows_scanned, bytes_scanned)


async def _scan_live(
    live: SpaceCursor, collector: RowCollector, now_us: int, scan_rows_max: int
) -> None:
    pages = PageSizes()
    while True:
        if live.empty:
            if not live.more:
                return
            if live.rows_scanned >= scan_rows_max and collector.last is not None:
                collector.more = True
                return
            rows_max, bytes_max = await pages.next(
                collector, rows_scanned=live.rows_scanned, scan_rows_max=scan_rows_max
            )
            await live.fill(rows_max, bytes_max)
            if live.empty:
                return
        sort, stored = live.head
        live.step()
        if stored and stored[0] == PLAIN:
            if not collector.take(sort, stored[1:], 0):
                return
        else:
            row = open_row(stored)
            if _is_dead(row, now_us):
                collector.skip(sort)
            elif row.value is not None and not collector.take(sort, row.value, row.expires_us):
                return


async def _scan_both(
    live: SpaceCursor,
    overlay: SpaceCursor,
    collector: RowCollector,
    view: TableView,
    reverse: bool,
    now_us: int,
    scan_rows_max: int,
) -> None:
    pages = PageSizes()
    while True:
        if (live.empty and live.more) or (overlay.empty and overlay.more):
            rows_scanned = live.rows_scanned + overlay.rows_scanned
            if rows_scanned >= scan_rows_max and collector.last is not None:
                collector.more = True
                return
            # A page at a time of each: which row is next depends on both.
            rows_max, bytes_max = await pages.next(
                collector, rows_scanned=rows_scanned, scan_rows_max=scan_rows_max
            )
            await live.fill(rows_max, bytes_max)
            await overlay.fill(rows_max, bytes_max)
        if live.empty and overlay.empty:
            return
        sort, row = _merge_next(live, overlay, view, reverse)
        if row is None or row.value is None or _is_dead(row, now_us):
            collector.skip(sort)
        elif not collector.take(sort, row.value, row.expires_us):
            return


def _merge_next(
    live: SpaceCursor, overlay: SpaceCursor, view: TableView, reverse: bool
) -> tuple[bytes, RowEnvelope | None]:
    """The next sort key of either layer, and what holds there; None hides it."""
    if live.empty:
        sort, stored = overlay.head
        overlay.step()
        return sort, open_row(stored)
    sort, stored = live.head
    if not overlay.empty:
        under, under_stored = overlay.head
        if under == sort:
            live.step()
            overlay.step()
            row = open_row(stored)
            return sort, row if row.epoch >= view.epoch else open_row(under_stored)
        if (under > sort) if reverse else (under < sort):
            overlay.step()
            return under, open_row(under_stored)
    live.step()
    row = open_row(stored)
    return sort, None if view.hides and row.epoch < view.epoch else row


def _is_dead(row: RowEnvelope, now_us: int) -> bool:
    return row.value is None or 0 < row.expires_us <= now_us
