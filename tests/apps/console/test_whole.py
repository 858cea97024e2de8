"""The console as a user starts it, in front of a real limiter and a real dispatcher."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.console.process import HOSTILE, ConsoleProcess, Fleet, started_fleet
from tests.apps.kv.process import KvProcess, access_file, token_of
from tests.engines.child import PATIENCE_S, until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started_fleet(tmp_path_factory.mktemp("console")) as started:
        yield started


def test_every_page_is_there_and_says_what_services_do(fleet: Fleet) -> None:
    redis = fleet.kv.redis()

    def served() -> bool:
        for at in range(50):
            redis.set(f"shops:{at}", "x")
            redis.get(f"shops:{at}")
            fleet.limiter.check("ann", "/api/v1/playback")
        page = fleet.console.page("/")
        return "All is calm: nobody asks" not in page and "rate_limited" in page

    until(served, "the overview shows the load", children=[fleet.console.child])
    page = fleet.console.page("/")
    assert "2 of 2" in page
    assert "The limit for this key is spent." in page
    assert "anonymous" in fleet.console.page("/callers")
    assert "memory" in fleet.console.page("/queues") or "get" in fleet.console.page("/queues")
    nodes = fleet.console.page("/nodes")
    assert fleet.kv.url in nodes
    assert fleet.limiter.url in nodes
    assert "point reads" in fleet.console.page("/hot-keys")


def test_why_asks_every_service(fleet: Fleet) -> None:
    for _ in range(8):
        fleet.limiter.check("bob", "/api/v1/playback")
    page = fleet.console.page("/why?caller=bob")
    assert "REFUSED by rule" in page
    assert "playback" in page
    assert re.search(
        r"Remembered about bob: \d+ refused \(rate_limited \d+\), \d+ admitted\.", page
    )
    assert "Nothing is kept about nobody-at-all" in fleet.console.page("/why?caller=nobody-at-all")


def test_what_others_have_chosen_is_shown_as_text(fleet: Fleet) -> None:
    for _ in range(8):
        fleet.limiter.check(HOSTILE, "/api/v1/playback")
    page = fleet.console.page("/why?caller=%3Cscript%3Ealert(%22x%22)%3C/script%3E")
    assert "REFUSED" in page
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(&quot;x&quot;)" in page
    for odd in ("%ff%fe", "%00", "%E2%80%AEevil", "a" * 4_000):
        assert fleet.console.ask(f"/why?caller={odd}")[0] == 200
    assert fleet.console.ask(f"/why?caller={'a' * 5_000}")[0] == 400


def test_live_parts_come_as_they_change(fleet: Fleet) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fleet.console.port, timeout=PATIENCE_S)
    connection.request("GET", "/live/overview")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    first = json.loads(answer.readline()[6:])
    assert {"sentence", "numbers", "charts"} <= first.keys()
    assert answer.readline() == b"\n"
    fleet.kv.redis().set("shops:1", "x")
    later = json.loads(answer.readline()[6:])
    assert later.keys() <= first.keys()
    connection.close()


@pytest.mark.parametrize("path", ["/live/why", "/live/nothing", "/?span=7", "/callers?span=x"])
def test_what_there_is_not_is_named(fleet: Fleet, path: str) -> None:
    status, problem = fleet.console.ask(path)
    assert status == 400
    assert problem["field"] in {"page", "span"}


def test_pages_forbid_what_is_not_theirs(fleet: Fleet) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fleet.console.port, timeout=PATIENCE_S)
    connection.request("GET", "/")
    answer = connection.getresponse()
    page = answer.read().decode()
    assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "script-src 'sha256-" in page
    assert "unsafe-inline" not in page
    for mark in ("http://", "https://", "//"):
        assert f'src="{mark}' not in page
        assert f'href="{mark}' not in page
    connection.close()


def test_a_service_that_goes_is_shown_as_gone_and_the_others_go_on(tmp_path: Path) -> None:
    with KvProcess(tmp_path, "--engine", "memory:") as stays:
        going = KvProcess(tmp_path, "--engine", "memory:")
        services = ("--services", stays.url, "--services", going.url, "--every-s", "0.2")
        with ConsoleProcess(tmp_path, *services) as console, going:
            assert "2 of 2" in console.page("/")
            going.end()
            sentence = f"1 of 2 services does not answer: {going.url}"
            until(lambda: sentence in console.page("/"), "it is gone", children=[console.child])
            nodes = console.page("/nodes")
            assert "does not answer:" in nodes
            assert "ready" in nodes


def test_nobody_sees_a_page_without_a_token(tmp_path: Path) -> None:
    access = access_file(tmp_path, {"ann": 'grants = ["audit"]', "bob": 'grants = ["check"]'})
    flags = ("--access", access, "--services", "http://127.0.0.1:9")
    with ConsoleProcess(tmp_path, *flags) as console:
        for path in ("/", "/callers", "/why?caller=x", "/live/overview", "/v1/state"):
            assert console.ask(path)[0] == 401, path
        assert console.ask("/healthz")[0] == 200
        assert console.ask("/", token=token_of("bob"))[0] == 403
        assert console.ask("/", token=token_of("ann"))[0] == 200
        browser = Browser(console.port)
        assert browser.get("/nodes") == (303, "/login?next=/nodes")
        assert browser.post("/login", f"token={'x' * 32}&next=/nodes")[0] == 403
        assert browser.get("/nodes")[0] == 303
        assert browser.post("/login", f"token={token_of('ann')}&next=/nodes") == (303, "/nodes")
        assert browser.get("/nodes")[0] == 200
        assert browser.get("/live/nodes")[0] == 200
        assert browser.post("/logout", "") == (303, "/login")
        assert browser.get("/nodes")[0] == 303


@pytest.mark.parametrize(
    "next_path", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/%0d%0aX:1"]
)
def test_logging_in_leads_to_no_other_site(tmp_path: Path, next_path: str) -> None:
    access = access_file(tmp_path, {"ann": 'grants = ["audit"]'})
    with ConsoleProcess(
        tmp_path, "--access", access, "--services", "http://127.0.0.1:9"
    ) as console:
        browser = Browser(console.port)
        status, place = browser.post("/login", f"token={token_of('ann')}&next={next_path}")
        assert (status, place) == (303, "/")


def test_another_sites_page_can_neither_log_in_nor_out(tmp_path: Path) -> None:
    access = access_file(tmp_path, {"ann": 'grants = ["audit"]'})
    with ConsoleProcess(
        tmp_path, "--access", access, "--services", "http://127.0.0.1:9"
    ) as console:
        browser = Browser(console.port)
        form = f"token={token_of('ann')}&next=/"
        foreign = {"Origin": "https://evil.example"}
        assert browser.post("/login", form, foreign)[0] == 403
        assert browser.post("/login", form, {"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert browser.post("/login", form)[0] == 303
        assert browser.post("/logout", "", foreign)[0] == 403
        assert browser.get("/")[0] == 200


class Browser:
    """What of a browser matters here: it keeps a cookie, and says that it reads HTML."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cookie = ""

    def get(self, path: str) -> tuple[int, str]:
        return self._ask("GET", path, None, {"Accept": "text/html"})

    def post(self, path: str, form: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return self._ask("POST", path, form, sent)

    def _ask(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        connection.request(method, path, body, {**headers, "Cookie": self._cookie})
        answer = connection.getresponse()
        cookie = answer.headers.get("Set-Cookie", "")
        if cookie:
            self._cookie = cookie.partition(";")[0]
        connection.close()
        return answer.status, answer.headers.get("Location", "")


def test_a_browser_that_asks_for_what_is_not_there_is_shown_the_way_on(fleet: Fleet) -> None:
    person = {"Accept": "text/html,application/xhtml+xml"}
    status, page = fleet.console.ask("/qeues", headers=person)
    assert status == 404
    assert "There is no page /qeues." in page
    assert 'href="/queues"' in page
    assert 'aria-current="page"' not in page
    status, page = fleet.console.ask("/changes/edit?rule=a", headers=person)
    assert status == 404
    assert "The page Changes is off here." in page
    assert "--rulebook URL" in page
    status, page = fleet.console.ask("/%3Cscript%3Ealert(%22x%22)%3C/script%3E", headers=person)
    assert status == 404
    assert HOSTILE not in page
    for headers in ({}, {"Accept": "application/json"}):
        status, problem = fleet.console.ask("/qeues", headers=headers)
        assert status == 404
        assert problem["detail"].startswith("there is no such address here")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/?span=7", 400, ("span", ">7<", "Give one of 300, 900, 3600.", 'href="/"')),
        ("/callers?nope=1", 400, ("nope", 'href="/callers"')),
        (f"/why?caller={'a' * 5_000}", 400, ("caller", "Give at most 4,096 bytes.")),
        (f"/rules?q={'a' * 300}", 400, ("Give at most 256 letters.",)),
        ("/rules?after=%3Cscript%3E", 400, ("after", "&lt;script&gt;")),
        ("/login/oidc", 404, ("There is no page /login/oidc.",)),
    ],
)
def test_a_person_reads_which_field_is_wrong_and_what_to_do_and_a_program_a_problem(
    fleet: Fleet, path: str, status: int, words: tuple[str, ...]
) -> None:
    found, page = fleet.console.ask(path, headers={"Accept": "text/html"})
    assert found == status
    assert "<nav>" in page
    assert "<script" not in page.partition("<main>")[2]
    assert [one for one in words if one not in page] == []
    found, problem = fleet.console.ask(path)
    assert (found, problem["status"]) == (status, status)


