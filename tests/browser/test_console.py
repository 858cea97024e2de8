"""The console in a real browser: every page, wide and narrow, light and dark, by keyboard too."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from tests.apps.console.process import HOSTILE, ConsoleProcess, Fleet, started_fleet
from tests.apps.console.provider import console_at, provider
from tests.apps.kv.process import access_file, token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.engine

PAGES = (
    "/", "/callers", "/hot-keys", "/queues", "/accounts", "/images", "/dead-letters",
    "/nodes", "/why?caller=ann", "/rules", "/rules?rule=playback",
)  # fmt: skip
LIVE = PAGES[:-3]
WIDE, NARROW = (1280, 900), (390, 844)


def expect(place: Locator) -> Any:
    """What is to be true of a place soon; imported when there is a browser."""
    from playwright.sync_api import expect as soon

    return soon(place)


def barriers(page: Page) -> list[str]:
    """What Axe finds that keeps people from using the page."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{one['id']}: {one['help']} {one['nodes'][0]['html'][:200]}"
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


class Look(NamedTuple):
    """A page in a browser, and what it did that no page may do."""

    page: Page
    faults: list[str]


@contextmanager
def looking(
    chromium: Browser,
    url: str,
    size: tuple[int, int] = WIDE,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Look]:
    """A new browser's page; errors in its console and requests elsewhere are faults."""
    context = chromium.new_context(
        base_url=url, viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: faults.append(str(one)))
    page.on(
        "request", lambda one: None if one.url.startswith(url) else faults.append(f"asks {one.url}")
    )
    page.on("dialog", lambda one: faults.append(f"says {one.message}"))
    yield Look(page, faults)
    context.close()
    assert not faults


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started_fleet(tmp_path_factory.mktemp("browser")) as started:
        redis = started.kv.redis()
        for at in range(200):
            redis.set(f"shops:{at % 7}", "x")
            redis.get("shops:1")
        for name in ("ann", HOSTILE):
            for _ in range(9):
                started.limiter.check(name, "/api/v1/playback")
        yield started


def keep(page: Page, name: str) -> None:
    """Keep a picture where CI collects them."""
    folder = os.environ.get("SLUICEGATE_SCREENSHOTS", "")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide", "narrow"]
)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_readable_and_asks_nobody_else(
    chromium: Browser, fleet: Fleet, path: str, size: tuple[int, int], scheme: Any
) -> None:
    with looking(chromium, fleet.console.url, size, scheme) as (page, _):
        page.goto(path)
        if path in LIVE:
            expect(page.locator("body")).to_have_class("live")
            expect(page.locator(".going-on")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert barriers(page) == []
        name = re.sub(r"\W+", "-", path).strip("-") or "overview"
        keep(page, f"console-{name}-{scheme}-{size[0]}")


def test_charts_are_read_and_zoomed_by_pointer_and_by_keyboard(
    chromium: Browser, fleet: Fleet
) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/")
        expect(page.locator("body")).to_have_class("live")
        page.get_by_role("button", name="Pause").click()
        chart = page.get_by_role("img", name="Asked, admitted and refused a second")
        said = chart.locator("xpath=following-sibling::p[1]")
        chart.focus()
        page.keyboard.press("ArrowLeft")
        expect(said).to_have_text(re.compile("^1 s ago: asked "))
        page.keyboard.press("ArrowRight")
        rates = [f"{name} [\\d,.]+/s" for name in ("asked", "memory", "admitted", "refused")]
        expect(said).to_have_text(re.compile(f"^now: {', '.join(rates)}$"))
        page.keyboard.press("Home")  # is not taken from the page
        begins = chart.locator("text.time").first
        expect(begins).to_have_text("5 min ago")
        page.keyboard.press("+")
        expect(begins).to_have_text(re.compile(r"^\d min \d+ s ago$"))
        page.keyboard.press("Escape")
        expect(begins).to_have_text("5 min ago")
        expect(said).to_have_text("")
        page.evaluate("scrollTo(0, 0)")
        box = chart.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        expect(said).to_have_text(re.compile("ago: asked"))
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.8, y)
        page.mouse.up()
        expect(begins).to_have_text(re.compile(r"^2 min \d+ s ago$"))
        page.mouse.dblclick(box["x"] + box["width"] * 0.6, y)
        expect(begins).to_have_text("5 min ago")
        page.mouse.move(0, 0)
        expect(said).to_have_text("")


def test_what_limiters_count_of_a_rule_is_looked_at_again(chromium: Browser, fleet: Fleet) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/rules?rule=playback")
        before = page.locator("#counts").inner_text()
        fleet.limiter.check("bob", "/api/v1/playback")
        expect(page.locator("#counts")).not_to_have_text(before)


