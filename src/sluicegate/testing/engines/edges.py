"""Ends: a closed engine, and what no engine keeps."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sluicegate.contracts.engine import Change, Engine, EnginePage
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.testing.engines.trial import BYTES_MAX, EngineChecks, EngineTrial, resolve


async def scan(
    engine: Engine, space: str, partition: bytes = b"p", rows_max: int = 1
) -> EnginePage:
    """The first rows."""
    return await resolve(
        engine.scan(
            space,
            partition,
            begin=b"",
            end=None,
            reverse=False,
            rows_max=rows_max,
            bytes_max=BYTES_MAX,
        )
    )


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
    """Stories of what an engine says when it can no more, or never could."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_closed_engine_is_unavailable(self, operation: str) -> None:
        async def story(trial: EngineTrial) -> None:
            space = trial.space()
            await trial.write((b"p", b"", b"v"))
            await trial.clean()
            await trial.engine.close()
            with pytest.raises(Unavailable):
                await OPERATIONS[operation](trial.engine, space)
            trial.engine = self.open_engine()

        self.tell(story)

    def test_an_engine_that_was_never_asked_can_be_closed_twice(self) -> None:
        async def story(trial: EngineTrial) -> None:
            await trial.engine.close()
            await trial.engine.close()
            trial.engine = self.open_engine()

        self.tell(story)

    @pytest.mark.parametrize("wrong", WRONG)
    def test_what_no_engine_keeps_is_a_bad_value(self, wrong: str) -> None:
        async def story(trial: EngineTrial) -> None:
            with pytest.raises(BadValue):
                await WRONG[wrong](trial.engine, trial.space())

        self.tell(story)

    def test_an_engine_says_its_name_and_what_an_acknowledgement_means(self) -> None:
        async def story(trial: EngineTrial) -> None:
            assert trial.engine.name
            assert len(trial.engine.durability) > 20, "one sentence"
            assert isinstance(trial.engine.shared, bool)

        self.tell(story)
