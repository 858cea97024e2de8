"""Collection and check: nothing that is referred to goes, nothing that is not stays."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sluicegate.apps.images.collect import Collected
from sluicegate.apps.images.contents import Contents
from sluicegate.apps.images.lease import LEASE_US, CollectorLease
from sluicegate.apps.images.maps import URLS
from sluicegate.apps.images.pipeline import PipelineSettings
from sluicegate.apps.images.records import LIVE, WRITING, ContentRecord
from sluicegate.contracts.errors import Conflict, Unavailable
from sluicegate.contracts.request import Request
from sluicegate.testing import HandClock
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.service_parts import DAY_S, START_US, Parts, parts_of
from tests.engines.child import Child, until
from tests.prove.seeds import first
from tests.stores.blobs.s3_server import SECRETS, S3Server

ROOT = Path(__file__).parents[3]
GRACE_S = 60.0


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        server = S3Server(tmp_path_factory.mktemp("moto"))
        yield server
        server.stop()


Story = Callable[[OriginServer, Parts], Awaitable[None]]


def run(folder: Path, story: Story, **more: Any) -> None:
    async def play() -> None:
        async with OriginServer() as server, parts_of(folder, **more) as parts:
            await story(server, parts)

    asyncio.run(asyncio.wait_for(play(), 60))


def blobs_in(folder: Path) -> set[str]:
    root = folder / "blobs"
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


class Replaced:
    """Contents of which some methods are others."""

    def __init__(self, contents: Contents, **methods: Any) -> None:
        self._contents = contents
        self.__dict__ |= methods

    def __getattr__(self, name: str) -> Any:
        return getattr(self._contents, name)


async def collect_for_long(parts: Parts, runs: int = 4) -> None:
    for _ in range(runs):
        parts.advance(GRACE_S + 1)
        await parts.collector().collect()


def test_what_a_url_no_longer_has_goes_with_its_variants_and_the_rest_stays(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"], server.pages["/b"] = Page(picture(1)), Page(picture(2))
        first, other = [await parts.image(server.url(path)) for path in ("/a", "/b")]
        upload = await parts.pipeline.upload(picture(3), Request("x"))
        assert len(blobs_in(tmp_path)) == 5
        server.pages["/a"] = Page(picture(4))
        parts.advance(2 * 3_600)
        second = await parts.image(server.url("/a"))
        await collect_for_long(parts)
        kept = {second.digest, second.original, other.digest, other.original, upload.id}
        assert blobs_in(tmp_path) == {await parts.blob_of(digest) for digest in kept}
        assert first.digest not in kept
        assert (await parts.collector().check()).errors == []
        # Once more, and nothing is left to do.
        found = await parts.collector().collect()
        assert (found.condemned, found.removed, found.orphans_removed) == (0, 0, 0)

    run(tmp_path, story)


def test_nothing_goes_within_the_grace_period(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        await parts.contents.store(b"in the middle of a write")
        await parts.collector().collect()
        parts.advance(GRACE_S - 1)
        await parts.collector().collect()
        record = (await parts.maps.content(sha256(b"in the middle of a write").hexdigest())).record
        assert record is not None
        assert (record.state, record.since_us) == (LIVE, START_US)

    run(tmp_path, story)


def test_what_is_taken_up_again_is_spared_whenever_that_happens(tmp_path: Path) -> None:
    """A writer between any two steps of collection, and what it was told stays true."""

    async def story(server: OriginServer, parts: Parts) -> None:
        for steps in range(6):
            body = picture(steps)
            await parts.contents.store(body)  # and nothing refers to it
            await collect_for_long(parts, steps)
            upload = await parts.pipeline.upload(body, Request("x"))
            await collect_for_long(parts, 5)
            assert (await parts.image(upload.id)).data
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_what_is_taken_up_between_mark_and_sweep_is_spared(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        body = picture(5)
        await parts.contents.store(body)
        await collect_for_long(parts, 1)  # it is condemned
        parts.advance(GRACE_S + 1)
        late = parts.collector()
        sweep = late._sweep

        async def take_up_and_sweep(*arguments: Any) -> None:
            await parts.pipeline.upload(body, Request("x"))
            await sweep(*arguments)

        late._sweep = take_up_and_sweep  # type: ignore[method-assign, assignment]
        await late.collect()
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_writer_that_was_killed_is_helped_by_the_next(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        body, digest = b"half written", sha256(b"half written").hexdigest()
        killed = ContentRecord(WRITING, len(body), 7, parts.clock.now_us())
        await parts.maps.swap_content(digest, None, killed)
        assert await parts.contents.original(digest) is None
        assert not await parts.contents.take_up(digest)
        content = await parts.contents.store(body)
        assert (content.generation, content.known) == (7, False)
        assert await parts.contents.original(digest) == body

    run(tmp_path, story)


def test_content_of_killed_writer_goes_after_grace(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        digest = sha256(b"never written").hexdigest()
        killed = ContentRecord(WRITING, 1, 7, parts.clock.now_us())
        await parts.maps.swap_content(digest, None, killed)
        await collect_for_long(parts, 1)
        assert (await parts.maps.content(digest)).record is None

    run(tmp_path, story)


def test_entry_of_content_that_was_collected_is_downloaded_again(tmp_path: Path) -> None:
    """The origin answers 304, and two collections ran during the check."""

    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"] = Page(picture(1), headers={"ETag": '"a"'})
        url = server.url("/a")
        first = await parts.image(url)
        parts.advance(2 * 3_600)
        fetch = parts.origin.fetch

        async def collected_meanwhile(*arguments: Any) -> Any:
            parts.pipeline._downloads.fetch = fetch  # type: ignore[method-assign]
            download = await fetch(*arguments)
            assert download.body is None
            for entry in [one async for one in parts.maps.walk(URLS)]:
                await parts.maps.remove(URLS, entry)
            await collect_for_long(parts)
            return download

        parts.pipeline._downloads.fetch = collected_meanwhile  # type: ignore[method-assign, assignment]
        assert (await parts.image(url)).data == first.data
        assert server.asked["/a"] == 3
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_second_collector_waits_for_lease_and_names_its_holder(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        await parts.contents.store(b"one")
        held = CollectorLease(parts.maps, parts.clock, "host:7")
        first = await held.take()
        with pytest.raises(Unavailable, match="host:7 collects; try again in 30 s"):
            await parts.collector().collect()
        parts.clock.advance(us=LEASE_US)
        await parts.collector().collect()
        with pytest.raises(Unavailable, match="another process collects"):
            await held.renew()
        await held.give_back()  # of a lease that it has no more: nothing happens
        assert await CollectorLease(parts.maps, parts.clock, "x").take() == first + 2

    run(tmp_path, story)


def test_lease_far_ahead_is_of_another_clock_and_is_taken(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        ahead = HandClock(parts.clock.now_us() + 1_000_000_000_000)
        first = await CollectorLease(parts.maps, ahead, "x").take()
        assert await CollectorLease(parts.maps, parts.clock, "y").take() == first + 1

    run(tmp_path, story)


def test_a_write_that_fails_leaves_no_entry_that_points_to_it(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        (tmp_path / "blobs").write_bytes(b"in the way of the folder")
        server.pages["/a"] = Page(picture(1))
        with pytest.raises(Unavailable):
            await parts.image(server.url("/a"))
        (tmp_path / "blobs").unlink()
        assert (await parts.collector().check()).errors == []
        assert (await parts.image(server.url("/a"))).data

    run(tmp_path, story)


def test_late_delete_does_not_meet_what_was_stored_again(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        body = picture(5)
        content = await parts.contents.store(body)
        old = await parts.blob_of(content.digest)
        await collect_for_long(parts, 2)
        assert (await parts.maps.content(content.digest)).record is None
        upload = await parts.pipeline.upload(body, Request("x"))
        await parts.contents.delete(old)  # of a collector that was slow
        assert (await parts.image(upload.id)).data
        assert await parts.blob_of(upload.id) in blobs_in(tmp_path) - {old}

    run(tmp_path, story)


def test_late_delete_of_second_collector_spares_live_blob(tmp_path: Path) -> None:
    """The other collector forgot the content meanwhile, and a writer stored it again."""

    async def story(server: OriginServer, parts: Parts) -> None:
        body = picture(5)
        await parts.contents.store(body)
        late, uploads = parts.collector(), []
        delete = parts.contents.delete

        async def delete_late(name: str) -> None:
            late._contents = parts.contents
            await collect_for_long(parts, 4)
            uploads.append(await parts.pipeline.upload(body, Request("x")))
            await delete(name)

        for _ in range(4):
            parts.advance(GRACE_S + 1)
            late._contents = Replaced(parts.contents, delete=delete_late)  # type: ignore[assignment]
            with suppress(Unavailable):  # its lease is over
                await late.collect()
            if uploads:
                break
        assert (await parts.image(uploads[0].id)).data
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_a_blob_without_a_record_goes_and_one_of_somebody_else_stays(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        body = picture(6)
        digest = sha256(body).hexdigest()
        folder = tmp_path / "blobs" / digest[:2]
        folder.mkdir(parents=True)
        (folder / digest).write_bytes(body)
        (folder / "readme").write_bytes(b"not ours")
        assert (await parts.collector().collect()).orphans_removed == 0  # there is no content
        assert digest in {path.name for path in folder.iterdir()}
        upload = await parts.pipeline.upload(body, Request("x"))
        assert (await parts.collector().collect()).orphans_removed == 1
        assert blobs_in(tmp_path) == {f"{digest[:2]}/readme", await parts.blob_of(upload.id)}
        # What a killed writer left half written is not taken for the whole.
        (tmp_path / "blobs" / await parts.blob_of(upload.id)).write_bytes(body[:10])
        assert (await parts.pipeline.upload(body, Request("x"))).known
        assert (await parts.image(upload.id)).data

    run(tmp_path, story)


def test_urls_nobody_asks_for_and_failures_that_are_over_are_forgotten(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"] = Page(picture(1))
        await parts.image(server.url("/a"))
        with pytest.raises(Exception, match="not_found"):
            await parts.image(server.url("/none"))
        upload = await parts.pipeline.upload(picture(2), Request("x"))
        parts.advance(91 * DAY_S)
        found = await parts.collector().collect()
        assert (found.urls, found.urls_removed) == (1, 2)
        await collect_for_long(parts)
        assert blobs_in(tmp_path) == {await parts.blob_of(upload.id)}

    run(tmp_path, story)


def test_a_url_whose_checks_are_further_apart_than_it_is_kept_is_not_forgotten_in_use(
    tmp_path: Path,
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"] = Page(picture(1))
        for _ in range(4):
            await parts.image(server.url("/a"))
            parts.advance(60 * DAY_S)
            found = await parts.collector().collect()
            assert (found.urls, found.urls_removed) == (1, 0)
        assert server.asked["/a"] == 1
        parts.advance(365 * DAY_S)
        assert (await parts.collector().collect()).urls_removed == 1

    run(tmp_path, story, settings=PipelineSettings(fresh_s=365 * DAY_S))


def _has_lines(log: Path, count: int) -> bool:
    return log.read_text().count("\n") > count


@pytest.mark.parametrize("seed", first(1, range(1, 8)))
def test_a_kill_in_the_middle_of_everything_leaves_no_entry_without_its_blob(
    tmp_path: Path, seed: int
) -> None:
    acknowledged: set[str] = set()
    for life in range(2):
        log = tmp_path / f"child-{life}.log"
        command = [sys.executable, "-m", "tests.apps.images.crashes"]
        child = Child("images", [*command, str(tmp_path), str(seed * 10 + life)], log)
        lines_min = 20 + 7 * seed
        until(partial(_has_lines, log, lines_min), "a child that serves", children=[child])
        child.kill()
        lines = log.read_text().splitlines()
        acknowledged |= {line.split()[1] for line in lines if line.startswith("upload ")}

    async def story(server: OriginServer, parts: Parts) -> None:
        parts.clock.advance(s=1_000_000)
        checked = await parts.collector().check()
        assert checked.errors == []
        assert checked.contents > 0
        for digest in acknowledged:
            assert await parts.contents.original(digest), "an upload that was acknowledged is gone"

    assert acknowledged
    run(tmp_path, story)


def test_a_bucket_keeps_what_files_keep(s3_server: S3Server, tmp_path: Path) -> None:
    """On a real server that speaks S3: create-only, verified, collected."""

    async def play() -> None:
        async with OriginServer() as server, parts_of(tmp_path, blobs=s3_server.url()) as parts:
            server.pages["/a"], server.pages["/b"] = Page(picture(1)), Page(picture(1))
            first, second = [await parts.image(server.url(path)) for path in ("/a", "/b")]
            assert first.data == second.data
            assert len(parts.processor.done) == 1
            name = await parts.blob_of(first.digest)
            with pytest.raises(Conflict):
                parts.contents._blobs.put(name, b"another", if_absent=True)
            parts.contents._blobs.put(name, b"damaged")
            assert (await parts.image(server.url("/a"))).data == first.data
            assert (await parts.collector().check()).errors == []
            server.pages["/a"] = server.pages["/b"] = Page(picture(2))
            parts.advance(2 * 3_600)
            for path in ("/a", "/b"):
                await parts.image(server.url(path))
            parts.advance(GRACE_S + 1)
            prefixes = {digest[:2] for digest in (first.digest, first.original)}
            found = await collect_in(parts, prefixes)
            assert (found.condemned, found.removed) == (2, 0)
            parts.advance(GRACE_S + 1)
            found = await collect_in(parts, prefixes)
            assert (found.removed, found.orphans_removed) == (2, 0)
            assert (await parts.collector().check()).errors == []

    asyncio.run(asyncio.wait_for(play(), 60))


async def collect_in(parts: Parts, prefixes: set[str]) -> Collected:
    """One run that lists these folders alone: moto takes a while for each of 256."""
    collector = parts.collector()
    collector.prefixes = [f"{one}/" for one in sorted(prefixes)]
    return await collector.collect()
