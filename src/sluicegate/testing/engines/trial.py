"""Trial: an engine under test, and how each of its answers is compared with one in memory.

Whatever is asked of the engine is asked of a `MemoryEngine` beside it, and the two must say the
same. What engines may differ in (the order of a walk, what was scanned) is compared as far as the
contract says it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from inspect import Signature, isawaitable, signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, final

from sluicegate.contracts.checks import MaybeAwaitable
from sluicegate.contracts.engine import (
    VALUE_BYTES_MAX,
    Change,
    Engine,
    EnginePage,
    Entry,
    KeyRange,
    Place,
)
from sluicegate.stores.engines.memory import MemoryEngine
from sluicegate.system import SystemChance

T = TypeVar("T")
P = ParamSpec("P")
BYTES_MAX = 1 << 30


async def resolve(answer: MaybeAwaitable[T]) -> T:
    """The answer, whether it came at once or comes later."""
    if isawaitable(answer):
        return await cast("Awaitable[T]", answer)
    return answer


class EngineChecks:
    """What a subclass defines of its engine; only `open_engine` is required."""

    value_bytes_max = VALUE_BYTES_MAX  # of the largest value that is tried
    random_steps = 80  # of each sequence of random operations

    def open_engine(self) -> Engine:
        """An engine; it is opened on the event loop that will use it, and closed by the suite."""
        raise NotImplementedError("say how your engine is opened: def open_engine(self)")

    def loop(self) -> asyncio.AbstractEventLoop:
        """A new event loop to run a check on."""
        return asyncio.new_event_loop()

    def run(self, check: Callable[[EngineTrial], Coroutine[Any, Any, None]]) -> None:
        """Run a check with an engine that is opened for it, on an event loop of its own."""

        async def run_and_close() -> None:
            trial = EngineTrial(self)
            try:
                await check(trial)
                await trial.clean()
            finally:
                await asyncio.gather(*(engine.close() for engine in (trial.engine, *trial.others)))

        with asyncio.Runner(loop_factory=self.loop) as runner:
            runner.run(run_and_close())


def engine_check(
    check: Callable[Concatenate[Any, EngineTrial, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, P], None]:
    """Make a test of a coroutine method that takes a trial and what the test is parametrized by."""

    @wraps(check)
    def test(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.run(lambda trial: check(self, trial, *args, **kwargs))

    # pytest takes what is left in the signature for fixtures and parameters.
    names = signature(check).parameters
    test.__signature__ = Signature([names[name] for name in names if name != "trial"])  # type: ignore[attr-defined]
    del test.__wrapped__
    return test


@final
class EngineTrial:
    """An engine and an oracle beside it: every call is made on both."""

    def __init__(self, stage: EngineChecks) -> None:
        self.stage = stage
        self.engine = stage.open_engine()
        self.others: list[Engine] = []
        self.oracle = MemoryEngine()
        self._spaces: set[str] = set()
        # An engine that lasts may still hold what it was told in the last run.
        self._run = f"{int(SystemChance().draw() * 2**48):012x}"

    def space(self, name: str = "t") -> str:
        """A space that was never used before this story."""
        space = f"{name}.{self._run}"
        self._spaces.add(space)
        return space

    async def clean(self) -> None:
        """Drop what the story has written."""
        await asyncio.gather(*(self.engine.drop(space) for space in sorted(self._spaces)))

    def open_other(self) -> Engine:
        """Open the same place a second time; it is closed with the first."""
        self.others.append(self.stage.open_engine())
        return self.others[-1]

    async def reopen(self) -> None:
        """Close the engine, and open it again."""
        await self.engine.close()
        self.engine = self.stage.open_engine()

    async def write(self, *rows: tuple[bytes, bytes, bytes | None], name: str = "t") -> None:
        """Write rows of (partition, sort key, value) in one call."""
        await self.change([Change(self.space(name), *row) for row in rows])

    async def change(self, changes: Sequence[Change]) -> None:
        """Make changes in one call."""
        await self.engine.write(changes)
        await self.oracle.write(changes)

    async def load(self, entries: Sequence[Entry], name: str = "t") -> None:
        """Load entries."""
        space = self.space(name)
        await self.engine.load(space, entries)
        await self.oracle.load(space, entries)

    async def swap(
        self,
        partition: bytes,
        sort: bytes,
        value: bytes | None,
        expected: bytes | None,
        name: str = "t",
    ) -> bool:
        """Swap; the engine must decide as the oracle does."""
        change = Change(self.space(name), partition, sort, value)
        swapped = await self.engine.swap(change, expected)
        assert swapped is await self.oracle.swap(change, expected), (change, expected)
        return swapped

    async def drop(self, name: str = "t") -> None:
        """Drop a space."""
        await self.engine.drop(self.space(name))
        await self.oracle.drop(self.space(name))

    async def read(self, *places: Place, name: str = "t") -> list[bytes | None]:
        """Read; both must return the same."""
        space = self.space(name)
        values = list(await resolve(self.engine.read(space, places)))
        assert values == list(self.oracle.read(space, places))
        return values

    async def scan(
        self,
        partition: bytes,
        *,
        begin: bytes = b"",
        end: bytes | None = None,
        reverse: bool = False,
        rows_max: int = 1_000,
        bytes_max: int = BYTES_MAX,
        name: str = "t",
    ) -> EnginePage:
        """Scan; both must return the same."""
        space = self.space(name)
        span = KeyRange(begin, end, reverse, rows_max, bytes_max)
        page, right = [
            await resolve(engine.scan(space, partition, span))
            for engine in (self.engine, self.oracle)
        ]
        return check_page(page, right)

    async def walk(self, rows_max: int = 100, name: str = "t") -> list[Entry]:
        """Walk the whole space; both must return the same entries, in any order."""
        entries = await walk_all(self.engine, self.space(name), rows_max)
        right = await walk_all(self.oracle, self.space(name), rows_max)
        assert sorted(entries) == sorted(right)
        return entries

    async def compare(self, name: str = "t") -> None:
        """All that is there, by walk, by scans of every partition and by reads."""
        entries = await self.walk(name=name)
        partitions = sorted({partition for partition, _, _ in entries})
        await asyncio.gather(*(self.scan(partition, name=name) for partition in partitions))
        await self.read(*((entry[0], entry[1]) for entry in entries), name=name)


def check_page(page: EnginePage, right: EnginePage) -> EnginePage:
    """Return the page if it is the right one."""
    assert [tuple(row) for row in page.rows] == [tuple(row) for row in right.rows]
    assert page.more is right.more, "whether there are more rows"
    assert page.rows_scanned >= len(page.rows), "what was told was looked at"
    told_bytes = sum(len(sort) + len(value) for sort, value in page.rows)
    assert page.bytes_scanned >= told_bytes, "what was told was looked at"
    return page


async def walk_all(engine: Engine, space: str, rows_max: int) -> list[Entry]:
    """A whole walk, in the engine's own order."""
    entries: list[Entry] = []
    after: Place | None = None
    while page := await engine.walk(space, after, rows_max):
        assert len(page) <= rows_max, "more than was asked for"
        entries += page
        after = (page[-1][0], page[-1][1])
    return entries
