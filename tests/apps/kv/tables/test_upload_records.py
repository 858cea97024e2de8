"""Totals: a part costs the same however many came before, and is counted once whatever happens."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.upload_records import (
    PartSum,
    UploadPart,
    UploadTotals,
    count_part,
    part_change,
    read_parts,
    rebuild_totals,
    sum_parts,
)
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.key_values import Upload
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, Crash, Crashing, Node, memory

BYTES_MAX = 1 << 40


def rows_of(number: int, count: int = 2) -> list[StreamRow]:
    return [StreamRow(b"p%05d" % number, b"%d" % sort, b"v") for sort in range(count)]


async def send(node: Node, number: int, rows: list[StreamRow] | None = None) -> Upload:
    data = stream_of(rows or rows_of(number))
    return await node.uploads.part("t", "u", number, data, sha256(data).digest(), ANYBODY)


async def begun(node: Node) -> Upload:
    return await node.uploads.begin("t", "u", "merge", ANYBODY)


def claim(number: int, *, stored: bool = False) -> UploadPart:
    return UploadPart(stored, number + 1, 10 * (number + 1), bytes(32))


async def claimed(engine: Any, number: int, *, stored: bool = False) -> UploadPart:
    part = claim(number, stored=stored)
    await engine.write([part_change("1", number, part)])
    return part


class Counting:
    """An engine that counts what it is asked, and the rows and bytes it tells."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.told_rows = 0

    def __getattr__(self, name: str) -> Any:
        made = getattr(self.inner, name)
        if name not in {"read", "scan", "swap", "write", "load", "walk"}:
            return made

        def noted(*what: Any, **how: Any) -> Any:
            self.calls.append(name)
            page = made(*what, **how)
            if name == "scan":
                self.told_rows += len(page.rows)
            return page

        return noted


async def test_a_part_asks_as_much_of_the_engine_however_many_came_before() -> None:
    # Each part listed all that came before it, twice: a million rows took the square of a thousand.
    engine = Counting(memory())
    node = Node(engine, HandClock())
    await begun(node)
    await send(node, 0)
    calls: list[list[str]] = []
    for number in range(1, 600):
        engine.calls = []
        await send(node, number)
        calls.append(engine.calls)
    assert engine.told_rows == 1  # by the first, which found no record yet
    assert all(one == calls[0] for one in calls)
    assert "scan" not in calls[0]


async def test_a_part_is_told_with_all_that_are_kept() -> None:
    node = Node(memory(), HandClock())
    await begun(node)
    state = await send(node, 2)
    assert (list(state.parts), state.rows) == ([2], 2)
    state = await send(node, 0, rows_of(0, 5))
    assert (list(state.parts), state.rows) == ([0, 2], 7)
    size = len(stream_of(rows_of(2))) + len(stream_of(rows_of(0, 5)))
    assert state.bytes == size
    again = await send(node, 2)
    assert again == state == await node.uploads.show("t", "u", ANYBODY) == await begun(node)


async def test_parts_of_two_dispatchers_at_once_are_all_counted() -> None:
    engine, clock = Crashing(memory(), later=True), HandClock()
    nodes = [Node(engine, clock, holder=str(at)) for at in range(2)]
    await begun(nodes[0])
    # Each is sent to both, so who claims it and who counts it are often two.
    await asyncio.gather(*[send(node, number) for number in range(30) for node in nodes])
    state = await send(nodes[1], 30)
    assert (list(state.parts), state.rows) == (list(range(31)), 62)
    assert state == await nodes[0].uploads.show("t", "u", ANYBODY)


async def test_no_upload_takes_more_than_it_may_and_the_same_part_again_is_no_more() -> None:
    size = len(stream_of(rows_of(0)))
    node = Node(memory(), HandClock(), TableSettings(upload_bytes_max=2 * size))
    await begun(node)
    await send(node, 0)
    await send(node, 1)
    await send(node, 1)
    with pytest.raises(BadValue, match="an upload takes"):
        await send(node, 2)
    assert list(await read_parts(node.engine, "1")) == [0, 1]  # what it claimed is free again
    assert len(await node.engine.walk("u/1", None, 100)) == 4  # and nothing of it was loaded
    with pytest.raises(Conflict, match="another part was sent"):
        await send(node, 1, rows_of(9))


