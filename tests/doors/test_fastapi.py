from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse

from sluicegate import Limiter
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.guard import Judgement
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.doors.fastapi import (
    REFUSALS,
    LimitExceeded,
    by_address,
    by_header,
    install,
    limit,
    limited,
)
from sluicegate.testing import HandClock
from tests.doors.bare import ask, ws_scope
from tests.doors.guards import Broken, ByAddress


def limiter(**rules: str) -> Limiter:
    return Limiter(rules={"login": "1/minute", **rules}, clock=HandClock())


def got(app: FastAPI, *paths: str, headers: dict[str, str] | None = None) -> list[httpx.Response]:
    async def story() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            return [await client.get(path, headers=headers) for path in paths]

    return asyncio.run(story())


def one_endpoint(**more: Any) -> FastAPI:
    app = FastAPI()
    by = {"key": by_address(), **more}

    @app.get("/login", dependencies=[Depends(limit(limiter(), "login", **by))])
    async def login() -> dict[str, str]:
        return {"said": "in"}

    return app


def test_an_endpoint_is_limited_without_arguments_of_its_own() -> None:
    first, second = got(one_endpoint(), "/login", "/login")
    assert first.json() == {"said": "in"}
    assert first.headers["ratelimit"] == '"login";r=0;t=60'
    assert first.headers["ratelimit-policy"] == '"login";q=1;w=60'
    assert "retry-after" not in first.headers
    assert second.status_code == 429
    assert second.headers["retry-after"] == "60"
    assert second.headers["ratelimit"] == '"login";r=0;t=60'
    assert second.headers["content-type"] == "application/problem+json"
    assert second.json() == {"detail": "The limit for this key is spent."}


def test_installed_a_refusal_is_a_whole_problem() -> None:
    app = one_endpoint()
    install(app)
    _, refused = got(app, "/login", "/login")
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers.get_list("ratelimit") == ['"login";r=0;t=60']
    assert refused.json()["status"] == 429
    assert refused.json()["rule"] == "login"
    assert refused.json()["retry_after"] == 60


def test_a_response_of_the_endpoints_own_has_the_headers_once_installed() -> None:
    app = FastAPI()
    here = Depends(limit(limiter(api="9/minute"), "api", key="all"))

    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    @app.get("/plain", dependencies=[here])
    async def plain() -> PlainTextResponse:
        return PlainTextResponse("plain")

    @app.get("/stream", dependencies=[here])
    async def stream() -> StreamingResponse:
        return StreamingResponse(chunks())

    @app.get("/own", dependencies=[here])
    async def own() -> PlainTextResponse:
        return PlainTextResponse("own", headers={"RateLimit": '"own";r=1'})

    install(app)
    plain_, stream_, own_ = got(app, "/plain", "/stream", "/own")
    assert plain_.headers.get_list("ratelimit") == ['"api";r=8;t=7']
    assert stream_.headers.get_list("ratelimit") == ['"api";r=8;t=7']
    assert stream_.text == "ab"
    assert own_.headers.get_list("ratelimit") == ['"own";r=1']
    assert own_.headers["ratelimit-policy"] == '"api";q=9;w=60'


def test_each_endpoint_counts_by_itself_unless_they_share_a_scope() -> None:
    limits = limiter()
    router = APIRouter()

    def of(scope: str | None) -> Any:
        return [Depends(limit(limits, "login", key="all", scope=scope))]

    @router.get("/a", dependencies=of(None))
    async def a() -> None: ...

    @router.get("/b", dependencies=of(None))
    async def b() -> None: ...

    @router.get("/c", dependencies=of("pair"))
    async def c() -> None: ...

    @router.get("/d", dependencies=of("pair"))
    async def d() -> None: ...

    app = FastAPI()
    app.include_router(router, prefix="/in")
    statuses = [one.status_code for one in got(app, "/in/a", "/in/b", "/in/a", "/in/c", "/in/d")]
    assert statuses == [200, 200, 429, 200, 429]


