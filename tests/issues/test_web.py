"""Web: limits that are silently not applied, headers that are doubled or wrong, arguments forced.

slowapi's default limits do nothing for routes that FastAPI includes from a router. It doubles
headers, says Retry-After on responses that were admitted, and asks every endpoint for a `request`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import PlainTextResponse

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.fastapi import install, limit
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.testing import HandClock


def got(app: Any, *paths: str) -> list[httpx.Response]:
    async def story() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(story())


def guard(rate: str = "1/minute") -> RulesGuard:
    rules = {"rules": {"all": {"limit": rate, "key": ["address", "path"]}}}
    return RulesGuard(rules, Limiter(clock=HandClock()))


def greet() -> str:
    return "hello"


def routed() -> FastAPI:
    """The same endpoint in every way that FastAPI knows to bring one in."""
    app, router, inner, mounted = FastAPI(), APIRouter(), APIRouter(), FastAPI()
    app.get("/plain")(greet)
    router.get("/routed")(greet)
    inner.get("/nested")(greet)
    mounted.get("/there")(greet)
    router.include_router(inner, prefix="/inner")
    app.include_router(router)
    app.include_router(router, prefix="/again")
    app.mount("/mounted", mounted)
    return app


PATHS = ("/plain", "/routed", "/inner/nested", "/again/routed", "/mounted/there", "/nowhere")


@pytest.mark.parametrize("path", PATHS)
def test_the_middleware_limits_a_route_wherever_it_comes_from(path: str) -> None:
    # slowapi, include_router: [200, 200, 200]. https://github.com/laurentS/slowapi/issues/281
    app = routed()
    app.add_middleware(LimitMiddleware, guard=guard())
    first, *others = [answer.status_code for answer in got(app, *[path] * 3)]
    assert first == (404 if path == "/nowhere" else 200)
    assert others == [429, 429]


@pytest.mark.parametrize("path", ["/routed", "/inner/nested"])
def test_a_dependency_of_a_router_limits_what_it_includes(path: str) -> None:
    app, router, inner = FastAPI(), APIRouter(), APIRouter()
    router.get("/routed")(greet)
    inner.get("/nested")(greet)
    router.include_router(inner, prefix="/inner")
    each = limit(Limiter("1/minute", clock=HandClock()), key="everyone", scope="all")
    app.include_router(router, dependencies=[Depends(each)])
    assert [answer.status_code for answer in got(app, *[path] * 3)] == [200, 429, 429]


def test_headers_are_there_once_whoever_else_says_them() -> None:
    # https://github.com/laurentS/slowapi/issues/33
    app = FastAPI()

    @app.get("/own")
    async def own() -> Response:
        return PlainTextResponse("own", headers={"RateLimit": '"own";r=1', "Retry-After": "7"})

    limiter = Limiter("9/minute", clock=HandClock())

    @app.get("/both", dependencies=[Depends(limit(limiter, key="everyone"))])
    async def both() -> str:
        return "both"

    install(app)
    app.add_middleware(LimitMiddleware, guard=guard("9/minute"), headers="both")
    for answer in got(app, "/own", "/both"):
        names = [name.lower() for name, _ in answer.headers.multi_items()]
        assert sorted(set(names)) == sorted(names)
        assert "ratelimit" in names
    assert got(app, "/own")[0].headers["ratelimit"] == '"own";r=1'


def test_retry_after_is_said_of_refusals_only_and_is_no_guess() -> None:
    # Retry-After on 2xx: https://github.com/spoo-me/spoo/pull/273
    app = routed()
    app.add_middleware(LimitMiddleware, guard=guard("2/minute"), headers="both")
    first, second, refused = got(app, "/plain", "/plain", "/plain")
    assert "retry-after" not in first.headers
    assert "retry-after" not in second.headers
    assert refused.headers["retry-after"] == "30"
    assert refused.json()["retry_after"] == 30


def test_an_endpoint_is_asked_for_no_argument_and_keeps_its_signature() -> None:
    # https://github.com/laurentS/slowapi/issues/177
    app, limiter = FastAPI(), Limiter("1/minute", clock=HandClock())

    @app.get("/sum", dependencies=[Depends(limit(limiter, key="everyone"))])
    def add(one: int, other: int) -> int:
        return one + other

    @limiter.limit("9/minute", key="everyone")
    async def job(one: int, *, other: str = "x") -> str:
        return other * one

    assert [answer.status_code for answer in got(app, *["/sum?one=1&other=2"] * 2)] == [200, 429]
    assert list(inspect.signature(add).parameters) == ["one", "other"]
    assert list(inspect.signature(job).parameters) == ["one", "other"]
    assert inspect.iscoroutinefunction(job)
    assert asyncio.run(job(2, other="y")) == "yy"
