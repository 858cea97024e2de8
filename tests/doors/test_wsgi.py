from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from sluicegate.contracts.guard import Judgement
from sluicegate.doors.wsgi import LimitMiddleware, WsgiArrival
from tests.doors.guards import Broken, ByAddress, ByHeader, ByUser


class Got:
    """One request through a validated stack, read to its end as a server would."""

    def __init__(self, app: Any, path: str = "/", method: str = "GET", **more: str) -> None:
        environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": method, "QUERY_STRING": ""}
        environ |= {"SCRIPT_NAME": "", "REMOTE_ADDR": "192.0.2.1", **more}
        setup_testing_defaults(environ)
        environ["wsgi.input"] = io.BytesIO()
        self.written: list[bytes] = []
        self.starts: list[tuple[str, list[tuple[str, str]]]] = []
        chunks = app(environ, self.start_response)
        try:
            self.chunks = list(chunks)
        finally:
            chunks.close()

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info is None:
            assert not self.starts, "a second start needs exc_info"
        self.starts.append((status, headers))
        return self.written.append

    @property
    def status(self) -> int:
        return int(self.starts[-1][0].split()[0])

    @property
    def headers(self) -> dict[str, str]:
        raw = self.starts[-1][1]
        names = [name.lower() for name, _ in raw]
        assert len(set(names)) == len(names), f"a header is there twice: {names}"
        return dict(raw)

    @property
    def body(self) -> bytes:
        return b"".join(self.written + self.chunks)


def hello(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Own", "1")])
    return [b"hel", b"lo"]


def limited(app: Any, guard: Any, **more: Any) -> Any:
    return validator(LimitMiddleware(validator(app), guard, **more))


def test_an_admitted_response_gains_headers_and_a_refused_one_is_problem_details() -> None:
    app = limited(hello, ByAddress("1/minute"))
    first, second = Got(app), Got(app)
    assert (first.status, first.body) == (200, b"hello")
    assert first.headers["RateLimit-Policy"] == '"pages";q=1;w=60'
    assert first.headers["RateLimit"] == '"pages";r=0;t=60'
    assert first.headers["X-Own"] == "1"
    assert "Retry-After" not in first.headers
    assert second.starts[0][0] == "429 Too Many Requests"
    assert second.headers["Retry-After"] == "60"
    assert second.headers["Content-Type"] == "application/problem+json"
    assert int(second.headers["Content-Length"]) == len(second.body)
    assert json.loads(second.body)["rule"] == "pages"


def test_a_refused_head_request_has_no_body() -> None:
    app = LimitMiddleware(hello, ByAddress("1/minute"))
    environ: dict[str, Any] = {"REQUEST_METHOD": "HEAD", "REMOTE_ADDR": "192.0.2.1"}
    setup_testing_defaults(environ)
    starts: list[tuple[str, list[tuple[str, str]]]] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
        starts.append((status, headers))

    list(app(environ, start))
    assert list(app(environ, start)) == []
    assert starts[1][0].startswith("429")
    assert int(dict(starts[1][1])["Content-Length"]) > 0


def test_a_generator_is_handed_on_as_it_is_and_closed_by_the_server() -> None:
    closed: list[str] = []

    class Stream:
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            yield b"b"

        def close(self) -> None:
            closed.append("yes")

    stream = Stream()

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return stream

    def never_start(status: str, headers: Any, exc_info: Any = None, /) -> Any: ...

    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    assert LimitMiddleware(app, ByAddress())(environ, never_start) is stream
    got = Got(limited(app, ByAddress()))
    assert got.chunks == [b"a", b"b"]
    assert closed == ["yes"]


def test_a_generator_that_starts_late_gains_headers_too() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"late"

    assert "RateLimit" in Got(LimitMiddleware(validator(app), ByAddress())).headers


def test_the_write_callable_is_the_servers_own() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(b"written")
        return [b"returned"]

    assert Got(limited(app, ByAddress())).body == b"writtenreturned"


def test_an_error_response_goes_through_with_its_exception() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            start_response("500 Oh", [("Content-Type", "text/plain")], sys.exc_info())
        return [b"oh"]

    got = Got(limited(app, ByAddress()))
    assert [status for status, _ in got.starts] == ["200 OK", "500 Oh"]
    assert "RateLimit" in got.headers


def test_a_header_of_the_application_stands_and_is_not_doubled() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain"), ("ratelimit", '"own";r=1')])
        return [b""]

    got = Got(limited(app, ByAddress(), headers="both"))
    assert got.headers["ratelimit"] == '"own";r=1'
    assert "X-RateLimit-Limit" in got.headers


def test_proxies_headers_and_users() -> None:
    app = limited(hello, ByAddress("1/minute"), trust_proxies=1)
    for line, status in (("203.0.113.1", 200), ("9.9.9.9,203.0.113.1", 429), ("203.0.113.2", 200)):
        assert Got(app, HTTP_X_FORWARDED_FOR=line).status == status
    app = limited(hello, ByHeader("1/minute"))
    for value, status in (("a", 200), ("a", 429), ("b", 200)):
        assert Got(app, HTTP_X_API_KEY=value).status == status
    app = limited(hello, ByUser("1/minute"))
    for value, status in (("ann", 200), ("ann", 429), ("bob", 200)):
        assert Got(app, REMOTE_USER=value).status == status
    app = limited(hello, ByUser("1/minute"), user=lambda environ: environ.get("HTTP_X_WHO"))
    for value, status in (("ann", 200), ("ann", 429), ("bob", 200)):
        assert Got(app, HTTP_X_WHO=value).status == status


def test_a_guard_that_fails() -> None:
    got = Got(limited(hello, Broken()))
    assert (got.status, got.headers["X-RateLimit-Error"]) == (503, "store_unavailable")
    with pytest.raises(KeyError):
        LimitMiddleware(hello, Broken(KeyError("bug")))({"REQUEST_METHOD": "GET"}, None)  # type: ignore[arg-type]


def test_what_is_exempt_is_not_judged() -> None:
    assert Got(limited(hello, Broken(), exempt=["/health"]), "/health").status == 200
    below = Got(limited(hello, Broken(), exempt=["/health"]), "/health", SCRIPT_NAME="/shop")
    assert below.status == 200
    by_function = limited(hello, Broken(), exempt=lambda environ: "HTTP_X_PROBE" in environ)
    assert Got(by_function, HTTP_X_PROBE="1").status == 200
    assert Got(by_function).status == 503
    assert "RateLimit" not in Got(limited(hello, ByAddress()), "/free").headers


def test_a_custom_answer() -> None:
    def sorry(environ: dict[str, Any], judgement: Judgement) -> Any:
        def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            start_response("420 Calm", [("Content-Type", "text/plain")])
            return [judgement.decision.rule_id.encode()]

        return app

    app = limited(hello, ByAddress("1/minute"), on_refused=sorry)
    Got(app)
    got = Got(app)
    assert (got.status, got.body) == (420, b"pages")
    assert got.headers["Retry-After"] == "60"


def test_the_path_is_whole_and_decoded() -> None:
    from sluicegate.doors.proxies import Proxies

    environ = {"SCRIPT_NAME": "/api", "PATH_INFO": "/caf\u00c3\u00a9", "CONTENT_TYPE": "text/x"}
    arrival = WsgiArrival(environ, Proxies(), None)
    assert arrival.path == "/api/caf\u00e9"
    assert arrival.header("content-type") == "text/x"
    assert arrival.header("x-missing") == ""
    assert arrival.address() == ""
    assert WsgiArrival({}, Proxies(), None).path == "/"