def test_the_path_of_a_request_gives_nobody_a_fresh_bucket() -> None:
    app = FastAPI()

    @app.get("/items/{item}", dependencies=[Depends(limit(limiter(), "login", key="all"))])
    async def item(item: int) -> int:
        return item

    assert [one.status_code for one in got(app, "/items/1", "/items/2?x=1")] == [200, 429]


def test_limits_of_routers_and_of_the_application_apply_to_included_routes() -> None:
    """Elsewhere default limits silently do nothing for these."""
    inner, outer = APIRouter(), APIRouter()

    @inner.get("/x")
    async def x() -> str:
        return "x"

    outer.include_router(inner, prefix="/inner")
    by_router = FastAPI()
    here = [Depends(limit(limiter(), "login", key="all"))]
    by_router.include_router(outer, prefix="/outer", dependencies=here)
    by_app = FastAPI(dependencies=[Depends(limit(limiter(), "login", key="all"))])
    by_app.include_router(outer, prefix="/outer")
    by_middleware = FastAPI()
    by_middleware.add_middleware(LimitMiddleware, guard=ByAddress("1/minute"))
    by_middleware.include_router(outer, prefix="/outer")
    mounted = FastAPI()
    mounted.add_middleware(LimitMiddleware, guard=ByAddress("1/minute"))
    mounted.mount("/outer", by_router_only(outer))
    for app in (by_router, by_app, by_middleware, mounted):
        path = "/outer/inner/x"
        assert [one.status_code for one in got(app, path, path)] == [200, 429]


def by_router_only(router: APIRouter) -> FastAPI:
    app = FastAPI()
    app.include_router(router)
    return app


def test_a_key_and_a_cost_may_be_dependencies() -> None:
    app = FastAPI()

    def tenant(x_tenant: Annotated[str, Header()]) -> str:
        return x_tenant

    def size(pages: int = 1) -> int:
        return pages

    limits = limiter(print="10/minute")

    @app.get("/print", dependencies=[Depends(limit(limits, "print", key=tenant, cost=size))])
    def print_() -> str:
        return "printed"

    ann, bob = {"x-tenant": "ann"}, {"x-tenant": "bob"}
    assert got(app, "/print?pages=7", headers=ann)[0].headers["ratelimit"] == '"print";r=3;t=6'
    assert got(app, "/print?pages=7", headers=ann)[0].status_code == 429
    assert got(app, "/print?pages=7", headers=bob)[0].status_code == 200
    assert got(app, "/print")[0].status_code == 422, "what a key asks for is validated"
    assert "x-tenant" in str(app.openapi()["paths"]["/print"]["get"]["parameters"])


def test_clients_do_not_share_a_bucket() -> None:
    app = one_endpoint(key=by_address(trust_proxies=1))
    for address, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
        headers = {"x-forwarded-for": f"9.9.9.9, {address}"}
        assert got(app, "/login", headers=headers)[0].status_code == status
    app = one_endpoint(key=by_header("X-Api-Key", trust_proxies=1))
    for key, status in (("a", 200), ("b", 200), ("a", 429), ("a" * 9_000, 200)):
        assert got(app, "/login", headers={"x-api-key": key})[0].status_code == status
    for address, status in (("203.0.113.1", 200), ("203.0.113.2", 200), ("203.0.113.1", 429)):
        assert got(app, "/login", headers={"x-forwarded-for": address})[0].status_code == status


def test_an_endpoint_may_look_at_the_judgement() -> None:
    app = FastAPI()
    here = Depends(limit(limiter(api="9/minute"), "api", key="all"))

    @app.get("/left")
    async def left(judgement: Judgement = here) -> int:
        return judgement.decision.remaining

    assert got(app, "/left")[0].json() == 8


def test_a_dependency_can_be_overridden_in_tests() -> None:
    here = limit(limiter(), "login", key="all")
    app = FastAPI()

    @app.get("/x", dependencies=[Depends(here)])
    async def x() -> str:
        return "x"

    app.dependency_overrides[here] = lambda: None
    assert [one.status_code for one in got(app, "/x", "/x", "/x")] == [200, 200, 200]
    app.dependency_overrides.clear()
    assert [one.status_code for one in got(app, "/x", "/x")] == [200, 429]


