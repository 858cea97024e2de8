"""Durability: what was acknowledged is there when the engine is opened again, or by another."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sluicegate.contracts.engine import Change, Update
from sluicegate.testing.engines.trial import (
    EngineChecks,
    EngineTrial,
    engine_check,
    resolve,
    walk_all,
)


class DurabilityChecks(EngineChecks):
    """Checks of an engine that is closed and opened again."""

    @engine_check
    async def test_what_was_written_swapped_and_loaded_is_there_again(
        self, trial: EngineTrial
    ) -> None:
        await trial.write(*((b"p%d" % (n % 5), b"%d" % n, b"written") for n in range(50)))
        assert await trial.swap(b"p1", b"1", b"swapped", b"written")
        await trial.write((b"p2", b"2", None))
        await trial.load([(b"q", b"%d" % n, b"loaded") for n in range(500)])
        await trial.reopen()
        await trial.compare()
        assert await trial.swap(b"p1", b"1", b"again", b"swapped")
        await trial.reopen()
        await trial.compare()

    @engine_check
    async def test_a_dropped_space_stays_dropped(self, trial: EngineTrial) -> None:
        await trial.load([(b"p", b"%05d" % n, b"v") for n in range(3_000)])
        await trial.write((b"p", b"", b"v"), name="other")
        await trial.drop()
        await trial.reopen()
        await trial.compare()
        await trial.compare("other")
        await trial.write((b"p", b"00001", b"new"))
        await trial.reopen()
        await trial.compare()

    @engine_check
    async def test_closing_makes_what_was_under_way_durable_or_says_that_it_is_not(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        tasks = [
            asyncio.create_task(trial.engine.write([Change(space, b"p", b"%02d" % n, b"v")]))
            for n in range(50)
        ]
        await asyncio.sleep(0)
        await trial.reopen()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        stored = {sort for _, sort, _ in await trial.engine.walk(space, None, 100)}
        acknowledged = {b"%02d" % n for n, one in enumerate(results) if one is None}
        assert acknowledged <= stored


class SharingChecks(EngineChecks):
    """Checks of an engine that others use too."""

    @engine_check
    async def test_a_read_begun_after_anothers_write_sees_it(self, trial: EngineTrial) -> None:
        other = trial.open_other()
        space = trial.space()
        for number in range(20):
            value = b"%d" % number
            writer, reader = [(trial.engine, other), (other, trial.engine)][number % 2]
            await writer.write([Change(space, b"p", b"a", value)])
            assert await resolve(reader.read(space, [(b"p", b"a")])) == [value]

    @engine_check
    async def test_of_swaps_by_two_engines_exactly_one_is_made(self, trial: EngineTrial) -> None:
        other = trial.open_other()
        engines = (trial.engine, other)
        swapped = await asyncio.gather(
            *(
                engines[task % 2].swap(Change(trial.space(), b"p", b"a", b"by %d" % task), None)
                for task in range(20)
            )
        )
        assert swapped.count(True) == 1

    @engine_check
    async def test_a_counter_that_two_engines_update_loses_nothing(
        self, trial: EngineTrial
    ) -> None:
        engines = (trial.engine, trial.open_other())
        space = trial.space()

        def count(values: Sequence[bytes | None]) -> list[Change]:
            return [Change(space, b"p", b"count", b"%d" % (int(values[0] or 0) + 1))]

        update = Update(space, b"p", (b"count", b"other"), count)
        await asyncio.gather(*(engines[task % 2].update(update) for task in range(12)))
        (now,) = await resolve(trial.engine.read(space, [(b"p", b"count")]))
        assert now == b"12"

    @engine_check
    async def test_a_space_that_another_dropped_is_empty_and_begins_anew(
        self, trial: EngineTrial
    ) -> None:
        other = trial.open_other()
        space = trial.space()
        for turn in range(3):
            await trial.engine.write([Change(space, b"p", b"%d" % turn, b"v")])
            assert len(await walk_all(other, space, 10)) == 1
            await other.drop(space)
            assert await resolve(trial.engine.read(space, [(b"p", b"%d" % turn)])) == [None]
            assert not await walk_all(trial.engine, space, 10)
