"""Collection of a store far larger than what it may remember: safe, and in bounded memory."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from sluicegate.apps.images import maps, sorted_rows
from sluicegate.apps.images.maps import (
    CONTENTS,
    URLS,
    VARIANTS,
    content_place,
    url_place,
    variant_place,
)
from sluicegate.apps.images.records import (
    LIVE,
    ContentRecord,
    UrlRecord,
    VariantRecord,
    encode,
)
from sluicegate.apps.images.report import make_report
from sluicegate.contracts.request import Request
from tests.apps.images.pictures import picture
from tests.apps.images.service_parts import Parts, parts_of
from tests.prove.seeds import first

GRACE_S = 60.0


def run(folder: Path, story: Callable[[Parts], Awaitable[None]]) -> None:
    async def play() -> None:
        async with parts_of(folder) as parts:
            await story(parts)

    asyncio.run(asyncio.wait_for(play(), 60))


def digest_of(number: int) -> str:
    return sha256(b"%d" % number).hexdigest()


async def fill(parts: Parts, kept: Sequence[int], garbage: Sequence[int] = ()) -> None:
    """Entries for these: a URL, a content and a variant each; of garbage, the content alone."""
    at_us, engine = parts.clock.now_us(), parts.processor.engine
    contents, urls, variants = [], [], []
    for number in [*kept, *garbage]:
        digest = digest_of(number)
        record = ContentRecord(LIVE, 100, since_us=at_us)
        contents.append((*content_place(digest), encode(record)))
    for number in kept:
        digest, url = digest_of(number), f"http://shop-{number % 7}.example/{number}.jpg"
        record_of_url = UrlRecord(url, digest, checked_us=at_us, changed_us=at_us)
        urls.append((*url_place(url), encode(record_of_url)))
        made = VariantRecord("w=8", engine, digest, size=100, took_us=1_000, at_us=at_us)
        variants.append((*variant_place(digest, engine, "w=8"), encode(made)))
    for space, entries in ((CONTENTS, contents), (URLS, urls), (VARIANTS, variants)):
        await parts.engine.load(space, entries)


async def stored(parts: Parts) -> set[str]:
    return {entry[0].hex() async for entry in parts.maps.walk(CONTENTS)}


def test_marks_in_four_bits_for_each_content_lose_nothing_and_in_time_all_garbage_goes(
    tmp_path: Path,
) -> None:
    kept, garbage = range(1_000), range(1_000, 1_500)

    async def story(parts: Parts) -> None:
        await fill(parts, kept, garbage)
        left = []
        for _ in range(40):
            parts.advance(GRACE_S + 1)
            found = await parts.collector(marks_bytes_max=1_000).collect()
            assert found.mistaken > 0.1
            there = await stored(parts)
            assert {digest_of(number) for number in kept} <= there
            left.append(len(there) - len(kept))
            if not left[-1]:
                break
        # Mistakes are others each time: nothing is kept for ever.
        assert left[-1] == 0
        assert len(left) > 2

    run(tmp_path, story)


def test_what_is_taken_up_while_marks_are_mistaken_stays(tmp_path: Path) -> None:
    async def story(parts: Parts) -> None:
        await fill(parts, range(300))
        body = picture(1)
        await parts.contents.store(body)
        for step in range(10):
            parts.advance(GRACE_S + 1)
            collector = parts.collector(marks_bytes_max=200)
            upload, _ = await asyncio.gather(
                parts.pipeline.upload(picture(step), Request("x")), collector.collect()
            )
            assert await parts.contents.original(upload.id)

    run(tmp_path, story)


def test_blobs_without_a_record_are_found_a_few_names_at_a_time(tmp_path: Path) -> None:
    async def story(parts: Parts) -> None:
        folder = tmp_path / "blobs" / "ab"
        folder.mkdir(parents=True)
        for number in range(300):
            (folder / ("ab" + digest_of(number)[2:])).write_bytes(b"x")
        (folder / "readme").write_bytes(b"not ours")
        asked: list[int] = []
        names = parts.contents.names

        async def watched(prefix: str, names_max: int) -> list[str]:
            found = await names(prefix, names_max)
            asked.append(len(found))
            return found

        parts.contents.names = watched  # type: ignore[method-assign]
        for contents, expected in ((False, 0), (True, 300), (True, 0)):
            if contents:  # beside an emptied engine, blobs are left alone
                await parts.contents.store(b"one content")
            collector = parts.collector()
            collector.prefixes, collector.blobs_at_once = ["ab/"], 8
            assert (await collector.collect()).orphans_removed == expected
        assert max(asked) <= 8
        assert [path.name for path in folder.iterdir()] == ["readme"]

    run(tmp_path, story)


def test_a_check_names_every_entry_whose_blob_is_not_there(tmp_path: Path) -> None:
    async def story(parts: Parts) -> None:
        await fill(parts, range(5))
        checked = await parts.collector().check()
        # Its blob, its URL, its variant.
        assert checked.failed == len(checked.errors) == 3 * 5
        upload = await parts.pipeline.upload(picture(1), Request("x"))
        (tmp_path / "blobs" / await parts.blob_of(upload.id)).unlink()
        checked = await parts.collector().check()
        assert checked.failed == 3 * 5 + 2
        assert any(upload.id in error for error in checked.errors)

    run(tmp_path, story)


async def _peak_of(work: Awaitable[object]) -> int:
    tracemalloc.start()
    try:
        await work
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", first(1, ["collect", "check", "report"]))
def test_a_store_eight_times_as_large_takes_no_more_memory(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("sluicegate.images"), "disabled", True)
    monkeypatch.setattr(maps, "WALKED_AT_ONCE", 50)
    monkeypatch.setattr(sorted_rows, "PAGE_ROWS", 8)

    async def story(parts: Parts) -> None:
        peaks = []
        for begin, end in ((0, 400), (400, 3_200)):
            await fill(parts, range(begin, end))
            if what == "report":
                work: Awaitable[object] = make_report(parts.maps, rows_at_once=200)
            else:
                collector = parts.collector()
                collector.prefixes = ["ab/"]
                work = getattr(collector, what)()
            peaks.append(await _peak_of(work))
        # 2,800 digests in a set are 290,000 bytes.
        assert peaks[1] < peaks[0] + 120_000, peaks

    run(tmp_path, story)