def test_several_limits_of_one_endpoint_are_all_told() -> None:
    limits = limiter(hour="9/hour")
    app = FastAPI()
    here = [Depends(limit(limits, rule, key="all")) for rule in ("login", "hour")]

    @app.get("/x", dependencies=here)
    async def x() -> str:
        return "x"

    (answer,) = got(app, "/x")
    assert answer.headers.get_list("ratelimit") == ['"login";r=0;t=60, "hour";r=8;t=400']
    assert answer.headers["ratelimit-policy"] == '"login";q=1;w=60, "hour";q=9;w=3600'


def test_a_guard_as_a_dependency() -> None:
    app = FastAPI(dependencies=[Depends(limited(ByAddress("1/minute")))])

    @app.get("/x")
    async def x() -> str:
        return "x"

    @app.get("/free")
    async def free() -> str:
        return "free"

    first, second, free_ = got(app, "/x", "/x", "/free")
    assert first.headers["ratelimit"] == '"pages";r=0;t=60'
    assert (second.status_code, free_.status_code) == (429, 200)
    assert "ratelimit" not in free_.headers


def test_a_store_that_is_gone_is_never_a_500() -> None:
    app = FastAPI(dependencies=[Depends(limited(Broken()))])

    @app.get("/x")
    async def x() -> None: ...

    (answer,) = got(app, "/x")
    assert answer.status_code == 503
    assert answer.headers["x-ratelimit-error"] == "store_unavailable"
    away_app = FastAPI()
    away = Limiter("1/minute", store_url="redis://127.0.0.1:1/0")

    @away_app.get("/x", dependencies=[Depends(limit(away, key="all"))])
    async def y() -> None: ...

    for answer in got(away_app, "/x", "/x"):
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-error"] == "store_unavailable"


def test_a_limit_inside_of_an_endpoint_is_answered_in_the_same_way() -> None:
    inside = limiter()
    app = FastAPI()
    install(app)

    @app.get("/x")
    @inside.limit("login", key="all")
    async def x() -> str:
        return "x"

    _, refused = got(app, "/x", "/x")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert refused.json()["reason"] == "rate_limited"


def test_an_application_may_answer_refusals_by_itself() -> None:
    app = one_endpoint()
    install(app)

    @app.exception_handler(LimitExceeded)
    async def sorry(_: object, error: LimitExceeded) -> PlainTextResponse:
        return PlainTextResponse(error.judgement.decision.rule_id, 420)

    _, refused = got(app, "/login", "/login")
    assert (refused.status_code, refused.text) == (420, "login")
    assert refused.headers["retry-after"] == "60"


def test_a_websocket_is_limited_at_its_handshake() -> None:
    app = FastAPI()
    install(app)

    @app.websocket("/ws", dependencies=[Depends(limit(limiter(), "login", key=by_address()))])
    async def ws(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    async def story() -> None:
        opened = await ask(app, ws_scope())
        assert opened.headers["ratelimit"] == '"login";r=0;t=60'
        assert opened.sent[1] == {"type": "websocket.send", "text": "hello"}
        denied = await ask(app, ws_scope(extensions={"websocket.http.response": {}}))
        assert (denied.start["type"], denied.status) == ("websocket.http.response.start", 429)
        assert denied.headers["retry-after"] == "60"
        answer = await ask(app, ws_scope())
        assert answer.sent == [{"type": "websocket.close", "code": 1008, "reason": "rate_limited"}]

    asyncio.run(story())


def test_the_documentation_can_say_what_a_refusal_is() -> None:
    app = FastAPI(responses=REFUSALS)

    @app.get("/x")
    async def x() -> None: ...

    response = app.openapi()["paths"]["/x"]["get"]["responses"]["429"]
    assert "application/problem+json" in response["content"]
    assert "Retry-After" in response["headers"]


def test_a_wrong_rule_is_told_where_it_stands() -> None:
    with pytest.raises(BadValue, match="logon"):
        limit(limiter(), "logon", key="all")
    with pytest.raises(BadValue, match="rule"):
        limit(limiter(), key="all")
