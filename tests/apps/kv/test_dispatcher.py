"""The dispatcher in this process, over real policies and engines: what enters, how often, when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, final

import pytest

from sluicegate.apps.kv.app import KvApp
from sluicegate.apps.kv.group_leases import GroupLeases
from sluicegate.apps.kv.members import StaticMembers
from sluicegate.apps.kv.quota_leases import QuotaLeases
from sluicegate.apps.kv.response_memory import RESPONSE_BYTES_MAX, ResponseMemory
from sluicegate.apps.kv.settings import KvSettings
from sluicegate.apps.kv.tables.jobs import KEEPER
from sluicegate.contracts.access import ANY_TABLE, EVERY_TABLE_GRANT, Identity
from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.engine import Engine, KeyRange, Place
from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.contracts.key_values import CallContext, Row, RowPage, Write
from sluicegate.contracts.reasons import DEADLINE, QUOTA_SPENT
from sluicegate.policies.quota.group_settings import ResourceGroup, ResourceGroupsSettings
from sluicegate.policies.quota.leased_budget import LeasedBudget, LeasedBudgetSettings
from sluicegate.policies.quota.resource_groups import ResourceGroups
from sluicegate.service.background import Background
from sluicegate.service.settings import settings_from
from sluicegate.testing import HandClock
from tests.engines.child import PATIENCE_S

ANYBODY = Identity("shop", (), {ANY_TABLE: EVERY_TABLE_GRANT})


@asynccontextmanager
async def dispatcher(*flags: str) -> AsyncIterator[KvApp]:
    app = KvApp(settings_from(KvSettings, *flags))
    # On a busy machine the event loop is late, and some requests are shed for that.
    app._loop_lag = lambda late_us: None  # type: ignore[method-assign]
    try:
        await app.start()
        yield app
    finally:
        await app.end()


async def fill(app: KvApp, rows: int) -> None:
    for first in range(0, rows, 500):
        writes = [Write(b"p", b"%05d" % at, b"v") for at in range(first, min(first + 500, rows))]
        await app.dispatcher.write("t", writes, CallContext(ANYBODY))


def scans(app: KvApp) -> int:
    return app.usage.operations().get("scan", (0, 0, 0))[0]


def test_the_time_that_a_scan_takes_is_no_queue_of_ours() -> None:
    """One who scans alone must not have others shed."""

    async def story() -> None:
        flags = ["--engine", "faulty+memory:?slots=4&work_ms=5", "--quota-ru", "1000000"]
        async with dispatcher(*flags) as app:
            await fill(app, 1_500)
            now_us = app.clock.now_us()
            call = CallContext(ANYBODY, arrived_us=now_us)
            page = await app.dispatcher.scan("t", b"p", KeyRange(rows_max=1_500), call)
            assert len(page.rows) == 1_500
            assert scans(app) > 5
            assert app.clock.now_us() - now_us > 30_000
            assert app.chain.pressure(app.clock.now_us()).queue_us < 10_000

    asyncio.run(story())


def test_a_scan_that_runs_out_of_units_brings_what_it_has_and_goes_on_later() -> None:
    async def story() -> None:
        flags = ["--engine", "memory:", "--quota-ru", "500", "--epoch-ms", "600000"]
        async with dispatcher(*flags, "--chunk-ru", "10") as app:
            app.quotas.set_quotas({"shop": 1_000})
            await fill(app, 1_000)
            plenty = Identity("other", (), {ANY_TABLE: EVERY_TABLE_GRANT})
            brought: list[Row] = []
            token = b""
            for by in (ANYBODY, plenty, plenty):
                try:
                    page: RowPage = await app.dispatcher.scan(
                        "t", b"p", KeyRange(rows_max=1_000), CallContext(by), token
                    )
                except Refused:
                    continue
                brought += page.rows
                token = page.token
                if not token:
                    break
            assert [row.sort for row in brought] == [b"%05d" % at for at in range(len(brought))]
            assert brought

    asyncio.run(story())


def test_places_of_several_shards_enter_by_shard() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "faulty+memory:?slots=64&work_ms=0&shards=10") as one:
            places = [(b"%d" % at, b"") for at in range(40)]
            shards = {one.tables.shard_of("t", partition) for partition, _ in places}
            # What is critical is served also where others keep the machine busy.
            call = CallContext(ANYBODY, criticality=Criticality.CRITICAL)
            answer = one.dispatcher.get_each("t", places, call)
            rows = await answer if isinstance(answer, Awaitable) else answer
            assert rows == [None] * 40
            assert one.usage.operations()["multi-get"][0] == len(shards) > 1

    asyncio.run(story())


async def at_rest(app: KvApp) -> None:
    """Until nothing is under way."""
    async with asyncio.timeout(PATIENCE_S):
        while app.chain.stack.stats().under_way:
            await asyncio.sleep(0.005)


def test_a_read_is_given_up_at_its_deadline_and_holds_its_place_until_the_engine_has_ended() -> (
    None
):
    """Else an engine that stands still is sent more and more that nobody waits for."""

    async def story() -> None:
        async with dispatcher("--engine", "faulty+memory:?slots=1&work_ms=300") as one:
            # The book of tables is read through the same slow engine; that has been waited for.
            now_us = one.clock.now_us()
            call = CallContext(ANYBODY, deadline_us=now_us + 50_000)
            answer = one.dispatcher.get("t", b"p", b"", call)
            assert isinstance(answer, Awaitable)
            with pytest.raises(Refused) as error:
                await answer
            assert error.value.decision.reason is DEADLINE
            assert one.clock.now_us() - now_us < 280_000
            assert one.chain.stack.stats().under_way == 1
            await at_rest(one)
            assert one.clock.now_us() - now_us >= 280_000

    asyncio.run(story())


def test_no_more_than_the_places_are_in_an_engine_that_stands_still() -> None:
    async def story() -> None:
        faulty = "faulty+memory:?slots=1&work_ms=600"
        async with dispatcher("--engine", faulty, "--slots", "4", "--hot", "off") as one:
            outcomes: list[object] = []
            for turn in range(8):
                call = CallContext(ANYBODY, deadline_us=one.clock.now_us() + 60_000)
                try:
                    answer = one.dispatcher.get("t", b"%d" % turn, b"", call)
                    outcomes.append(await answer if isinstance(answer, Awaitable) else answer)
                except Refused as error:
                    outcomes.append(error)
                assert one.chain.stack.stats().under_way == min(turn + 1, 4)
            assert all(isinstance(outcome, Refused) for outcome in outcomes)
            await at_rest(one)

    asyncio.run(story())


def test_an_answer_is_bounded_and_so_is_a_batch() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as one:
            with pytest.raises(BadValue, match="rows_max"):
                await one.dispatcher.scan(
                    "t", b"p", KeyRange(rows_max=10_001), CallContext(ANYBODY)
                )
            with pytest.raises(BadValue, match="places"):
                one.dispatcher.get_each("t", [(b"p", b"")] * 16_385, CallContext(ANYBODY))
            write = Write(b"p", b"", bytes((1 << 20) + 1))
            with pytest.raises(BadValue, match="value"):
                await one.dispatcher.write("t", [write], CallContext(ANYBODY))

    asyncio.run(story())


def test_what_fails_in_the_background_is_told_and_begun_again() -> None:
    async def story() -> None:
        begun = 0
        again = asyncio.Event()

        async def work() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise KeyError("holder")
            again.set()
            await asyncio.Event().wait()

        background = Background("kv", pause_s=0)
        background.start("keeper", work)
        await asyncio.wait_for(again.wait(), 60)
        assert background.state() == {"keeper": {"failures": 1, "last": "KeyError: 'holder'"}}
        await background.close()

    asyncio.run(story())


def test_what_folds_and_sweeps_takes_nobodys_units() -> None:
    groups = ResourceGroups(ResourceGroupsSettings(groups={"a": ResourceGroup(quota_ru=1)}))
    leases = QuotaLeases(LeasedBudget(LeasedBudgetSettings()), HandClock())
    budget = GroupLeases(groups, leases, StaticMembers(1), leases=True)
    for _ in range(100):
        assert budget.charge(KEEPER, 1_000_000, 1_000_000)
        budget.settle(KEEPER, 1_000_000, 1_000_000)
    assert groups.stats().charged_mru == 0
    assert not all(budget.charge("shop", 1_000, 1_000_000) for _ in range(5))


@final
class Weighed:
    """An engine, and how many bytes of values have been read of it; each read takes a turn."""

    def __init__(self, inner: Engine, *, at_once: bool = True) -> None:
        self.inner = inner
        self.at_once = at_once
        self.read_bytes = 0
        self.under_way = self.under_way_max = 0

    def read(self, space: str, places: Sequence[Place]) -> MaybeAwaitable[Sequence[bytes | None]]:
        rows = self.inner.read(space, places)
        assert isinstance(rows, Sequence)
        self.read_bytes += sum(len(one) for one in rows if one is not None)
        return rows if self.at_once else self._later(rows)

    async def _later(self, rows: Sequence[bytes | None]) -> Sequence[bytes | None]:
        size = sum(len(one) for one in rows if one is not None)
        self.under_way += size
        self.under_way_max = max(self.under_way_max, self.under_way)
        await asyncio.sleep(0.02)
        self.under_way -= size
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


MIB = 1 << 20


async def heavy(app: KvApp, table: str, rows: int) -> list[Place]:
    """Places of so many values of a MiB, in different partitions."""
    places: list[Place] = [(b"%d" % at, b"") for at in range(rows)]
    value = bytes(MIB)
    for partition, sort in places:
        await app.dispatcher.write(table, [Write(partition, sort, value)], CallContext(ANYBODY))
    return places


async def each(app: KvApp, places: list[Place], table: str = "t") -> Sequence[Row | None]:
    answer = app.dispatcher.get_each(table, places, CallContext(ANYBODY))
    return await answer if isinstance(answer, Awaitable) else answer


PLENTY = ("--engine", "memory:", "--quota-ru", str(1 << 30), "--hot", "off")


def weighed(app: KvApp, *, at_once: bool = True) -> Weighed:
    engine = Weighed(app.engine, at_once=at_once)
    app.tables._engine = engine
    return engine


def test_a_multi_get_stops_reading_soon_after_its_answer_is_too_large() -> None:
    async def story() -> None:
        async with dispatcher(*PLENTY) as one:
            places = await heavy(one, "t", 130)
            engine = weighed(one)
            for _ in range(3):
                engine.read_bytes = 0
                with pytest.raises(BadValue, match="ask for fewer"):
                    await each(one, places)
                assert engine.read_bytes <= 18 * MIB
            rows = await each(one, places[:15])
            assert all(row is not None and len(row.value) == MIB for row in rows)
            assert one.dispatcher.memory.size_bytes == 0

    asyncio.run(story())


def test_places_that_weigh_little_are_read_together_once_that_is_known() -> None:
    async def story() -> None:
        async with dispatcher(*PLENTY) as one:
            await fill(one, 100)
            places: list[Place] = [(b"p", b"%05d" % at) for at in range(100)]
            for _ in range(2):
                rows = await each(one, places)
                assert [row.sort for row in rows if row] == [sort for _, sort in places]
            before = one.usage.operations()["multi-get"][0]
            assert isinstance(one.dispatcher.get_each("t", places, CallContext(ANYBODY)), list)
            assert one.usage.operations()["multi-get"][0] == before + 1
            await one.dispatcher.write("other", [Write(b"p", b"", b"v")], CallContext(ANYBODY))
            missing = [(b"none", sort) for _, sort in places]
            for _ in range(2):
                assert await each(one, missing, "other") == [None] * 100
            assert isinstance(one.dispatcher.get_each("other", missing, CallContext(ANYBODY)), list)
            assert one.dispatcher.memory.size_bytes == 0

    asyncio.run(story())


def test_a_place_that_weighs_more_than_others_did_is_reckoned_with_for_a_while() -> None:
    gathered = ResponseMemory(MIB)
    fits, weigh = gathered.places_at_once, gathered.record_size
    assert fits("t", 16 * MIB) == 17  # nobody knows: each may be as large as a value
    weigh("t", 10)
    assert fits("t", 16 * MIB) == 100
    weigh("t", MIB)
    assert fits("t", 16 * MIB) == 17
    assert fits("t", 3 * MIB) == 4
    assert fits("t", 0) == fits("t", -5) == 1
    counts = []
    for _ in range(500):
        weigh("t", 10)
        counts.append(fits("t", 16 * MIB))
    assert counts == sorted(counts)
    assert counts[0] < 25
    assert counts[99] == 100
    assert fits("t", 999) == 100  # ten bytes each, as before
    assert fits("t", 500) == 51


def test_all_multi_gets_together_hold_a_bounded_number_of_bytes() -> None:
    async def story() -> None:
        async with dispatcher(*PLENTY) as one:
            places = (await heavy(one, "t", 16))[:15]
            engine = weighed(one, at_once=False)
            await each(one, places)  # from now on it is known what they weigh
            results = await asyncio.gather(
                *(each(one, places) for _ in range(40)), return_exceptions=True
            )
            refused = [error for error in results if isinstance(error, Refused)]
            assert all(error.decision.rule_id == "gathered" for error in refused)
            assert len(refused) >= 30
            assert len(results) - len(refused) >= 8
            assert engine.under_way_max <= RESPONSE_BYTES_MAX + 16 * MIB
            assert one.dispatcher.memory.size_bytes == 0
            assert one.chain.stack.stats().under_way == 0
            assert len(await each(one, places)) == 15

    asyncio.run(story())


def test_who_gives_up_amid_a_multi_get_holds_nothing_once_the_engine_has_ended() -> None:
    async def story() -> None:
        async with dispatcher(*PLENTY) as one:
            places = await heavy(one, "t", 16)
            weighed(one, at_once=False)
            for some in (places, places[:3]):
                task = asyncio.ensure_future(each(one, some))
                await asyncio.sleep(0.005)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await asyncio.sleep(0)
                assert one.dispatcher.memory.size_bytes == 0
                await at_rest(one)

    asyncio.run(story())


def test_reads_of_a_hot_key_cost_what_the_setting_says_also_when_the_budget_is_empty() -> None:
    """Of a caller who asks faster than its quota grows: a tenth of a unit each, and no more."""

    async def story() -> None:
        poor = Identity("poor", (), {ANY_TABLE: EVERY_TABLE_GRANT})
        async with dispatcher("--engine", "memory:", "--quota-ru", "150") as app:
            app.chain.busy_share = 1.0
            await app.dispatcher.write("t", [Write(b"p", b"s", b"v")], CallContext(ANYBODY))
            served = refused = 0
            for _ in range(6_000):  # soon over: counts of hot keys age by the second
                try:
                    found = app.dispatcher.get("t", b"p", b"s", CallContext(poor))
                    if isinstance(found, Awaitable):
                        await found
                    served += 1
                except Refused:
                    refused += 1
            used = app.usage.now()["poor"]
            assert used.cached > 1_000
            assert refused > 1_000
            # A read ahead of the key's end is refused too, and its caller gets what is cached.
            assert app.usage.reasons[QUOTA_SPENT.name] == used.refused >= refused
            charged_ru = used.mru / 1_000
            assert charged_ru >= used.cached * app.chain.units.settings.cached_mru / 1_000
            # Who is refused what is in memory was not served from it.
            assert app.hot is not None
            assert app.hot.keys.stats().hot.served <= used.cached
            assert app.hot.keys.board(1)[0].served <= used.cached
            assert app.hot.keys.stats().hot.served > 1_000

    asyncio.run(story())
