"""Ranges and multi-gets that many ask for are read once, by a dispatcher over a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.shield.settings import ShieldSettings
from sluicegate.contracts.access import ANY_TABLE, EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.key_values import CallContext, Row, RowPage, Write, WriteCondition
from sluicegate.stores.engines.faulty.engine import FaultyEngine
from sluicegate.stores.engines.faulty.url import FaultPlan
from tests.apps.kv.test_dispatcher import ANYBODY, dispatcher, fill, scans

SLOW = ("--engine", "faulty+memory:?slots=64&work_ms=5", "--quota-ru", "1000000")
HOT = ShieldSettings(saved_min=0.0)  # every read is hot, whatever the load
TEN = KeyRange(rows_max=10)
# CRITICAL requests are served also on a busy machine.
CALL = CallContext(ANYBODY, criticality=Criticality.CRITICAL)


async def scan(app: KvApp, span: KeyRange = TEN, *, token: bytes = b"", **some: Any) -> RowPage:
    call = CallContext(ANYBODY, criticality=Criticality.CRITICAL, **some)
    return await app.dispatcher.scan("t", b"p", span, call, token)


async def each(app: KvApp, *sorts: int, partition: bytes = b"p") -> Sequence[Row | None]:
    places = [(partition, b"%05d" % sort) for sort in sorts]
    rows = app.dispatcher.get_each("t", places, CALL)
    return rows if isinstance(rows, Sequence) else await rows


async def get(app: KvApp, sort: bytes) -> Row | None:
    found = app.dispatcher.get("t", b"p", sort, CALL)
    return await found if isinstance(found, Awaitable) else found


@asynccontextmanager
async def hot_dispatcher(*flags: str) -> AsyncIterator[KvApp]:
    async with dispatcher(*flags) as app:
        assert app.hot is not None
        app.hot.replace(HOT)
        yield app


@asynccontextmanager
async def with_hot_range(rows: int = 2, reads: int = 6) -> AsyncIterator[KvApp]:
    """A dispatcher of so many rows, whose first range was read so often."""
    async with hot_dispatcher(*SLOW) as app:
        await fill(app, rows)
        for _ in range(reads):
            await scan(app)
        yield app


def multi_gets(app: KvApp) -> int:
    return app.usage.operations().get("multi-get", (0, 0, 0))[0]


def gets(app: KvApp) -> int:
    return app.usage.operations().get("get", (0, 0, 0))[0]


def first_value(page: RowPage) -> bytes:
    return page.rows[0].value


async def put(app: KvApp, value: bytes, *, partition: bytes = b"p") -> None:
    await app.dispatcher.write("t", [Write(partition, b"00000", value)], CALL)


def test_a_range_that_everybody_reads_is_scanned_once_for_all() -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 20)
            pages = await asyncio.gather(*[scan(app) for _ in range(300)])
            assert all(page == pages[0] and len(page.rows) == 10 for page in pages)
            assert scans(app) <= 4
            again = [await scan(app) for _ in range(100)]
            assert again == pages[:100]
            assert scans(app) <= 4 + 100 // 10  # fetched ahead now and then

    asyncio.run(story())


def test_ranges_that_differ_in_anything_are_each_scanned() -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 20)
            for _ in range(5):
                page = await scan(app)
            spans = [
                TEN._replace(rows_max=9),
                TEN._replace(bytes_max=1 << 10),
                TEN._replace(reverse=True),
                TEN._replace(begin=b"0"),
                TEN._replace(end=b"00015"),
                TEN._replace(begin=b"0", end=b""),
                TEN._replace(begin=b"00005", end=b"00015"),
            ]
            before = scans(app)
            found = [await scan(app, span) for span in spans]
            assert scans(app) == before + len(spans)
            assert [row.sort for row in found[2].rows] == [b"%05d" % n for n in range(19, 9, -1)]
            # A token is where a range goes on: another page, and hot by itself.
            second = await scan(app, token=page.token)
            assert [row.sort for row in second.rows] == [b"%05d" % n for n in range(10, 20)]
            assert await scan(app) == page

    asyncio.run(story())


@pytest.mark.parametrize("way", ["write", "write_if", "remove", "expire"])
def test_who_has_written_reads_the_range_as_it_wrote_it(way: str) -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 2)
            for _ in range(6):
                assert first_value(await scan(app)) == b"v"
                await each(app, 0, 1)
            write = app.dispatcher
            if way == "write":
                await put(app, b"new")
            elif way == "write_if":
                new = Write(b"p", b"00000", b"new")
                await write.write_if("t", new, WriteCondition(present=True), CALL)
            elif way == "remove":
                assert await write.remove("t", [(b"p", b"00000")], CALL) == 1
            else:
                assert await write.expire("t", b"p", b"00000", 1, CALL)
            page, rows = await scan(app), await each(app, 0, 1)
            if way.startswith("write"):
                assert [row and row.value for row in rows] == [b"new", b"v"]
                assert first_value(page) == b"new"
            else:
                assert [row.sort for row in page.rows] == [b"00001"]
                assert [row and row.sort for row in rows] == [None, b"00001"]

    asyncio.run(story())


def test_a_fetch_that_began_before_a_write_answers_nobody_who_came_after_it() -> None:
    async def story() -> None:
        async with with_hot_range(reads=3) as app:
            for number in range(30):
                value = b"%d" % number
                readers = [asyncio.ensure_future(scan(app)) for _ in range(5)]
                await asyncio.sleep(0)  # they are on their way
                await put(app, value)
                assert first_value(await scan(app)) == value
                await asyncio.gather(*readers)
                assert first_value(await scan(app)) == value  # what they brought is not kept

    asyncio.run(story())


def test_a_write_elsewhere_costs_a_hot_range_nothing() -> None:
    async def story() -> None:
        async with with_hot_range() as app:
            before = scans(app)
            for number in range(20):
                await put(app, b"x", partition=b"q%d" % number)
                await scan(app)
            assert scans(app) <= before + 3  # fetched ahead, or two partitions in one epoch

    asyncio.run(story())


def test_a_strong_read_passes_by() -> None:
    async def story() -> None:
        async with with_hot_range() as app:
            before = scans(app)
            for _ in range(4):
                await scan(app, strong=True)
            assert scans(app) == before + 4

    asyncio.run(story())


def test_a_range_without_rows_is_kept_too_and_so_is_one_whose_rows_expire() -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 1)
            nothing = KeyRange(begin=b"x", rows_max=5)
            for _ in range(20):
                assert (await scan(app, nothing)).rows == []
            assert scans(app) < 10
            span_us = 40_000
            await app.dispatcher.write("t", [Write(b"p", b"00000", b"v", span_us)], CALL)
            expires_us = app.clock.now_us() + span_us
            while app.clock.now_us() < expires_us:
                await scan(app)
            assert (await scan(app)).rows == []

    asyncio.run(story())


def test_a_range_that_ended_early_for_one_caller_is_kept_for_nobody() -> None:
    async def story() -> None:
        flags = ["--engine", "faulty+memory:?slots=64&work_ms=1", "--chunk-ru", "4"]
        flags += ["--quota-ru", "60", "--epoch-ms", "60000"]
        async with hot_dispatcher(*flags) as app:
            app.quotas.set_quotas({"rich": 1_000_000})
            rich = CallContext(Identity("rich", (), {ANY_TABLE: EVERY_TABLE_GRANT}))
            for first in range(0, 1_500, 500):
                rows = [Write(b"p", b"%05d" % at, b"v") for at in range(first, first + 500)]
                await app.dispatcher.write("t", rows, rich)
            span = KeyRange(rows_max=1_500)
            for _ in range(6):
                with suppress(Refused):
                    await scan(app, span)
                page = await app.dispatcher.scan("t", b"p", span, rich)
                assert len(page.rows) == 1_500

    asyncio.run(story())


def test_a_multi_get_of_one_partition_is_read_once_for_all() -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 20)
            found = await asyncio.gather(*[each(app, 3, 1, 2, 99) for _ in range(300)])
            values = [None if row is None else row.sort for row in found[0]]
            assert values == [b"00003", b"00001", b"00002", None]
            assert all(rows == found[0] for rows in found)
            assert multi_gets(app) <= 4
            # Another order is another question; two partitions are none.
            other = await each(app, 1, 3, 2, 99)
            assert [None if row is None else row.sort for row in other][:2] == [b"00001", b"00003"]

    asyncio.run(story())


def test_a_hot_multi_get_is_never_torn() -> None:
    """Both rows are always written together, and always read with the same value."""

    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            done = asyncio.Event()
            torn: list[Sequence[Row | None]] = []
            reads = 0

            async def write() -> None:
                for number in range(40):
                    value = b"%d" % number
                    both = [Write(b"p", b"0000%d" % at, value) for at in (0, 1)]
                    await app.dispatcher.write("t", both, CALL)
                    assert {row.value for row in await each(app, 0, 1) if row} == {value}
                done.set()

            async def read() -> None:
                nonlocal reads
                while not done.is_set():
                    rows = await each(app, 0, 1)
                    reads += 1
                    if len({row.value for row in rows if row is not None}) > 1:
                        torn.append(rows)
                    # Each of them is also hot by itself.
                    one = app.dispatcher.get("t", b"p", b"00000", CALL)
                    if not isinstance(one, Row | None):
                        await one
                    await asyncio.sleep(0)

            await asyncio.gather(write(), *[read() for _ in range(8)])
            assert reads > 40
            assert not torn
            assert multi_gets(app) < reads + 40

    asyncio.run(story())


def test_long_bounds_and_many_places_have_a_key_too() -> None:
    async def story() -> None:
        async with hot_dispatcher(*SLOW) as app:
            await fill(app, 200)
            wide = KeyRange(begin=b"\x00" * 200, end=b"\xff" * 240, rows_max=5)
            wider = wide._replace(end=b"\xff" * 239)
            for _ in range(20):
                assert len((await scan(app, wide)).rows) == 5
                assert len((await scan(app, wider)).rows) == 5
                assert len(await each(app, *range(200))) == 200
            assert scans(app) < 20
            assert multi_gets(app) < 10
            board = app.hot_board(10)
            assert len([place for place in board if place.served]) == 3

    asyncio.run(story())


def test_crowd_on_popular_keys_is_answered_by_a_busy_dispatcher() -> None:
    """20 keys are read 20 times each, by an engine of two workers that needs 5 ms a read."""

    async def story() -> None:
        flags = ["--engine", "faulty+memory:?slots=2&work_ms=5", "--slots", "2"]
        flags += ["--quota-ru", "1000000", "--deadline-ms", "60000"]
        async with dispatcher(*flags) as app:
            await fill(app, 20)

            async def get(key: int) -> None:
                row = app.dispatcher.get("t", b"p", b"%05d" % key, CALL)
                if isinstance(row, Awaitable):
                    row = await row
                assert row is not None

            before = gets(app)
            await asyncio.gather(*[get(key) for key in range(20)])
            assert gets(app) == before + 20, "an idle engine answers each"
            for _ in range(20):
                await asyncio.gather(*[get(key) for key in range(20)])
            assert gets(app) < before + 300
            assert app.hot is not None
            assert app.hot.stats().hot.served + app.hot.stats().flights.joined > 100

    asyncio.run(story())


def test_hot_read_of_engine_that_answers_at_once_makes_no_task() -> None:
    async def story() -> None:
        async with hot_dispatcher("--engine", "memory:", "--quota-ru", "1000000") as app:
            await fill(app, 1)
            rows = [app.dispatcher.get("t", b"p", b"00000", CALL) for _ in range(3)]
            assert [row.value for row in rows if isinstance(row, Row)] == [b"v"] * 3
            assert gets(app) == 1, "the first is kept for the others"
            assert [place.forwarded for place in app.hot_board(1)] == [1]
            await put(app, b"new")
            row = app.dispatcher.get("t", b"p", b"00000", CALL)
            assert isinstance(row, Row)
            assert row.value == b"new"

    asyncio.run(story())


def test_old_answer_is_served_when_engine_fails() -> None:
    async def story() -> None:
        async with hot_dispatcher("--engine", "faulty+memory:", "--quota-ru", "1000000") as app:
            await fill(app, 2)
            assert app.hot is not None
            app.hot.replace(ShieldSettings(saved_min=0.0, ttl_us=1, negative_ttl_us=1))
            assert await get(app, b"00000")
            assert isinstance(app.engine, FaultyEngine)
            app.engine.set_plan(FaultPlan(error_share=1.0))
            assert await get(app, b"00000")
            with pytest.raises(Unavailable):
                await get(app, b"00001")
            assert app.hot.stats().stale_served == 1

    asyncio.run(story())
