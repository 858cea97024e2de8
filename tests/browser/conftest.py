"""Gives these tests a real Chromium, one for all tests of a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.engines.need import Module, Program, engine

if TYPE_CHECKING:  # what is not there is no reason not to collect these tests
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a screen; a loop of its own runs in this thread meanwhile."""
    program = Program("chromium", "apt-get install -y chromium")
    engine("chromium", [Module("playwright", "pip install --group engines"), program])
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container has no user namespaces for its sandbox; the pages are our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()