async def test_what_was_begun_and_never_kept_counts_against_the_bound() -> None:
    size = len(stream_of(rows_of(0)))
    engine = Crashing(memory())
    node = Node(engine, HandClock(), TableSettings(upload_bytes_max=size))
    await begun(node)
    engine.calls_left = 3  # its claim, its count, and then its rows
    with pytest.raises(Crash):
        await send(node, 0)
    engine.calls_left = None
    with pytest.raises(BadValue, match="an upload takes"):
        await send(node, 1)
    state = await send(node, 0)
    assert (list(state.parts), state.rows) == ([0], 2)


@pytest.mark.parametrize("after", [False, True])
async def test_whatever_call_of_a_part_crashes_it_is_counted_once(after: bool) -> None:
    for call in range(1, 30):
        engine = Crashing(memory())
        engine.after = after
        node = Node(engine, HandClock())
        await begun(node)
        await send(node, 0)
        engine.calls_left = call
        crashed = False
        try:
            await send(node, 1)
        except Crash:
            crashed = True
        engine.calls_left = None
        other = Node(engine, node.clock, holder="b")
        truth = await sum_parts(engine, "1")
        assert (await begun(other)).rows == truth.stored.rows
        state = await send(other, 1)
        assert (list(state.parts), state.rows) == ([0, 1], 4)
        assert await count_part(
            engine, "1", 0, UploadPart(True, 9, 9, b""), bytes_max=0
        ) == await sum_parts(engine, "1")
        if not crashed:
            assert call > 4
            return
    raise AssertionError("it never came to its end")


async def test_who_goes_on_mends_what_a_kill_left_out() -> None:
    engine = memory()
    await claimed(engine, 0)
    await count_part(engine, "1", 0, claim(0), bytes_max=BYTES_MAX)
    await claimed(engine, 0, stored=True)  # and killed before it was counted as kept
    state = await rebuild_totals(engine, "1")
    assert state.stored == PartSum(1, 10, 1)
    part = await claimed(engine, 1)
    assert (await count_part(engine, "1", 1, part, bytes_max=BYTES_MAX)).stored == PartSum(1, 10, 1)


async def test_a_part_that_a_killed_dispatcher_kept_and_did_not_count_is_told() -> None:
    engine = Crashing(memory())
    node = Node(engine, HandClock())
    await begun(node)
    await send(node, 0)
    engine.calls_left = 5  # claimed, counted, loaded, kept, and then counted as kept
    with pytest.raises(Crash):
        await send(node, 1)
    engine.calls_left = None
    other = Node(engine, node.clock, holder="b")
    assert list((await begun(other)).parts) == [0, 1]
    state = await send(other, 2)
    assert (list(state.parts), state.rows) == ([0, 1, 2], 6)


async def test_mending_undoes_nothing_that_is_counted_meanwhile() -> None:
    engine = memory()
    await claimed(engine, 0)
    await count_part(engine, "1", 0, claim(0), bytes_max=BYTES_MAX)
    await claimed(engine, 0, stored=True)
    scan = engine.scan

    def counted_behind(*what: Any, **how: Any) -> Any:
        engine.scan = scan

        async def read_later() -> Any:
            page = scan(*what, **how)
            part = await claimed(engine, 1)
            await count_part(engine, "1", 1, part, bytes_max=BYTES_MAX)
            return page

        return read_later()

    engine.scan = counted_behind
    assert list((await rebuild_totals(engine, "1")).begun.numbers()) == [0]
    part = await claimed(engine, 2)
    totals = await count_part(engine, "1", 2, part, bytes_max=BYTES_MAX)
    assert list(totals.begun.numbers()) == [0, 1, 2]
    assert (await rebuild_totals(engine, "1")).stored.rows == 1


async def test_the_bound_holds_also_where_there_is_no_record_and_not_for_what_is_kept() -> None:
    engine = memory()
    await claimed(engine, 0, stored=True)
    part = await claimed(engine, 1)
    with pytest.raises(BadValue, match="an upload takes 25"):
        await count_part(engine, "1", 1, part, bytes_max=25)
    state = await count_part(engine, "1", 0, claim(0, stored=True), bytes_max=5)
    assert state.stored == PartSum(1, 10, 1)


