"""Scanning past what is dead: few calls, turns for others between them, and limits kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate.apps.kv.tables.catalogue import TableView
from sluicegate.apps.kv.tables.scan import PAGE_ROWS_MOST, scan_rows
from sluicegate.contracts.engine import Change, KeyRange
from sluicegate.contracts.key_values import Row
from sluicegate.stores.engines.memory import MemoryEngine
from sluicegate.wire.row_envelope import seal_row

PLAIN = TableView("t", "normal", 0, overlay="", hides=False, exists=True)
LAYERED = TableView("t", "layered", 1, overlay="u", hides=False, exists=True)
NOW_US = 100
DEAD, ALIVE = 1, 0


class Paged:
    """An engine that notes how many rows each page may have."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.pages: list[int] = []

    def scan(self, space: str, partition: bytes, span: KeyRange) -> Any:
        self.pages.append(span.rows_max)
        return self.engine.scan(space, partition, span)


async def filled(space: str, *stretches: tuple[int, int]) -> Any:
    """Rows in stretches of so many that expire then."""
    paged = Paged()
    at = 0
    for count, expires_us in stretches:
        stored = seal_row(b"v" * 20, expires_us=expires_us, epoch=0)
        keys = [b"%06d" % number for number in range(at, at + count)]
        await paged.engine.write([Change(space, b"p", sort, stored) for sort in keys])
        at += count
    return paged


@pytest.mark.parametrize("view", [PLAIN, LAYERED])
async def test_a_long_dead_stretch_costs_few_calls(view: TableView) -> None:
    one = await filled("t" if view is PLAIN else "u", (5_000, DEAD), (3, ALIVE))
    page = await scan_rows(one, view, b"p", KeyRange(rows_max=1), NOW_US, 10_000)
    assert page.rows == [Row(b"005000", b"v" * 20, 0)]
    assert page.more
    assert len(one.pages) <= 20
    assert max(one.pages) == PAGE_ROWS_MOST


async def test_others_have_a_turn_between_two_pages() -> None:
    one = await filled("t", (5_000, DEAD))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    await scan_rows(one, PLAIN, b"p", KeyRange(rows_max=1), NOW_US, 10_000)
    beside.cancel()
    assert turns >= len(one.pages) - 1 > 5


async def test_what_is_alive_is_read_in_one_page_of_what_is_wanted() -> None:
    one = await filled("t", (500, ALIVE))
    page = await scan_rows(one, PLAIN, b"p", KeyRange(rows_max=3), NOW_US, 10_000)
    assert (len(page.rows), page.more, page.rows_scanned) == (3, True, 4)
    assert one.pages == [4]


async def test_small_bytes_wanted_do_not_make_small_pages_of_the_dead() -> None:
    one = await filled("t", (5_000, DEAD))
    await scan_rows(one, PLAIN, b"p", KeyRange(rows_max=1_000, bytes_max=40), NOW_US, 10_000)
    assert len(one.pages) <= 20


async def test_pages_grow_no_further_than_what_may_be_looked_at() -> None:
    one = await filled("t", (5_000, DEAD))
    page = await scan_rows(one, PLAIN, b"p", KeyRange(rows_max=1), NOW_US, 1_000)
    assert (page.rows, page.more, page.last, page.rows_scanned) == ([], True, b"000999", 1_000)
