"""Walks: a whole space, page by page, each entry exactly once, whatever is written meanwhile."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections import Counter

import pytest

from sluicegate.contracts.engine import PARTITION_BYTES_MAX, SORT_BYTES_MAX, Place
from sluicegate.contracts.errors import BadValue
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial

ENTRIES = tuple(
    (b"p%d" % (number % 9) * (number % 3 + 1), b"%d" % number * (number % 4), b"%d" % number)
    for number in range(150)
)


class WalkChecks(EngineChecks):
    """Stories of `walk`."""

    @pytest.mark.parametrize("rows_max", [1, 7, 1_000])
    def test_a_walk_tells_everything_once(self, rows_max: int) -> None:
        async def story(trial: EngineTrial) -> None:
            entries = ENTRIES[:40] if rows_max == 1 else ENTRIES
            await trial.write(*entries)
            await trial.write((b"p", b"", b"elsewhere"), name="t2")
            told = await trial.walk(rows_max)
            assert len({(partition, sort) for partition, sort, _ in told}) == len(told)

        self.tell(story)

    def test_a_walk_beside_writes_tells_once_what_is_there_throughout(self) -> None:
        async def story(trial: EngineTrial) -> None:
            stays = [(b"p%d" % (n % 20), b"stays%d" % n, b"v") for n in range(100)]
            goes = [(b"p%d" % (n % 20), b"goes%d" % n, b"v") for n in range(60)]
            await trial.write(*stays, *goes)
            told: Counter[Place] = Counter()
            after: Place | None = None
            step = 0
            space = trial.space()
            while page := await trial.engine.walk(space, after, 10):
                told.update((partition, sort) for partition, sort, _ in page)
                after = (page[-1][0], page[-1][1])
                step += 1
                if step > 12:
                    continue  # or there would always be something new behind the last
                partition, sort, _ = goes[step]
                await trial.write(
                    (partition, sort, None),  # gone in the middle
                    (b"p%d" % (step % 20), b"comes%d" % step, b"v"),
                    (b"new%d" % step, b"", b"v"),
                    (stays[step][0], stays[step][1], b"changed"),
                )
            assert all(told[partition, sort] == 1 for partition, sort, _ in stays)
            assert max(told.values()) == 1

        self.tell(story)

    def test_a_walk_goes_on_behind_a_place_that_is_gone(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*((b"p%d" % (n % 3), b"%02d" % n, b"v") for n in range(30)))
            whole = await trial.walk()
            for at in (0, 9, 10, 28, 29):
                partition, sort, value = whole[at]
                await trial.write((partition, sort, None))
                rest = await trial.engine.walk(trial.space(), (partition, sort), 100)
                assert list(rest) == whole[at + 1 :]
                await trial.write((partition, sort, value))

        self.tell(story)

    def test_a_walk_behind_what_no_walk_has_told_is_refused(self) -> None:
        async def story(trial: EngineTrial) -> None:
            places = [
                (b"p" * (PARTITION_BYTES_MAX + 1), b""),
                (b"", b"a"),
                (b"p", b"a" * (SORT_BYTES_MAX + 1)),
            ]
            await trial.write((b"q", b"", b"v"))
            for name in ("t", "no.such.space"):
                for after in places:
                    with pytest.raises(BadValue, match="after"):
                        await trial.engine.walk(trial.space(name), after, 10)
            told = await trial.engine.walk(trial.space(), (b"", b""), 10)
            assert list(told) == [(b"q", b"", b"v")], "the empty place is before the first"

        self.tell(story)

    def test_values_told_by_a_walk_are_those_that_are_there(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.write(*((b"p", b"%02d" % n, b"old") for n in range(30)))
            first = await trial.engine.walk(trial.space(), None, 10)
            await trial.write(*((b"p", b"%02d" % n, b"new") for n in range(30)))
            after = (first[-1][0], first[-1][1])
            second = await trial.engine.walk(trial.space(), after, 100)
            assert {value for _, _, value in second} == {b"new"}

        self.tell(story)
