"""The same two plans in every framework: `free` has one request a minute, `paid` has three.

Callers of no plan pass, and nothing is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import httpx
import pytest
from aiohttp import web
from celery import Celery
from fastapi import Depends, FastAPI, Header
from flask import Flask, request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sluicegate import BadValue, Limiter, LimiterGuard
from sluicegate.contracts.arrival import Arrival
from sluicegate.doors.aiohttp import setup
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.celery import limit as limit_task
from sluicegate.doors.fastapi import limit as limit_endpoint
from sluicegate.doors.flask import SluicegateLimits
from sluicegate.testing import HandClock
from tests.doors.test_aiohttp import serving
from tests.doors.test_interceptors import passes, threaded, unary_of

PLANS = {"free": "1/minute", "paid": "3/minute"}
CALLERS = ("free", "paid", "free", "paid", "paid", "paid", "none", "none")
SERVED = [True, True, False, True, True, False, True, True]


def limiter() -> Limiter:
    return Limiter("1/hour", rules=PLANS, clock=HandClock())


def named(plan: str) -> str | None:
    return None if plan == "none" else plan


def guard() -> LimiterGuard:
    def plan(arrival: Arrival) -> str | None:
        return named(arrival.header("plan"))

    return LimiterGuard(limiter(), rule=plan, key=lambda arrival: arrival.header("plan"))


def served(get: Callable[[str], int]) -> list[bool]:
    codes = [get(plan) for plan in CALLERS]
    assert set(codes) == {200, 429}
    return [code == 200 for code in codes]


def asgi_served(app: Any) -> list[bool]:
    async def story() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [(await client.get("/", headers={"plan": one})).status_code for one in CALLERS]

    return [code == 200 for code in asyncio.run(story())]


def test_rule_of_fastapi_may_be_a_dependency() -> None:
    app = FastAPI()

    async def plan(plan: Annotated[str, Header()]) -> str | None:
        return named(plan)

    @app.get("/", dependencies=[Depends(limit_endpoint(limiter(), plan, key=plan))])
    async def page() -> str:
        return "page"

    assert asgi_served(app) == SERVED


def test_rule_of_flask_may_be_a_function() -> None:
    app = Flask(__name__)
    limits = SluicegateLimits(app, limiter=limiter())

    @app.get("/")
    @limits.limit(lambda: named(request.headers["plan"]), key=lambda: request.headers["plan"])
    def page() -> str:
        return "page"

    client = app.test_client()
    assert served(lambda plan: client.get("/", headers={"plan": plan}).status_code) == SERVED


@pytest.mark.parametrize("is_async", [False, True])
def test_rule_of_django_may_be_a_function(is_async: bool) -> None:
    from django.http import HttpRequest, HttpResponse

    from sluicegate.doors.django import ratelimit
    from tests.doors.test_django import get_request

    def plan(request: HttpRequest) -> str:
        return str(request.headers["plan"])

    around = ratelimit(lambda request: named(plan(request)), key=plan, limiter=limiter())

    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    async def apage(request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    view: Any = around(apage if is_async else page)

    def get(plan: str) -> int:
        answer = view(get_request(plan=plan))
        return int((asyncio.run(answer) if is_async else answer).status_code)

    assert served(get) == SERVED


def test_rule_of_starlette_may_be_a_function() -> None:
    async def page(request: Request) -> Response:
        return PlainTextResponse("page")

    app = Starlette(
        routes=[Route("/", page)], middleware=[Middleware(LimitMiddleware, guard=guard())]
    )
    assert asgi_served(app) == SERVED


def test_rule_of_aiohttp_may_be_a_function() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="page")

    async def story() -> list[bool]:
        app = web.Application()
        app.router.add_get("/", page)
        setup(app, guard())
        async with serving(app) as client:
            return [(await client.get("/", headers={"plan": one})).status == 200 for one in CALLERS]

    assert asyncio.run(story()) == SERVED


def test_rule_of_grpc_may_be_a_function() -> None:
    with threaded(guard()) as channel:
        call = unary_of(channel)
        assert [passes(call, ("plan", plan)) for plan in CALLERS] == SERVED


def test_rule_of_celery_may_be_a_function() -> None:
    app = Celery("t", broker="memory://", backend="cache+memory://", set_as_current=False)

    @app.task(shared=False)
    @limit_task(limiter(), named, key=lambda plan: plan)
    def work(plan: str) -> None: ...

    assert [work.apply((plan,), throw=False).state == "SUCCESS" for plan in CALLERS] == SERVED


def test_limiter_guard_without_rule_admits() -> None:
    def rule(arrival: Arrival) -> str | None:
        return arrival.header("plan") or None

    passing = LimiterGuard(limiter(), rule=rule)
    app = Starlette(middleware=[Middleware(LimitMiddleware, guard=passing)])

    async def story() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            plans: tuple[dict[str, str], ...] = ({}, {}, {"plan": "free"}, {"plan": "free"})
            return [(await client.get("/", headers=one)).status_code for one in plans]

    assert asyncio.run(story()) == [404, 404, 404, 429]


def test_limiter_guard_with_unknown_rule_is_refused_at_once() -> None:
    with pytest.raises(BadValue, match="nosuch"):
        LimiterGuard(limiter(), rule="nosuch")


def test_unknown_plan_names_the_plans_that_there_are() -> None:
    app = FastAPI()

    async def plan() -> str:
        return "gold"

    @app.get("/", dependencies=[Depends(limit_endpoint(limiter(), plan, key="all"))])
    async def page() -> str:
        return "page"

    with pytest.raises(BadValue, match="no rule has this name \\(there are: 'free', 'paid'\\)"):
        asgi_served(app)
