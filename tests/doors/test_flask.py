from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask, Response, abort, request
from flask.testing import FlaskClient

from sluicegate import Limiter
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.flask import LimitExceeded, SluicegateLimits
from sluicegate.doors.wsgi import LimitMiddleware
from sluicegate.testing import HandClock
from tests.doors.guards import Broken, ByAddress, ByUser


def made(limits: SluicegateLimits | None = None, **more: Any) -> FlaskClient:
    app = Flask(__name__)
    app.testing = True
    (limits or SluicegateLimits(**more)).init_app(app)

    @app.get("/")
    def index() -> str:
        return "hello"

    @app.get("/stream")
    def stream() -> Response:
        def chunks() -> Iterator[str]:
            yield "a"
            yield "b"

        return Response(chunks())

    @app.get("/missing")
    def missing() -> str:
        abort(404)

    return app.test_client()


def test_a_guard_stands_before_every_view() -> None:
    client = made(guard=ByAddress("2/minute"))
    first = client.get("/")
    assert first.headers["RateLimit"] == '"pages";r=1;t=30'
    assert first.headers["RateLimit-Policy"] == '"pages";q=2;w=60'
    assert "Retry-After" not in first.headers
    client.get("/")
    refused = client.get("/")
    assert refused.status_code == 429
    assert refused.content_type == "application/problem+json"
    assert refused.headers["Retry-After"] == "30"
    assert refused.headers.getlist("RateLimit") == ['"pages";r=0;t=30']
    assert refused.get_json(force=True)["reason"] == "rate_limited"
    assert client.head("/").get_data() == b""


def test_streams_and_errors_have_their_headers() -> None:
    client = made(guard=ByAddress("9/minute"))
    assert client.get("/stream").get_data() == b"ab"
    assert "RateLimit" in client.get("/stream").headers
    missing = client.get("/missing")
    assert (missing.status_code, "RateLimit" in missing.headers) == (404, True)
    assert "RateLimit" in client.get("/no such route").headers
    assert "RateLimit" not in client.get("/free").headers


def test_clients_do_not_share_a_bucket() -> None:
    client = made(guard=ByAddress("1/minute"), trust_proxies=1)
    for address, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
        got = client.get("/", headers={"X-Forwarded-For": f"9.9.9.9, {address}"})
        assert got.status_code == status


def test_a_guard_without_an_answer_is_a_503_and_a_bug_is_a_bug() -> None:
    got = made(guard=Broken()).get("/")
    assert (got.status_code, got.headers["X-RateLimit-Error"]) == (503, "store_unavailable")
    with pytest.raises(KeyError):
        made(guard=Broken(KeyError("bug"))).get("/")


def limiter() -> Limiter:
    return Limiter(rules={"login": "1/minute"}, clock=HandClock())


def test_a_view_has_a_limit_of_its_own() -> None:
    limits = SluicegateLimits(limiter=limiter())
    client = made(limits)
    app = client.application

    @app.get("/login")
    @limits.limit("login")
    def login() -> str:
        return "in"

    @app.get("/other")
    @limits.limit("login")
    def other() -> str:
        return "other"

    @app.get("/async")
    @limits.limit("1/hour", key=lambda: request.args["who"], cost=lambda: 1)
    async def by_name() -> str:
        return "async"

    for path in ("/login", "/other"):
        first = client.get(path)
        assert (first.status_code, first.headers["RateLimit"]) == (200, '"login";r=0;t=60')
        assert client.get(path).status_code == 429
    pytest.importorskip("asgiref")
    assert [client.get(f"/async?who={who}").status_code for who in ("a", "a", "b")] == [
        200,
        429,
        200,
    ]
    assert client.get("/").status_code == 200


def test_views_may_share_a_scope() -> None:
    limits = SluicegateLimits(limiter=limiter())
    client = made(limits)
    for name in ("a", "b"):
        client.application.add_url_rule(
            f"/{name}", name, limits.limit("login", key="all", scope="pair")(lambda: "ok")
        )
    assert [client.get(path).status_code for path in ("/a", "/b")] == [200, 429]


def test_the_views_limit_is_told_before_the_applications() -> None:
    limits = SluicegateLimits(guard=ByAddress("9/minute"), limiter=limiter())
    client = made(limits)

    @client.application.get("/login")
    @limits.limit("login")
    def login() -> str:
        return "in"

    assert client.get("/login").headers.getlist("RateLimit") == ['"login";r=0;t=60']
    refused = client.get("/login")
    assert refused.headers.getlist("RateLimit") == ['"login";r=0;t=60']


def test_an_application_may_answer_refusals_by_itself() -> None:
    client = made(guard=ByAddress("1/minute"))

    @client.application.errorhandler(LimitExceeded)
    def sorry(error: LimitExceeded) -> tuple[str, int]:
        return error.judgement.decision.rule_id, 420

    client.get("/")
    got = client.get("/")
    assert (got.status_code, got.text) == (420, "pages")
    assert got.headers["Retry-After"] == "60"


def test_users_are_who_the_program_says() -> None:
    client = made(guard=ByUser("1/minute"), user=lambda: request.headers.get("x-who"))
    for who, status in (("ann", 200), ("bob", 200), ("ann", 429)):
        assert client.get("/", headers={"x-who": who}).status_code == status


def test_a_header_of_the_view_stands() -> None:
    client = made(guard=ByAddress())

    @client.application.get("/own")
    def own() -> tuple[str, dict[str, str]]:
        return "own", {"ratelimit": '"own";r=1'}

    assert client.get("/own").headers.getlist("RateLimit") == ['"own";r=1']


def test_mistakes_are_told_at_once() -> None:
    limits = SluicegateLimits(limiter=limiter())
    with pytest.raises(BadValue, match="logon"):
        limits.limit("logon")
    with pytest.raises(BadValue, match="limiter"):
        SluicegateLimits().limit("1/s")
    with pytest.raises(BadValue, match="has its limits"):
        SluicegateLimits(made(limits).application)


def test_the_wsgi_middleware_stands_before_flask_as_well() -> None:
    app = made(SluicegateLimits()).application
    app.wsgi_app = LimitMiddleware(app.wsgi_app, ByAddress("1/minute"))  # type: ignore[method-assign]
    client = app.test_client()
    assert client.get("/stream").headers["RateLimit"] == '"pages";r=0;t=60'
    assert client.get("/").status_code == 429
