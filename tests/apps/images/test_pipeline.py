"""Pipeline: stored once, processed once, failures remembered, changes found."""

from __future__ import annotations

import asyncio
import random
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from sluicegate.apps.images.contents import Contents
from sluicegate.apps.images.failures import FailureLifetimes, NoImageError
from sluicegate.apps.images.pipeline import (
    BULK_TRIES,
    Image,
    PipelineSettings,
    try_in_bulk,
)
from sluicegate.apps.images.records import VariantRecord, decode, encode
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, Unavailable
from sluicegate.contracts.image import ImageErrorKind, ImageFailure, Processed
from sluicegate.contracts.image_spec import PLACEHOLDER, ImageSpec, parse_spec
from sluicegate.contracts.reasons import QUEUE_FULL
from sluicegate.contracts.request import Request
from sluicegate.kernels.lru_ttl import ENTRY_BYTES
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture, sized
from tests.apps.images.service_parts import Parts, parts_of
from tests.prove.seeds import first

HOUR_S = 3_600.0
Story = Callable[[OriginServer, Parts], Awaitable[None]]


class Recorded:
    """Contents of which one method is another."""

    def __init__(
        self, contents: Contents, original: Callable[[str], Awaitable[bytes | None]]
    ) -> None:
        self._contents = contents
        self.original = original

    def __getattr__(self, name: str) -> object:
        return getattr(self._contents, name)


def run(folder: Path, story: Story, settings: PipelineSettings | None = None, **more: Any) -> None:
    async def play() -> None:
        async with OriginServer() as server, parts_of(folder, settings=settings, **more) as parts:
            await story(server, parts)

    asyncio.run(asyncio.wait_for(play(), 60))


async def failure_of(parts: Parts, url: str, width: int = 16) -> NoImageError:
    with pytest.raises(NoImageError) as raised:
        await parts.image(url, width)
    return raised.value


