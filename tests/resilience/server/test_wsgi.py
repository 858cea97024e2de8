"""A protected WSGI application on a real server with threads: what it admits, refuses and ends."""

from __future__ import annotations

import contextlib
import io
import socketserver
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest
from flask import Flask

from sluicegate.resilience.context import served_request
from sluicegate.resilience.overload_mark import parse_overload_mark
from sluicegate.resilience.server.wsgi import ProtectedWsgiApp, protect
from sluicegate.resilience.settings import Resilience


@final
class Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        return


@final
class Threaded(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = False  # closing waits for them, so that all has ended


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, Threaded, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(60)


@final
class Service:
    """Streams; on /hold the second chunk waits for the gate."""

    def __init__(self) -> None:
        self.begun = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.begun += 1
        if environ["PATH_INFO"] == "/bug":
            raise RuntimeError("a bug of the service")
        start_response("200 OK", [("Content-Type", "text/plain")])
        return self._chunks(environ["PATH_INFO"])

    def _chunks(self, path: str) -> Iterator[bytes]:
        yield b"begun "
        if path == "/hold":
            self.entered.release()
            self.gate.wait(60)
        found = served_request()
        yield b"none" if found is None else found.criticality.name.encode()


def one_place() -> Resilience:
    return Resilience(slots=1)


def levels(app: ProtectedWsgiApp) -> tuple[int, int]:
    stats = app.protection.stats().gate
    return stats.admitted, stats.inflight


def test_a_place_is_held_for_the_whole_body_and_the_next_is_refused_with_a_mark() -> None:
    service = Service()
    app = protect(service, one_place())
    with served(app) as url, ThreadPoolExecutor(1) as pool:
        held = pool.submit(httpx.get, f"{url}/hold", timeout=30)
        try:
            assert service.entered.acquire(timeout=60)
            refused = httpx.get(f"{url}/other")
            assert httpx.get(f"{url}/healthz").text == "begun none"
        finally:
            service.gate.set()
        assert held.result().text == "begun DEGRADED"
    assert refused.status_code == 503
    assert refused.json()["reason"] == "overloaded"
    mark = parse_overload_mark(refused.headers.get_list("x-sluicegate-overload"))
    assert mark is not None
    assert mark.admitted_permille < 1_000
    assert levels(app) == (1, 0)


def test_a_bypass_by_the_name_of_an_endpoint_is_never_judged() -> None:
    settings = Resilience(slots=1, bypass=("stream",))
    app: Any = protect(Service(), settings, endpoint=lambda environ: "stream")
    begun = [app({"PATH_INFO": f"/{at}", "REQUEST_METHOD": "GET"}, print) for at in range(3)]
    assert [b"".join(one) for one in begun] == [b"begun none"] * 3


def test_health_bypasses_slots_below_a_mount() -> None:
    app: Any = protect(Service(), one_place())
    place = {"SCRIPT_NAME": "/api", "PATH_INFO": "/healthz", "REQUEST_METHOD": "GET"}
    begun = [app(dict(place), print) for _ in range(3)]
    assert [b"".join(one) for one in begun] == [b"begun none"] * 3


def test_nothing_is_read_of_a_body_that_is_refused() -> None:
    """A thread never waits here, so no body can stand in memory beside those that are served."""
    app: Any = protect(Service(), one_place())
    held = app({"PATH_INFO": "/hold", "REQUEST_METHOD": "POST"}, lambda *answer: print)
    body = io.BytesIO(b"x" * 1_000)
    statuses: list[str] = []
    refused = {"PATH_INFO": "/other", "REQUEST_METHOD": "POST", "wsgi.input": body}
    assert b"overloaded" in b"".join(app(refused, lambda status, *_: statuses.append(status)))
    assert (statuses, body.tell()) == (["503 Service Unavailable"], 0)
    held.close()
    assert levels(app) == (1, 0)


def test_a_response_that_another_thread_closes_gives_its_place_back() -> None:
    app: Any = protect(Service(), one_place())
    environ = {"PATH_INFO": "/other", "REQUEST_METHOD": "GET"}
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(app, environ, lambda *answer: print).result()
        assert levels(app) == (1, 1)
        response.close()
    assert levels(app) == (1, 0)


def test_the_test_client_of_flask_gives_places_back_where_it_buffers() -> None:
    flask_app = Flask("shop")
    flask_app.add_url_rule("/page", view_func=lambda: "page")
    app = protect(flask_app.wsgi_app, one_place())
    flask_app.wsgi_app = app  # type: ignore[method-assign]
    client = flask_app.test_client()
    for _ in range(3):
        assert client.get("/page", buffered=True).status_code == 200
        with client.get("/page") as response:
            assert response.status_code == 200
    assert levels(app) == (6, 0)


def test_expired_work_is_never_begun_and_bad_claims_are_named() -> None:
    service = Service()
    with served(protect(service)) as url:
        late = httpx.get(url, headers={"x-sluicegate-deadline-ms": "0"})
        wrong = httpx.get(url, headers={"x-sluicegate-criticality": "most"})
    assert (late.status_code, wrong.status_code) == (504, 400)
    assert "x-sluicegate-criticality" in wrong.text
    assert service.begun == 0


@pytest.mark.parametrize(
    ("field", "status"),
    [("x-sluicegate-deadline-ms", "504 Gateway Timeout"), ("x-sluicegate-criticality", "400 Bad")],
)
def test_a_refusal_of_head_has_no_body(field: str, status: str) -> None:
    """A server that keeps connections sends what it is given, and the next answer after it."""
    begun: list[tuple[str, dict[str, str]]] = []
    environ = {
        "PATH_INFO": "/",
        "REQUEST_METHOD": "HEAD",
        f"HTTP_{field.upper().replace('-', '_')}": "0",
    }
    app: Any = protect(Service())
    assert list(app(environ, lambda *head: begun.append((head[0], dict(head[1]))))) == []
    ((said, headers),) = begun
    assert said.startswith(status)
    assert int(headers["Content-Length"]) > 0


def test_a_bug_of_the_service_leaves_no_place_taken() -> None:
    app = protect(Service(), one_place())
    with served(app) as url:
        for path in ("/bug", "/", "/bug", "/"):
            httpx.get(f"{url}{path}")
    assert levels(app) == (4, 0)