async def test_a_part_that_is_kept_and_counted_changes_nothing() -> None:
    engine = Counting(memory())
    node = Node(engine, HandClock())
    await begun(node)
    await send(node, 0)
    engine.calls = []
    await send(node, 0)
    assert set(engine.calls) == {"read"}


async def test_an_upload_that_an_older_release_began_is_counted_from_its_parts() -> None:
    node = Node(memory(), HandClock(), TableSettings(upload_bytes_max=1_000))
    await begun(node)
    await node.engine.write(
        [
            part_change("1", 0, UploadPart(True, 3, 400, bytes(32))),
            part_change("1", 4, UploadPart(False, 5, 500, bytes(32))),
        ]
    )
    state = await send(node, 1)
    assert (list(state.parts), state.rows) == ([0, 1], 5)
    with pytest.raises(BadValue, match="an upload takes 1,000"):
        await send(node, 2, rows_of(2, 5))


async def test_those_who_count_at_once_try_again_and_not_for_ever() -> None:
    engine = memory()
    part = await claimed(engine, 0)
    swap, fails = engine.swap, 5

    async def beaten(change: Change, expected: bytes | None) -> bool:
        nonlocal fails
        fails -= 1
        return fails < 0 and await swap(change, expected)

    engine.swap = beaten
    totals = await count_part(engine, "1", 0, part, bytes_max=BYTES_MAX)
    assert totals == UploadTotals(PartSum(1, 10, 1), PartSum())
    fails = 1_000_000
    with pytest.raises(Unavailable, match="too many"):
        await count_part(engine, "1", 1, part, bytes_max=BYTES_MAX)


async def test_the_record_goes_with_the_upload_and_comes_not_back() -> None:
    engine = memory()
    node = Node(engine, HandClock())
    await begun(node)
    await send(node, 0)
    gate, waiting = asyncio.Event(), asyncio.Event()
    swap, swaps = engine.swap, 0

    async def slow(change: Change, expected: bytes | None) -> bool:
        nonlocal swaps
        if change.partition == b"s/1":
            waiting.set()
            await gate.wait()
        made: bool = await swap(change, expected)
        return made

    engine.swap = slow
    part = asyncio.ensure_future(send(node, 1))
    await waiting.wait()
    await node.uploads.abandon("t", "u", ANYBODY)
    await node.until_normal("t")
    assert engine.read("catalogue", [(b"s/1", b"")]) == [None]
    gate.set()
    with pytest.raises((Conflict, Unavailable)):
        await part
    await node.until_normal("t")
    assert engine.read("catalogue", [(b"s/1", b""), (b"p/1", bytes(4))]) == [None, None]


async def test_a_record_of_a_newer_release_is_refused() -> None:
    engine = memory()
    for record in (b"\x02" + bytes(40), b"\x01"):
        await engine.write([Change("catalogue", b"s/1", b"", record)])
        with pytest.raises(Unavailable, match="newer release"):
            await count_part(engine, "1", 0, claim(0), bytes_max=BYTES_MAX)


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=60))
def test_totals_are_what_a_list_of_the_parts_comes_to(sent: list[tuple[int, bool]]) -> None:
    async def story() -> None:
        engine = memory()
        parts: dict[int, UploadPart] = {}
        totals = UploadTotals()
        for number, keep in sent:
            stored = keep or (number in parts and parts[number].stored)
            parts[number] = await claimed(engine, number, stored=stored)
            totals = await count_part(engine, "1", number, parts[number], bytes_max=BYTES_MAX)
        assert totals == await sum_parts(engine, "1")
        for some, numbers in (
            (totals.begun, sorted(parts)),
            (totals.stored, sorted(number for number, one in parts.items() if one.stored)),
        ):
            assert list(some.numbers()) == numbers
            assert some.rows == sum(number + 1 for number in numbers)
            assert some.size_bytes == 10 * some.rows
            assert [number for number in range(301) if some.has(number)] == numbers

    asyncio.run(story())
