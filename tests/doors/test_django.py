from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from sluicegate import Limiter
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.asgi import LimitMiddleware as AsgiMiddleware
from sluicegate.doors.django import LimitMiddleware, ratelimit
from sluicegate.doors.wsgi import LimitMiddleware as WsgiMiddleware
from sluicegate.testing import HandClock
from tests.doors import project
from tests.doors.guards import Broken, ByAddress, ByUser

project.set_up(urls=__name__)

OURS = "sluicegate.doors.django.LimitMiddleware"
AUTH = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


async def apage(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([b"a", b"b"]))


def own(request: HttpRequest) -> HttpResponse:
    return HttpResponse("own", headers={"ratelimit": '"own";r=1'})


urlpatterns = [
    path("page", page),
    path("apage", apage),
    path("stream", stream),
    path("own", own),
    path("free", page),
]
# What the settings' dotted paths lead to.
limiter = Limiter(rules={"login": "1/minute"}, clock=HandClock())
guard = ByAddress("1/minute")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global limiter, guard  # noqa: PLW0603 - settings name them by their path
    limiter = Limiter(rules={"login": "1/minute"}, clock=HandClock())
    guard = ByAddress("1/minute")


def test_the_guard_of_the_settings_stands_before_every_view() -> None:
    with override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=ByAddress("3/minute")):
        client = Client()
        first = client.get("/page")
        assert first.headers["RateLimit"] == '"pages";r=2;t=20'
        assert "Retry-After" not in first.headers
        streamed = client.get("/stream")
        assert b"".join(streamed.streaming_content) == b"ab"  # type: ignore[attr-defined]
        assert streamed.headers["RateLimit"] == '"pages";r=1;t=20'
        assert client.get("/nowhere").headers["RateLimit"] == '"pages";r=0;t=20'
        refused = client.get("/page")
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "20"
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert json.loads(refused.content)["rule"] == "pages"
        assert client.head("/page").content == b""
        assert "RateLimit" not in client.get("/free").headers


def test_a_header_of_the_view_stands() -> None:
    with override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=ByAddress()):
        assert Client().get("/own").headers["RateLimit"] == '"own";r=1'


def test_a_guard_may_be_given_by_its_path_and_must_be_given() -> None:
    with override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=f"{__name__}.guard"):
        assert [Client().get("/page").status_code for _ in range(2)] == [200, 429]
    with (
        override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=None),
        pytest.raises(BadValue, match=r"settings\.SLUICEGATE_GUARD"),
    ):
        Client().get("/page")


def test_proxies_exemptions_and_header_styles_come_from_the_settings() -> None:
    with override_settings(
        MIDDLEWARE=[OURS],
        SLUICEGATE_GUARD=ByAddress("1/minute"),
        SLUICEGATE_TRUST_PROXIES=1,
        SLUICEGATE_HEADERS="legacy",
        SLUICEGATE_EXEMPT=["/apage"],
    ):
        for address, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
            got = Client().get("/page", headers={"x-forwarded-for": f"9.9.9.9, {address}"})
            assert got.status_code == status
            assert got.headers["X-RateLimit-Limit"] == "1"
        assert [Client().get("/apage").status_code for _ in range(2)] == [200, 200]
        below: Any = {"SCRIPT_NAME": "/shop"}
        assert [Client().get("/apage", **below).status_code for _ in range(2)] == [200, 200]


def test_a_guard_without_an_answer_is_a_503_and_a_bug_is_a_bug() -> None:
    with override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=Broken()):
        got = Client().get("/page")
        assert (got.status_code, got.headers["X-RateLimit-Error"]) == (503, "store_unavailable")
    with (
        override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=Broken(KeyError("bug"))),
        pytest.raises(KeyError),
    ):
        Client().get("/page")