def test_an_image_is_downloaded_once_and_each_variant_made_once(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        for _ in range(3):
            small, large = await parts.image(url, 16), await parts.image(url, 32)
            assert Pillow.open(BytesIO(small.data)).size == (16, 11)
            assert Pillow.open(BytesIO(large.data)).size == (32, 21)
            assert small.digest == sha256(small.data).hexdigest()
        assert server.asked["/a.png"] == 1
        assert len(parts.processor.done) == 2
        assert parts.pipeline.counts.variant_hits == 4

    run(tmp_path, story)


def test_a_placeholder_is_made_of_a_variant_when_it_is_asked_for_and_kept(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        image = await parts.image(url, 40)
        assert len(parts.processor.done) == 1
        placeholder = await parts.pipeline.placeholder(image, Request(url))
        assert parts.processor.done[1:] == [(len(image.data), parse_spec(PLACEHOLDER).canonical())]
        assert max(Pillow.open(BytesIO(b64decode(placeholder))).size) == 32
        again = await parts.image(url, 40)
        assert await parts.pipeline.placeholder(again, Request(url)) == placeholder
        assert again.data == image.data
        assert len(parts.processor.done) == 2

    run(tmp_path, story)


def test_it_all_survives_a_restart(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        server.pages["/bad.png"] = Page(b"no image")
        await parts.image(server.url("/a.png"))
        await failure_of(parts, server.url("/bad.png"))
        await parts.engine.close()
        async with parts_of(tmp_path) as again:
            await again.image(server.url("/a.png"))
            await failure_of(again, server.url("/bad.png"))
            assert again.processor.done == []
        assert server.asked == {"/a.png": 1, "/bad.png": 1}

    run(tmp_path, story)


def test_the_same_bytes_at_other_urls_are_stored_and_processed_once(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for number in range(5):
            server.pages[f"/{number}.png"] = Page(picture(7))
            await parts.image(server.url(f"/{number}.png"))
        upload = await parts.pipeline.upload(picture(7), Request("upload"))
        assert (await parts.image(upload.id)).data
        assert (await parts.image("upload:" + upload.id)).data
        assert upload.known
        assert len(parts.processor.done) == 1
        assert parts.contents.written == 2  # the original and its variant
        assert parts.pipeline.counts.saved_bytes == 5 * len(picture(7))

    run(tmp_path, story)


@pytest.mark.parametrize("count", first(1, [1_000, 10_000]))
def test_many_who_ask_at_once_for_a_new_image_cause_one_download_and_one_processing(
    tmp_path: Path, count: int
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1), head_after_s=0.05)
        parts.processor.gate = asyncio.Event()
        asked = [asyncio.ensure_future(parts.image(server.url("/a.png"))) for _ in range(count)]
        while not parts.processor.done:
            await asyncio.sleep(0.01)
        parts.processor.gate.set()
        found = await asyncio.gather(*asked)
        assert len({one.digest for one in found}) == 1
        assert server.asked["/a.png"] == 1
        assert len(parts.processor.done) == 1

    run(tmp_path, story)


def test_the_first_to_ask_may_leave_and_the_others_are_served(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        parts.processor.gate = asyncio.Event()
        url = server.url("/a.png")
        first, second = (asyncio.ensure_future(parts.image(url)) for _ in range(2))
        while not parts.processor.done:
            await asyncio.sleep(0.01)
        first.cancel()
        parts.processor.gate.set()
        assert (await second).data
        assert len(parts.processor.done) == 1

    run(tmp_path, story)


def test_what_waits_for_a_worker_is_not_in_memory_and_its_wait_is_no_work(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        read: list[str] = []
        original = parts.contents.original

        async def recorded(digest: str) -> bytes | None:
            read.append(digest)
            return await original(digest)

        parts.pipeline.contents = Recorded(parts.contents, recorded)  # type: ignore[assignment]
        parts.processor.gate = asyncio.Event()
        for number in range(5):
            server.pages[f"/{number}.png"] = Page(picture(number))
        urls = [server.url(f"/{number}.png") for number in range(5)]
        asked = [asyncio.ensure_future(parts.image(url)) for url in urls]
        while parts.queue.stats().queued < 3 or len(parts.processor.done) < 2:
            await asyncio.sleep(0.01)
        assert len(read) == 2
        parts.advance(0.05)
        parts.processor.gate.set()
        found = await asyncio.gather(*asked)
        assert sorted(one.took_us for one in found) == [0, 0, 0, 50_000, 50_000]
        assert parts.pipeline.counts.process_us == 100_000

    run(tmp_path, story)


def test_an_original_is_in_memory_for_its_next_sizes_and_so_many_bytes_are(tmp_path: Path) -> None:
    bodies = {f"/{number}.png": picture(number, form="TIFF") for number in range(5)}
    size = len(bodies["/0.png"])

    async def story() -> None:
        room = 4 * (size + ENTRY_BYTES)  # for four of the five
        async with OriginServer() as server, parts_of(tmp_path, recent_bytes=room) as parts:
            read: list[str] = []
            inner = parts.contents.read

            async def record(digest: str, generation: int, size: int) -> bytes | None:
                read.append(digest)
                return await inner(digest, generation, size)

            parts.contents.read = record  # type: ignore[method-assign]
            server.pages |= {path: Page(body) for path, body in bodies.items()}
            for path in bodies:
                for width in (8, 16, 24):
                    await parts.image(server.url(path), width)
            assert not read  # downloaded, and made of what was downloaded
            await parts.image(server.url("/0.png"), 32)
            assert read == [sha256(bodies["/0.png"]).hexdigest()]  # the first had to leave
            await parts.image(server.url("/0.png"), 40)
            assert len(read) == 1
            # What is no longer stored is not made of what is remembered.
            await parts.contents.delete(await parts.blob_of(read[0]))
            await parts.maps.swap_content(read[0], (await parts.maps.content(read[0])).raw, None)
            asked = server.asked["/0.png"]
            assert (await parts.image(server.url("/0.png"), 44)).data
            assert server.asked["/0.png"] == asked + 1

    asyncio.run(asyncio.wait_for(story(), 60))


def test_an_image_is_checked_after_its_time_and_costs_nothing_if_unchanged(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1), headers={"ETag": '"1"'})
        url = server.url("/a.png")
        first = await parts.image(url)
        parts.advance(HOUR_S - 1)
        assert (await parts.image(url)) == first._replace(made=False)
        assert server.asked["/a.png"] == 1
        parts.advance(2)
        assert (await parts.image(url)).digest == first.digest
        assert server.asked["/a.png"] == 2
        assert parts.pipeline.counts.unchanged == 1
        # For as long again.
        parts.advance(HOUR_S - 1)
        await parts.image(url)
        assert server.asked["/a.png"] == 2

    run(tmp_path, story)


@pytest.mark.parametrize(
    "after", ["Tue, 02 Jan 2024 00:00:00 GMT", "Sun, 31 Dec 2023 00:00:00 GMT"]
)
def test_an_image_that_changed_is_found_even_if_its_date_went_back(
    tmp_path: Path, after: str
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        before = "Mon, 01 Jan 2024 00:00:00 GMT"
        server.pages["/a.png"] = Page(picture(1), headers={"Last-Modified": before})
        url = server.url("/a.png")
        first = await parts.image(url)
        server.pages["/a.png"] = Page(picture(2), headers={"Last-Modified": after})
        parts.advance(2 * HOUR_S)
        second = await parts.image(url)
        assert second.digest != first.digest
        assert second.last_modified == after
        assert parts.pipeline.counts.changed == 1

    run(tmp_path, story)


def test_a_caller_who_knows_of_a_newer_version_has_it_found_at_once(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        old, new = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"
        server.pages["/a.png"] = Page(picture(1), headers={"Last-Modified": old})
        url = server.url("/a.png")
        await parts.image(url)
        parts.advance(10)
        await parts.image(url, modified=old)
        assert server.asked["/a.png"] == 1  # no newer than what is known
        server.pages["/a.png"] = Page(picture(2), headers={"Last-Modified": new})
        assert (await parts.image(url, modified=new)).last_modified == new
        await parts.image(url, modified=new)
        assert server.asked["/a.png"] == 2
        # Who claims a version that does not exist has it asked once in `recheck_s`, no more.
        for _ in range(5):
            parts.advance(0.3)
            await parts.image(url, modified="Fri, 01 Jan 2044 00:00:00 GMT")
        assert server.asked["/a.png"] == 3
        with pytest.raises(BadValue):
            await parts.image(url, modified="yesterday")

    run(tmp_path, story)


KINDS = {
    "/none.png": (Page(status=404), "not_found", 300),
    "/down.png": (Page(status=500), "origin_down", 10),
    "/text.png": (Page(b"<html>"), "wrong_type", 300),
    "/cut.png": (Page(picture(1)[:-40]), "corrupt", 3_600),
    "/there.png": (
        Page(status=302, headers={"Location": "http://169.254.169.254/"}),
        "forbidden",
        300,
    ),
}


@pytest.mark.parametrize("path", KINDS)
def test_a_failure_is_remembered_for_as_long_as_its_kind_says(tmp_path: Path, path: str) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        page, kind, seconds = KINDS[path]
        server.pages[path] = page
        url = server.url(path)
        for _ in range(3):
            assert (await failure_of(parts, url)).kind == kind
        parts.advance(seconds - 1)
        assert (await failure_of(parts, url)).kind == kind
        work = server.asked[path] + len(parts.processor.done)
        server.pages[path] = Page(picture(9))
        parts.advance(2)
        assert (await parts.image(url)).data
        assert server.asked[path] + len(parts.processor.done) > work

    run(tmp_path, story, PipelineSettings(fresh_s=1, stale_s=0))


def test_a_failure_of_bytes_is_told_for_no_longer_than_its_url_has_them(tmp_path: Path) -> None:
    """It was: seven days in all caches, and an origin mends the image within the hour."""

    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/cut.png"] = Page(picture(1)[:-40])
        for _ in range(2):  # found, and remembered
            failure = await failure_of(parts, server.url("/cut.png"))
            assert failure.until_us == parts.clock.now_us() + 60_000_000

    run(tmp_path, story, PipelineSettings(fresh_s=60))


def test_an_upload_is_what_it_is_however_old(tmp_path: Path) -> None:
    async def story(_server: OriginServer, parts: Parts) -> None:
        upload = await parts.pipeline.upload(picture(7), Request("upload"))
        parts.advance(86_400)
        image = await parts.image(upload.id)
        assert image.fresh_us == parts.clock.now_us() + 60_000_000

    run(tmp_path, story, PipelineSettings(fresh_s=60))


@pytest.mark.parametrize("kind", [ImageErrorKind.TIMEOUT, ImageErrorKind.NO_MEMORY, None])
def test_what_a_worker_gave_up_is_tried_again_soon_and_at_once_if_no_image_is_to_blame(
    tmp_path: Path,
    kind: ImageErrorKind | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url, tries = server.url("/a.png"), 0

        async def give_up(_original: bytes, _spec: ImageSpec) -> Processed:
            nonlocal tries
            tries += 1
            raise ImageFailure(kind, "gave up") if kind else Unavailable("workers", "none is free")

        with monkeypatch.context() as patch:
            patch.setattr(parts.processor, "process", give_up)
            for _ in range(3):
                with pytest.raises(NoImageError if kind else Unavailable):
                    await parts.image(url)
                parts.advance(29)
            assert tries == (1 if kind else 3)
            named = [f"w=16,format=png of {url}: {kind}: gave up"] if kind else []
            assert [one.getMessage() for one in caplog.records] == named
        # 87 seconds after the first try: what is forgotten after 60 was not held until here.
        assert (await parts.image(url)).data

    run(tmp_path, story)


def test_what_other_bounds_refused_is_found_out_anew_and_what_is_corrupt_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        start_us = parts.clock.now_us()
        assert await parts.maps.bounds_since_us("100", start_us) == start_us
        tries: list[str] = []
        for kind in (ImageErrorKind.TOO_LARGE, ImageErrorKind.CORRUPT):

            async def refuse(original: bytes, _spec: ImageSpec, kind: str = kind) -> Processed:
                tries.append(kind)
                raise ImageFailure(ImageErrorKind(kind), "found")

            server.pages[f"/{kind}.png"] = Page(picture(len(kind)))
            with monkeypatch.context() as patch:
                patch.setattr(parts.processor, "process", refuse)
                await failure_of(parts, server.url(f"/{kind}.png"))
        parts.advance(60)
        now_us = parts.clock.now_us()
        # Started again as before, all holds.
        parts.pipeline.bounds_since_us = await parts.maps.bounds_since_us("100", now_us)
        for name in ("too_large", "corrupt"):
            assert (await failure_of(parts, server.url(f"/{name}.png"))).kind == name
        parts.pipeline.bounds_since_us = await parts.maps.bounds_since_us("200", now_us)
        assert parts.pipeline.bounds_since_us == now_us
        assert (await parts.image(server.url("/too_large.png"))).data
        assert (await failure_of(parts, server.url("/corrupt.png"))).kind == "corrupt"
        assert tries == ["too_large", "corrupt"]

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [("forbidden", {"networks": ()}), ("too_large", {"bytes_max": 10}), ("not_found", {})],
)
def test_what_other_bounds_kept_from_an_origin_is_asked_for_anew(
    tmp_path: Path, kind: str, bounds: dict[str, Any]
) -> None:
    async def play() -> None:
        async with OriginServer() as server:
            url = server.url("/a.png")
            if bounds:
                server.pages["/a.png"] = Page(picture(1))
            async with parts_of(tmp_path, **bounds) as parts:
                assert (await failure_of(parts, url)).kind == kind
            server.pages["/a.png"] = Page(picture(1))
            async with parts_of(tmp_path) as parts:
                assert (await failure_of(parts, url)).kind == kind  # by none, all holds
                parts.advance(1)
                parts.pipeline.bounds_since_us = parts.clock.now_us()
                if bounds:
                    assert (await parts.image(url)).data
                else:
                    assert (await failure_of(parts, url)).kind == kind

    asyncio.run(asyncio.wait_for(play(), 60))


def test_lifetimes_of_failures_are_settings(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/bad.png"] = Page(picture(1)[:-40])
        await failure_of(parts, server.url("/bad.png"))
        parts.advance(6)
        await failure_of(parts, server.url("/bad.png"))
        assert len(parts.processor.done) == 2

    run(tmp_path, story, PipelineSettings(lifetimes=FailureLifetimes(content_s=5)))


def test_bulk_work_that_is_refused_is_tried_again_and_not_for_ever() -> None:
    async def story() -> None:
        tries = 0

        async def make() -> int:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise Refused(Decision(False, 0, 1_000, 1_000, QUEUE_FULL, "images"))
            return tries

        assert await try_in_bulk(make) == 3

        async def never() -> int:
            nonlocal tries
            tries += 1
            raise Refused(Decision(False, 0, 1_000, 1_000, QUEUE_FULL, "images"))

        tries = 0
        with pytest.raises(Refused):
            await try_in_bulk(never)
        assert tries == BULK_TRIES

    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluicegate.apps.images.pipeline.asyncio.sleep", sleep)
        asyncio.run(story())
    assert waited == [0.1, 0.2, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]


def test_an_image_is_served_on_while_its_origin_is_down_and_goes_when_it_is_gone(
    tmp_path: Path,
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        first = await parts.image(url)
        server.pages["/a.png"] = Page(status=503)
        parts.advance(2 * HOUR_S)
        for _ in range(5):
            assert (await parts.image(url)).digest == first.digest
        asked = server.asked["/a.png"]
        assert asked <= 3  # one check, and its repetitions
        assert parts.pipeline.counts.stale == 5
        server.pages["/a.png"] = Page(picture(2))
        await parts.settle()
        parts.advance(11)
        assert (await parts.image(url)).digest == first.digest  # at once, and checked behind
        await parts.settle()
        assert (await parts.image(url)).digest != first.digest
        server.pages["/a.png"] = Page(status=410)
        parts.advance(2 * HOUR_S)
        assert (await failure_of(parts, url)).kind == "not_found"

    run(tmp_path, story)


def test_due_image_of_silent_origin_is_served_at_once(tmp_path: Path) -> None:
    """Each caller waited for the time-out of the origin."""

    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        first = await parts.image(url)
        gate = threading.Event()
        server.pages["/a.png"] = Page(picture(2), gate=gate)
        parts.advance(2 * HOUR_S)
        for _ in range(20):
            assert (await parts.image(url)).digest == first.digest
            assert not gate.is_set()
        while server.asked["/a.png"] < 2:
            await asyncio.sleep(0.01)
        assert (await parts.image(url)).digest == first.digest
        assert server.asked["/a.png"] == 2  # one check, however many ask
        assert parts.pipeline.counts.stale == 21
        gate.set()
        await parts.settle()
        assert (await parts.image(url)).digest != first.digest

    run(tmp_path, story, PipelineSettings(), idle_s=60, timeout_s=60)


def test_image_that_is_due_for_too_long_waits_for_its_check(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        first = await parts.image(url)
        server.pages["/a.png"] = Page(picture(2))
        parts.advance(HOUR_S + 60)
        assert (await parts.image(url)).digest != first.digest

    run(tmp_path, story, PipelineSettings(stale_s=60))


@pytest.mark.parametrize(
    ("header", "after_s", "asked"),
    [
        ("", HOUR_S - 1, 1),
        ("max-age=60", 59, 1),
        ("max-age=60", 61, 2),
        ("max-age=60, s-maxage=90", 89, 1),
        ("max-age=7200", HOUR_S + 1, 1),
        ("max-age=86400", 2 * HOUR_S + 1, 2),  # held to `fresh_max_s`
        ("max-age=0", 0.5, 1),  # and to `recheck_s`
        ("max-age=0", 1.5, 2),
        ("no-cache", 0.5, 1),
        ("no-cache", 1.5, 2),
        ("no-store", 1.5, 2),
    ],
)
def test_origin_is_asked_when_its_lifetime_is_over(
    tmp_path: Path, header: str, after_s: float, asked: int
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        headers = {"ETag": '"a"'} | ({"Cache-Control": header} if header else {})
        server.pages["/a.png"] = Page(picture(1), headers=headers)
        first = await parts.image(server.url("/a.png"))
        parts.advance(after_s)
        again = await parts.image(server.url("/a.png"))
        await parts.settle()
        assert again.digest == first.digest
        assert server.asked["/a.png"] == asked

    run(tmp_path, story, PipelineSettings(fresh_max_s=2 * HOUR_S))


@pytest.mark.parametrize("header", ["no-cache", "no-store", "max-age=60, must-revalidate"])
def test_stale_image_is_not_shown_where_its_origin_forbids_it(tmp_path: Path, header: str) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        headers = {"Cache-Control": header}
        server.pages["/a.png"] = Page(picture(1), headers=headers)
        url = server.url("/a.png")
        first = await parts.image(url)
        server.pages["/a.png"] = Page(picture(2), headers=headers)
        parts.advance(61)
        second = await parts.image(url)
        assert second.digest != first.digest
        # Nobody waits for an origin that was found to fail: what it had is shown.
        server.pages["/a.png"] = Page(status=503)
        parts.advance(61)
        assert (await parts.image(url)).digest == second.digest
        gate = threading.Event()
        server.pages["/a.png"] = Page(picture(3), headers=headers, gate=gate)
        parts.advance(61)
        assert (await parts.image(url)).digest == second.digest
        gate.set()
        await parts.settle()
        assert (await parts.image(url)).digest not in (first.digest, second.digest)

    run(tmp_path, story, PipelineSettings(), idle_s=60, timeout_s=60)


def test_not_modified_renews_lifetime_that_origin_says(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for header, lifetime_s in (("max-age=60", 60), ("max-age=90", 90), ("", 90)):
            headers = {"ETag": '"a"'} | ({"Cache-Control": header} if header else {})
            server.pages["/a.png"] = Page(picture(1), headers=headers)
            await parts.image(server.url("/a.png"))
            await parts.settle()
            record = await parts.maps.url(server.url("/a.png"))
            assert record is not None
            assert record.lifetime_s == lifetime_s
            parts.advance(100)
        assert parts.pipeline.counts.unchanged == 2

    run(tmp_path, story, PipelineSettings())


def test_image_that_must_not_be_stored_is_forgotten_soon(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for path, header in (("/a.png", "no-store"), ("/b.png", "private")):
            server.pages[path] = Page(picture(len(path)), headers={"Cache-Control": header})
            await parts.image(server.url(path))
        parts.advance(2 * HOUR_S)
        found = await parts.collector().collect()
        assert (found.urls, found.urls_removed) == (1, 1)

    run(tmp_path, story)


def test_what_is_damaged_is_noticed_and_mended(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a.png"] = Page(picture(1))
        url = server.url("/a.png")
        first = await parts.image(url)
        blobs = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        assert len(blobs) == 2
        for at, blob in enumerate(blobs):
            blob.write_bytes(blob.read_bytes()[:-1] + b"?" if at else b"")
        assert len((await parts.collector().check()).errors) == 4  # each, and what points to it
        assert (await parts.image(url)).data == first.data
        assert (await parts.image(url, 8)).data
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_a_damaged_upload_is_never_served_and_an_unknown_one_not_found(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        assert (await failure_of(parts, "upload:" + "0" * 64)).kind == "not_found"
        upload = await parts.pipeline.upload(picture(3), Request("x"))
        for blob in (tmp_path / "blobs").rglob("*"):
            if blob.is_file():
                blob.write_bytes(picture(4))
        with pytest.raises(Exception, match="missing or damaged"):
            await parts.image(upload.id)
        await parts.pipeline.upload(picture(3), Request("x"))
        assert (await parts.image(upload.id)).data

    run(tmp_path, story)


def test_a_catalogue_processes_exactly_its_new_pairs_and_stores_each_content_once(
    tmp_path: Path,
) -> None:
    """Zipf calls on 200 URLs, of which 40% have the bytes of another."""
    chance = random.Random(12)
    urls = 200
    contents = [number if number < 120 else chance.randrange(120) for number in range(urls)]
    weights = [1 / (rank + 1) for rank in range(urls)]

    async def story(server: OriginServer, parts: Parts) -> None:
        for number, content in enumerate(contents):
            body = picture(content, width=24, height=16)
            server.pages[f"/{number}"] = Page(body, headers={"ETag": f'"{content}"'})

        async def week(calls: int) -> set[tuple[int, int]]:
            pairs = set()
            for number in chance.choices(range(urls), weights, k=calls):
                width = chance.choice((8, 12))
                pairs.add((contents[number], width))
                await parts.image(server.url(f"/{number}"), width)
            return pairs

        first = await week(1_500)
        assert len(parts.processor.done) == len(first)
        assert parts.contents.written <= len({content for content, _ in first}) + len(first)
        parts.advance(2 * HOUR_S)
        changed = chance.sample(range(urls), 5)
        for number in changed:
            contents[number] = 1_000 + number
            body = picture(contents[number], width=24, height=16)
            server.pages[f"/{number}"] = Page(body, headers={"ETag": f'"{contents[number]}"'})
        second = await week(1_500)
        new = second - first
        assert len(parts.processor.done) == len(first) + len(new)
        assert (await parts.collector().check()).errors == []

    run(tmp_path, story)


def test_before_the_workers_the_least_critical_makes_room(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        parts.pipeline.queue = Gate(GateSettings(slots=1, length_max=1))
        parts.processor.gate = asyncio.Event()
        server.pages["/a"] = Page(picture(1))
        url = server.url("/a")

        def ask(width: int, criticality: Criticality) -> asyncio.Task[Image]:
            request = Request(url, criticality=criticality)
            return asyncio.create_task(parts.pipeline.image(url, sized(width), request))

        async def waits(count: int) -> None:
            while parts.pipeline.queue.stats().queued < count:
                await asyncio.sleep(0.001)

        first = ask(10, Criticality.DEGRADED)
        while not parts.processor.done:
            await asyncio.sleep(0.001)
        bulk = ask(11, Criticality.BULK)
        await waits(1)
        critical = ask(12, Criticality.CRITICAL)
        with pytest.raises(Refused) as raised:
            await bulk
        assert raised.value.decision.reason is QUEUE_FULL
        assert parts.pipeline.refused == {("BULK", "queue_full"): 1}
        parts.processor.gate.set()
        assert (await first).width == 10
        assert (await critical).width == 12

    run(tmp_path, story)


def test_verdict_on_original_holds_for_every_size(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/cut.png"] = Page(picture(1)[:-40])
        url = server.url("/cut.png")
        for width in (16, 32, 64):
            assert (await failure_of(parts, url, width)).kind == "corrupt"
        assert len(parts.processor.done) == 1

    run(tmp_path, story)


def test_records_of_first_version_are_read() -> None:
    record = VariantRecord("w=9", "an engine", "ab", size=7)
    old = encode(record).replace(b'"v":2', b'"v":1')
    assert old != encode(record)
    assert decode(VariantRecord, old) == record
    with pytest.raises(BadValue, match="versions up to 2"):
        decode(VariantRecord, old.replace(b'"v":1', b'"v":3'))
