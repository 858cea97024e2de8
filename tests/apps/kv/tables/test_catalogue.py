"""Catalogue: what is known of tables while the part of the engine that has the book is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest

from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.key_values import Row, Write, WriteCondition
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, Crashing, Node, memory

SETTINGS = TableSettings(
    stale_us=10_000, look_wait_us=20_000, read_stale_us=1_000_000, write_timeout_us=50_000
)


class FarBook(Crashing):
    """An engine that has read the book when it is asked, and answers once the gate is open."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.gate.set()
        self.failing = False
        self.looks = 0

    def read(self, space: str, places: Any) -> Any:
        if space != "catalogue":
            return self.inner.read(space, places)
        self.looks += 1

        async def read_later() -> Any:
            rows = self.inner.read(space, places)
            await self.gate.wait()
            if self.failing:
                raise Unavailable("the shard of the book", "it is away")
            return rows

        return read_later()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def got(node: Node, key: bytes = b"p") -> bytes | None:
    rows = node.tables.read_one("t", key, b"", node.clock.now_us())
    row: Row | None = await rows if isinstance(rows, Awaitable) else rows
    return None if row is None else row.value


async def put(node: Node, key: bytes, value: bytes) -> None:
    await node.tables.write("t", [Write(key, b"", value)], node.clock.now_us())


async def uploaded(node: Node, mode: str = "merge") -> None:
    data = stream_of([StreamRow(b"p", b"", b"up")])
    digest = sha256(data).digest()
    await node.uploads.begin("t", "u", mode, ANYBODY)
    await node.uploads.part("t", "u", 0, data, digest, ANYBODY)
    await node.uploads.commit("t", "u", 1, 1, sha256(digest).digest(), ANYBODY)


async def behind() -> tuple[FarBook, Node, Node]:
    """An engine, a dispatcher that knows the table as it is normal, and another one."""
    clock, inner = HandClock(), memory()
    far = FarBook(inner)
    node, other = Node(far, clock, SETTINGS), Node(inner, clock, SETTINGS, holder="b")
    await put(other, b"p", b"old")
    await put(other, b"q", b"also")
    await node.catalogue.refresh()
    return far, node, other


@pytest.mark.parametrize("how", ["slow", "away"])
async def test_reads_go_on_for_a_while_when_the_book_cannot_be_had_and_writes_fail(
    how: str,
) -> None:
    far, node, other = await behind()
    if how == "slow":
        far.gate.clear()
    far.failing = how == "away"
    node.clock.advance(us=2 * SETTINGS.stale_us + 1)
    assert await got(node) == b"old"
    await put(other, b"p", b"newer")  # live writes are seen at once, also by an old view
    looks = far.looks
    for _ in range(50):
        assert await got(node) == b"newer"
    assert far.looks == looks  # it is known to be slow: nobody waits for it
    answer = node.tables.read("t", [(b"p", b""), (b"x", b"")], node.clock.now_us())
    rows = await answer if isinstance(answer, Awaitable) else answer
    assert [None if row is None else row.value for row in rows] == [b"newer", None]
    absent = WriteCondition(absent=True)
    for work in (
        lambda: put(node, b"p", b"mine"),
        lambda: node.tables.write_if("t", Write(b"x", b"", b"v"), absent, node.clock.now_us()),
        lambda: node.tables.remove("t", [(b"p", b"")], node.clock.now_us()),
        lambda: node.tables.remove("t", [(b"x", b"")], node.clock.now_us()),
        lambda: node.tables.expire("t", b"p", b"", 5, node.clock.now_us()),
    ):
        with pytest.raises(Unavailable):
            await work()
    assert await got(node) == b"newer"
    node.clock.advance(us=SETTINGS.read_stale_us)
    with pytest.raises(Unavailable):
        await got(node)
    far.failing = False
    far.gate.set()
    await node.catalogue.refresh()
    assert await got(node) == b"newer"


async def test_a_look_that_is_as_quick_as_usual_is_waited_for() -> None:
    far, node, other = await behind()
    await uploaded(other)
    node.clock.advance(us=SETTINGS.stale_us)
    looks = far.looks
    assert await got(node) == b"up"
    assert far.looks > looks


