"""A page of another origin in a real browser: fetch, WebSocket and EventSource, with a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apps.pubsub.tokens import signed, token_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.engine

RIGHTS = {"chat": ["publish", "subscribe", "history"]}
# Each resolves to its result, or to an error.
FETCH = """async ([url, token]) => {
  const headers = {"content-type": "application/json", authorization: `Bearer ${token}`};
  const body = JSON.stringify({data: "by fetch"});
  try {
    const reply = await fetch(`${url}/v1/channels/chat/messages`, {method: "POST", headers, body});
    return [reply.status, reply.headers.get("date") !== null];
  } catch { return ["hidden", false]; }
}"""
SOCKET = """([url, token]) => new Promise((done) => {
  const names = ["sluicegate.pubsub.v1", `bearer.${token}`];
  const socket = new WebSocket(url.replace("http", "ws") + "/v1/socket", names);
  socket.onopen = () => socket.send(JSON.stringify(
    {type: "subscribe", id: 1, channel: "chat", after: 0}));
  socket.onmessage = ({data}) => {
    const told = JSON.parse(data);
    if (told.type === "message") { socket.close(); done(told.data); }
  };
  socket.onclose = ({code, reason}) => done([code, reason]);
})"""
EVENTS = """([url, token]) => new Promise((done) => {
  const source = new EventSource(`${url}/v1/channels/chat/events?after=0&access_token=${token}`);
  source.addEventListener("message", ({data}) => { source.close(); done(JSON.parse(data).data); });
  source.onerror = () => { source.close(); done("hidden"); };
})"""


@contextmanager
def website() -> Iterator[str]:
    """The origin of a site with an empty page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>a site</title>")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_page_of_listed_origin_alone_can_use_channels(chromium: Browser, tmp_path: Path) -> None:
    with (
        website() as listed,
        website() as other,
        token_server(tmp_path, "--origins", listed) as server,
    ):
        token = [server.url, signed(RIGHTS)]
        page = chromium.new_page()
        page.goto(listed)
        assert page.evaluate(FETCH, token) == [200, True]
        assert page.evaluate(SOCKET, token) == "by fetch"
        assert page.evaluate(EVENTS, token) == "by fetch"
        invalid = [server.url, signed(RIGHTS, for_s=-1)]
        assert page.evaluate(FETCH, invalid) == [401, True]
        assert page.evaluate(SOCKET, invalid) == [4401, "the token has expired"]
        page.goto(other)
        assert page.evaluate(FETCH, token) == ["hidden", False]
        assert page.evaluate(SOCKET, token) == [1006, ""]
        assert page.evaluate(EVENTS, token) == "hidden"
        page.close()


def test_page_with_invalid_token_stops_connecting(chromium: Browser, tmp_path: Path) -> None:
    with token_server(tmp_path) as server:
        page = chromium.new_page()
        page.goto(server.url)
        page.get_by_label("Token").fill("x" * 43)
        page.get_by_role("button", name="Subscribe").click()
        page.get_by_text("Not connected: this token is nobody's.").wait_for()
        page.close()
