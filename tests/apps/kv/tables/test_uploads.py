"""Uploads: loaded beside what is live, then visible at once, whatever crashes on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from hashlib import sha256
from typing import Any

import pytest

from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.contracts.access import Identity, TableGrant
from sluicegate.contracts.engine import KeyRange
from sluicegate.contracts.errors import BadValue, Conflict, Forbidden, Unavailable
from sluicegate.contracts.key_values import (
    CallContext,
    Row,
    Upload,
    Write,
    WriteCondition,
    tag_of,
)
from sluicegate.testing import START_US, HandClock
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, SETTINGS, Crash, Crashing, Node, memory

PARTS = [
    [StreamRow(b"p", b"%d" % sort, b"up%d" % sort) for sort in range(3)],
    [StreamRow(b"p", b"%d" % sort, b"up%d" % sort) for sort in range(3, 6)],
]
ALL = {b"%d" % sort: b"up%d" % sort for sort in range(6)}


def digest(parts: list[list[StreamRow]]) -> bytes:
    return sha256(b"".join(sha256(stream_of(part)).digest() for part in parts)).digest()


async def send(node: Node, number: int, part: list[StreamRow], name: str = "u") -> Upload:
    data = stream_of(part)
    return await node.uploads.part("t", name, number, data, sha256(data).digest(), ANYBODY)


async def commit(node: Node, parts: list[list[StreamRow]] = PARTS, name: str = "u") -> Upload:
    rows = sum(map(len, parts))
    return await node.uploads.commit("t", name, len(parts), rows, digest(parts), ANYBODY)


async def loaded(node: Node, mode: str = "merge", parts: list[list[StreamRow]] = PARTS) -> None:
    await node.uploads.begin("t", "u", mode, ANYBODY)
    for number, part in enumerate(parts):
        await send(node, number, part)


async def one(node: Node, sort: bytes, partition: bytes = b"p") -> Row | None:
    answer = node.tables.read_one("t", partition, sort, node.clock.now_us())
    return await answer if isinstance(answer, Awaitable) else answer


async def read_partition(node: Node) -> dict[bytes, bytes]:
    """Everything in the partition, by a scan; point reads and a walk must say the same."""
    now_us = node.clock.now_us()
    page = await node.tables.scan("t", b"p", KeyRange(), now_us)
    back = await node.tables.scan("t", b"p", KeyRange(reverse=True), now_us)
    assert [row.sort for row in page.rows] == [row.sort for row in reversed(back.rows)]
    values = {row.sort: row.value for row in page.rows}
    for sort in [b"%d" % sort for sort in range(10)]:
        row = await one(node, sort)
        assert (None if row is None else row.value) == values.get(sort)
    walked: set[Any] = set()
    after = None
    while True:
        step = await node.tables.walk("t", after, 2, now_us)
        walked |= set(step.places)
        after = step.after
        if after is None:
            break
    assert walked == {(b"p", sort) for sort in values}
    return values


async def put(node: Node, sort: bytes, value: bytes | None, ttl_us: int = 0) -> None:
    await node.tables.write("t", [Write(b"p", sort, value, ttl_us)], node.clock.now_us())


async def test_an_upload_is_invisible_until_it_is_committed_and_then_there_for_good() -> None:
    node = Node(memory(), HandClock())
    await put(node, b"0", b"old")
    await put(node, b"9", b"other")
    await loaded(node)
    assert await read_partition(node) == {b"0": b"old", b"9": b"other"}
    upload = await commit(node)
    assert (upload.state, upload.rows, list(upload.parts)) == ("folding", 6, [0, 1])
    assert await read_partition(node) == {**ALL, b"9": b"other"}
    await node.until_normal("t")
    assert await read_partition(node) == {**ALL, b"9": b"other"}
    assert (await node.uploads.show("t", "u", ANYBODY)).state == "done"
    assert await node.engine.walk("u/1", None, 10) == ()  # its space is gone


async def test_mode_replace_leaves_nothing_of_before() -> None:
    node = Node(memory(), HandClock())
    await put(node, b"0", b"old")
    await put(node, b"9", b"other")
    await loaded(node, "replace")
    await commit(node)
    assert await read_partition(node) == ALL
    await put(node, b"8", b"new")
    await put(node, b"1", None)
    left = {**ALL, b"8": b"new"}
    del left[b"1"]
    assert await read_partition(node) == left
    await node.until_normal("t")
    assert await read_partition(node) == left
    assert len(await node.engine.walk("t/t", None, 100)) == len(left) + 1  # and a tombstone


async def test_a_deleted_row_does_not_come_back_when_the_upload_is_folded() -> None:
    node = Node(memory(), HandClock())
    await loaded(node)
    await commit(node)
    await put(node, b"3", None)
    await put(node, b"4", b"live")
    await node.until_normal("t")
    assert b"3" not in await read_partition(node)
    assert (await read_partition(node))[b"4"] == b"live"


async def test_a_live_row_that_expires_hides_the_upload_s() -> None:
    node = Node(memory(), HandClock())
    await loaded(node)
    await commit(node)
    await put(node, b"3", b"brief", 10)
    node.clock.advance(us=10)
    assert await one(node, b"3") is None
    await node.until_normal("t")
    assert await one(node, b"3") is None


async def test_an_uploaded_row_that_expires_hides_the_older() -> None:
    node = Node(memory(), HandClock())
    await put(node, b"0", b"old")
    await loaded(node, parts=[[StreamRow(b"p", b"0", b"brief", 60_000_000)]])
    await commit(node, [[StreamRow(b"p", b"0", b"brief", 60_000_000)]])
    assert await one(node, b"0") == Row(b"0", b"brief", START_US + 60_000_000)
    node.clock.advance(s=60)
    assert await one(node, b"0") is None
    await node.until_normal("t")
    assert await one(node, b"0") is None


async def test_conditional_writes_judge_what_can_be_seen_while_layered() -> None:
    node = Node(memory(), HandClock())
    await put(node, b"0", b"old")
    await loaded(node)
    await commit(node)
    now_us = node.clock.now_us()
    write = Write(b"p", b"0", b"w")
    stale = WriteCondition(tag=tag_of(b"old"))
    assert not (await node.tables.write_if("t", write, stale, now_us)).done
    result = await node.tables.write_if("t", write, WriteCondition(tag=tag_of(b"up0")), now_us)
    assert result.done
    result = await node.tables.write_if("t", write, WriteCondition(absent=True), now_us)
    assert result == (False, Row(b"0", b"w"))
    assert await node.tables.expire("t", b"p", b"1", 5, now_us)
    assert await one(node, b"1") == Row(b"1", b"up1", now_us + 5)
    assert await node.tables.remove("t", [(b"p", b"2"), (b"p", b"77")], now_us) == 1
    await node.until_normal("t")
    assert await one(node, b"1") is None
    assert await one(node, b"2") is None


async def test_parts_may_come_twice_in_any_order_and_from_anybody() -> None:
    engine, clock = memory(), HandClock()
    first, second = Node(engine, clock), Node(engine, clock, holder="b")
    await first.uploads.begin("t", "u", "merge", ANYBODY)
    await send(second, 1, PARTS[1])
    upload = await send(first, 1, PARTS[1])
    assert (list(upload.parts), upload.rows) == ([1], 3)
    with pytest.raises(BadValue, match="not kept yet: 0"):
        await commit(first)
    with pytest.raises(Conflict, match="another part was sent"):
        await send(first, 1, PARTS[0])
    await asyncio.gather(send(first, 0, PARTS[0]), send(second, 0, PARTS[0]))
    assert list((await second.uploads.begin("t", "u", "merge", ANYBODY)).parts) == [0, 1]
    await commit(second)
    assert await read_partition(first) == ALL


async def test_a_commit_that_is_not_of_what_is_kept_is_refused() -> None:
    node = Node(memory(), HandClock())
    await loaded(node)
    for parts, rows, sha, why in (
        (2, 5, digest(PARTS), "6 are kept"),
        (1, 3, digest(PARTS[:1]), "2 were begun"),
        (2, 6, digest(PARTS[:1]), "digests"),
        (2, 6, b"", "digests"),
        (1 << 32, 6, b"", "up to 10,000"),
    ):
        with pytest.raises(BadValue, match=why):
            await node.uploads.commit("t", "u", parts, rows, sha, ANYBODY)
    await commit(node)
    assert (await commit(node)).state == "folding"  # again, as after a lost answer
    with pytest.raises(Conflict, match="committed with 2 parts"):
        await node.uploads.commit("t", "u", 1, 6, digest(PARTS), ANYBODY)
    with pytest.raises(Conflict, match="takes no more parts"):
        await send(node, 2, PARTS[0])


async def test_a_part_that_is_damaged_is_not_kept() -> None:
    node = Node(memory(), HandClock())
    await node.uploads.begin("t", "u", "merge", ANYBODY)
    data = stream_of(PARTS[0])
    with pytest.raises(BadValue, match="sha256"):
        await node.uploads.part("t", "u", 0, data[:-1], sha256(data).digest(), ANYBODY)
    cut = data[:-1]
    with pytest.raises(BadValue, match="cut"):
        await node.uploads.part("t", "u", 0, cut, sha256(cut).digest(), ANYBODY)
    assert list((await node.uploads.show("t", "u", ANYBODY)).parts) == []
    await send(node, 0, PARTS[0])  # and nothing was claimed


async def test_an_abandoned_upload_leaves_nothing_also_while_sealing() -> None:
    for sealed in (False, True):
        node = Node(memory(), HandClock())
        await put(node, b"0", b"old")
        await loaded(node)
        if sealed:
            impatient = Node(node.engine, node.clock, TableSettings(commit_wait_us=1))
            with pytest.raises(Unavailable, match="commit it again"):
                await commit(impatient)
            await node.catalogue.refresh()
            assert node.catalogue.state.tables["t"].phase == "sealing"
        assert (await node.uploads.abandon("t", "u", ANYBODY)).state == "abandoned"
        await node.until_normal("t")
        assert await read_partition(node) == {b"0": b"old"}
        assert await node.engine.walk("u/1", None, 10) == ()
        with pytest.raises(Conflict, match="abandoned"):
            await commit(node)
        await loaded(node)  # the name is free again
        await commit(node)
        with pytest.raises(Conflict, match="cannot be abandoned"):
            await node.uploads.abandon("t", "u", ANYBODY)
        assert await read_partition(node) == ALL


async def test_two_who_commit_and_one_who_abandons_agree() -> None:
    for first in range(3):
        engine, clock = Crashing(memory(), later=True), HandClock()
        nodes = [Node(engine, clock, holder=str(at)) for at in range(3)]
        await loaded(nodes[0])
        works = [
            commit(nodes[0]),
            commit(nodes[1]),
            nodes[2].uploads.abandon("t", "u", ANYBODY),
        ]
        works = works[first:] + works[:first]
        results = await asyncio.gather(*works, return_exceptions=True)
        await nodes[0].until_normal("t")
        state = (await nodes[0].uploads.show("t", "u", ANYBODY)).state
        assert await read_partition(nodes[0]) == (ALL if state == "done" else {})
        good = [each for each in results if isinstance(each, Upload)]
        assert good
        assert {each.state for each in good} <= (
            {"folding", "done"} if state == "done" else {"abandoned"}
        )


async def test_a_part_begun_before_the_seal_and_never_committed_opens_it_again() -> None:
    node = Node(memory(), HandClock())
    await loaded(node)
    rogue = Node(node.engine, node.clock)
    swap, due = node.engine.swap, [True]

    async def claimed_then_swapped(change: Any, expected: bytes | None) -> bool:
        # The part is sent between the last look of a commit and its seal.
        if due and b"sealing" in (change.value or b""):
            due.clear()
            await send(rogue, 2, PARTS[0])
        return await swap(change, expected)

    node.engine.swap = claimed_then_swapped  # type: ignore[method-assign]
    with pytest.raises(BadValue, match="3 were begun"):
        await commit(node)
    assert await read_partition(node) == {}
    await commit(node, [*PARTS, PARTS[0]])
    assert await read_partition(node) == ALL


async def test_another_upload_waits_until_the_last_is_folded() -> None:
    node = Node(memory(), HandClock())
    await loaded(node)
    with pytest.raises(Conflict, match="u is open"):
        await node.uploads.begin("t", "v", "merge", ANYBODY)
    await commit(node)
    await node.uploads.begin("t", "v", "merge", ANYBODY)
    await send(node, 0, [StreamRow(b"p", b"0", b"second")], "v")

    async def followed(pause_s: float) -> None:
        await node.pause(pause_s)
        await node.keeper.step()  # a commit folds nothing; whoever follows does

    node.uploads._pause = followed
    await commit(node, [[StreamRow(b"p", b"0", b"second")]], "v")
    assert await read_partition(node) == {**ALL, b"0": b"second"}
    assert [each.name for each in await node.uploads.all("t", ANYBODY)] == ["u", "v"]
    await node.until_normal("t")
    assert await read_partition(node) == {**ALL, b"0": b"second"}


async def test_everything_is_asked_of_whom_may_and_within_bounds() -> None:
    settings = TableSettings(
        uploads_max=1, parts_max=2, part_rows_max=2, part_bytes_max=200, upload_bytes_max=80
    )
    node = Node(memory(), HandClock(), settings)
    nobody = CallContext(Identity("x", (), {"t": frozenset({TableGrant.READ, TableGrant.WRITE})}))
    for work in (
        node.uploads.begin("t", "u", "merge", nobody),
        node.uploads.part("t", "u", 0, b"", b"", nobody),
        node.uploads.commit("t", "u", 0, 0, b"", nobody),
        node.uploads.abandon("t", "u", nobody),
        node.uploads.show("t", "u", nobody),
        node.uploads.all("t", nobody),
    ):
        with pytest.raises(Forbidden):
            await work
    for table, name, mode in (("T", "u", "merge"), ("t", "", "merge"), ("t", "u", "add")):
        with pytest.raises(BadValue):
            await node.uploads.begin(table, name, mode, ANYBODY)
    with pytest.raises(BadValue, match="no such upload"):
        await node.uploads.show("t", "u", ANYBODY)
    await node.uploads.begin("t", "u", "merge", ANYBODY)
    with pytest.raises(Conflict, match="mode merge"):
        await node.uploads.begin("t", "u", "replace", ANYBODY)
    with pytest.raises(Unavailable, match="as many as may be"):
        await node.uploads.begin("other", "v", "merge", ANYBODY)
    with pytest.raises(BadValue, match="from 0 to 1"):
        await send(node, 2, PARTS[0])
    with pytest.raises(BadValue, match="up to 2 rows"):
        await send(node, 0, PARTS[0])
    with pytest.raises(BadValue, match="200 bytes"):
        await send(node, 0, [StreamRow(b"p", b"", b"v" * 300)])
    await send(node, 0, [StreamRow(b"p", b"", b"v" * 30)])
    with pytest.raises(BadValue, match="an upload takes 80"):
        await send(node, 1, [StreamRow(b"p", b"1", b"v" * 30)])


async def test_what_is_admitted_is_told_and_its_permit_ends() -> None:
    ended: list[Any] = []
    admissions: list[tuple[str, int]] = []

    class RecordingPermit:
        def end(self, outcome: Any, now_us: int, *, spent: bool = True) -> bool:
            ended.append(outcome.value)
            return True

    async def admit(call: CallContext, rows: int, size: int) -> Any:
        assert size > 0
        admissions.append((call.identity.name, rows))
        return RecordingPermit()

    node = Node(memory(), HandClock())
    node.jobs.admit = node.upload_jobs.admit = admit
    await loaded(node)
    await commit(node)
    await node.until_normal("t")
    assert admissions == [("loader", 3), ("loader", 3), ("(keeper)", 3), ("(keeper)", 3)]
    assert ended == ["success"] * 4


# Stale dispatchers.


async def test_a_dispatcher_that_is_behind_shows_the_older_rows_and_never_a_mix() -> None:
    engine, clock = memory(), HandClock()
    ahead, behind = Node(engine, clock), Node(engine, clock, holder="b")
    await put(ahead, b"0", b"old")
    await behind.catalogue.refresh()
    await loaded(ahead)
    task = asyncio.ensure_future(commit(ahead))
    states: list[dict[bytes, bytes]] = []
    while not task.done():
        await asyncio.sleep(0)
        values = await read_partition(behind)
        assert values in ({b"0": b"old"}, ALL)
        states.append(values)
    await task
    assert await read_partition(behind) == ALL  # a commit returns when all show it
    assert {b"0": b"old"} in states


@pytest.mark.parametrize("mode", ["merge", "replace"])
async def test_writes_of_a_dispatcher_that_is_behind_are_not_lost(mode: str) -> None:
    # At each moment of a commit and a fold, whoever is behind as far as may be writes, and whoever
    # is ahead reads it at once; and so the other way about.
    for moment in range(60):
        engine, clock = memory(), HandClock()
        ahead, behind = Node(engine, clock), Node(engine, clock, holder="b")
        await put(ahead, b"0", b"old")
        await loaded(ahead, mode)
        sealed = Node(engine, clock, TableSettings(commit_wait_us=1, fold_rows=1))
        with pytest.raises(Unavailable):
            await commit(sealed)
        for step in range(moment + 1):
            clock.advance(us=SETTINGS.stale_us // 2)
            await ahead.catalogue.refresh()
            if step == moment:
                break
            await sealed.catalogue.refresh()
            await sealed.keeper.step()
            if clock.now_us() > behind.catalogue.fresh_until_us:
                await behind.catalogue.refresh()
        visible = ahead.catalogue.state.tables["t"].phase in ("layered", "folding", "folded")
        ended = ahead.catalogue.state.uploads["1"].state == "done"
        await put(behind, b"0", b"behind")
        await put(ahead, b"1", b"ahead")
        await put(behind, b"2", None)
        if visible or ended:
            assert await one(ahead, b"0") == Row(b"0", b"behind")
            assert await one(ahead, b"2") is None
            seen_behind = await one(behind, b"1")
            assert seen_behind == Row(b"1", b"ahead")
        await sealed.until_normal("t")
        now = await read_partition(sealed)
        if visible or ended:
            assert now == {
                **{k: v for k, v in ALL.items() if k != b"2"},
                b"0": b"behind",
                b"1": b"ahead",
            }
        else:
            assert now[b"3"] == b"up3"
            assert now[b"0"] in (b"behind", b"up0")  # before the upload, or after it
        if ended:
            return
    raise AssertionError("it never ended")


# Crashes.


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("mode", ["merge", "replace"])
async def test_whatever_call_crashes_a_fresh_dispatcher_goes_on(mode: str, after: bool) -> None:
    for call in range(1, 200):
        clock = HandClock()
        engine = Crashing(memory())
        engine.after = after
        node = Node(engine, clock, holder="first")
        await put(node, b"0", b"old")
        await put(node, b"9", b"other")
        acknowledged: set[int] = set()
        wrote: dict[bytes, bytes | None] = {}
        engine.calls_left = call
        crashed = False
        try:
            await node.uploads.begin("t", "u", mode, ANYBODY)
            for number, part in enumerate(PARTS):
                await send(node, number, part)
                acknowledged.add(number)
            await commit(node)
            await put(node, b"1", None)
            wrote[b"1"] = None
            await put(node, b"7", b"live")
            wrote[b"7"] = b"live"
            await node.until_normal("t")
        except Crash:
            crashed = True
        engine.calls_left = None
        node = Node(engine, clock, holder="second")
        clock.advance(us=SETTINGS.lease_us)
        upload = await node.uploads.begin("t", "u", mode, ANYBODY)
        assert acknowledged <= set(upload.parts)
        before = await read_partition(node)
        base = {b"9": b"other"} if mode == "merge" else {}
        whole = {**base, **ALL}
        if upload.state == "open":
            assert before == {b"0": b"old", b"9": b"other"}
            for number, part in enumerate(PARTS):
                if number not in upload.parts:
                    await send(node, number, part)
        await commit(node)
        values = await read_partition(node)
        for sort, value in wrote.items():
            assert values.get(sort) == value
        unsure = {b"1", b"7"} - set(wrote)
        sure = {k: v for k, v in whole.items() if k not in (b"1", b"7")}
        assert {k: v for k, v in values.items() if k not in (b"1", b"7")} == sure
        for sort in unsure:
            assert values.get(sort) in (whole.get(sort), None if sort == b"1" else b"live")
        await node.until_normal("t")
        assert await read_partition(node) == values
        if not crashed:
            assert call > 20
            return
    raise AssertionError("it never came to its end")


async def test_whoever_was_killed_in_a_fold_is_followed_by_another_when_the_lease_ends() -> None:
    engine, clock = Crashing(memory()), HandClock()
    first, second = Node(engine, clock, holder="first"), Node(engine, clock, holder="second")
    await loaded(first)
    await commit(first)
    engine.calls_left = 4
    with pytest.raises(Crash):
        await first.until_normal("t")
    engine.calls_left = None
    await second.catalogue.refresh()
    calls = engine.calls
    await second.keeper.step()
    assert engine.calls == calls  # the other may still be at it
    clock.advance(us=SETTINGS.lease_us)
    await second.until_normal("t")
    assert await read_partition(second) == ALL


async def test_a_folder_that_slept_undoes_nothing() -> None:
    # It has read a row to be copied; when it wakes, the row has been folded, changed or deleted.
    engine, clock = memory(), HandClock()
    node = Node(engine, clock)
    await put(node, b"0", b"old")
    await loaded(node)
    await commit(node)
    slept: list[Any] = []
    inner = engine.swap

    async def swap(change: Any, expected: bytes | None) -> bool:
        if change.space == "t/t":
            slept.append((change, expected))
        done: bool = await inner(change, expected)
        return done

    engine.swap = swap
    await node.until_normal("t")
    assert len(slept) >= 6
    await put(node, b"0", b"newer")
    for change, expected in slept:
        if expected is not None:
            assert not await inner(change, expected)
    assert await one(node, b"0") == Row(b"0", b"newer")


async def test_the_sweep_takes_what_expired_and_leaves_the_rest() -> None:
    engine, clock = memory(), HandClock()
    node = Node(engine, clock)
    for at in range(10):
        await put(node, b"%d" % at, b"v", 10 if at % 2 else 0)
    await node.tables.write("z", [Write(b"p", b"", b"v", 10)], START_US)
    clock.advance(us=10)
    assert await node.keeper.sweep.take()
    other = Node(engine, clock, holder="b")
    assert not await other.keeper.sweep.take()
    for _ in range(50):
        if await node.keeper.sweep.step():
            break
    assert node.keeper.sweep.removed == 6
    assert len(await engine.walk("t/t", None, 100)) == 5
    await node.keeper.sweep.leave()
    assert await other.keeper.sweep.take()


async def test_the_sweep_rests_while_a_table_is_layered() -> None:
    engine, clock = memory(), HandClock()
    node = Node(engine, clock)
    await loaded(node)
    await commit(node)
    await put(node, b"0", b"brief", 1)
    clock.advance(us=1)
    assert await node.keeper.sweep.take()
    for _ in range(5):
        await node.keeper.sweep.step()
    assert node.keeper.sweep.removed == 0
    assert await one(node, b"0") is None


async def test_a_book_of_a_newer_release_is_refused() -> None:
    node = Node(memory(), HandClock())
    await node.engine.load("catalogue", [(b"book", b"", b'{"version":3}')])
    with pytest.raises(Unavailable, match="upgrade"):
        await node.catalogue.refresh()
    await node.engine.load("catalogue", [(b"book", b"", b"{")])
    with pytest.raises(Unavailable, match="backup"):
        await node.catalogue.refresh()


async def test_an_engine_may_forget_only_what_was_written_while_normal() -> None:
    engine, clock = memory(), HandClock()
    node = Node(engine, clock)
    hints: list[int] = []
    write = engine.write

    async def noted(changes: Any) -> None:
        hints.extend(change.purge_us for change in changes)
        await write(changes)

    engine.write = noted
    await put(node, b"0", b"v", 10)
    await put(node, b"1", b"v")
    assert hints == [START_US + 10 + SETTINGS.purge_after_us, 0]
    await loaded(node)
    await commit(node)
    hints.clear()
    await put(node, b"0", b"v", 10)
    assert hints == [0]


async def test_a_write_that_took_too_long_is_acknowledged_only_if_the_table_is_as_it_was() -> None:
    for sealed_meanwhile in (False, True):
        engine, clock = memory(), HandClock()
        node, other = Node(engine, clock), Node(engine, clock, TableSettings(commit_wait_us=1))
        await loaded(other)
        await node.catalogue.refresh()
        write = engine.write

        async def slow(
            changes: Any,
            clock: HandClock = clock,
            other: Node = other,
            write: Any = write,
            sealed: bool = sealed_meanwhile,
        ) -> None:
            if sealed:
                with pytest.raises(Unavailable):
                    await commit(other)
            clock.advance(us=2 * SETTINGS.stale_us + SETTINGS.write_timeout_us + 1)
            await write(changes)

        engine.write = slow
        if sealed_meanwhile:
            with pytest.raises(Unavailable, match="took too long"):
                await put(node, b"0", b"v")
        else:
            await put(node, b"0", b"v")
