"""Shared: two engines that are open at one place see the same."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sluicegate.contracts.engine import Change, Engine
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, resolve, walk_all


class SharingChecks(EngineChecks):
    """Stories of an engine that others use too."""

    def test_a_read_begun_after_anothers_write_sees_it(self) -> None:
        async def story(trial: EngineTrial, other: Engine) -> None:
            space = trial.space()
            for number in range(20):
                value = b"%d" % number
                writer, reader = [(trial.engine, other), (other, trial.engine)][number % 2]
                await writer.write([Change(space, b"p", b"a", value)])
                assert await resolve(reader.read(space, [(b"p", b"a")])) == [value]

        self._tell_two(story)

    def test_of_swaps_by_two_engines_exactly_one_is_made(self) -> None:
        async def story(trial: EngineTrial, other: Engine) -> None:
            engines = (trial.engine, other)
            made = await asyncio.gather(
                *(
                    engines[task % 2].swap(Change(trial.space(), b"p", b"a", b"by %d" % task), None)
                    for task in range(20)
                )
            )
            assert made.count(True) == 1

        self._tell_two(story)

    def test_a_space_that_another_dropped_is_empty_and_begins_anew(self) -> None:
        async def story(trial: EngineTrial, other: Engine) -> None:
            space = trial.space()
            for turn in range(3):
                await trial.engine.write([Change(space, b"p", b"%d" % turn, b"v")])
                assert len(await walk_all(other, space, 10)) == 1
                await other.drop(space)
                assert await resolve(trial.engine.read(space, [(b"p", b"%d" % turn)])) == [None]
                assert not await walk_all(trial.engine, space, 10)

        self._tell_two(story)

    def _tell_two(self, story: Callable[[EngineTrial, Engine], Awaitable[None]]) -> None:
        async def told(trial: EngineTrial) -> None:
            other = self.open_engine()
            try:
                await story(trial, other)
            finally:
                await other.close()

        self.tell(told)
