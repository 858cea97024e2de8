"""Takedown: removed images are not served, and blocked images do not come back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from sluicegate.apps.images.failures import NoImageError
from sluicegate.apps.images.maps import LOOKS, URLS, VARIANTS
from sluicegate.apps.images.owners import OWNERS_MAX, check_owner, owners_of, with_owner
from sluicegate.apps.images.pipeline import PipelineSettings
from sluicegate.apps.images.records import UrlRecord, decode
from sluicegate.apps.images.takedown import Removed, Selection, Takedown
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.request import Request
from sluicegate.policies.access import token_digest
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture, sized
from tests.apps.images.process import ImagesProcess, origin_in_thread, path, stores
from tests.apps.images.service_parts import Parts, parts_of
from tests.engines.child import run_to_end, until

Story = Callable[[OriginServer, Parts, Takedown], Awaitable[None]]
TOKEN = "t" * 32
BEARER = f"Bearer {TOKEN}"


def run(folder: Path, story: Story) -> None:
    async def play() -> None:
        settings = PipelineSettings(near="report")
        async with OriginServer() as server, parts_of(folder, settings=settings) as parts:
            takedown = Takedown(parts.maps, parts.clock, parts.pipeline.forget)
            await story(server, parts, takedown)

    asyncio.run(asyncio.wait_for(play(), 60))


async def removed(takedown: Takedown, kind: str, value: str, **more: object) -> Removed:
    run = takedown.run(Selection(kind, value), by="tester", **more)  # type: ignore[arg-type]
    return [done async for done in run][-1]


async def rows(parts: Parts, space: str) -> int:
    return len([entry async for entry in parts.maps.walk(space)])


async def kind_of(parts: Parts, url: str) -> str:
    with pytest.raises(NoImageError) as raised:
        await parts.image(url)
    return raised.value.kind


def test_removed_url_is_downloaded_again(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        server.pages["/a"], server.pages["/b"] = Page(picture(1)), Page(picture(2))
        for width in (16, 24):
            await parts.image(server.url("/a"), width)
        await parts.image(server.url("/b"))
        assert parts.pipeline.looks is not None
        await parts.pipeline.looks.drain()
        before = list(parts.pipeline.changes)
        done = await removed(takedown, "url", server.url("/a"))
        assert (done.urls, done.variants) == (1, 2)
        assert parts.pipeline.changes != before
        assert [await rows(parts, space) for space in (URLS, VARIANTS, LOOKS)] == [1, 1, 1]
        await parts.image(server.url("/a"))
        assert server.asked == {"/a": 2, "/b": 1}

    run(tmp_path, story)


def test_removed_failure_is_forgotten(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        assert await kind_of(parts, server.url("/late")) == "not_found"
        server.pages["/late"] = Page(picture(1))
        assert await kind_of(parts, server.url("/late")) == "not_found"
        await removed(takedown, "url", server.url("/late"), purge=True)
        assert (await parts.image(server.url("/late"))).data

    run(tmp_path, story)


def test_blocked_url_is_not_asked_for_until_unblocked(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        server.pages["/a"] = Page(picture(1))
        url = server.url("/a")
        await parts.image(url)
        await removed(takedown, "url", url, block=True, reason="notice 17")
        assert await kind_of(parts, url) == "blocked"
        assert server.asked["/a"] == 1
        assert [one.reason for one in await takedown.blocks(9)] == ["notice 17"]
        assert await takedown.unblock(Selection("url", url), by="tester")
        assert not await takedown.unblock(Selection("url", url), by="tester")
        assert (await parts.image(url)).data

    run(tmp_path, story)


def test_blocked_hash_is_refused_at_every_url_and_as_upload(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        data = picture(1)
        server.pages |= {name: Page(data) for name in ("/a", "/b", "/c")}
        server.pages["/other"] = Page(picture(2))
        await parts.pipeline.upload(data, Request("upload"))
        for name in ("/a", "/b", "/other"):
            await parts.image(server.url(name))
        digest = sha256(data).hexdigest()
        done = await removed(takedown, "id", digest, block=True)
        assert done.urls == 3  # two URLs and the upload
        for name in ("/a", "/b", "/c"):
            assert await kind_of(parts, server.url(name)) == "blocked"
        assert await kind_of(parts, digest) == "blocked"
        with pytest.raises(NoImageError, match="blocked"):
            await parts.pipeline.upload(data, Request("upload"))
        assert (await parts.image(server.url("/other"))).data  # control

    run(tmp_path, story)


def test_download_in_flight_does_not_bring_blocked_url_back(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        url = server.url("/slow")
        block = asyncio.Event()
        fetch = parts.origin.fetch

        async def held(*words: object) -> object:
            found = await fetch(*words)  # type: ignore[arg-type]
            await block.wait()
            return found

        server.pages["/slow"] = Page(picture(1))
        parts.origin.fetch = held  # type: ignore[method-assign, assignment]
        loading = asyncio.create_task(parts.image(url))
        while not server.asked["/slow"]:
            await asyncio.sleep(0)
        await removed(takedown, "url", url, block=True)
        block.set()
        with pytest.raises(NoImageError, match="blocked"):
            await loading
        assert await kind_of(parts, url) == "blocked"

    run(tmp_path, story)


def test_images_of_owner_are_removed_and_shared_ones_stay(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        for number, owners in enumerate((["one"], ["two"], ["one", "two"], [""])):
            server.pages[f"/{number}"] = Page(picture(number))
            for owner in owners:
                url = server.url(f"/{number}")
                await parts.pipeline.image(url, sized(16), Request(url), owner=owner)
        done = await removed(takedown, "owner", "one")
        assert done.urls == 2
        left = [decode(UrlRecord, raw) async for _, _, raw in parts.maps.walk(URLS)]
        assert sorted(owners_of(one) for one in left) == [("127.0.0.1",), ("two",), ("two",)]
        # The origin host is the owner of what names none.
        assert (await removed(takedown, "owner", "127.0.0.1")).urls == 1

    run(tmp_path, story)


def test_purge_makes_variants_again_and_keeps_original(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        server.pages["/a"] = Page(picture(1), headers={"ETag": '"1"'})
        url = server.url("/a")
        await parts.image(url)
        done = await removed(takedown, "url", url, purge=True)
        assert (done.urls, done.variants) == (1, 1)
        await parts.image(url)
        assert len(parts.processor.done) == 2
        assert parts.pipeline.counts.downloads == 1  # asked, and unchanged
        upload = await parts.pipeline.upload(picture(3), Request("upload"))
        await removed(takedown, "id", upload.id, purge=True)
        assert (await parts.image(upload.id)).data

    run(tmp_path, story)


def test_every_call_is_audited_newest_first(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts, takedown: Takedown) -> None:
        epoch = await parts.maps.epoch()
        await removed(takedown, "url", server.url("/a"), block=True, reason="why")
        parts.advance(1)
        await takedown.unblock(Selection("url", server.url("/a")), by="other")
        assert await parts.maps.epoch() > epoch
        new, old = await takedown.audit(9)
        assert (new.action, new.by) == ("unblock", "other")
        assert (old.action, old.by, old.value) == ("remove", "tester", server.url("/a"))
        assert (old.reason, old.blocked) == ("why", True)

    run(tmp_path, story)


def test_owners_have_bounds() -> None:
    record = UrlRecord("https://example.com/a")
    for number in range(OWNERS_MAX + 3):
        record = with_owner(record, f"shop-{number}")
    assert len(owners_of(record)) == OWNERS_MAX
    assert with_owner(record, "shop-0") is record
    for bad in ("", "a b", "a,b", "x" * 65, "a\r\nb"):
        with pytest.raises(BadValue, match="letters, digits"):
            check_owner("x-image-owner", bad)


# The service.


@pytest.fixture(scope="module")
def origin() -> Iterator[OriginServer]:
    with origin_in_thread() as running:
        yield running


def test_removal_needs_caller_and_reaches_other_services(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/a.png"] = Page(picture(21))
    url = origin.url("/a.png")
    with (
        ImagesProcess(tmp_path, "--token", TOKEN) as one,
        ImagesProcess(tmp_path, "--token", TOKEN) as two,
    ):
        for server in (one, two):
            for _ in range(2):
                found = server.image(url, authorization=BEARER, x_image_owner="shop-7")
                assert found.status == 200
        digest = sha256(picture(21)).hexdigest()[:32]
        assert two.image(url, authorization=BEARER).headers["surrogate-key"] == f"{digest} shop-7"
        assert two.image(url, authorization=BEARER).headers["cache-tag"] == f"{digest},shop-7"
        target = "/v1/images?owner=shop-7"
        assert one.get(target, method="DELETE").status == 401
        gone = one.get(target, method="DELETE", authorization=BEARER)
        assert json.loads(gone.body.splitlines()[-1])["urls"] == 1
        blocked = one.get(
            f"/v1/images?url={url}&block=yes&reason=x", method="DELETE", authorization=BEARER
        )
        assert json.loads(blocked.body.splitlines()[-1])["blocked"] is True
        assert one.image(url, authorization=BEARER).status == 451
        # The other service has it in memory, and notices.
        until(
            lambda: two.image(url, authorization=BEARER).status == 451, "the other service forgets"
        )
        kept = json.loads(one.get("/v1/audit", authorization=BEARER).body)["takedowns"]
        assert [(entry["kind"], entry["reason"]) for entry in kept] == [("url", "x"), ("owner", "")]
        assert (
            json.loads(one.get("/v1/blocks", authorization=BEARER).body)["blocks"][0]["value"]
            == url
        )
        for wrong in ("", "?url=7", "?id=7", f"?url={url}&owner=a", "?owner=a&block=yes"):
            assert (
                one.get(f"/v1/images{wrong}", method="DELETE", authorization=BEARER).status == 400
            ), wrong
        assert one.get(f"/v1/blocks?url={url}", method="DELETE", authorization=BEARER).status == 200
        assert one.get(f"/v1/blocks?url={url}", method="DELETE", authorization=BEARER).status == 404
        assert one.image(url, authorization=BEARER).status == 200


def test_anonymous_caller_removes_nothing_and_names_no_owner(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/b.png"] = Page(picture(22))
    url = origin.url("/b.png")
    with ImagesProcess(tmp_path) as server:
        assert server.image(url).status == 200
        for target, method in (
            (f"/v1/images?url={url}", "DELETE"),
            (f"/v1/purge?url={url}", "POST"),
        ):
            found = server.get(f"{target}?url={url}", method=method)
            assert found.status == 403
            assert b"add --access FILE or --token TOKEN" in found.body
        assert server.get(path(url), x_image_owner="shop-7").status == 403
        assert server.image(url).headers["surrogate-key"].endswith(" 127.0.0.1")


def test_caller_names_itself_as_owner_and_operator_anyone(
    tmp_path: Path, origin: OriginServer
) -> None:
    """Any caller could claim an image for another owner, and so keep it from removal."""
    origin.pages["/c.png"] = Page(picture(23))
    url, access = origin.url("/c.png"), tmp_path / "access.toml"
    grants = {"shop-7": '"fetch", "upload"', "boss": '"fetch", "operate"'}
    access.write_text(
        "".join(
            f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(name * 8)}"\n'
            f"grants = [{granted}]\n"
            for name, granted in grants.items()
        )
    )
    with ImagesProcess(tmp_path, "--access", str(access)) as server:
        shop, boss = (f"Bearer {name * 8}" for name in grants)
        assert server.image(url, authorization=shop, x_image_owner="shop-7").status == 200
        wanted = json.dumps({"images": [{"url": url, "spec": "w=16"}]}).encode()
        for target, body, kind in (
            (path(url), None, ""),
            ("/v1/images", picture(24), "image/png"),
            ("/v1/prefetch", wanted, "application/json"),
        ):
            found = server.get(
                target,
                method="GET" if body is None else "POST",
                body=body,
                authorization=shop,
                x_image_owner="shop-8",
                content_type=kind,
            )
            assert (found.status, b"'operate'" in found.body) == (403, True), (target, found.body)
        assert server.image(url, authorization=boss, x_image_owner="shop-8").status == 200


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return run_to_end([sys.executable, "-m", "tests.apps.images.serve", *words])


def test_owner_column_of_catalog_is_removed_by_command(
    tmp_path: Path, origin: OriginServer
) -> None:
    rows = ["url,shop"]
    for number, shop in enumerate(("one", "one", "two")):
        origin.pages[f"/c{number}.png"] = Page(picture(40 + number))
        rows.append(f"{origin.url(f'/c{number}.png')},{shop}")
    catalog = tmp_path / "catalog.csv"
    catalog.write_text("\n".join(rows))
    where = stores(tmp_path)
    words = ("import", str(catalog), "--spec", "w=9,format=png", *where)
    assert "shopp" in command(*words, "--owner-column", "shopp").stderr
    done = command(*words, "--owner-column", "shop")
    assert done.returncode == 0, done.stderr
    assert " one " in command("report", *where).stdout
    removed = command("remove", "--owner", "one", *where)
    assert removed.stdout == "removed 2 URLs and 2 variants\n", removed.stderr
    left = command("report", *where).stdout
    assert " one " not in left
    assert " two " in left
    url = origin.url("/c2.png")
    assert "and blocked" in command("remove", "--url", url, "--block", *where).stdout
    assert "blocked" in command("fetch", url, "w=9", "--out", str(tmp_path / "x"), *where).stderr
    assert command("remove", "--url", url, "--unblock", *where).returncode == 0
    assert "it is not blocked" in command("remove", "--url", url, "--unblock", *where).stderr