def test_numbers_change_without_a_reload_and_stand_still_when_paused(
    chromium: Browser, fleet: Fleet
) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/callers")
        expect(page.locator("body")).to_have_class("live")
        redis = fleet.kv.redis()

        def serve() -> None:
            for at in range(100):
                redis.set(f"shops:{at}", "x")

        rate = page.locator("#callers td.number").nth(3)
        expect(rate).to_have_text("0/s")
        for _ in range(50):
            serve()
            if rate.inner_text() != "0/s":
                break
        assert rate.inner_text() != "0/s"
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("body")).to_have_class("paused")
        still = page.locator("#callers").inner_html()
        serve()
        page.wait_for_timeout(1_000)
        assert page.locator("#callers").inner_html() == still
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("body")).to_have_class("live")


def test_a_page_that_lost_its_server_says_so_and_comes_back(
    chromium: Browser, tmp_path: Path
) -> None:
    console = ConsoleProcess(tmp_path, "--services", "http://127.0.0.1:9")
    context = chromium.new_context(base_url=console.url)
    page = context.new_page()
    page.goto("/nodes")
    expect(page.locator("body")).to_have_class("live")
    console.end()
    expect(page.locator("body")).to_have_class("lost")
    with ConsoleProcess(tmp_path, "--services", "http://127.0.0.1:9", port=console.port):
        expect(page.locator("body")).to_have_class("live", timeout=30_000)
    context.close()


def test_the_focus_stays_where_it_is_while_parts_change(chromium: Browser, fleet: Fleet) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/callers")
        expect(page.locator("body")).to_have_class("live")
        caller = page.get_by_role("link", name="anonymous")
        caller.focus()
        page.locator("#callers").evaluate("part => { part.firstChild.id = 'old'; }")
        fleet.kv.redis().set("shops:1", "x")
        expect(page.locator("#old")).to_have_count(0)
        expect(caller).to_be_focused()


def test_the_keyboard_is_enough(chromium: Browser, fleet: Fleet) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/")
        for _ in range(2):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Callers")).to_be_visible()
        page.goto("/why")
        page.get_by_label("Caller").focus()
        page.keyboard.type("ann")
        page.keyboard.press("Enter")
        expect(page.get_by_text("REFUSED by rule").first).to_be_visible()


def test_hostile_names_are_text(chromium: Browser, fleet: Fleet) -> None:
    with looking(chromium, fleet.console.url) as (page, _):
        page.goto("/why")
        page.get_by_label("Caller").fill(HOSTILE)
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_text("REFUSED by rule").first).to_be_visible()
        assert page.get_by_label("Caller").input_value() == HOSTILE


def test_people_log_in_and_out(chromium: Browser, tmp_path: Path) -> None:
    access = access_file(tmp_path, {"ann": 'grants = ["audit"]'})
    flags = ("--access", access, "--services", "http://127.0.0.1:9")
    with ConsoleProcess(tmp_path, *flags) as console:
        context = chromium.new_context(base_url=console.url)
        page = context.new_page()
        page.goto("/nodes")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        page.get_by_label("Token").fill("x" * 32)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("Unknown token.")
        page.get_by_label("Token").fill(token_of("ann"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        expect(page.locator("body")).to_have_class("live")
        keep(page, "console-logged-in")
        page.get_by_role("button", name="Log out ann").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        context.close()


def test_who_has_been_logged_in_for_too_long_logs_in_again(
    chromium: Browser, tmp_path: Path
) -> None:
    access = access_file(tmp_path, {"ann": 'grants = ["audit"]'})
    flags = ("--access", access, "--services", "http://127.0.0.1:9", "--session-s", "60")
    with ConsoleProcess(tmp_path, *flags) as console:
        context = chromium.new_context(base_url=console.url)
        page = context.new_page()
        page.goto("/nodes")
        page.get_by_label("Token").fill(token_of("ann"))
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        (cookie,) = context.cookies()
        assert 0 < cookie["expires"] - time.time() <= 60
        context.clear_cookies()  # as the browser does when it expires
        page.get_by_role("link", name="Callers").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        context.close()


def test_people_log_in_at_a_provider_and_come_back_to_where_they_were(
    chromium: Browser, tmp_path: Path
) -> None:
    people = [{"sub": "ann", "email": "ann@shop.example", "groups": ["ops"]}]
    with provider(tmp_path, people) as issuer, console_at(tmp_path, issuer) as console:
        context = chromium.new_context(base_url=f"http://localhost:{console.port}")
        page = context.new_page()
        page.goto("/nodes")
        page.get_by_role("link", name="Log in at").click()
        page.get_by_text("ann", exact=True).first.click()
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        page.get_by_role("button", name="Log out ann@shop.example").click()
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        context.close()
