"""Marks: a request that nobody could count is told of to whoever serves it, and ranked lower."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluicegate import Decision, Limit
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.guard import Judgement, RuleDecision
from sluicegate.contracts.request import NO_ATTRIBUTES, Request
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.marks import KEY, uncounted
from sluicegate.doors.proxies import Proxies
from sluicegate.doors.wsgi import LimitMiddleware as WsgiMiddleware
from sluicegate.policies.criticality import CriticalityClamp, CriticalitySettings

LIMIT = Limit(5, period_us=1_000_000)
NAME = b"x-ratelimit-error"
FROM_OUTSIDE = (NAME, b"made_up")


class FixedGuard:
    """A guard that says what it is told to."""

    def __init__(self, *, degraded: bool = False, nothing: bool = False) -> None:
        decision = Decision(True, 1, 0, 0, None, "r")
        other = Decision(True, 1, 0, 0, None, "s").with_marks(degraded=degraded)
        counted = (RuleDecision("r", LIMIT, decision), RuleDecision("s", LIMIT, other))
        self.judgement = None if nothing else Judgement(decision, counted)

    def judge(self, arrival: object) -> Judgement | None:
        return self.judgement

    async def ajudge(self, arrival: object) -> Judgement | None:
        return self.judgement


def asgi(
    guard: FixedGuard, headers: list[tuple[bytes, bytes]], path: str = "/", **settings: Any
) -> Any:
    """What the application sees."""
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "client": None}
    middleware = LimitMiddleware(app, guard, exempt=["/free"], **settings)
    asyncio.run(middleware(scope, None, None))
    assert scope["headers"] is headers
    assert KEY not in scope
    return scopes[0]


def wsgi(guard: FixedGuard, header: str, path: str = "/", **settings: Any) -> dict[str, Any]:
    environs: list[dict[str, Any]] = []

    def app(environ: dict[str, Any], start_response: object) -> list[bytes]:
        environs.append(environ)
        return []

    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path}
    if header:
        environ["HTTP_X_RATELIMIT_ERROR"] = header
    before = dict(environ)
    middleware = WsgiMiddleware(app, guard, exempt=["/free"], **settings)
    middleware(environ, None)  # type: ignore[arg-type]
    assert environ == before
    return environs[0]


def test_without_the_option_nothing_is_touched() -> None:
    headers = [FROM_OUTSIDE]
    assert asgi(FixedGuard(degraded=True), headers)["headers"] is headers
    environ = wsgi(FixedGuard(degraded=True), "made_up")
    assert environ["HTTP_X_RATELIMIT_ERROR"] == "made_up"
    assert KEY not in environ


@pytest.mark.parametrize("trusted", [0, 1])
def test_what_nobody_counted_is_marked_in_header_and_scope(trusted: int) -> None:
    settings: dict[str, Any] = {"mark_upstream": True, "trust_proxies": trusted}
    scope = asgi(FixedGuard(degraded=True), [(b"a", b"b"), FROM_OUTSIDE], **settings)
    assert scope["headers"] == [(b"a", b"b"), (NAME, b"store_unavailable")]
    assert scope[KEY] == "store_unavailable"
    environ = wsgi(FixedGuard(degraded=True), "made_up", **settings)
    assert environ["HTTP_X_RATELIMIT_ERROR"] == environ[KEY] == "store_unavailable"


@pytest.mark.parametrize(
    ("guard", "path"),
    [(FixedGuard(), "/"), (FixedGuard(nothing=True), "/"), (FixedGuard(), "/free")],
)
def test_a_mark_from_outside_is_taken_off_and_one_of_a_trusted_proxy_stays(
    guard: FixedGuard, path: str
) -> None:
    scope = asgi(guard, [FROM_OUTSIDE, (b"a", b"b")], path, mark_upstream=True)
    assert scope["headers"] == [(b"a", b"b")]
    scope = asgi(guard, [FROM_OUTSIDE], path, mark_upstream=True, trust_proxies=1)
    assert scope["headers"] == [FROM_OUTSIDE]
    assert "HTTP_X_RATELIMIT_ERROR" not in wsgi(guard, "made_up", path, mark_upstream=True)
    environ = wsgi(guard, "made_up", path, mark_upstream=True, trust_proxies=1)
    assert environ["HTTP_X_RATELIMIT_ERROR"] == "made_up"


def test_a_request_without_a_mark_is_handed_on_as_it_is() -> None:
    headers = [(b"a", b"b")]
    assert asgi(FixedGuard(), headers, mark_upstream=True)["headers"] is headers


def test_only_a_trusted_proxy_is_heard() -> None:
    assert uncounted("store_unavailable", 0) is NO_ATTRIBUTES
    assert uncounted("", 1) is NO_ATTRIBUTES
    assert uncounted("store_unavailable", 1) == {"uncounted": "store_unavailable"}
    assert len(uncounted("x" * 9_999, Proxies(1))["uncounted"]) == 64


def test_what_nobody_counted_is_ranked_below_what_was_and_settles_once() -> None:
    clamp = CriticalityClamp(CriticalitySettings(callers={"shop": Criticality.CRITICAL}))
    for claimed, settled in (
        (Criticality.CRITICAL, Criticality.BEST_EFFORT),
        (Criticality.DEGRADED, Criticality.BEST_EFFORT),
        (Criticality.BULK, Criticality.BULK),
    ):
        attributes = uncounted("store_unavailable", 1)
        request = Request("k", caller="shop", criticality=claimed, attributes=attributes)
        for _ in range(2):
            clamp.admit(request, 0)
            assert request.criticality is settled
    assert clamp.stats().clamped == 2
    counted = Request("k", caller="shop", criticality=Criticality.CRITICAL)
    clamp.admit(counted, 0)
    assert counted.criticality is Criticality.CRITICAL


def test_what_nobody_counted_is_never_raised_by_it() -> None:
    clamp = CriticalityClamp(CriticalitySettings(callers={"reports": Criticality.BULK}))
    attributes = uncounted("store_unavailable", 1)
    claimed = Criticality.CRITICAL
    request = Request("k", caller="reports", criticality=claimed, attributes=attributes)
    clamp.admit(request, 0)
    assert request.criticality is Criticality.BULK


def test_how_far_it_falls_is_a_setting() -> None:
    settings = CriticalitySettings(uncounted=Criticality.BULK, uncounted_attribute="unknown")
    request = Request("k", attributes={"unknown": "yes"})
    CriticalityClamp(settings).admit(request, 0)
    assert request.criticality is Criticality.BULK
