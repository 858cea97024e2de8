"""Gives these tests a real Chromium, one for all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.engines.need import Module, Program, engine


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a screen."""
    program = Program("chromium", "apt-get install -y chromium")
    engine("chromium", [Module("playwright", "pip install --group engines"), program])
    with sync_playwright() as playwright:
        # A container has no user namespaces for its sandbox; the pages are our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()
