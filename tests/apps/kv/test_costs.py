"""Costs: what reads and ranges are charged, over a real engine; what a restart and others know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.chain import default_weights
from sluicegate.apps.kv.cost_records import OWED, SPACE, STATISTICS, CostRecords
from sluicegate.apps.kv.costs import cost_lines
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.contracts.access import ANY_TABLE, EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Change, Engine, KeyRange
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import CallContext, Row, Write
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.service.settings import settings_from
from sluicegate.system import SystemClock

BY = CallContext(Identity("ann", (), {ANY_TABLE: EVERY_TABLE_GRANT}))
FILLER = CallContext(Identity("filler", (), {ANY_TABLE: EVERY_TABLE_GRANT}))
RICH = ("--quota-ru", "1000000000", "--hot", "off")
NEAR = 0.15
LARGE = 200_000
SECOND = 1_000_000


@asynccontextmanager
async def dispatcher(*flags: str) -> AsyncIterator[KvApp]:
    app = KvApp(settings_from(KvSettings, *RICH, *flags))
    try:
        await app.start()
        yield app
    finally:
        await app.end()


async def get(app: KvApp, partition: bytes) -> Row | None:
    found: MaybeAwaitable[Row | None] = app.dispatcher.get("t", partition, b"", BY)
    return await found if not isinstance(found, Row | None) else found


def charged_ru(app: KvApp) -> float:
    used = app.usage.now().get("ann")
    return 0.0 if used is None else used.mru / 1_000


def formula_ru(reads: int, size_bytes: int) -> float:
    """Without time: an engine in memory takes next to none."""
    weights = default_weights()["get"]
    return reads * (weights.base_ru + weights.row_ru) + weights.byte_ru * size_bytes


async def read_mixture(app: KvApp, count: int, every: int) -> float:
    """Read a small row, and a large one every so often; returns the formula's cost."""
    size = 0
    for number in range(count):
        row = await get(app, b"large" if number % every == 0 else b"small")
        assert row is not None
        size += len(row.value)
    return formula_ru(count, size)


async def fill(app: KvApp) -> None:
    writes = [Write(b"small", b"", b"v" * 100), Write(b"large", b"", b"v" * LARGE)]
    await app.dispatcher.write("t", writes, FILLER)


@pytest.mark.parametrize("every", [100, 2, 1])
def test_reads_are_charged_what_the_formula_says_whatever_their_mixture(every: int) -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            await fill(app)
            cost = await read_mixture(app, 500, every)
            assert charged_ru(app) == pytest.approx(cost, rel=NEAR)

    asyncio.run(story())


def test_a_caller_of_small_rows_is_not_charged_for_anothers_large_ones() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            await fill(app)
            cost = await read_mixture(app, 1_000, 10_000)
            before = charged_ru(app)
            assert before <= cost * (1 + NEAR)

    asyncio.run(story())


def test_a_range_of_one_row_costs_one_row_whatever_its_limit() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            for first in range(0, 2_000, 100):
                writes = [Write(b"p", b"%05d" % at, b"v") for at in range(first, first + 100)]
                await app.dispatcher.write("t", writes, FILLER)
            await app.dispatcher.scan("t", b"p", KeyRange(rows_max=2_000), FILLER)
            span = KeyRange(b"00500", b"00501", rows_max=1_000)
            page = await app.dispatcher.scan("t", b"p", span, BY)
            assert len(page.rows) == 1
            assert charged_ru(app) < 2.0
            span = KeyRange(b"00500", b"00560", rows_max=1_000)
            await app.dispatcher.scan("t", b"p", span, BY)
            assert charged_ru(app) - 2.0 >= 60 * 0.1 / 2

    asyncio.run(story())


def test_many_ranges_of_one_row_are_charged_what_the_formula_says() -> None:
    """Also in a partition of which nothing is known: what a limit has charged is given back."""

    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            await app.dispatcher.write("t", [Write(b"p", b"0", b"v"), Write(b"p", b"1", b"v")], BY)
            begun = charged_ru(app)
            for _ in range(1_000):
                span = KeyRange(b"0", b"1", rows_max=1_000)
                await app.dispatcher.scan("t", b"p", span, BY)
            assert charged_ru(app) - begun == pytest.approx(formula_ru(1_000, 3_000), rel=NEAR)

    asyncio.run(story())


def test_what_is_learned_is_known_after_a_restart_from_the_first_read_on(tmp_path: Path) -> None:
    async def story() -> None:
        engine = ("--engine", f"lmdb:{tmp_path / 'kv'}")
        async with dispatcher(*engine) as app:
            await fill(app)
            await read_mixture(app, 500, 100)
            estimates = _estimates(app)
        async with dispatcher(*engine) as app:
            assert estimates <= _estimates(app)
            cost = await read_mixture(app, 1_000, 100)
            assert charged_ru(app) == pytest.approx(cost, rel=NEAR)

    asyncio.run(story())


def _estimates(app: KvApp) -> set[tuple[str, str, str, int]]:
    assert app.chain.units.estimates is not None
    rows = app.chain.units.estimates.rows()
    return {(*row[:3], int(row.estimate.size_bytes)) for row in rows}


def work(app: KvApp, ms: float, seconds: float, begin_us: int) -> int:
    """Reads of a shard that took so long each, 100 a second; returns when they ended."""
    request = Request("k", operation="get", shard="s1")
    for number in range(round(100 * seconds)):
        begin_us += 10_000
        request.measured = Measured(round(ms * 1_000) + number % 7)
        app.chain.stress.record_end(request, Outcome.SUCCESS, begin_us)
    app.chain.units.learned += 1
    return begin_us


