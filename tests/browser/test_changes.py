"""Rules are changed in a real browser: edited, refused, tried, approved by another, rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.apps.console.changing import (
    ANN,
    BOB,
    FIVE,
    TEN,
    Changing,
    capture_traffic,
    started_changing,
)
from tests.apps.console.process import HOSTILE
from tests.browser.test_console import NARROW, WIDE, barriers, expect, keep, looking

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    folder = tmp_path_factory.mktemp("changes")
    flags = ("--glass", f"file:{folder}/glass.json")
    with started_changing(folder, *flags, rules=TEN.replace("limit: 5", "limit: 1000")) as started:
        capture_traffic(started.book)
        yield started


def sign_in(page: Page, token: str) -> None:
    page.goto("/changes")
    page.get_by_label("Token of the rulebook").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Rules files")).to_be_visible()


def whole(page: Page, name: str) -> None:
    """A page that everybody can use, and that is no wider than its window."""
    size = page.viewport_size
    assert size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert barriers(page) == []
    keep(page, f"console-{name}-{size['width']}")


def propose_and_confirm(page: Page, faults: list[str]) -> None:
    """Propose a limit that changes 10-fold."""
    page.get_by_role("button", name="Propose").click()
    page.get_by_label("I confirm these limits").check()
    (asked,) = faults  # so the browser calls the question
    assert "422" in asked
    faults.clear()
    page.get_by_role("button", name="Propose").click()


def test_a_change_goes_from_the_editor_to_the_fleet_and_back(
    chromium: Browser, changing: Changing
) -> None:
    url = changing.console.url
    with (
        looking(chromium, url, WIDE) as (ann, asked),
        looking(chromium, url, NARROW, "dark") as (bob, _),
    ):
        sign_in(ann, ANN)
        sign_in(bob, BOB)
        whole(bob, "changes")
        ann.get_by_role("link", name="rules.yaml").click()
        text = ann.locator("#text")
        text.fill(FIVE.replace("limit: 5", "limit: none"))
        expect(ann.locator("#findings")).to_contain_text("give a whole number")
        ann.locator("#findings button").first.click()
        expect(text).to_be_focused()
        whole(ann, "editor-refused")
        text.fill(TEN.replace("limit: 5", "limit: 100"))
        expect(ann.locator("#findings")).to_contain_text("1 rule changed")
        ann.get_by_label("What it does").fill(f"Far fewer \u202e {HOSTILE} {'x' * 200}")
        whole(ann, "editor")
        propose_and_confirm(ann, asked)
        expect(ann.get_by_role("heading", name="What to do")).to_be_visible()
        expect(ann.locator("#verdict")).to_contain_text("100 of 1,100")  # ten of each are refused
        whole(ann, "proposal")
        ann.get_by_role("link", name="report").click()
        chart = ann.locator("svg").first
        expect(chart).to_be_visible()
        whole(ann, "shadow-report")
        bob.goto(ann.url.removeprefix(url))
        whole(bob, "shadow-report")
        bob.get_by_role("link", name="Back to the proposal").click()
        bob.get_by_label("Why, although").fill("they are bots")
        bob.get_by_role("button", name="Approve").click()
        bob.get_by_label("For").select_option("500")
        bob.get_by_role("button", name="Begin a canary").click()
        expect(bob.locator("#progress")).to_contain_text("on trial for 5% of callers")
        whole(bob, "canary")
        bob.get_by_role("button", name="Take the canary back").click()
        expect(bob.locator("#about")).to_contain_text("rolled back")
        bob.get_by_role("link", name="History").first.click()
        whole(bob, "history")


def test_of_two_edits_at_once_the_second_keeps_its_text_and_sees_what_changed(
    chromium: Browser, changing: Changing
) -> None:
    url = changing.console.url
    with (
        looking(chromium, url, WIDE) as (one, asked),
        looking(chromium, url, WIDE, "dark") as (two, faults),
        looking(chromium, url, NARROW) as (bob, _),
    ):
        for page, limit in ((one, 21), (two, 22)):
            sign_in(page, ANN)
            page.get_by_role("link", name="rules.yaml").click()
            page.locator("#text").fill(FIVE.replace("limit: 5", f"limit: {limit}"))
            page.get_by_label("What it does").fill(f"From five to {limit}")
        propose_and_confirm(one, asked)
        expect(one.get_by_role("heading", name="What to do")).to_be_visible()
        sign_in(bob, BOB)
        bob.goto(one.url)
        bob.get_by_label("Why, although").fill("nothing captured yet")
        bob.get_by_role("button", name="Approve").click()
        bob.get_by_role("button", name="Publish").click()
        expect(bob.locator("#about")).to_contain_text("it is live")
        two.get_by_role("button", name="Propose").click()
        expect(two.get_by_text("Your text is still here")).to_be_visible()
        expect(two.locator("#text")).to_have_value(FIVE.replace("limit: 5", "limit: 22"))
        whole(two, "edited-by-two")
        (conflict,) = faults  # so the browser calls an answer of 409
        assert "409" in conflict
        faults.clear()
        bob.get_by_role("link", name="History").first.click()
        release = bob.get_by_role("row").filter(has=bob.get_by_text("Roll back to 1"))
        release.get_by_label("Why").fill("too few")
        release.get_by_role("button").click()
        expect(bob.get_by_text("too few").first).to_be_visible()


def test_an_emergency_is_two_clicks_away(chromium: Browser, changing: Changing) -> None:
    with looking(chromium, changing.console.url, NARROW) as (page, _):
        page.goto("/")
        page.get_by_role("link", name="Emergency").click()
        page.get_by_label("Rule; empty").fill("play")
        page.get_by_label("Who you are").fill("ann")
        page.get_by_label("Why;").fill(HOSTILE)
        page.get_by_role("button", name="Stop enforcement").click()
        expect(page.get_by_text("Limits are not enforced everywhere.")).to_be_visible()
        whole(page, "emergency")