def test_an_asynchronous_project_never_leaves_its_loop() -> None:
    async def story() -> None:
        client = AsyncClient()
        for path_, status in (("/apage", 200), ("/page", 200), ("/apage", 429)):
            got = await client.get(path_)
            assert got.status_code == status
            assert "RateLimit" in got.headers

    with override_settings(MIDDLEWARE=[OURS], SLUICEGATE_GUARD=ByAddress("2/minute")):
        asyncio.run(story())
        middleware = LimitMiddleware(apage)
        assert iscoroutinefunction(middleware)
        assert not iscoroutinefunction(LimitMiddleware(page))


class Who:
    """Stands in for what an authentication back end loads."""

    is_authenticated = True

    def __init__(self, pk: int) -> None:
        self.pk = pk


class Authenticating:
    """As Django's: `user` is there when asked for, and may not be asked for in a loop."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            from asgiref.sync import markcoroutinefunction

            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        name = request.headers.get("x-who")

        async def auser() -> Who | None:
            return Who(int(name)) if name else None

        if iscoroutinefunction(self.get_response):
            request.auser = auser
        elif name:
            request.user = Who(int(name))
        return self.get_response(request)


@pytest.mark.parametrize("is_async", [False, True])
def test_users_have_limits_of_their_own(is_async: bool) -> None:
    cookies = {settings.SESSION_COOKIE_NAME: "x"}

    async def astatus(who: str) -> int:
        client = AsyncClient()
        client.cookies.load(cookies)
        return (await client.get("/apage", headers={"x-who": who})).status_code

    with override_settings(
        MIDDLEWARE=[f"{__name__}.Authenticating", OURS], SLUICEGATE_GUARD=ByUser("1/minute")
    ):
        for who, status in (("1", 200), ("2", 200), ("1", 429)):
            if is_async:
                assert asyncio.run(astatus(who)) == status
            else:
                assert Client().get("/page", headers={"x-who": who}).status_code == status


def test_djangos_own_authentication_is_understood() -> None:
    with override_settings(MIDDLEWARE=[*AUTH, OURS], SLUICEGATE_GUARD=ByUser("1/minute")):
        assert [Client().get("/page").status_code for _ in range(2)] == [200, 429]

        async def story() -> int:
            client = AsyncClient()
            client.cookies.load({settings.SESSION_COOKIE_NAME: "forged"})
            return (await client.get("/page", REMOTE_ADDR="203.0.113.9")).status_code

        assert asyncio.run(story()) == 429  # nobody, at the same address


def test_who_a_user_is_may_be_a_function_or_nobody() -> None:
    def tenant(request: HttpRequest) -> str:
        return request.headers.get("x-tenant", "")

    with override_settings(
        MIDDLEWARE=[OURS], SLUICEGATE_GUARD=ByUser("1/minute"), SLUICEGATE_USER=tenant
    ):
        for who, status in (("a", 200), ("b", 200), ("a", 429)):
            assert Client().get("/page", headers={"x-tenant": who}).status_code == status
    with override_settings(
        MIDDLEWARE=[f"{__name__}.Authenticating", OURS],
        SLUICEGATE_GUARD=ByUser("1/minute"),
        SLUICEGATE_USER=None,
    ):
        for who, status in (("1", 200), ("2", 429)):
            assert Client().get("/page", headers={"x-who": who}).status_code == status


def get_request(**headers: str) -> Any:
    return RequestFactory().get("/", headers=headers)


def test_a_view_has_a_limit_of_its_own() -> None:
    mine = Limiter(rules={"login": "1/minute"}, clock=HandClock())

    @ratelimit("login", limiter=mine)
    def one(request: HttpRequest) -> HttpResponse:
        return HttpResponse("one")

    @ratelimit("login", limiter=mine)
    async def other(request: HttpRequest) -> HttpResponse:
        return HttpResponse("other")

    first, refused = one(get_request()), one(get_request())
    assert (first.status_code, refused.status_code) == (200, 429)
    assert first.headers["RateLimit"] == '"login";r=0;t=60'
    assert refused.headers["Retry-After"] == "60"

    async def story() -> None:
        assert (await other(get_request())).status_code == 200
        assert (await other(get_request())).status_code == 429

    asyncio.run(story())


def test_views_that_are_classes_and_the_limiter_of_the_settings() -> None:
    class Page(View):
        @method_decorator(ratelimit("login", method="GET"))
        def dispatch(self, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(*args, **kwargs)

        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("got")

        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("posted")

    class AsyncPage(View):
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("got")

    with override_settings(SLUICEGATE_LIMITER=f"{__name__}.limiter"):
        view: Any = Page.as_view()
        assert [view(get_request()).status_code for _ in range(2)] == [200, 429]
        assert view(RequestFactory().post("/")).status_code == 200
        limited: Any = ratelimit("login")(AsyncPage.as_view())

        async def story() -> list[int]:
            return [(await limited(get_request())).status_code for _ in range(2)]

        assert asyncio.run(story()) == [200, 429]


def test_keys_and_costs() -> None:
    mine = Limiter(rules={"login": "1/minute", "print": "10/minute"}, clock=HandClock())

    @ratelimit("login", key="header:x-api-key", limiter=mine)
    def by_header(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")

    for key, status in (("a", 200), ("b", 200), ("a", 429), ("", 200), ("", 429)):
        assert by_header(get_request(**{"x-api-key": key})).status_code == status

    @ratelimit("login", key="user", limiter=mine)
    def by_user(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")

    for pk, status in ((1, 200), (2, 200), (1, 429)):
        request = get_request()
        request.user = Who(pk)
        assert by_user(request).status_code == status
    anonymous = [RequestFactory().get("/", REMOTE_ADDR=f"203.0.113.{n}") for n in (1, 2, 1)]
    assert [by_user(request).status_code for request in anonymous] == [200, 200, 429], (
        "who is nobody does not share one bucket with all others who are"
    )

    @ratelimit(
        "print",
        key=lambda request: request.GET["who"],
        cost=lambda request: int(request.GET["pages"]),
        limiter=mine,
    )
    def printing(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")

    request = RequestFactory().get("/", {"who": "ann", "pages": "7"})
    assert [printing(request).status_code for _ in range(2)] == [200, 429]
    with pytest.raises(BadValue, match="user_or_ip"):
        ratelimit("login", key="post:name")


def test_views_may_share_a_scope() -> None:
    mine = Limiter("1/minute", clock=HandClock())
    one: Any = ratelimit(key=lambda _: "all", scope="pair", limiter=mine)(page)
    other: Any = ratelimit(key=lambda _: "all", scope="pair", limiter=mine)(apage)
    assert one(get_request()).status_code == 200
    assert asyncio.run(other(get_request())).status_code == 429


def test_django_as_wsgi_and_as_asgi_behind_the_plain_middlewares() -> None:
    with override_settings(MIDDLEWARE=[]):
        statuses: list[str] = []
        app = WsgiMiddleware(WSGIHandler(), ByAddress("1/minute"))

        def start(status: str, headers: Any, exc_info: Any = None, /) -> Any:
            statuses.append(status)

        for _ in range(2):
            environ = RequestFactory().get("/page").environ
            chunks: Any = app(environ, start)
            list(chunks)
            getattr(chunks, "close", lambda: None)()
        assert statuses == ["200 OK", "429 Too Many Requests"]

        async def story() -> None:
            from tests.doors.bare import ask, http_scope

            limited = AsgiMiddleware(ASGIHandler(), ByAddress("1/minute"))
            assert (await ask(limited, http_scope("/page"))).status == 200
            assert (await ask(limited, http_scope("/page"))).status == 429

        asyncio.run(story())


def test_the_module_can_be_imported_before_there_are_settings() -> None:
    code = "import sluicegate.doors.django as d; d.ratelimit('1/s')"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
