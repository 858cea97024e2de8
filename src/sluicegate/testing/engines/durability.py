"""Lasting: what was acknowledged is there when the engine is opened again."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import asyncio

from sluicegate.contracts.engine import Change
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial


class DurabilityChecks(EngineChecks):
    """Stories of an engine that is closed and opened again."""

    def test_what_was_written_swapped_and_loaded_is_there_again(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*((b"p%d" % (n % 5), b"%d" % n, b"written") for n in range(50)))
            assert await trial.swap(b"p1", b"1", b"swapped", b"written")
            await trial.write((b"p2", b"2", None))
            await trial.load([(b"q", b"%d" % n, b"loaded") for n in range(500)])
            await trial.reopen()
            await trial.compare()
            assert await trial.swap(b"p1", b"1", b"again", b"swapped")
            await trial.reopen()
            await trial.compare()

        self.tell(story)

    def test_a_dropped_space_stays_dropped(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.load([(b"p", b"%05d" % n, b"v") for n in range(3_000)])
            await trial.write((b"p", b"", b"v"), name="other")
            await trial.drop()
            await trial.reopen()
            await trial.compare()
            await trial.compare("other")
            await trial.write((b"p", b"00001", b"new"))
            await trial.reopen()
            await trial.compare()

        self.tell(story)

    def test_closing_makes_what_was_under_way_durable_or_says_that_it_is_not(self) -> None:
        async def story(trial: EngineTrial) -> None:
            space = trial.space()
            tasks = [
                asyncio.create_task(trial.engine.write([Change(space, b"p", b"%02d" % n, b"v")]))
                for n in range(50)
            ]
            await asyncio.sleep(0)
            await trial.reopen()
            heard = await asyncio.gather(*tasks, return_exceptions=True)
            kept = {sort for _, sort, _ in await trial.engine.walk(space, None, 100)}
            acknowledged = {b"%02d" % n for n, one in enumerate(heard) if one is None}
            assert acknowledged <= kept

        self.tell(story)
