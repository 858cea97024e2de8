"""Keeping: one step at a time, no table in the way of another, and nothing fails unseen."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest

from sluicegate.apps.kv.tables.catalogue_state import (
    EMPTY_CATALOGUE,
    CatalogueState,
    UploadState,
    encode_catalogue,
    parse_catalogue,
)
from sluicegate.apps.kv.tables.failures import Failures
from sluicegate.apps.kv.tables.keeper import FoldProgress
from sluicegate.apps.kv.tables.settings import TableSettings
from sluicegate.apps.kv.tables.upload_records import UploadPart, part_change, read_parts
from sluicegate.contracts.engine import Change
from sluicegate.contracts.errors import Conflict, Unavailable
from sluicegate.contracts.key_values import Upload, Write
from sluicegate.contracts.policy import NOTHING_HELD
from sluicegate.testing import HandClock
from sluicegate.wire.row_stream import StreamRow, stream_of
from tests.apps.kv.tables.dispatchers import ANYBODY, Node, memory

NEW = [StreamRow(b"p%02d" % number, b"", b"new") for number in range(20, 29)]
QUICK = TableSettings(stale_us=1_000, sweep_pause_us=1_000, lease_us=1_000, fold_rows=3)


async def loaded(node: Node, table: str, name: str, mode: str, rows: list[StreamRow]) -> bytes:
    """An upload of one part that is not committed yet; the digest to commit it with."""
    data = stream_of(rows)
    digest = sha256(data).digest()
    await node.uploads.begin(table, name, mode, ANYBODY)
    await node.uploads.part(table, name, 0, data, digest, ANYBODY)
    return sha256(digest).digest()


async def uploaded(node: Node, table: str, name: str, mode: str, rows: list[StreamRow]) -> Upload:
    digest = await loaded(node, table, name, mode, rows)
    return await node.uploads.commit(table, name, 1, len(rows), digest, ANYBODY)


async def turns(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_two_steps_at_once_fold_nothing_twice_and_bring_no_old_row_back() -> None:
    node = Node(memory(), HandClock())
    old = [Write(b"p%02d" % number, b"", b"old") for number in range(40)]
    await node.tables.write("a", old, node.clock.now_us())
    gate, calls = asyncio.Event(), 0

    async def admit(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            await gate.wait()
        return NOTHING_HELD

    await uploaded(node, "a", "u", "replace", NEW)
    node.jobs.admit = admit
    first = asyncio.ensure_future(node.keeper.step())
    await turns()
    assert (calls, first.done()) == (3, False)
    second = asyncio.ensure_future(node.keeper.step())
    await turns(300)
    assert second.done()
    assert not await second  # the other is at it
    assert calls == 3
    gate.set()
    await first
    await node.until_normal("a")
    entries = await node.engine.walk("t/a", None, 100)
    assert sorted(entry[0] for entry in entries) == [row.partition for row in NEW]


async def test_a_commit_folds_nothing_and_waits_for_no_other_table() -> None:
    node = Node(memory(), HandClock())
    await uploaded(node, "a", "u", "merge", NEW)
    gate, calls = asyncio.Event(), 0

    async def admit(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        await gate.wait()
        return NOTHING_HELD

    node.jobs.admit = admit
    digest = await loaded(node, "b", "v", "merge", NEW)
    commit = asyncio.ensure_future(node.uploads.commit("b", "v", 1, len(NEW), digest, ANYBODY))
    await turns(300)
    assert commit.done()
    assert (await commit).state == "folding"
    assert calls == 0
    following = asyncio.ensure_future(node.keeper.step())
    await turns()
    assert calls == 1  # the fold of a waits, and still b's next one gets its answer
    await loaded(node, "c", "w", "merge", NEW)
    upload = await node.uploads.commit("c", "w", 1, len(NEW), digest, ANYBODY)
    assert upload.state == "folding"
    gate.set()
    await following


async def test_a_commit_behind_an_upload_that_does_not_end_ends_when_it_should() -> None:
    node = Node(memory(), HandClock(), TableSettings(commit_wait_us=30_000_000))
    await uploaded(node, "a", "u", "merge", NEW)
    digest = await loaded(node, "a", "v", "merge", NEW)
    began_us = node.clock.now_us()
    with pytest.raises(Unavailable, match="commit it again later"):
        await node.uploads.commit("a", "v", 1, len(NEW), digest, ANYBODY)
    assert 30_000_000 <= node.clock.now_us() - began_us < 31_000_000


async def test_a_table_that_fails_keeps_no_other_from_moving() -> None:
    node = Node(memory(), HandClock())
    await uploaded(node, "a", "u", "merge", NEW)
    await uploaded(node, "b", "v", "merge", NEW)
    await node.engine.write([Change("catalogue", b"l/1", b"", b'{"version": 1}')])
    for _ in range(20):
        await node.catalogue.refresh()
        with pytest.raises(Unavailable, match="the lease l/1"):
            await node.keeper.step()
        node.clock.advance(us=node.settings.stale_us)
    assert node.catalogue.state.tables["b"].phase == "normal"
    assert node.catalogue.state.tables["a"].phase == "folding"


@pytest.mark.parametrize(
    "record",
    [
        b"{",
        b"[]",
        b"7",
        b'{"version":1}',
        b'{"version":1,"holder":"","until_us":"x","stage":"","after":null}',
        b'{"version":1,"holder":"","until_us":0,"stage":"","after":["zz",""]}',
        b'{"version":1,"holder":"","until_us":0,"stage":"","after":[""]}',
        b'{"version":2}',
    ],
)
async def test_a_lease_that_cannot_be_read_is_named(record: bytes) -> None:
    node = Node(memory(), HandClock())
    await node.engine.write([Change("catalogue", b"l/sweep", b"", record)])
    with pytest.raises(Unavailable, match="the lease l/sweep in the catalogue"):
        await node.keeper.sweep.take()


async def test_keeping_and_sweeping_outlive_any_failure_and_tell_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = memory()
    node = Node(engine, HandClock(), QUICK)
    await node.tables.write("b", [Write(b"p", b"", b"v")], node.clock.now_us())  # to be swept
    await uploaded(node, "a", "u", "merge", NEW)
    failing = True
    walk = engine.walk

    async def broken(*what: Any) -> Any:
        if failing:
            raise ZeroDivisionError("of a kind that nobody thought of")
        return await walk(*what)

    engine.walk = broken
    tasks = [
        asyncio.ensure_future(node.keeper.follow()),
        asyncio.ensure_future(node.keeper.follow_sweep()),
    ]
    with caplog.at_level(logging.WARNING, "sluicegate.kv"):
        async with asyncio.timeout(60):
            while not (node.keeper.stats().failed and node.keeper.stats().sweep_failed > 2):
                node.clock.advance(us=1_000)
                await asyncio.sleep(0.001)
    stats = node.keeper.stats()
    assert stats.last_error == "ZeroDivisionError: of a kind that nobody thought of"
    assert stats.last_error == stats.sweep_last_error
    assert len(caplog.records) == 2  # each once
    failing = False
    async with asyncio.timeout(60):
        while node.catalogue.state.tables["a"].phase != "normal":
            node.clock.advance(us=1_000_000)
            await asyncio.sleep(0.001)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_is_folded_is_told() -> None:
    node = Node(memory(), HandClock())
    assert node.keeper.stats() == ((), 0, "", 0, "")
    await uploaded(node, "a", "u", "merge", NEW)
    calls = 0
    gate = asyncio.Event()

    async def admit(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            await gate.wait()
        return NOTHING_HELD

    node.jobs.admit = admit
    step = asyncio.ensure_future(node.keeper.step())
    await turns()
    (folding,) = node.keeper.stats().folding
    at = folding.position
    assert at is not None
    assert folding == FoldProgress("a", "1", "copying", at)
    assert bytes.fromhex(at[0]) in [row.partition for row in NEW]
    gate.set()
    await step
    await node.until_normal("a")
    assert node.keeper.stats().folding == ()


def test_a_message_is_logged_once_and_a_bounded_number_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = Failures("keeping tables")
    with caplog.at_level(logging.WARNING, "sluicegate.kv"):
        for _ in range(3):
            failures.note(Unavailable("the engine", "it is away"))
        assert len(caplog.records) == 1
        for number in range(200):
            failures.note(ValueError(number))
    assert (failures.count, failures.last_error) == (203, "ValueError: 199")
    assert len(failures._logged) <= 64


# Uploads.


async def test_a_commit_of_an_upload_that_has_ended_with_another_digest_is_a_conflict() -> None:
    node = Node(memory(), HandClock())
    digest = await loaded(node, "a", "u", "merge", NEW)
    await node.uploads.commit("a", "u", 1, len(NEW), digest, ANYBODY)
    for _ in range(2):
        upload = await node.uploads.commit("a", "u", 1, len(NEW), digest, ANYBODY)
        assert upload.rows == len(NEW)
        with pytest.raises(Conflict, match=f"sha256 {digest.hex()}"):
            await node.uploads.commit("a", "u", 1, len(NEW), bytes(32), ANYBODY)
        await node.until_normal("a")


def test_a_book_of_the_release_before_is_read_and_its_uploads_have_no_digest() -> None:
    upload = UploadState("1", "a", "u", "merge", "done", 7, "me", 1, 2, 3, "ab")
    book = CatalogueState({}, {"1": upload}, (), 1)
    assert parse_catalogue(encode_catalogue(book)) == book
    document = json.loads(encode_catalogue(book))
    document["version"] = 1
    document["uploads"][0].pop()
    assert parse_catalogue(json.dumps(document).encode()).uploads["1"] == upload._replace(digest="")
    assert parse_catalogue(None) == EMPTY_CATALOGUE


@pytest.mark.parametrize("where", ["admission", "load"])
async def test_rows_that_come_after_their_upload_was_dropped_do_not_stay(where: str) -> None:
    engine = memory()
    node = Node(engine, HandClock())
    gate, calls, loads = asyncio.Event(), 0, 0
    load = engine.load

    async def admit(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 and where == "admission":
            await gate.wait()
        return NOTHING_HELD

    async def slow(*what: Any) -> None:
        nonlocal loads
        loads += 1
        if loads == 2 and where == "load":
            await gate.wait()
        await load(*what)

    node.upload_jobs.admit = admit
    engine.load = slow
    rows = [StreamRow(b"p%05d" % number, b"", b"v") for number in range(1_500)]
    part = asyncio.ensure_future(loaded(node, "a", "u", "merge", rows))
    async with asyncio.timeout(60):
        while calls < 2:
            await asyncio.sleep(0)
    await turns()
    await node.uploads.abandon("a", "u", ANYBODY)
    await node.until_normal("a")
    gate.set()
    with pytest.raises(Conflict, match="ended meanwhile"):
        await part
    assert loads == (1 if where == "admission" else 2)
    await node.until_normal("a")
    assert await node.engine.walk("u/1", None, 10) == ()


async def test_many_parts_are_listed_a_page_at_a_time_and_others_have_turns() -> None:
    engine, part = memory(), UploadPart(True, 1, 2, bytes(32))
    await engine.write([part_change("1", number, part) for number in range(1_000)])
    listing = asyncio.ensure_future(read_parts(engine, "1"))
    had = 0
    while not listing.done():
        had += 1
        await asyncio.sleep(0)
    assert list(await listing) == list(range(1_000))
    assert had >= 4


# When they ended.


async def test_an_upload_keeps_when_it_was_done_or_abandoned() -> None:
    node = Node(memory(), HandClock())
    digest = await loaded(node, "a", "u", "merge", NEW)
    assert node.catalogue.state.uploads["1"].ended_us == 0
    await node.uploads.commit("a", "u", 1, len(NEW), digest, ANYBODY)
    assert node.catalogue.state.uploads["1"].ended_us == 0  # it is visible, and not folded
    before_us = node.clock.now_us()
    await node.until_normal("a")
    done_us = node.catalogue.state.uploads["1"].ended_us
    assert before_us < done_us < node.clock.now_us()
    await loaded(node, "a", "v", "merge", NEW)
    abandoned_us = node.clock.now_us()
    await node.uploads.abandon("a", "v", ANYBODY)
    node.clock.advance(s=1)
    await node.uploads.abandon("a", "v", ANYBODY)  # again: it ended then, and not now
    assert parse_catalogue(encode_catalogue(node.catalogue.state)) == node.catalogue.state
    ended = [one.ended_us for one in node.catalogue.state.uploads.values()]
    assert ended == [done_us, abandoned_us]


def test_a_release_that_knows_of_no_end_reads_the_book_and_is_read() -> None:
    upload = UploadState("1", "a", "u", "merge", "done", 7, "me", 1, 2, 3, "ab", 9)
    document = json.loads(encode_catalogue(CatalogueState({}, {"1": upload}, (), 1)))
    assert (document["version"], len(document["uploads"][0])) == (2, 11)
    del document["ended"]
    assert parse_catalogue(json.dumps(document).encode()).uploads["1"] == upload._replace(
        ended_us=0
    )
    document["ended"] = {"1": 9, "2": 5}  # the other is not told about any more
    assert parse_catalogue(json.dumps(document).encode()).uploads == {"1": upload}
