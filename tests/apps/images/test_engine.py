"""The service with the engine that it is shipped with: whole processes, real pictures."""

from __future__ import annotations

import hmac
import json
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture
from tests.apps.images.process import ImagesProcess, origin_in_thread, stores

pytest.importorskip("pyvips", reason="pyvips is missing: pip install '.[images]'")


class ShippedProcess(ImagesProcess):
    """Started as users start it."""

    module = "sluicegate.cli"

    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, "images", "serve", "--processes", "1"]


@pytest.fixture(scope="module")
def origin() -> Iterator[OriginServer]:
    with origin_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shipped")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ImagesProcess]:
    with ShippedProcess(folder, "--preset", "card:w=20,h=20,fit=cover,format=png") as running:
        yield running


def opened(body: bytes) -> Image.Image:
    return Image.open(BytesIO(body))


def test_a_picture_is_made_as_the_specification_says(
    server: ImagesProcess, origin: OriginServer
) -> None:
    origin.pages["/a.jpg"] = Page(picture(1, width=120, height=80, form="JPEG"))
    url = origin.url("/a.jpg")
    assert opened(server.image(url, "w=60").body).size == (60, 40)
    assert opened(server.image(url, "preset:card").body).size == (20, 20)
    assert opened(server.image(url, "preset:placeholder").body).size == (32, 21)
    assert opened(server.image(url, "w=30,h=30,fit=cover,dpr=2").body).size == (60, 60)
    assert opened(server.image(url, "w=10,format=avif").body).format == "AVIF"
    assert origin.asked["/a.jpg"] == 1


def test_the_format_is_what_the_client_accepts(server: ImagesProcess, origin: OriginServer) -> None:
    origin.pages["/b.jpg"] = Page(picture(2, form="JPEG"))
    url = origin.url("/b.jpg")
    modern = server.image(url, "w=20", accept="image/avif,image/webp,*/*")
    plain = server.image(url, "w=20", accept="*/*")
    assert (modern.headers["content-type"], plain.headers["content-type"]) == (
        "image/webp",
        "image/jpeg",
    )
    assert modern.headers["vary"] == plain.headers["vary"] == "accept"
    assert "vary" not in server.image(url, "w=20,format=png").headers
    # From memory too, each its own, however a client says the same.
    before = server.ask("/v1/state")[1]["hot"]
    for accept, same in (("*/*", plain), ("image/png,*/*;q=0.5", plain), ("image/webp", modern)):
        assert server.image(url, "w=20", accept=accept).body == same.body
    after = server.ask("/v1/state")[1]["hot"]
    assert (after["hits"] - before["hits"], after["images"]) == (3, before["images"])


def test_urls_of_others_are_served_and_their_signatures_checked(
    tmp_path: Path, origin: OriginServer
) -> None:
    origin.pages["/e.jpg"] = Page(picture(6, width=120, height=80, form="JPEG"))
    url = origin.url("/e.jpg")
    key, salt, secret = b"key of imgproxy", b"salt", "key of thumbor"
    flags = [
        "--foreign-urls", "imgproxy", "--foreign-urls", "thumbor", "--thumbor-key", secret,
        "--imgproxy-key", key.hex(), "--imgproxy-salt", salt.hex(), "--sign-key", "k" * 32,
    ]  # fmt: skip
    theirs = f"/rs:fill:30:20/plain/{quote(url, safe='')}@png"
    digest = hmac.digest(key, salt + theirs.encode(), "sha256")
    imgproxy = "/imgproxy/" + urlsafe_b64encode(digest).decode().rstrip("=") + theirs
    path = f"30x20/{url}"
    signed = urlsafe_b64encode(hmac.digest(secret.encode(), path.encode(), "sha1")).decode()
    with ShippedProcess(tmp_path, *flags) as server:
        bare = path.replace("http://", "")  # without a scheme, as pages of thumbor often have it
        also = urlsafe_b64encode(hmac.digest(secret.encode(), bare.encode(), "sha1")).decode()
        for good in (imgproxy, f"/thumbor/{signed}/{path}", f"/thumbor/{also}/{bare}"):
            found = server.get(good)
            assert found.status == 200, found
            assert opened(found.body).size == (30, 20)
        for bad in (
            f"/imgproxy/insecure{theirs}",
            imgproxy.replace(":30:", ":31:"),
            f"/thumbor/unsafe/{path}",
            f"/thumbor/{signed}/31x20/{url}",
        ):
            assert server.get(bad).status == 403, bad
        assert server.get("/imgproxy/x/blur:3/plain/http%3A%2F%2Fa").status == 400


def test_equal_specifications_are_processed_once(
    server: ImagesProcess, origin: OriginServer
) -> None:
    origin.pages["/c.png"] = Page(picture(3))
    url = origin.url("/c.png")
    before = server.metric("sluicegate_images_processed_total")
    for spec in (
        "w=20,format=png",
        "format=png,w=20",
        "w=10,dpr=2,format=png",
        "w=20,format=png,q=7",
    ):
        assert server.image(url, spec).status == 200
    assert server.metric("sluicegate_images_processed_total") == before + 1


