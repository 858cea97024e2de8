"""The real guard behind the doors, and doors whose framework is not there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from wsgiref.validate import validator

import pytest

from sluicegate import Limiter
from sluicegate.contracts.errors import MissingPackage
from sluicegate.doors.asgi import CLOSE_CODE, LimitMiddleware
from sluicegate.doors.wsgi import LimitMiddleware as WsgiMiddleware
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.testing import HandClock
from tests.doors.bare import ask, http_scope, ws_scope
from tests.doors.test_asgi import echo, hello
from tests.doors.test_wsgi import Got
from tests.doors.test_wsgi import hello as wsgi_hello


def guard() -> RulesGuard:
    rules = {
        "health": {"match": {"path": "/health"}, "exempt": True},
        "login": {"match": {"path": "/login", "method": "POST"}, "key": "address", "limit": "1/m"},
        "keys": {
            "match": {"path": "/api/**", "header": {"x-plan": "free"}},
            "key": "header:x-api-key",
            "limit": "2/m; 3/hour",
        },
        "trial": {"match": {"path": "/api/**"}, "key": "user", "limit": "1/m", "mode": "shadow"},
        "sockets": {
            "match": {"path": "/ws", "method": "WEBSOCKET"},
            "key": "address",
            "limit": "1/m",
        },
    }
    return RulesGuard({"rules": rules}, Limiter(clock=HandClock()))


def test_a_rulebook_decides_by_path_method_header_address_and_user() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, guard(), user=lambda scope: "ann")

        async def status(path: str, method: str = "GET", **headers: str) -> int:
            raw = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
            return (await ask(app, http_scope(path, method, raw))).status

        assert [await status("/health") for _ in range(3)] == [200] * 3
        assert [await status("/login") for _ in range(3)] == [200] * 3
        assert [await status("/login", "POST") for _ in range(2)] == [200, 429]
        free = {"x_plan": "free", "x_api_key": "a"}
        assert [await status("/api/x", **free) for _ in range(3)] == [200, 200, 429]
        assert await status("/api/x", **{**free, "x_api_key": "b"}) == 200
        assert await status("/api/x", x_plan="paid", x_api_key="a") == 200

    asyncio.run(story())


def test_both_limits_of_a_rule_are_told_and_a_trial_refuses_nobody() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, guard(), user=lambda scope: "ann")
        raw = [(b"x-plan", b"free"), (b"x-api-key", b"a")]
        await ask(app, http_scope("/api/x", headers=raw))
        answer = await ask(app, http_scope("/api/x", headers=raw))
        assert answer.status == 200
        assert answer.headers["ratelimit-policy"] == (
            '"keys: 2/minute";q=2;w=60, "keys: 3/hour";q=3;w=3600'
        )
        assert answer.headers["ratelimit"] == (
            '"keys: 2/minute";r=0;t=30, "keys: 3/hour";r=1;t=1200'
        )

    asyncio.run(story())


def test_a_websocket_has_rules_of_its_own() -> None:
    async def story() -> None:
        app = LimitMiddleware(echo, guard())
        assert (await ask(app, ws_scope())).start["type"] == "websocket.accept"
        assert (await ask(app, ws_scope())).start["code"] == CLOSE_CODE

    asyncio.run(story())


def test_the_same_rulebook_serves_wsgi() -> None:
    app = validator(WsgiMiddleware(wsgi_hello, guard(), trust_proxies=1))
    for address, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
        got = Got(app, "/login", "POST", HTTP_X_FORWARDED_FOR=address)
        assert got.status == status
    assert got.headers["RateLimit-Policy"] == '"login";q=1;w=60'


FRAMEWORKS = {
    "fastapi": "fastapi",
    "django": "django",
    "flask": "flask",
    "aiohttp": "aiohttp",
    "grpc": "interceptors",
    "celery": "celery",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_door_without_its_framework_names_the_command(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import sluicegate.doors.{FRAMEWORKS[name]}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"pip install '.[{name}]'" in done.stderr
    assert MissingPackage.__name__ in done.stderr


def test_the_plain_doors_need_no_framework() -> None:
    code = (
        "import sys; import sluicegate.doors.asgi, sluicegate.doors.wsgi;"
        f"found = [name for name in {(*FRAMEWORKS, 'starlette', 'werkzeug')!r}"
        " if name in sys.modules]; assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
