from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, cast

import pytest

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import Change, KeyRange
from sluicegate.contracts.errors import BadValue
from sluicegate.stores.engines.faulty.engine import FaultyEngine, shard_number
from sluicegate.stores.engines.faulty.slots import CREDIT_US, WorkSlots
from sluicegate.stores.engines.faulty.url import FaultPlan, parse_url, read_control
from sluicegate.stores.open_engine import open_engine
from sluicegate.testing.engines import resolve

WORK = 10_000
NAMES: Final = [b"p%d" % number for number in range(20)]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_eight_slots_of_ten_milliseconds_end_eight_hundred_a_second_whatever_timers_do(
    loop: asyncio.AbstractEventLoop,
) -> None:
    line = WorkSlots(8)
    ends = [loop.create_future() for _ in range(2_000)]
    for done in ends:
        line.enter(WORK, done, 0)
    for now_us in range(0, 1_000_001, 7_300):  # timers that are late, and by no even amount
        line.advance(now_us)
    line.advance(1_000_000)
    assert sum(done.done() for done in ends) == 800
    assert all(done.done() for done in ends[:800]), "first come, first served"


def test_whoever_comes_right_after_a_late_timer_is_credited_and_nobody_else(
    loop: asyncio.AbstractEventLoop,
) -> None:
    for waits_us, ends_us in ((0, 20_000), (CREDIT_US + 1, 11_000 + CREDIT_US + 1 + WORK)):
        line = WorkSlots(1)
        line.enter(WORK, loop.create_future(), 0)
        line.advance(11_000)
        line.enter(WORK, loop.create_future(), 11_000 + waits_us)
        assert line.next_us() == ends_us


def test_work_goes_on_where_it_was_after_a_stall(loop: asyncio.AbstractEventLoop) -> None:
    line = WorkSlots(1)
    first, second = loop.create_future(), loop.create_future()
    line.enter(WORK, first, 0)
    line.enter(WORK, second, 0)
    line.pause(50_000, 54_000)
    line.advance(59_999)
    assert not first.done()
    line.advance(60_000)
    assert first.done()
    assert line.next_us() == 70_000


def test_more_slots_are_taken_at_once_and_fewer_as_work_ends(
    loop: asyncio.AbstractEventLoop,
) -> None:
    line = WorkSlots(2)
    for _ in range(6):
        line.enter(WORK, loop.create_future(), 0)
    line.set_slots(4, 0)
    assert line.waiting == 2
    line.set_slots(1, 0)
    line.advance(WORK)
    assert line.waiting == 1


def test_errors_are_a_share_of_all_and_come_evenly() -> None:
    async def story() -> None:
        engine = open_engine("faulty+memory:?error_share=0.25")
        results = await asyncio.gather(
            *(resolve(engine.read("t", [(b"p", b"")])) for _ in range(40)), return_exceptions=True
        )
        failed = [isinstance(one, Exception) for one in results]
        assert failed == [False, False, False, True] * 10
        await engine.close()

    asyncio.run(story())


def test_a_shard_is_told_by_its_number() -> None:
    async def story() -> None:
        engine = open_engine("faulty+memory:?shards=10")
        for partition in (b"a", b"b", b"\xff"):
            assert engine.shard_of("t", partition) == f"shard-{shard_number(partition, 10)}"
        await engine.close()

    asyncio.run(story())


def test_a_control_file_changes_what_it_names_and_a_wrong_one_says_what_there_is() -> None:
    plan = FaultPlan(slots=8, work_us=WORK)
    assert read_control('{"work_ms": 20, "stalled": true}', plan) == FaultPlan(
        slots=8, work_us=2 * WORK, stalled=True
    )
    for wrong in ("", "[]", '{"shards": 3}', '{"slots": "many"}'):
        with pytest.raises(BadValue):
            read_control(wrong, plan)


def test_what_is_not_of_the_plan_is_for_the_engine_within() -> None:
    inner, plan, settings = parse_url("faulty+lmdb:/x?map_bytes=1048576&slots=3&shards=2")
    assert inner == "lmdb:/x?map_bytes=1048576"
    assert plan == FaultPlan(slots=3)
    assert settings.shards == 2


def test_a_slow_shard_and_a_long_scan_are_answered_after_what_came_later() -> None:
    async def story() -> None:
        url = "faulty+memory:?slots=4&work_ms=1&row_us=2000&shards=2&slow_shard=1&slow_times=500"
        engine = cast("FaultyEngine", open_engine(url))
        slow, fast = (next(p for p in NAMES if shard_number(p, 2) == shard) for shard in (1, 0))
        await engine.write([Change("t", fast, b"%d" % row, b"v") for row in range(20)])
        order: list[str] = []

        async def tell(name: str, answer: MaybeAwaitable[object]) -> None:
            await resolve(answer)
            order.append(name)

        scanned = engine.scan("t", fast, KeyRange(rows_max=20, bytes_max=1_000))
        await asyncio.gather(
            tell("slow", engine.read("t", [(slow, b"")])),
            tell("scan", scanned),
            tell("fast", engine.read("t", [(fast, b"")])),
        )
        assert order == ["fast", "scan", "slow"]
        await engine.close()

    asyncio.run(story())


def test_nothing_is_answered_in_a_stall_and_its_time_counts_for_no_work() -> None:
    async def story() -> None:
        engine = cast("FaultyEngine", open_engine("faulty+memory:?slots=1&work_ms=20"))
        begun = asyncio.ensure_future(resolve(engine.read("t", [(b"p", b"")])))
        await asyncio.sleep(0)
        engine.set_plan(replace(engine.plan, stalled=True))
        later = asyncio.ensure_future(resolve(engine.read("t", [(b"p", b"")])))
        await asyncio.wait([begun, later], timeout=0.05)
        assert not begun.done()
        engine.set_plan(replace(engine.plan, stalled=False))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not begun.done(), "its work has only begun"
        assert list(await asyncio.gather(begun, later)) == [[None], [None]]
        await engine.close()

    asyncio.run(story())
