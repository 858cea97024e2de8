from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSServerHandshakeError, web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from sluicegate.contracts.guard import Judgement
from sluicegate.doors.aiohttp import limit_middleware, setup
from tests.doors.guards import Broken, ByAddress, ByUser


async def page(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"a")
    await response.write(b"b")
    await response.write_eof()
    return response


async def ws(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.send_str(await socket.receive_str())
    await socket.close()
    return socket


async def own(request: web.Request) -> web.Response:
    return web.Response(text="own", headers={"RateLimit": '"own";r=1'})


async def moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/page")


async def file(request: web.Request) -> web.FileResponse:
    return web.FileResponse(Path(__file__))


def routes(app: web.Application) -> web.Application:
    handlers: dict[str, Any] = {
        "page": page,
        "stream": stream,
        "ws": ws,
        "own": own,
        "moved": moved,
        "file": file,
        "free": page,
    }
    for name, handler in handlers.items():
        app.router.add_get(f"/{name}", handler)
    return app


Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app)) as client:
        yield client


@asynccontextmanager
async def guarded(guard: Any, **more: Any) -> AsyncIterator[Client]:
    app = routes(web.Application())
    setup(app, guard, **more)
    async with serving(app) as client:
        yield client


def test_every_kind_of_response_has_its_headers() -> None:
    async def story() -> None:
        async with guarded(ByAddress("9/minute")) as client:
            for n, name in enumerate(("page", "stream", "file", "nowhere")):
                answer = await client.get(f"/{name}")
                assert answer.headers.getall("RateLimit") == [f'"pages";r={8 - n};t=7']
                assert "Retry-After" not in answer.headers
            moved_ = await client.get("/moved", allow_redirects=False)
            assert (moved_.status, "RateLimit" in moved_.headers) == (302, True)
            own_ = await client.get("/own")
            assert own_.headers.getall("RateLimit") == ['"own";r=1']
            assert "RateLimit" not in (await client.get("/free")).headers

    asyncio.run(story())


def test_a_refusal_is_problem_details() -> None:
    async def story() -> None:
        async with guarded(ByAddress("1/minute")) as client:
            await client.get("/page")
            refused = await client.get("/page")
            assert refused.status == 429
            assert refused.headers["Retry-After"] == "60"
            assert refused.headers.getall("RateLimit") == ['"pages";r=0;t=60']
            assert refused.content_type == "application/problem+json"
            assert (await refused.json(content_type=None))["reason"] == "rate_limited"
            head = await client.head("/page")
            assert (head.status, await head.read()) == (429, b"")

    asyncio.run(story())


def test_a_websocket_is_judged_at_its_handshake() -> None:
    async def story() -> None:
        guard = ByAddress("1/minute")
        async with guarded(guard) as client:
            async with client.ws_connect("/ws") as socket:
                assert socket._response.headers["RateLimit"] == '"pages";r=0;t=60'
                await socket.send_str("echo")
                assert (await socket.receive()).data == "echo"
            with pytest.raises(WSServerHandshakeError) as refused:
                await client.ws_connect("/ws")
            assert refused.value.status == 429
            assert refused.value.headers is not None
            assert refused.value.headers["Retry-After"] == "60"
            assert guard.lines == ["WEBSOCKET /ws"] * 2

    asyncio.run(story())


def test_the_middleware_alone_reaches_what_is_not_sent_yet() -> None:
    async def story() -> None:
        limits = limit_middleware(ByAddress("3/minute"))
        async with serving(routes(web.Application(middlewares=[limits]))) as client:
            assert (await client.get("/page")).headers["RateLimit"] == '"pages";r=2;t=20'
            assert "RateLimit" not in (await client.get("/stream")).headers
            moved_ = await client.get("/moved", allow_redirects=False)
            assert moved_.headers["RateLimit"] == '"pages";r=0;t=20'
            assert (await client.get("/stream")).status == 429

    asyncio.run(story())


def test_clients_and_users_do_not_share_a_bucket() -> None:
    async def story() -> None:
        async with guarded(ByAddress("1/minute"), trust_proxies=1) as client:
            for address, status in (("1", 200), ("2", 200), ("1", 429)):
                headers = [("X-Forwarded-For", "9.9.9.9"), ("X-Forwarded-For", f"10.0.0.{address}")]
                assert (await client.get("/page", headers=headers)).status == status
        by_user = ByUser("1/minute")
        async with guarded(by_user, user=lambda request: request.headers.get("x-who")) as client:
            for who, status in (("ann", 200), ("bob", 200), ("ann", 429), ("", 200)):
                assert (await client.get("/page", headers={"x-who": who})).status == status

    asyncio.run(story())


def test_a_guard_without_an_answer_is_a_503_and_a_bug_is_a_bug() -> None:
    async def story() -> None:
        async with guarded(Broken()) as client:
            answer = await client.get("/page")
            assert answer.status == 503
            assert answer.headers["X-RateLimit-Error"] == "store_unavailable"
        limits = limit_middleware(Broken(KeyError("bug")))
        with pytest.raises(KeyError):
            await limits(make_mocked_request("GET", "/page"), page)

    asyncio.run(story())


def test_what_is_exempt_is_not_judged_and_refusals_may_be_answered_otherwise() -> None:
    def sorry(request: web.Request, judgement: Judgement) -> web.Response:
        return web.Response(status=420, text=judgement.decision.rule_id)

    async def story() -> None:
        async with guarded(Broken(), exempt=["/page"]) as client:
            assert (await client.get("/page")).status == 200
        async with guarded(Broken(), exempt=lambda request: "x" in request.query) as client:
            assert (await client.get("/page?x")).status == 200
            assert (await client.get("/page")).status == 503
        async with guarded(ByAddress("1/minute"), on_refused=sorry) as client:
            await client.get("/page")
            answer = await client.get("/page")
            assert (answer.status, await answer.text()) == (420, "pages")
            assert answer.headers["Retry-After"] == "60"

    asyncio.run(story())


def test_a_unix_socket_has_no_address_but_its_proxy_knows_one(tmp_path: Path) -> None:
    async def story() -> None:
        from aiohttp import ClientSession, UnixConnector

        app = routes(web.Application())
        setup(app, ByAddress("1/minute"), trust_proxies=1)
        runner = web.AppRunner(app)
        await runner.setup()
        where = str(tmp_path / "s")
        await web.UnixSite(runner, where).start()
        try:
            async with ClientSession(connector=UnixConnector(where)) as session:
                for n, status in ((1, 200), (2, 200), (1, 429)):
                    headers = {"X-Forwarded-For": f"10.0.0.{n}"}
                    async with session.get("http://t/page", headers=headers) as answer:
                        assert answer.status == status
        finally:
            await runner.cleanup()

    asyncio.run(story())
