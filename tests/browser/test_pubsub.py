"""The page of `sluicegate pubsub` in a real browser: it publishes, subscribes and comes back."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.test_whole import ANN, UNLIMITED, access_of
from tests.browser.test_console import barriers, expect, keep, looking
from tests.engines.child import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.engine
HOSTILE = "<img src=x onerror=alert(1)>"


def test_two_pages_hear_each_other_and_what_comes_is_text(
    chromium: Browser, tmp_path: Path
) -> None:
    with (
        PubSubProcess(tmp_path, "--access", access_of(tmp_path)) as server,
        looking(chromium, server.url) as (one, _),
        looking(chromium, server.url, (390, 844), "dark") as (two, _),
    ):
        for page in (one, two):
            page.goto("/")
            page.get_by_label("Token").fill(ANN)
            page.get_by_role("button", name="Subscribe").click()
            expect(page.locator("#state")).to_have_text("Subscribed to news.")
        one.get_by_label("Message").fill(HOSTILE)
        one.get_by_role("button", name="Publish").click()
        expect(one.locator("#result")).to_contain_text("Accepted at ")
        expect(one.get_by_label("Message")).to_have_value("")
        for page in (one, two):
            expect(page.locator("#messages li").first).to_have_text(HOSTILE)
            assert page.locator("#messages img").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert barriers(page) == []
        two.get_by_label("Your name there").fill("mia")
        two.get_by_role("button", name="Enter").click()
        expect(two.locator("#result")).to_have_text("You are there as mia.")
        for page in (one, two):
            expect(page.locator("#members")).to_have_text("mia")
        keep(one, "pubsub")
        two.close()
        expect(one.locator("#members")).to_have_text("nobody")
        one.get_by_label("Channel").fill("empty")
        one.get_by_role("button", name="Subscribe").click()
        expect(one.locator("#state")).to_have_text("Subscribed to empty.")
        expect(one.locator("#messages li")).to_have_count(0)


def test_what_is_refused_stays_in_its_field(chromium: Browser, tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path, "--channel-rate", "1") as server,
        looking(chromium, server.url) as (page, _),
    ):
        page.goto("/")
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator("#state")).to_have_text("Subscribed to news.")
        for turn in range(20):
            page.evaluate("document.getElementById('result').textContent = ''")
            page.get_by_label("Message").fill(f"number {turn}")
            page.get_by_role("button", name="Publish").click()
            expect(page.locator("#result")).to_contain_text("ccepted")
            if "Not accepted" in (page.locator("#result").text_content() or ""):
                break
        else:
            pytest.fail("one message a second was never refused")
        expect(page.get_by_label("Message")).to_have_value(f"number {turn}")


def test_a_page_goes_on_after_the_service_was_killed(chromium: Browser, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    context = chromium.new_context()
    page = context.new_page()
    with PubSubProcess(tmp_path, *UNLIMITED, port=port) as server:
        page.goto(server.url)
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator("#state")).to_have_text("Subscribed to news.")
        server.accept("news", "before")
        expect(page.locator("#messages li").first).to_have_text("before")
        server.signal(signal.SIGKILL)
        server.child.wait(30)
        expect(page.locator("#state")).to_contain_text("Not connected")
    server.log.unlink()  # the next one says by itself when it is ready
    with PubSubProcess(tmp_path, *UNLIMITED, port=port) as server:
        server.accept("news", "meanwhile")
        expect(page.locator("#messages li")).to_have_text(["meanwhile", "before"], timeout=30_000)
    context.close()


def test_page_with_wrong_token_stops_and_says_so(chromium: Browser, tmp_path: Path) -> None:
    context = chromium.new_context()  # the browser itself logs what is denied as errors
    page = context.new_page()
    with PubSubProcess(tmp_path, "--access", access_of(tmp_path)) as server:
        page.goto(server.url)
        page.evaluate(
            "window.opened = 0; const Kept = WebSocket;"
            "WebSocket = class extends Kept { constructor(...a) { super(...a); opened++; } }; 0"
        )
        page.get_by_label("Token").fill("x" * 43)
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator("#state")).to_contain_text("Give a token, and subscribe again.")
        expect(page.locator("#state")).to_contain_text("this token is nobody's")
        page.get_by_label("Token").fill(ANN)
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator("#state")).to_have_text("Subscribed to news.")
        assert page.evaluate("opened") == 2
    context.close()
