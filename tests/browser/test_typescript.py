"""The TypeScript client in a real browser, as a module on a page of another origin."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.pubsub.test_whole import ANN
from tests.apps.pubsub.tokens import signed, token_server
from tests.client.typescript import build, guide_example, site_of
from tests.engines.child import PATIENCE_S, free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.engine

# Subscribes, and records messages, states and errors in globals.
WATCH = """async ([url, token]) => {
  const {PubSubClient} = await import("@sluicegate/pubsub");
  window.seen = [];
  window.states = [];
  window.client = new PubSubClient(url, {
    token,
    timeoutMs: 60_000,
    backoff: {baseMs: 50, maxMs: 200},
    onState: (state, error) => states.push([state, error && error.name]),
  });
  const onReceived = (one) => seen.push(one.data);
  const onError = (error) => states.push(error.name);
  client.subscribe("news", {after: 0, onReceived, onError}).catch(onError);
}"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"))


def wait_for(page: Page, what: str, value: object = None) -> None:
    page.wait_for_function(what, arg=value, timeout=PATIENCE_S * 1e3)


def test_example_of_guide_runs_in_page_of_other_origin(
    chromium: Browser, package: Path, tmp_path: Path
) -> None:
    with (
        site_of(package, signed()) as site,
        token_server(tmp_path, "--origins", site) as server,
    ):
        page = chromium.new_page()
        page.goto(site)
        page.evaluate("window.show = (text) => { document.body.textContent = text; }")
        page.add_script_tag(type="module", content=guide_example(server.url))
        wait_for(page, "document.body.textContent === 'hello'")
        page.close()


def test_page_misses_nothing_when_service_is_killed(
    chromium: Browser, package: Path, tmp_path: Path
) -> None:
    port = free_port("127.0.0.1")
    with site_of(package, "") as site:
        flags = ("--origins", site)
        with token_server(tmp_path, *flags, port=port) as server:
            page = chromium.new_page()
            page.goto(site)
            page.evaluate(WATCH, [server.url.replace("http", "ws"), ANN])
            server.accept("news", 1, ANN)
            wait_for(page, "seen.length === 1")
            server.signal(signal.SIGKILL)
            server.child.wait(30)
            wait_for(page, "client.state !== 'connected'")
        server.log.unlink()  # the next one reports by itself when it is ready
        with token_server(tmp_path, *flags, port=port) as server:
            server.accept("news", 2, ANN)
            wait_for(page, "seen.length === 2")
            assert page.evaluate("client.publish('news', 3)") > 0
            wait_for(page, "seen.length === 3")
            assert page.evaluate("seen") == [1, 2, 3]
            assert page.evaluate("client.reconnects") >= 1
            page.close()


def test_page_stops_with_error_when_access_is_revoked(
    chromium: Browser, package: Path, tmp_path: Path
) -> None:
    with (
        site_of(package, "") as site,
        token_server(tmp_path, "--origins", site) as server,
    ):
        page = chromium.new_page()
        page.goto(site)
        page.evaluate(WATCH, [server.url.replace("http", "ws"), signed()])
        wait_for(page, "client.state === 'connected'")
        access = next(tmp_path.glob("*.toml"))
        access.write_text(access.read_text().replace('"ann"', '"carl"'))
        server.signal(signal.SIGHUP)
        wait_for(page, "client.state === 'failed'")
        assert page.evaluate("states.slice(-2)") == [["failed", "Forbidden"], "Forbidden"]
        page.close()


def test_page_of_unlisted_origin_cannot_connect(
    chromium: Browser, package: Path, tmp_path: Path
) -> None:
    with site_of(package, "") as site, token_server(tmp_path) as server:
        page = chromium.new_page()
        page.goto(site)
        page.evaluate(WATCH, [server.url.replace("http", "ws"), signed()])
        wait_for(page, "client.reconnects >= 2")
        states = page.evaluate("states.map((one) => one[0])")
        assert set(states) == {"connecting", "waiting"}
        page.close()
