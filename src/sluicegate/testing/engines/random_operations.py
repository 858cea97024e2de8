"""Random operations: long random sequences on the engine and on one in memory, which must agree."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

from sluicegate.contracts.engine import Change
from sluicegate.testing.chance import SeededChance
from sluicegate.testing.engines.trial import EngineChecks, EngineTrial, engine_check

T = TypeVar("T")
SPACES: Final = ("t", "t2")
PARTITIONS: Final = (b"a", b"b", b"a\0", b"\xff")
SORTS: Final = (b"", b"\0", b"a", b"aa", b"a\0", b"b", b"\xff", b"\xff\xff")
VALUES: Final = (b"", b"1", b"2", b"\0", b"x" * 2_000, None)


class _Drawn:
    def __init__(self, seed: int) -> None:
        self._chance = SeededChance(seed)

    def below(self, count: int) -> int:
        return int(self._chance.draw() * count)

    def of(self, choice: Sequence[T]) -> T:
        return choice[self.below(len(choice))]


class RandomChecks(EngineChecks):
    """Checks of everything, one after the other."""

    @pytest.mark.parametrize("seed", range(4))
    @engine_check
    async def test_a_long_story_ends_as_it_does_in_memory(
        self, trial: EngineTrial, seed: int
    ) -> None:
        drawn = _Drawn(seed)
        for _ in range(self.random_steps):
            await _step(trial, drawn)
        for name in SPACES:
            await trial.compare(name)


async def _step(trial: EngineTrial, drawn: _Drawn) -> None:
    name, partition = drawn.of(SPACES), drawn.of(PARTITIONS)
    what = drawn.below(100)
    if what < 35:
        await trial.change(
            [
                Change(
                    trial.space(drawn.of(SPACES)),
                    drawn.of(PARTITIONS),
                    drawn.of(SORTS),
                    drawn.of(VALUES),
                )
                for _ in range(1 + drawn.below(8))
            ]
        )
    elif what < 55:
        sort = drawn.of(SORTS)
        (now,) = await trial.read((partition, sort), name=name)
        expected = now if drawn.below(2) else drawn.of(VALUES)
        await trial.swap(partition, sort, drawn.of(VALUES), expected, name)
    elif what < 80:
        await trial.scan(
            partition,
            begin=drawn.of((b"", *SORTS)),
            end=drawn.of((None, None, *SORTS)),
            reverse=bool(drawn.below(2)),
            rows_max=1 + drawn.below(9),
            bytes_max=drawn.of((1, 4, 2_000, 1 << 20)),
            name=name,
        )
    elif what < 90:
        await trial.read(*((partition, sort) for sort in SORTS), name=name)
    elif what < 94:
        await trial.walk(1 + drawn.below(20), name)
    elif what < 97:
        entries = {(drawn.of(PARTITIONS), drawn.of(SORTS)): b"%d" % n for n in range(20)}
        await trial.load([(*place, value) for place, value in entries.items()], name)
    else:
        await trial.drop(name)