async def test_an_old_view_shows_no_row_that_is_newer_than_it_knows() -> None:
    far, node, other = await behind()
    far.gate.clear()
    await uploaded(other)
    node.clock.advance(us=SETTINGS.stale_us)
    assert await got(node) == b"old"  # the upload is beside, and this one does not know
    await other.until_normal("t")
    assert await got(node, b"q") == b"also"
    with pytest.raises(Unavailable):
        await got(node)
    far.gate.set()
    await node.catalogue.refresh()
    assert await got(node) == b"up"


async def test_a_table_that_is_not_normal_is_not_read_by_an_old_view() -> None:
    far, node, other = await behind()
    await uploaded(other)
    await node.catalogue.refresh()
    assert node.catalogue.view("t").phase != "normal"
    far.gate.clear()
    node.clock.advance(us=2 * SETTINGS.stale_us + 1)
    with pytest.raises(Unavailable):
        await got(node, b"q")


async def test_nothing_is_read_before_the_book_was_read_once() -> None:
    far = FarBook(memory())
    far.gate.clear()
    node = Node(far, HandClock(), SETTINGS)
    with pytest.raises(Unavailable):
        await got(node)


async def test_no_more_looks_than_one_budget_allows_are_waited_for() -> None:
    far, node, _ = await behind()

    class Slow:
        """Each look takes longer than what it brings is fresh."""

        async def wait(self) -> None:
            node.clock.advance(us=2 * SETTINGS.stale_us + 1)

    far.gate = Slow()  # type: ignore[assignment]
    node.clock.advance(us=2 * SETTINGS.stale_us + 1)
    looks = far.looks
    with pytest.raises(Unavailable, match="too slowly"):
        await node.catalogue.current("t")
    assert far.looks == looks + 1


async def test_who_asks_for_the_book_as_of_now_is_not_told_an_older_one() -> None:
    far, node, other = await behind()
    far.gate.clear()
    before = asyncio.ensure_future(node.catalogue.refresh())
    await turns()
    await other.uploads.begin("t", "u", "merge", ANYBODY)
    looks = far.looks
    shows = [asyncio.ensure_future(node.uploads.show("t", "u", ANYBODY)) for _ in range(10)]
    await turns()
    far.gate.set()
    await before
    assert [(await show).state for show in shows] == ["open"] * 10
    assert far.looks == looks + 1  # they share one


async def test_a_look_that_fails_is_the_failure_of_those_only_who_asked_before_it_began() -> None:
    far, node, _ = await behind()
    far.gate.clear()
    far.failing = True
    before = asyncio.ensure_future(node.catalogue.refresh())
    await turns()
    after = asyncio.ensure_future(node.catalogue.refresh())
    await turns()
    far.gate.set()
    with pytest.raises(Unavailable):
        await before
    far.failing = False
    await after


async def test_following_outlives_any_failure_and_tells_of_it() -> None:
    engine, clock = memory(), HandClock()
    node = Node(engine, clock, SETTINGS)
    read, failing = engine.read, True

    def broken(*what: Any) -> Any:
        if failing:
            raise ZeroDivisionError("of a kind that nobody thought of")
        return read(*what)

    engine.read = broken
    task = asyncio.ensure_future(node.catalogue.follow())
    async with asyncio.timeout(60):
        while node.catalogue.failures.count < 3:
            await asyncio.sleep(0.001)
        failing = False
        while node.catalogue.fresh_until_us < 0:
            await asyncio.sleep(0.001)
    assert not task.done()
    assert "nobody thought of" in node.catalogue.failures.last_error
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_the_bounds_of_what_is_old_are_checked() -> None:
    for wrong in ({"look_wait_us": 0}, {"read_stale_us": -1}, {"load_pause_us": -1}):
        with pytest.raises(BadValue):
            TableSettings(**wrong)
    assert TableSettings(read_stale_us=0).read_stale_us == 0


async def test_who_writes_a_table_first_reads_the_book_once_for_all_who_come_meanwhile() -> None:
    """Each behind the other, sixty writers of a new table waited for a second and more."""
    engine = memory()
    node = Node(engine, HandClock())
    await node.catalogue.refresh()
    reads, read = [0], engine.read

    async def counted(*what: Any) -> Any:
        reads[0] += 1
        await asyncio.sleep(0)
        return read(*what)

    engine.read = counted
    await asyncio.gather(*(node.catalogue.create_table("new") for _ in range(60)))
    assert reads[0] <= 4