def test_what_cannot_be_decoded_is_remembered(server: ImagesProcess, origin: OriginServer) -> None:
    origin.pages["/cut.png"] = Page(picture(4, width=200, height=200)[:40])
    origin.pages["/svg"] = Page(b'<svg xmlns="http://www.w3.org/2000/svg"/>')
    for path, kind in (("/cut.png", "corrupt"), ("/svg", "wrong_type")):
        before = server.metric("sluicegate_images_processed_total")
        for turn in range(3):  # one verdict for every size
            found = server.image(origin.url(path), f"w={20 + turn}")
            assert (found.status, json.loads(found.body)["kind"]) == (422, kind)
        assert server.metric("sluicegate_images_processed_total") <= before + 1
        assert origin.asked[path] == 1


def test_cut_jpeg_is_shown_in_every_size(server: ImagesProcess, origin: OriginServer) -> None:
    whole = picture(7, width=900, height=600, form="JPEG")
    origin.pages["/cut.jpg"] = Page(whole[: len(whole) * 2 // 3])
    origin.pages["/no-end.jpg"] = Page(whole[:-2])
    for path in ("/cut.jpg", "/no-end.jpg"):
        for width in (50, 100, 300, 500, 900):
            found = server.image(origin.url(path), f"w={width},format=jpeg")
            assert (found.status, opened(found.body).width) == (200, width)


def test_animation_is_served_and_still_formats_report_frames(
    tmp_path: Path, origin: OriginServer
) -> None:
    into = BytesIO()
    first, *rest = (Image.new("RGB", (60, 40), (40 * at, 0, 0)) for at in range(4))
    first.save(into, "GIF", save_all=True, append_images=rest, duration=70, loop=0)
    origin.pages["/moving.gif"] = Page(into.getvalue())
    url = origin.url("/moving.gif")
    avif = "image/avif,image/webp,*/*"
    with ShippedProcess(tmp_path, "--avif", "on") as server:
        for spec, accept, media_type, frames in (
            ("w=30", "image/webp,*/*", "image/webp", 4),
            ("w=30", "*/*", "image/gif", 4),
            ("w=30", avif, "image/webp", 4),
            ("w=30,format=avif", avif, "image/avif", 1),
            ("w=30,format=jpeg", avif, "image/jpeg", 1),
            ("w=30,format=webp,animate=no", avif, "image/webp", 1),
        ):
            for _ in range(2):  # processed, and from memory
                found = server.image(url, spec, accept=accept)
                assert found.headers["content-type"] == media_type, spec
                assert found.headers["x-image-frames"] == f"{frames} of 4"
                assert getattr(opened(found.body), "n_frames", 1) == frames
        origin.pages["/still.png"] = Page(picture(8))
        assert "x-image-frames" not in server.image(origin.url("/still.png"), "w=30").headers


def test_animated_png_reports_frames_and_animated_avif_is_unsupported(
    tmp_path: Path, origin: OriginServer
) -> None:
    """Frames of a PNG were dropped without a word, and an AVIF was called corrupt."""
    frames = [Image.new("RGB", (60, 40), (40 * at, 0, 0)) for at in range(4)]
    for name in ("png", "avif"):
        into = BytesIO()
        frames[0].save(into, name, save_all=True, append_images=frames[1:], duration=70)
        origin.pages[f"/animated.{name}"] = Page(into.getvalue())
    with ShippedProcess(tmp_path, "--avif", "on") as server:
        for spec, accept, media_type in (
            ("w=30", "image/avif,image/webp,*/*", "image/avif"),
            ("w=30", "image/webp,*/*", "image/webp"),
            ("w=30,format=webp", "*/*", "image/webp"),
            ("w=30,format=png", "*/*", "image/png"),
        ):
            found = server.image(origin.url("/animated.png"), spec, accept=accept)
            assert found.headers["content-type"] == media_type, spec
            assert found.headers["x-image-frames"] == "1 of 4"
            assert getattr(opened(found.body), "n_frames", 1) == 1
        found = server.image(origin.url("/animated.avif"), "w=30")
        told = json.loads(found.body)
        assert (found.status, told["kind"]) == (422, "wrong_type")
        assert told["detail"] == "wrong_type: animated AVIF is not supported"


def test_what_a_service_made_a_command_has_and_the_other_way_round(
    server: ImagesProcess, origin: OriginServer, folder: Path
) -> None:
    origin.pages["/d.png"] = Page(picture(5))
    url = origin.url("/d.png")
    words = [sys.executable, "-m", "sluicegate.cli", "images", "fetch", url, "w=20"]
    done = subprocess.run(
        [*words, "--processes", "1", *stores(folder)], capture_output=True, check=True, timeout=60
    )
    assert server.image(url, "w=20").body == done.stdout
    assert origin.asked["/d.png"] == 1
