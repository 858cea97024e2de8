"""The dispatcher in this process, over real policies and engines: what enters, how often, when."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from headgate.apps.kv.assembly import Assembly
from headgate.apps.kv.background import Background
from headgate.apps.kv.fields import FIELDS
from headgate.apps.kv.quotas import OutsideGroups
from headgate.apps.kv.settings import read_settings
from headgate.apps.kv.tables.admitting import KEEPER
from headgate.contracts.access import ANY_TABLE, EVERY_TABLE_GRANT, Identity
from headgate.contracts.errors import BadValue, Refused
from headgate.contracts.key_values import Ask, Row, Rows, Span, Write
from headgate.contracts.reasons import DEADLINE
from headgate.policies.group_settings import GroupSettings, ResourceGroupsSettings
from headgate.policies.resource_groups import ResourceGroups
from headgate.settings import add_flags

ANYBODY = Identity("shop", (), {ANY_TABLE: EVERY_TABLE_GRANT})


@asynccontextmanager
async def dispatcher(*flags: str) -> AsyncIterator[Assembly]:
    parser = ArgumentParser()
    add_flags(parser, FIELDS)
    settings, _ = read_settings(parser.parse_args(flags), {})
    assembly = Assembly(settings, 0)
    try:
        await assembly.start()
        yield assembly
    finally:
        await assembly.close()


async def fill(assembly: Assembly, rows: int) -> None:
    for first in range(0, rows, 500):
        writes = [Write(b"p", b"%05d" % at, b"v") for at in range(first, min(first + 500, rows))]
        await assembly.dispatcher.write("t", writes, Ask(ANYBODY))


def scans(assembly: Assembly) -> int:
    return assembly.usage.operations().get("scan", (0, 0, 0))[0]


def test_the_time_that_a_scan_takes_is_no_queue_of_ours() -> None:
    """One who scans alone must not have others shed."""

    async def story() -> None:
        flags = ["--engine", "faulty+memory:?slots=4&work_ms=5", "--quota-ru", "1000000"]
        async with dispatcher(*flags) as assembly:
            await fill(assembly, 1_500)
            now_us = assembly.clock.now_us()
            ask = Ask(ANYBODY, arrived_us=now_us)
            found = await assembly.dispatcher.scan("t", b"p", Span(rows_max=1_500), ask)
            assert len(found.rows) == 1_500
            assert scans(assembly) > 5
            assert assembly.clock.now_us() - now_us > 30_000
            picture = assembly.chain.stress.read(assembly.clock.now_us())
            assert picture.queue_us is None or picture.queue_us < 10_000

    asyncio.run(story())


def test_a_scan_that_runs_out_of_units_brings_what_it_has_and_goes_on_later() -> None:
    async def story() -> None:
        flags = ["--engine", "memory:", "--quota-ru", "500", "--epoch-ms", "600000"]
        async with dispatcher(*flags, "--chunk-ru", "10") as assembly:
            assembly.quotas.set_quotas({"shop": 1_000})
            await fill(assembly, 1_000)
            plenty = Identity("other", (), {ANY_TABLE: EVERY_TABLE_GRANT})
            brought: list[Row] = []
            token = b""
            for by in (ANYBODY, plenty, plenty):
                try:
                    told: Rows = await assembly.dispatcher.scan(
                        "t", b"p", Span(rows_max=1_000), Ask(by), token
                    )
                except Refused:
                    continue
                brought += told.rows
                token = told.token
                if not token:
                    break
            assert [row.sort for row in brought] == [b"%05d" % at for at in range(len(brought))]
            assert brought

    asyncio.run(story())


def test_places_of_several_shards_enter_by_shard() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "faulty+memory:?slots=64&work_ms=0&shards=10") as one:
            places = [(b"%d" % at, b"") for at in range(40)]
            shards = {one.layers.shard_of("t", partition) for partition, _ in places}
            found = one.dispatcher.get_each("t", places, Ask(ANYBODY))
            rows = await found if isinstance(found, Awaitable) else found
            assert rows == [None] * 40
            assert one.usage.operations()["multi-get"][0] == len(shards) > 1

    asyncio.run(story())


def test_a_read_is_given_up_at_its_deadline() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "faulty+memory:?slots=1&work_ms=3000") as one:
            # The book of tables is read through the same slow engine; that has been waited for.
            now_us = one.clock.now_us()
            ask = Ask(ANYBODY, deadline_us=now_us + 200_000)
            found = one.dispatcher.get("t", b"p", b"", ask)
            assert isinstance(found, Awaitable)
            with pytest.raises(Refused) as told:
                await found
            assert told.value.decision.reason is DEADLINE
            assert one.clock.now_us() - now_us < 1_500_000
            assert one.chain.stack.stats().under_way == 0

    asyncio.run(story())


def test_an_answer_is_bounded_and_so_is_a_batch() -> None:
    async def story() -> None:
        async with dispatcher("--engine", "memory:") as one:
            with pytest.raises(BadValue, match="rows_max"):
                await one.dispatcher.scan("t", b"p", Span(rows_max=10_001), Ask(ANYBODY))
            with pytest.raises(BadValue, match="places"):
                one.dispatcher.get_each("t", [(b"p", b"")] * 1_001, Ask(ANYBODY))
            write = Write(b"p", b"", bytes((1 << 20) + 1))
            with pytest.raises(BadValue, match="value"):
                await one.dispatcher.write("t", [write], Ask(ANYBODY))

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

        background = Background(pause_s=0)
        background.start("keeper", work)
        await asyncio.wait_for(again.wait(), 5)
        assert background.told() == {"keeper": {"failures": 1, "last": "KeyError: 'holder'"}}
        await background.close()

    asyncio.run(story())


def test_what_folds_and_sweeps_takes_nobodys_units() -> None:
    groups = ResourceGroups(ResourceGroupsSettings(groups={"a": GroupSettings(quota_ru=1)}))
    purse = OutsideGroups(groups)
    for _ in range(100):
        assert purse.charge(KEEPER, 1_000_000, 1_000_000)
        purse.settle(KEEPER, 1_000_000, 1_000_000)
    assert groups.stats().charged_mru == 0
    assert not all(purse.charge("shop", 1_000, 1_000_000) for _ in range(5))
