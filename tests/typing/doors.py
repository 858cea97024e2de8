from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from aiohttp import web
from celery import Celery
from django.http import HttpRequest, HttpResponse
from fastapi import Depends, FastAPI
from flask import Flask
from litestar import Litestar
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware

from sluicegate import Limiter
from sluicegate.contracts.guard import Guard as AnyGuard
from sluicegate.doors.aiohttp import setup
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.celery import limited as limited_task
from sluicegate.doors.django import ratelimit
from sluicegate.doors.endpoint_limit import EndpointLimiter
from sluicegate.doors.fastapi import by_address, by_header, install, limit, limited
from sluicegate.doors.flask import SluicegateLimits
from sluicegate.doors.interceptors import AsyncLimitInterceptor, LimitInterceptor
from sluicegate.doors.proxies import Proxies
from sluicegate.doors.wsgi import LimitMiddleware as WsgiMiddleware
from sluicegate.rules.web.guard import RulesGuard

limiter = Limiter(rules={"login": "5/minute"})
limiting: EndpointLimiter = limiter
guard = RulesGuard({"rules": {}}, limiter)
any_guard: AnyGuard = guard

starlette = Starlette(middleware=[Middleware(LimitMiddleware, guard=guard, trust_proxies=1)])
starlette.add_middleware(
    LimitMiddleware,
    guard=guard,
    trust_proxies=Proxies(2, header="forwarded"),
    user=lambda scope: scope.get("user"),
    exempt=["/health"],
    headers="both",
)
litestar = Litestar(middleware=[DefineMiddleware(LimitMiddleware, guard=guard)])
around = LimitMiddleware(litestar, guard)

fastapi = FastAPI(dependencies=[Depends(limited(guard))])
install(fastapi)


@fastapi.get("/", dependencies=[Depends(limit(limiter, "login", key=by_address(1), cost=2))])
async def index() -> str:
    return ""


@fastapi.get("/key", dependencies=[Depends(limit(limiter, "5/s", key=by_header("x-api-key")))])
def key() -> str:
    return ""


flask = Flask("t")
limits = SluicegateLimits(flask, guard=guard, limiter=limiter)
flask.wsgi_app = WsgiMiddleware(flask.wsgi_app, guard)  # type: ignore[method-assign]


@limits.limit("login", key=lambda: "all")
def flask_view(name: str) -> str:
    return name


page: str = flask_view("ann")
flask_view(1)  # type: ignore[arg-type]


@ratelimit("login", key="user", method=("GET", "HEAD"))
def django_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("login", key=lambda request: request.path)
async def django_async_view(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


answer: HttpResponse = django_view(HttpRequest())
setup(web.Application(), guard, user=lambda request: request.headers.get("x-user"))
threaded = grpc.server(ThreadPoolExecutor(), interceptors=[LimitInterceptor(guard)])
looped = grpc.aio.server(interceptors=[AsyncLimitInterceptor(guard)])


@Celery().task
@limited_task(guard, refused="drop")
def task(name: str) -> int:
    return len(name)


LimitMiddleware(starlette, limiter)  # type: ignore[arg-type]
LimitMiddleware(starlette, guard, trust_proxies="1")  # type: ignore[arg-type]
limit(limiter, "5/s")  # type: ignore[call-arg]