def ratio(app: KvApp, now_us: int) -> float:
    return app.chain.stress.read(now_us).ratio


@pytest.mark.parametrize("hours", [0, 5, 7])
def test_a_dispatcher_restarted_amid_a_slow_down_knows_at_once_that_it_is_one(
    tmp_path: Path, hours: int
) -> None:
    """By the baseline that was kept, unless nobody has seen it for six hours."""

    async def story() -> None:
        engine = ("--engine", f"lmdb:{tmp_path / 'kv'}")
        now_us = SystemClock().now_us() - (300 + 3_600 * hours) * SECOND
        async with dispatcher(*engine) as app:
            now_us = work(app, 5, 120, now_us)
            now_us = work(app, 20, 10, now_us)
            assert ratio(app, now_us) == pytest.approx(0.25, rel=0.1)
        async with dispatcher(*engine) as app:
            assert ratio_after(app, now_us, 20) == pytest.approx(
                0.25 if hours < 6 else 1.0, rel=0.1
            )

    asyncio.run(story())


def ratio_after(app: KvApp, now_us: int, ms: float) -> float:
    """The ratio when there are as many values as it needs."""
    return ratio(app, work(app, ms, 2.5, now_us))


def test_what_is_usual_here_outweighs_what_was_usual_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        engine = ("--engine", f"lmdb:{tmp_path / 'kv'}")
        now_us = SystemClock().now_us()
        async with dispatcher(*engine) as app:
            work(app, 5, 120, now_us - 600 * SECOND)
        async with dispatcher(*engine) as app:  # a quicker machine
            now_us = work(app, 1, 150, now_us)
            assert ratio_after(app, now_us, 4) == pytest.approx(0.25, rel=0.1)

    asyncio.run(story())


def test_what_a_caller_owes_outlives_the_dispatcher_and_is_owed_once(tmp_path: Path) -> None:
    async def story() -> None:
        engine = ("--engine", f"lmdb:{tmp_path / 'kv'}", "--node", "a")
        async with dispatcher(*engine) as app:
            _owe(app, 50_000)
        async with dispatcher(*engine) as app:
            assert _owed(app) == {"ann": 50_000}
            other = CostRecords(
                app.chain.units, app.dispatcher.spans, app.engine, app.clock, "another"
            )
            await other.load()
            assert _owed(app) == {"ann": 50_000}

    asyncio.run(story())


def _owe(app: KvApp, mru: int) -> None:
    app.chain.units.owe({"ann": mru})


def _owed(app: KvApp) -> dict[str, int]:
    return app.chain.units.owed_mru()


def test_dispatchers_of_one_engine_know_what_the_others_have_learned() -> None:
    async def story() -> None:
        async with (
            dispatcher("--engine", "memory:") as one,
            dispatcher("--engine", "memory:") as other,
        ):
            await fill(one)
            await read_mixture(one, 500, 100)
            shared = CostRecords(
                other.chain.units, other.dispatcher.spans, one.engine, other.clock, "other"
            )
            _owe(one, 50_000)
            await one.costs.exchange()
            await shared.exchange()
            assert _estimates(one) <= _estimates(other)
            assert _owed(other) == {}  # it is there, and owes for itself

    asyncio.run(story())


USUAL = b'{"v":2,"estimates":[],"spans":[],"usual":%b}'


@pytest.mark.parametrize(
    "stored",
    [
        *(b"", b"{}", b"[1]", b'{"v":2}', b'{"v":1}', b"\xff" * 99),
        b'{"v":2,"estimates":[["t","get","ann",1,1,1,0,-1,NaN]],"spans":[]}',
        b'{"v":2,"estimates":[["t","get","ann",1]],"spans":[]}',
        USUAL % b"[]",
        USUAL % b'{"stress":[["","get","5",1]]}',
        USUAL % b'{"prices":[["s","get",NaN,9e15],["s","get",-1,1],["s","get"]]}',
    ],
)
def test_a_record_that_cannot_be_read_is_none(stored: bytes) -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            await app.engine.write(
                [Change(SPACE, STATISTICS, b"", stored), Change(SPACE, OWED, b"gone", stored)]
            )
            await app.costs.load()
            await app.costs.exchange()
            await fill(app)
            assert await get(app, b"small") is not None
            assert app.chain.stress.baselines() == []

    asyncio.run(story())


def test_an_engine_that_fails_is_no_reason_not_to_start() -> None:
    class Failing:
        def __init__(self, engine: Engine) -> None:
            self._engine = engine

        def __getattr__(self, name: str) -> object:
            raise Unavailable("engine", "gone")

    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            records = CostRecords(
                app.chain.units,
                app.dispatcher.spans,
                Failing(app.engine),  # type: ignore[arg-type]
                app.clock,
                "n",
            )
            await records.load()
            await records.exchange()
            await records.close()
            assert records.failures == 3

    asyncio.run(story())


def test_costs_are_shown_as_lines_and_as_metrics() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as app:
            await fill(app)
            await read_mixture(app, 100, 10)
            text = "\n".join(cost_lines(app.costs.state()))
            for word in ("get", "base_ru", "usual ms", "ann", "partitions"):
                assert word in text
            names = {family.name for family in app.metrics()}
            assert {"sluicegate_kv_cost_estimates", "sluicegate_kv_cost_owed_ru"} <= names

    asyncio.run(story())
