"""Races: many tasks at once; what one call did is seen whole or not at all, and a swap is one."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sluicegate.contracts.engine import Change, KeyRange, Update
from sluicegate.contracts.errors import BadValue
from sluicegate.testing.engines.trial import (
    BYTES_MAX,
    EngineChecks,
    EngineTrial,
    engine_check,
    resolve,
)

CROWD = 30


class ConcurrencyChecks(EngineChecks):
    """Checks of `swap` and `update`, and of calls under way together."""

    @engine_check
    async def test_a_swap_is_made_only_where_the_value_is_the_one_expected(
        self, trial: EngineTrial
    ) -> None:
        assert not await trial.swap(b"p", b"a", b"1", b"0")
        assert not await trial.swap(b"p", b"a", b"1", b"")
        assert await trial.swap(b"p", b"a", b"", None)
        assert not await trial.swap(b"p", b"a", b"1", None)
        assert await trial.swap(b"p", b"a", b"1", b"")
        assert await trial.swap(b"p", b"a", b"1", b"1")
        assert not await trial.swap(b"p", b"a", None, b"2")
        await trial.compare()
        assert await trial.swap(b"p", b"a", None, b"1")
        assert await trial.read((b"p", b"a")) == [None]
        assert await trial.swap(b"p", b"a", None, None)
        assert await trial.swap(b"p", b"a", b"again", None)
        await trial.compare()

    @engine_check
    async def test_a_swap_sees_what_was_written_and_a_write_what_was_swapped(
        self, trial: EngineTrial
    ) -> None:
        await trial.write((b"p", b"a", b"1"))
        assert await trial.swap(b"p", b"a", b"2", b"1")
        await trial.write((b"p", b"a", b"3"))
        assert not await trial.swap(b"p", b"a", b"4", b"2")
        await trial.write((b"p", b"a", None))
        assert await trial.swap(b"p", b"a", b"5", None)
        await trial.compare()

    @engine_check
    async def test_of_many_swaps_at_once_exactly_one_is_made(self, trial: EngineTrial) -> None:
        space = trial.space()
        for expected in (None, b"0"):
            results = await asyncio.gather(
                *(
                    trial.engine.swap(Change(space, b"p", b"a", b"by %d" % task), expected)
                    for task in range(CROWD)
                )
            )
            assert results.count(True) == 1
            (now,) = await resolve(trial.engine.read(space, [(b"p", b"a")]))
            assert now == b"by %d" % results.index(True)
            await trial.engine.write([Change(space, b"p", b"a", b"0")])

    @engine_check
    async def test_a_counter_kept_by_swaps_loses_nothing(self, trial: EngineTrial) -> None:
        space, place = trial.space(), (b"p", b"count")

        async def add_one() -> None:
            while True:
                (now,) = await resolve(trial.engine.read(space, [place]))
                change = Change(space, *place, b"%d" % (int(now or 0) + 1))
                if await trial.engine.swap(change, now):
                    return

        for _ in range(3):
            await asyncio.gather(*(add_one() for _ in range(6)))
        (now,) = await resolve(trial.engine.read(space, [place]))
        assert now == b"18"

    @engine_check
    async def test_an_update_decides_by_what_is_there_and_changes_no_other_place(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        await trial.write((b"p", b"a", b"1"), (b"p", b"b", b"2"), (b"p", b"c", b"3"))

        def exchange(values: Sequence[bytes | None]) -> list[Change]:
            assert values == [b"1", b"2", None, b"3"]
            return [
                Change(space, b"p", b"a", values[1]),
                Change(space, b"p", b"b", None),
                Change(space, b"p", b"z", values[0]),
            ]

        update = Update(space, b"p", (b"a", b"b", b"z", b"c"), exchange)
        assert await trial.engine.update(update)
        assert await trial.oracle.update(update)
        await trial.compare()
        assert not await trial.engine.update(Update(space, b"p", (b"a",), lambda _: ()))
        assert not await trial.engine.update(Update(space, b"new", (b"a", b""), lambda _: ()))
        await trial.compare()
        elsewhere = Change(space, b"p", b"c", b"4")
        for strange in (elsewhere, elsewhere._replace(partition=b"q", sort=b"a")):
            with pytest.raises(BadValue, match="change only what the update names"):
                await trial.engine.update(
                    Update(space, b"p", (b"a",), lambda _, one=strange: (one,))  # type: ignore[misc]
                )
        await trial.compare()

    @engine_check
    async def test_of_many_that_take_a_value_away_exactly_one_has_it(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()

        async def take(task: int) -> bool:
            take_both = Update(
                space,
                b"p",
                (b"a", b"b"),
                lambda values: [
                    Change(space, b"p", sort, None)
                    for sort, value in zip((b"a", b"b"), values, strict=True)
                    if value is not None
                ],
            )
            return await trial.engine.update(take_both)

        for _ in range(5):
            await trial.write((b"p", b"a", b"1"), (b"p", b"b", b"1"))
            assert (await asyncio.gather(*map(take, range(10)))).count(True) == 1
            await trial.change([Change(space, b"p", b"a", None), Change(space, b"p", b"b", None)])

    @engine_check
    async def test_a_counter_kept_by_updates_loses_nothing_and_needs_no_second_try(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()

        def count(values: Sequence[bytes | None]) -> list[Change]:
            return [Change(space, b"p", b"count", b"%d" % (int(values[0] or 0) + 1))]

        update = Update(space, b"p", (b"count",), count)
        results = await asyncio.gather(*(trial.engine.update(update) for _ in range(CROWD)))
        assert results == [True] * CROWD
        (now,) = await resolve(trial.engine.read(space, [(b"p", b"count")]))
        assert now == b"%d" % CROWD

    @engine_check
    async def test_no_reader_sees_some_of_a_call(self, trial: EngineTrial) -> None:
        space = trial.space()
        sorts = [b"%02d" % number for number in range(20)]

        def version(number: int) -> list[Change]:
            # Every other version takes half of the rows away.
            return [
                Change(space, b"p", sort, None if number % 2 and at % 2 else b"%d" % number)
                for at, sort in enumerate(sorts)
            ]

        await trial.engine.write(version(0))
        ended = False

        async def look() -> int:
            looks = 0
            while not ended:
                span = KeyRange(reverse=bool(looks % 2), bytes_max=BYTES_MAX)
                page = await resolve(trial.engine.scan(space, b"p", span))
                (value,) = {value for _, value in page.rows}
                assert len(page.rows) == (10 if int(value) % 2 else 20)
                looks += 1
                await asyncio.sleep(0)
            return looks

        lookers = [asyncio.create_task(look()) for _ in range(3)]
        for number in range(1, 25):
            await trial.engine.write(version(number))
            await asyncio.sleep(0)
        ended = True
        assert min(await asyncio.gather(*lookers)) > 0

    @engine_check
    async def test_of_calls_at_once_on_the_same_rows_one_is_the_last(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        sorts = [b"%02d" % number for number in range(10)]
        await asyncio.gather(
            *(
                trial.engine.write([Change(space, b"p", sort, b"%d" % task) for sort in sorts])
                for task in range(CROWD)
            )
        )
        values = await resolve(trial.engine.read(space, [(b"p", sort) for sort in sorts]))
        assert len(set(values)) == 1

    @engine_check
    async def test_writes_at_once_are_all_there_when_they_have_returned(
        self, trial: EngineTrial
    ) -> None:
        await asyncio.gather(
            *(trial.write((b"p%d" % (task % 7), b"%d" % task, b"v")) for task in range(100))
        )
        await trial.compare()

    @engine_check
    async def test_a_call_that_cannot_be_made_leaves_those_beside_it_alone(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        results = await asyncio.gather(
            *(
                trial.engine.write([Change(space, b"p" * (task % 2), b"%d" % task, b"v")])
                for task in range(20)
            ),
            return_exceptions=True,
        )
        assert [isinstance(one, Exception) for one in results] == [True, False] * 10
        page = await trial.engine.walk(space, None, 100)
        assert len(page) == 10

    @engine_check
    async def test_calls_that_are_cancelled_leave_the_others_as_they_are(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        tasks = [
            asyncio.create_task(trial.engine.write([Change(space, b"p", b"%02d" % n, b"v")]))
            for n in range(20)
        ]
        for at, task in enumerate(tasks):
            if at % 5 == 0:
                await asyncio.sleep(0)
            if at % 2:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        places = [(b"p", b"%02d" % n) for n in range(0, 20, 2)]
        assert set(await resolve(trial.engine.read(space, places))) == {b"v"}