def test_what_a_person_may_not_send_is_answered_by_a_page_too(tmp_path: Path) -> None:
    access = access_file(tmp_path, {"eve": 'grants = ["check"]'})
    bounds = ("--message-bytes-max", "4096")
    flags = ("--access", access, "--services", "http://127.0.0.1:9", *bounds)
    with ConsoleProcess(tmp_path, *flags) as console:

        def ask(
            method: str, path: str, headers: dict[str, str], body: bytes = b""
        ) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=PATIENCE_S)
            sent = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, path, body, {**sent, **headers})
            answer = connection.getresponse()
            page = answer.read().decode()
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            assert answer.headers["Cache-Control"] == "no-store"
            connection.close()
            return answer.status, page

        eve = {"Authorization": f"Bearer {token_of('eve')}"}
        status, page = ask("GET", "/nodes", eve)
        assert status == 403
        assert "can give eve the grant <code>audit</code>" in page
        status, page = ask("POST", "/login", {"Origin": "http://elsewhere.example"}, b"token=x")
        assert status == 403
        assert "Nothing was changed." in page
        status, page = ask("DELETE", "/nodes", eve)
        assert status == 405
        assert "This address is for GET" in page
        status, page = ask("POST", "/login", {}, b"x" * 5_000)
        assert status == 413
        assert "sluicegate rules propose" in page
