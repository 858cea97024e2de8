"""Looks: what looks alike is found and shared, and what only seems to is not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sluicegate.apps.images.looks import NearImage, is_alike
from sluicegate.apps.images.maps import LOOKS
from sluicegate.apps.images.pipeline import PipelineSettings
from sluicegate.apps.images.records import LookRecord
from sluicegate.apps.images.report import make_pairs
from sluicegate.contracts.image import ImageInfo
from sluicegate.contracts.request import Request
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.service_parts import Parts, parts_of

GRACE_S = 60.0
Story = Callable[[OriginServer, Parts], Awaitable[None]]


def run(folder: Path, story: Story, near: str, **settings: Any) -> None:
    async def play() -> None:
        given = PipelineSettings(near=near, stale_s=0, **settings)
        async with OriginServer() as server, parts_of(folder, settings=given) as parts:
            await story(server, parts)

    asyncio.run(asyncio.wait_for(play(), 60))


def scene(number: int, *, size: tuple[int, int] = (96, 64), turn: bool = False) -> Image.Image:
    """A picture with shapes, of which no other number has the like; `turn` swaps its colours."""
    chance = random.Random(number)
    small = Image.new("RGB", (8, 6))
    small.putdata([tuple(chance.randrange(256) for _ in range(3)) for _ in range(48)])
    large = small.resize(size, Image.Resampling.BICUBIC)
    if turn:
        light, blue, red = large.convert("YCbCr").split()
        large = Image.merge("YCbCr", (light, red, blue)).convert("RGB")  # as bright as before
    return large


def saved(image: Image.Image, form: str = "PNG", **how: Any) -> bytes:
    out = BytesIO()
    image.save(out, form, **how)
    return out.getvalue()


FIRST, AGAIN = saved(scene(1)), saved(scene(1), "JPEG", quality=85)
SMALLER = saved(scene(1, size=(72, 48)))


def test_a_copy_in_another_format_is_reported_and_has_its_own_variants(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for name, body in (("a", FIRST), ("b", AGAIN), ("c", saved(scene(2)))):
            server.pages[f"/{name}"] = Page(body)
        images = [await parts.image(server.url(f"/{name}")) for name in "abc"]
        looks = parts.pipeline.looks
        assert looks is not None
        await looks.drain()
        found = await make_pairs(looks)
        assert found.pairs == 1
        pair = found.shown[0]
        assert {pair.url, pair.other} == {server.url("/a"), server.url("/b")}
        assert not pair.shared
        assert len({image.digest for image in images}) == 3
        assert parts.processor.described == 3
        # What is known is not decoded again.
        await parts.image(server.url("/a"), 20)
        await looks.drain()
        assert parts.processor.described == 3

    run(tmp_path, story, "report")


def test_shared_variants_are_those_of_the_first_and_outlive_a_restart(tmp_path: Path) -> None:
    digests: list[str] = []

    async def story(server: OriginServer, parts: Parts) -> None:
        for name, body in (("a", FIRST), ("b", AGAIN), ("s", SMALLER), ("c", saved(scene(2)))):
            server.pages[f"/{name}"] = Page(body)
        urls = [server.url(f"/{name}") for name in "absc"]
        first, again, smaller, other = [await parts.image(url) for url in urls]
        assert first.digest == again.digest == smaller.digest != other.digest
        assert len(parts.processor.done) == 2
        digests.append(first.original)
        assert (await parts.image(urls[1], 20)).digest == (await parts.image(urls[0], 20)).digest
        assert len(parts.processor.done) == 3

    async def later(server: OriginServer, parts: Parts) -> None:
        upload = await parts.pipeline.upload(AGAIN, Request("x"))
        assert (await parts.image(upload.id)).original == digests[0]
        assert parts.processor.done == []
        assert parts.processor.described == 0

    run(tmp_path, story, "share")
    run(tmp_path, later, "share")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(saved(scene(1, turn=True)), id="the same shapes in other colours"),
        pytest.param(saved(scene(1, size=(96, 72))), id="another shape"),
        pytest.param(saved(scene(1).transpose(Image.Transpose.FLIP_LEFT_RIGHT)), id="a mirror"),
        pytest.param(saved(scene(9)), id="another picture"),
    ],
)
def test_what_is_not_the_same_to_a_buyer_is_never_shared(tmp_path: Path, other: bytes) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"], server.pages["/b"] = Page(FIRST), Page(other)
        first, second = [await parts.image(server.url(path)) for path in ("/a", "/b")]
        assert first.digest != second.digest
        assert parts.pipeline.looks is not None
        assert parts.pipeline.looks.counts.alike == 0

    run(tmp_path, story, "share", near_distance=12)


def test_plain_pictures_are_not_alike(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for name, grey in (("a", 250), ("b", 252)):
            server.pages[f"/{name}"] = Page(saved(Image.new("RGB", (64, 64), (grey,) * 3)))
        first, second = [await parts.image(server.url(path)) for path in ("/a", "/b")]
        assert first.digest != second.digest

    run(tmp_path, story, "share")


def test_a_first_stays_while_others_share_it_and_goes_with_the_last(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"], server.pages["/b"] = Page(FIRST), Page(AGAIN)
        first = await parts.image(server.url("/a"))
        await parts.image(server.url("/b"))
        server.pages["/a"] = Page(saved(scene(3)))
        parts.advance(2 * 3_600)
        await parts.image(server.url("/a"))
        for _ in range(5):
            parts.advance(GRACE_S + 1)
            await parts.collector().collect()
        assert (await parts.collector().check()).failed == 0
        # What was made is still there; and a size that was not, is made of its first.
        done = len(parts.processor.done)
        assert (await parts.image(server.url("/b"))).digest == first.digest
        assert len(parts.processor.done) == done
        assert (await parts.image(server.url("/b"), 24)).original == first.original
        assert len(parts.processor.done) == done + 1
        server.pages["/b"] = Page(saved(scene(4)))
        parts.advance(2 * 3_600)
        await parts.image(server.url("/b"))
        for _ in range(5):
            parts.advance(GRACE_S + 1)
            await parts.collector().collect()
        assert (await parts.maps.content(first.original)).record is None
        looks = [entry async for entry in parts.maps.walk(LOOKS)]
        assert len(looks) == 2

    run(tmp_path, story, "share")


def test_without_its_first_a_copy_has_variants_of_its_own(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"], server.pages["/b"] = Page(FIRST), Page(AGAIN)
        first = await parts.image(server.url("/a"))
        await parts.image(server.url("/b"))
        raw, record = await parts.maps.content(first.original)
        assert record is not None
        await parts.maps.swap_content(first.original, raw, None)
        alone = await parts.image(server.url("/b"), 24)
        assert alone.original != first.original

    run(tmp_path, story, "share")


def test_what_cannot_be_decoded_is_a_remembered_failure_and_is_looked_at_once(
    tmp_path: Path,
) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        server.pages["/a"] = Page(FIRST[: len(FIRST) // 3])
        for _ in range(3):
            with pytest.raises(Exception, match=r"corrupt|wrong_type"):
                await parts.image(server.url("/a"))
        assert len(parts.processor.done) == 1
        assert parts.processor.described == 1

    run(tmp_path, story, "share")


def test_bulk_looks_have_a_bound_and_what_is_passed_over_is_looked_at_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluicegate.apps.images.looks.BACKLOG_MAX", 2)

    async def story(server: OriginServer, parts: Parts) -> None:
        looks = parts.pipeline.looks
        assert looks is not None
        for number in range(5):
            server.pages[f"/{number}"] = Page(saved(scene(number)))
            looks.note(f"{number:064x}", "x")
        assert looks.counts.passed_over == 3
        await looks.drain()
        for number in range(5):
            await parts.image(server.url(f"/{number}"))
            await looks.drain()
        assert parts.processor.described == 5

    run(tmp_path, story, "report")


def test_the_maps_find_what_comparing_with_all_finds(tmp_path: Path) -> None:
    """Random hashes, of which many are near each other."""
    chance = random.Random(5)
    seeds = [chance.getrandbits(64) for _ in range(20)]

    def one() -> int:
        found = chance.choice(seeds)
        for _ in range(chance.randrange(9)):
            found ^= 1 << chance.randrange(64)
        return found

    async def story(server: OriginServer, parts: Parts) -> None:
        looks = parts.pipeline.looks
        assert looks is not None
        by_hash: dict[int, str] = {}
        hashes: list[int] = []

        async def describe(_digest: str, _request: Request) -> ImageInfo:
            return ImageInfo("png", "image/png", 4, 3, 1, False, hashes[-1], bytes(48))

        looks._describe = describe
        for number in range(300):
            hashes.append(one())
            if hashes[-1] in by_hash or not 6 <= hashes[-1].bit_count() <= 58:
                continue
            digest = f"{number:064x}"
            by_hash[hashes[-1]] = digest
            await looks._examine(digest, "x", Request("x"))
        for distance in (0, 3, 4, 7, 8):
            for hash_, digest in list(by_hash.items())[:60]:
                look = await looks.look_of(digest)
                assert look is not None
                near: list[NearImage] = await looks.near(digest, look, distance)
                expected = {one for one in by_hash if (one ^ hash_).bit_count() <= distance}
                expected.remove(hash_)
                assert {one.look.hash for one in near} == expected

    run(tmp_path, story, "report")


def test_alike_is_symmetric_and_knows_colours_and_shape() -> None:
    look = LookRecord("x", 1, "80" * 48, 300, 200, 0)
    assert is_alike(look, look._replace(width=150, height=101))
    assert not is_alike(look, look._replace(width=150, height=110))
    assert is_alike(look, look._replace(colours="90" * 48))
    assert not is_alike(look, look._replace(colours="80" * 47 + "a0"))
