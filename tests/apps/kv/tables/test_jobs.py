"""Flights: what is folded or swept goes in flights of a bounded size, each row judged alone."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest

from sluicegate.apps.kv.tables.jobs import swap_all
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.key_values import Write
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, Node, memory


def flying(engine: Any, space: str) -> list[int]:
    """How many swaps in this space are on their way each time that one is begun."""
    in_flight: list[int] = []
    swap, now = engine.swap, 0

    async def noted(change: Change, expected: bytes | None) -> bool:
        nonlocal now
        if change.space != space:
            made: bool = await swap(change, expected)
            return made
        now += 1
        in_flight.append(now)
        await asyncio.sleep(0)
        try:
            made = await swap(change, expected)
        finally:
            now -= 1
        return made

    engine.swap = noted
    return in_flight


async def expired(node: Node, count: int) -> None:
    writes = [Write(b"p%03d" % at, b"", b"v", 10) for at in range(count)]
    await node.tables.write("t", writes, node.clock.now_us())
    node.clock.advance(us=10)
    assert await node.keeper.sweep.take()


async def test_what_expired_is_swept_in_flights_and_not_one_by_one() -> None:
    # One at a time each waited for a commit of its own: 500 turns of the disk a step.
    node = Node(memory(), HandClock(), TableSettings(sweep_rows=100, sweep_at_once=40))
    await expired(node, 90)
    in_flight = flying(node.engine, "t/t")
    await node.keeper.sweep.step()
    assert node.keeper.sweep.removed == 90
    assert in_flight == [*range(1, 41), *range(1, 41), *range(1, 11)]


async def test_a_flight_of_the_sweep_takes_no_row_that_was_written_meanwhile() -> None:
    node = Node(memory(), HandClock(), TableSettings(sweep_rows=100, sweep_at_once=40))
    await expired(node, 90)
    swap, due = node.engine.swap, [True]

    async def written_before(change: Change, expected: bytes | None) -> bool:
        if due and change.space == "t/t":
            due.clear()
            await node.tables.write("t", [Write(b"p007", b"", b"new")], node.clock.now_us())
        made: bool = await swap(change, expected)
        return made

    node.engine.swap = written_before  # type: ignore[method-assign]
    await node.keeper.sweep.step()
    assert node.keeper.sweep.removed == 89
    assert [entry[0] for entry in await node.engine.walk("t/t", None, 100)] == [b"p007"]


async def test_the_sweep_takes_tombstones_and_leaves_what_lives() -> None:
    node = Node(memory(), HandClock())
    await uploaded(node, 3)
    writes = [Write(b"p001", b"", None), Write(b"p002", b"", b"v", 60_000_000)]
    await node.tables.write("t", writes, node.clock.now_us())
    await node.until_normal("t")
    assert await node.keeper.sweep.take()
    await node.keeper.sweep.step()
    assert node.keeper.sweep.removed == 1
    assert [entry[0] for entry in await node.engine.walk("t/t", None, 9)] == [b"p000", b"p002"]


async def test_the_sweep_looks_at_the_table_before_each_flight() -> None:
    node = Node(memory(), HandClock(), TableSettings(sweep_rows=100, sweep_at_once=40))
    await expired(node, 90)
    swap, due = node.engine.swap, [True]

    async def sealed(change: Change, expected: bytes | None) -> bool:
        if due and change.space == "t/t":
            due.clear()
            await uploaded(node, 3, wait=False)
        made: bool = await swap(change, expected)
        return made

    node.engine.swap = sealed  # type: ignore[method-assign]
    await node.keeper.sweep.step()
    assert node.keeper.sweep.removed == 40


async def uploaded(node: Node, count: int, *, wait: bool = True) -> None:
    data = stream_of([StreamRow(b"p%03d" % at, b"", b"up") for at in range(count)])
    digest = sha256(data).digest()
    await node.uploads.begin("t", "u", "merge", ANYBODY)
    await node.uploads.part("t", "u", 0, data, digest, ANYBODY)
    work = node.uploads.commit("t", "u", 1, count, sha256(digest).digest(), ANYBODY)
    if wait:
        await work
        return
    commit = asyncio.ensure_future(work)
    while node.catalogue.view("t").phase == "normal":
        await asyncio.sleep(0)
    commit.cancel()


async def test_a_fold_goes_in_flights_of_a_bounded_size() -> None:
    node = Node(memory(), HandClock(), TableSettings(fold_rows=100, fold_at_once=40))
    await uploaded(node, 90)
    in_flight = flying(node.engine, "t/t")
    await node.until_normal("t")
    assert in_flight == [*range(1, 41), *range(1, 41), *range(1, 11)]
    assert len(await node.engine.walk("t/t", None, 100)) == 90


async def test_a_flight_ends_when_all_have_and_tells_the_first_failure() -> None:
    engine = memory()
    swap, landed = engine.swap, []

    async def failing(change: Change, expected: bytes | None) -> bool:
        number = int(change.partition)
        for _ in range(number):
            await asyncio.sleep(0)
        if number in (2, 4):
            raise Unavailable("the engine", f"away for {number}")
        made: bool = await swap(change, expected)
        landed.append(number)
        return made

    engine.swap = failing
    swaps = [(Change("t/t", b"%d" % at, b"", b"v"), None) for at in range(7)]
    with pytest.raises(Unavailable, match="away for 2"):
        await swap_all(engine, swaps)
    assert landed == [0, 1, 3, 5, 6]
    engine.swap = swap
    assert await swap_all(engine, swaps) == [False, False, True, False, True, False, False]
    assert await swap_all(engine, []) == []


@pytest.mark.parametrize("pause_us", [0, 1_000])
async def test_parts_at_once_take_turns_with_a_pause_between(pause_us: int) -> None:
    # They went on together behind each commit, and whoever read waited for all of them.
    node = Node(memory(), HandClock(), TableSettings(load_pause_us=pause_us))
    await node.uploads.begin("t", "u", "merge", ANYBODY)
    load, turn, turns, inside = node.engine.load, 0, [], 0

    async def noted(space: str, entries: Any) -> None:
        turns.append((turn, len(entries)))
        await load(space, entries)

    node.engine.load = noted  # type: ignore[method-assign]
    paused: list[float] = []
    pause = node.pause

    async def counted(pause_s: float) -> None:
        nonlocal turn, inside
        paused.append(pause_s)
        inside += 1
        assert inside == 1  # the others wait for it
        await pause(pause_s)
        inside -= 1
        turn += 1

    node.uploads._pause = counted
    works = []
    for number in range(4):
        rows = [StreamRow(b"p%d" % number, b"%04d" % at, b"v") for at in range(300)]
        data = stream_of(rows)
        digest = sha256(data).digest()
        works.append(node.uploads.part("t", "u", number, data, digest, ANYBODY))
    await asyncio.gather(*works)
    assert len({at for at, _ in turns}) == len(turns) == 4 * 3  # each in a turn of its own
    assert [count for _, count in turns if count > 128] == []
    assert set(paused) == {pause_us / 1e6}
