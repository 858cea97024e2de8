"""Edges: spaces are kept apart and dropped whole; a closed engine and bad values are refused."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sluicegate.contracts.engine import Change, Engine, EnginePage, KeyRange
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.testing.engines.trial import (
    BYTES_MAX,
    EngineChecks,
    EngineTrial,
    engine_check,
    resolve,
)


async def scan(
    engine: Engine, space: str, partition: bytes = b"p", rows_max: int = 1
) -> EnginePage:
    """The first rows."""
    span = KeyRange(rows_max=rows_max, bytes_max=BYTES_MAX)
    return await resolve(engine.scan(space, partition, span))


async def read(engine: Engine, space: str, partition: bytes = b"p", sort: bytes = b"") -> object:
    """One value."""
    return await resolve(engine.read(space, [(partition, sort)]))


OPERATIONS: dict[str, Callable[[Engine, str], Awaitable[object]]] = {
    "read": read,
    "scan": scan,
    "write": lambda engine, space: engine.write([Change(space, b"p", b"", b"v")]),
    "swap": lambda engine, space: engine.swap(Change(space, b"p", b"", b"v"), None),
    "load": lambda engine, space: engine.load(space, [(b"p", b"", b"v")]),
    "walk": lambda engine, space: engine.walk(space, None, 1),
    "drop": lambda engine, space: engine.drop(space),
}
WRONG: dict[str, Callable[[Engine, str], Awaitable[object]]] = {
    "a read of no partition": lambda engine, space: read(engine, space, b""),
    "a read of a long partition": lambda engine, space: read(engine, space, b"p" * 241),
    "a read of a long sort key": lambda engine, space: read(engine, space, b"p", b"s" * 241),
    "a scan of no partition": lambda engine, space: scan(engine, space, b""),
    "a scan of no rows": lambda engine, space: scan(engine, space, rows_max=0),
    "a walk of no rows": lambda engine, space: engine.walk(space, None, 0),
    "a write of no partition": lambda engine, space: engine.write([Change(space, b"", b"", b"v")]),
    "a write of a long sort key": lambda engine, space: engine.write(
        [Change(space, b"p", b"s" * 241, b"v")]
    ),
    "a swap of a long partition": lambda engine, space: engine.swap(
        Change(space, b"p" * 241, b"", b"v"), None
    ),
    "a load of no partition": lambda engine, space: engine.load(space, [(b"", b"", b"v")]),
    "a value that is too large": lambda engine, space: engine.write(
        [Change(space, b"p", b"", b"v" * ((16 << 20) + 1))]
    ),
    "a space of no name": lambda engine, _: engine.write([Change("", b"p", b"", b"v")]),
    "a space in capitals": lambda engine, _: engine.write([Change("Tables", b"p", b"", b"v")]),
    "a space of a long name": lambda engine, _: engine.drop("x" * 121),
}


class EdgeChecks(EngineChecks):
    """Checks of a closed engine and of bad values."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    @engine_check
    async def test_a_closed_engine_is_unavailable(self, trial: EngineTrial, operation: str) -> None:
        space = trial.space()
        await trial.write((b"p", b"", b"v"))
        await trial.clean()
        await trial.engine.close()
        with pytest.raises(Unavailable):
            await OPERATIONS[operation](trial.engine, space)
        trial.engine = self.open_engine()

    @engine_check
    async def test_an_engine_that_was_never_asked_can_be_closed_twice(
        self, trial: EngineTrial
    ) -> None:
        await trial.engine.close()
        await trial.engine.close()
        trial.engine = self.open_engine()

    @pytest.mark.parametrize("wrong", WRONG)
    @engine_check
    async def test_what_no_engine_keeps_is_a_bad_value(
        self, trial: EngineTrial, wrong: str
    ) -> None:
        with pytest.raises(BadValue):
            await WRONG[wrong](trial.engine, trial.space())

    @engine_check
    async def test_an_engine_says_its_name_and_what_an_acknowledgement_means(
        self, trial: EngineTrial
    ) -> None:
        assert trial.engine.name
        assert len(trial.engine.durability) > 20, "one sentence"
        assert isinstance(trial.engine.shared, bool)


class SpaceChecks(EngineChecks):
    """Checks of `drop`, and of names."""

    @engine_check
    async def test_spaces_of_names_alike_are_kept_apart(self, trial: EngineTrial) -> None:
        names = ("t", "t/", "t/1", "t-1", "t_1", "t.1", "0", "x" * 100)
        for name in names:
            await trial.write((b"p", b"s", name.encode()), name=name)
        for name in names:
            assert await trial.read((b"p", b"s"), name=name) == [name.encode()]
            assert len(await trial.walk(name=name)) == 1

    @engine_check
    async def test_a_dropped_space_is_empty_and_the_others_are_not(
        self, trial: EngineTrial
    ) -> None:
        for name in ("t", "other"):
            await trial.write(*((b"p%d" % n, b"%d" % n, b"v") for n in range(50)), name=name)
        await trial.drop()
        await trial.compare()
        assert await trial.walk() == []
        assert await trial.read((b"p1", b"1")) == [None]
        assert not (await trial.scan(b"p1")).rows
        assert len(await trial.walk(name="other")) == 50

    @engine_check
    async def test_a_space_that_was_never_written_can_be_dropped_and_one_dropped_again(
        self, trial: EngineTrial
    ) -> None:
        await trial.drop()
        await trial.write((b"p", b"", b"v"))
        await trial.drop()
        await trial.drop()
        assert await trial.walk() == []

    @engine_check
    async def test_a_dropped_space_begins_anew(self, trial: EngineTrial) -> None:
        for turn in range(3):
            rows = [(b"p", b"%d-%d" % (turn, n), b"%d" % turn) for n in range(20)]
            await trial.write(*rows, (b"p", b"same", b"%d" % turn))
            assert len(await trial.walk()) == 21
            await trial.compare()
            await trial.drop()
            assert await trial.read((b"p", b"same")) == [None]
        assert await trial.swap(b"p", b"same", b"first", None)
        await trial.compare()

    @engine_check
    async def test_a_large_space_is_dropped_at_once_for_whoever_reads(
        self, trial: EngineTrial
    ) -> None:
        await trial.load([(b"p%d" % (n % 50), b"%06d" % n, b"v" * 50) for n in range(5_000)])
        await trial.drop()
        assert await trial.walk() == []
        await trial.write((b"p1", b"new", b"v"))
        await trial.compare()

    @engine_check
    async def test_a_shard_is_told_for_any_partition_and_always_the_same(
        self, trial: EngineTrial
    ) -> None:
        space = trial.space()
        await trial.change([Change(space, b"p", b"", b"v")])
        for partition in (b"p", b"\xff", b"q" * 240):
            shard = trial.engine.shard_of(space, partition)
            assert isinstance(shard, str)
            assert shard == trial.engine.shard_of(space, partition)
