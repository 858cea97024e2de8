"""Pages of new pictures of one host, all asked for at once: no request is rejected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import Answer, ImagesProcess, origin_in_thread, path
from tests.apps.images.test_crowd import RealImages
from tests.engines.child import until

SPEC = "w=16,format=png"
IMG = {"Accept": "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"}
PATIENT = ("--timeout-s", "300", "--fallback-s", "300")
CONNECTIONS = ("--connections-per-address-max", "2000")


class GatedImages(ImagesProcess):
    """Makes a counted number of images until `open` is there."""

    module = "tests.apps.images.serve_gated"

    def __init__(self, folder: Path, capacity: int, *flags: str) -> None:
        (folder / "capacity").write_text(str(capacity))
        self.gate = folder / "open"
        super().__init__(folder, *CONNECTIONS, *flags)


@pytest.fixture(scope="module")
def origin() -> Iterator[OriginServer]:
    with origin_in_thread() as running:
        yield running


def pages(origin: OriginServer, name: str, count: int) -> list[str]:
    """The URLs of as many new pictures."""
    names = [f"/{name}-{number}.png" for number in range(count)]
    for number, one in enumerate(names):
        origin.pages[one] = Page(picture(number + len(origin.pages)))
    return [origin.url(one) for one in names]


async def _get(server: ImagesProcess, url: str, headers: dict[str, str]) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"GET {path(url, SPEC)} HTTP/1.1", f"Host: 127.0.0.1:{server.port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *rest = head.decode().split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return Answer(int(first.split()[1]), body, found)


def ask_at_once(
    server: ImagesProcess, urls: list[str], headers: dict[str, str] | None = None
) -> list[Answer]:
    """One connection for each URL, all of them open at once."""

    async def play() -> list[Answer]:
        return await asyncio.gather(*(_get(server, url, headers or {}) for url in urls))

    return asyncio.run(asyncio.wait_for(play(), 300))


@pytest.mark.parametrize("count", [30, 120, 500])
def test_page_of_new_pictures_of_one_host_is_served_whole(
    tmp_path: Path, origin: OriginServer, count: int
) -> None:
    urls = pages(origin, f"page{count}", count)
    with ImagesProcess(tmp_path, *CONNECTIONS, *PATIENT) as server:
        found = ask_at_once(server, urls)
        assert Counter(one.status for one in found) == {200: count}
        assert all(Image.open(BytesIO(one.body)).width == 16 for one in found)
        assert not [one for one in found if "x-image" in one.headers]
        assert server.metric("sluicegate_images_refused_total") == 0
    assert origin.most_at_once <= 16


def test_page_of_500_at_defaults_has_no_hole(tmp_path: Path, origin: OriginServer) -> None:
    """With the real library: each picture is an image, its own or a fallback."""
    pytest.importorskip("pyvips", reason="pyvips is missing: pip install '.[images]'")
    urls = pages(origin, "defaults", 500)
    with RealImages(tmp_path, *CONNECTIONS) as server:
        found = ask_at_once(server, urls, IMG)
        assert Counter(one.status for one in found) == {200: len(urls)}
        assert all(Image.open(BytesIO(one.body)).width == 16 for one in found)


def test_processing_queue_waits_as_long_as_its_callers(
    tmp_path: Path, origin: OriginServer
) -> None:
    urls = pages(origin, "queue", 60)
    with GatedImages(tmp_path, 0, *PATIENT) as server:

        async def play() -> list[Answer]:
            asked = [asyncio.create_task(_get(server, url, {})) for url in urls]
            places = 0
            while places < len(urls):
                await asyncio.sleep(0.1)
                queue = (await asyncio.to_thread(server.ask, "/v1/state"))[1]["queue"]
                places = queue["inflight"] + queue["queued"]
            server.gate.touch()
            return await asyncio.gather(*asked)

        found = asyncio.run(asyncio.wait_for(play(), 120))
        assert Counter(one.status for one in found) == {200: len(urls)}


def test_images_that_are_not_ready_are_replaced_and_made_behind(
    tmp_path: Path, origin: OriginServer
) -> None:
    """Five times as many as are made in time; the next page has all of them."""
    count, capacity = 500, 100
    urls = pages(origin, "load", count)
    flags = ("--timeout-s", "300", "--fallback-s", "3")
    with GatedImages(tmp_path, capacity, *flags) as server:
        found = ask_at_once(server, urls, IMG)
        assert Counter(one.status for one in found) == {200: count}
        fallbacks = [one for one in found if one.headers.get("x-image") == "fallback"]
        assert len(fallbacks) >= count - capacity
        for one in found:
            assert one.headers["content-type"] == "image/png"
            assert Image.open(BytesIO(one.body)).width == 16
        for one in fallbacks:
            assert one.headers["cache-control"] == "private, max-age=2"
            assert "etag" not in one.headers
        server.gate.touch()
        processed = "sluicegate_images_processed_total"
        until(lambda: server.metric(processed) >= count, "the images", 120, [server.child])
        again = ask_at_once(server, urls, IMG)
        assert not [one for one in again if "x-image" in one.headers]
        assert len({one.body for one in again}) == count
        assert server.metric(processed) == count


def test_fallback_is_nearest_variant_of_same_original(tmp_path: Path, origin: OriginServer) -> None:
    (url,) = pages(origin, "near", 1)
    with GatedImages(tmp_path, 2, "--fallback-s", "0.1") as server:
        made = {width: server.image(url, f"w={width},format=png").body for width in (10, 40)}
        near = server.image(url, "w=30,format=png", **{"Sec-Fetch-Dest": "image"})
        assert (near.status, near.headers["x-image"], near.body) == (200, "fallback", made[40])
        near = server.image(url, "w=12,format=png", accept="image/*")
        assert (near.status, near.headers["x-image"], near.body) == (200, "fallback", made[10])


def test_api_client_gets_504_where_a_page_gets_fallback(
    tmp_path: Path, origin: OriginServer
) -> None:
    urls = pages(origin, "api", 2)
    with GatedImages(tmp_path, 0, "--timeout-s", "1", "--processes", "1") as server:
        (url, other) = urls
        assert server.image(url, accept="image/*").headers["x-image"] == "fallback"
        refused = server.image(other, accept="application/json")
        assert refused.status == 504
        navigated = server.image(
            other, **{"Sec-Fetch-Dest": "document", "Accept": "text/html,image/webp,*/*;q=0.8"}
        )
        assert navigated.status == 504
        shown = server.image(other, accept="image/webp,image/*")
        assert (shown.status, shown.headers["x-image"]) == (200, "fallback")
