"""A page of 500 pictures in a real browser: no hole, however few are ready in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.process import origin_in_thread, path
from tests.apps.images.test_page import GatedImages, pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.engine

COUNT = 500
PATIENCE_MS = 240_000
WIDTHS = "[...document.images].map(one => one.complete ? one.naturalWidth : -1)"


@pytest.fixture(scope="module")
def origin() -> Iterator[OriginServer]:
    with origin_in_thread() as running:
        yield running


def widths_of(chromium: Browser, url: str) -> list[int]:
    """The natural width of each picture of a page, once the page has loaded."""
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url, wait_until="load")
    found: list[int] = page.evaluate(WIDTHS)
    context.close()
    return found


@pytest.mark.parametrize(("capacity", "fallback_s"), [(COUNT, "60"), (COUNT // 5, "0.2")])
def test_page_of_500_new_pictures_has_no_hole(
    tmp_path: Path, chromium: Browser, origin: OriginServer, capacity: int, fallback_s: str
) -> None:
    urls = pages(origin, f"browser{capacity}", COUNT)
    flags = ("--timeout-s", "300", "--fallback-s", fallback_s)
    with GatedImages(tmp_path, capacity, *flags) as server:
        pictures = "".join(f'<img src="{server.url}{path(url)}">' for url in urls)
        html = {"Content-Type": "text/html"}
        origin.pages["/page"] = Page(f"<!doctype html>{pictures}".encode(), headers=html)
        assert widths_of(chromium, origin.url("/page")) == [16] * COUNT
        fallbacks = server.metric("sluicegate_images_fallbacks_total")
        assert (fallbacks > 0) == (capacity < COUNT)
