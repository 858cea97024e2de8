from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sluicegate import Claim, Limiter, Refused
from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.guard import Judgement
from sluicegate.doors.asgi import App, LimitMiddleware, Message, Receive, Scope, Send, path_in_app
from sluicegate.doors.proxies import Proxies
from sluicegate.testing import HandClock
from tests.doors.bare import ask, http_scope, ws_scope
from tests.doors.guards import Broken, ByAddress, ByHeader, ByUser

PLAIN = {"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]}


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send(PLAIN)
    await send({"type": "http.response.body", "body": b"hel", "more_body": True})
    await send({"type": "http.response.body", "body": b"lo"})


def test_an_admitted_response_gains_headers_and_nothing_else_of_it_changes() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("2/minute"))
        answer = await ask(app, http_scope())
        assert answer.headers == {
            "x-own": "1",
            "ratelimit-policy": '"pages";q=2;w=60',
            "ratelimit": '"pages";r=1;t=30',
        }
        assert answer.sent[1:] == [
            {"type": "http.response.body", "body": b"hel", "more_body": True},
            {"type": "http.response.body", "body": b"lo"},
        ]
        assert PLAIN["headers"] == [(b"x-own", b"1")], "the application's own list stays its own"

    asyncio.run(story())


def test_a_refusal_is_a_429_with_problem_details_and_the_application_never_sees_it() -> None:
    calls: list[str] = []

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(scope["path"])
        await hello(scope, receive, send)

    async def story() -> None:
        app = LimitMiddleware(counting, ByAddress("1/minute"))
        await ask(app, http_scope("/a"))
        answer = await ask(app, http_scope("/b"))
        assert calls == ["/a"]
        assert answer.status == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "60"
        assert answer.headers["ratelimit"] == '"pages";r=0;t=60'
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert json.loads(answer.body)["reason"] == "rate_limited"
        assert not answer.sent[-1].get("more_body")

    asyncio.run(story())


def test_a_refused_head_request_has_every_header_and_no_body() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("1/minute"))
        await ask(app, http_scope())
        got, head = await ask(app, http_scope()), await ask(app, http_scope(method="HEAD"))
        assert head.status == 429
        assert head.body == b""
        assert head.headers == got.headers

    asyncio.run(story())


def test_clients_do_not_share_a_bucket() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("1/minute"))
        one, other = http_scope(client=("192.0.2.1", 1)), http_scope(client=("192.0.2.2", 1))
        statuses = [(await ask(app, scope)).status for scope in (one, one, other, other)]
        assert statuses == [200, 429, 200, 429]

    asyncio.run(story())


def test_behind_a_proxy_each_client_is_its_own_and_cannot_choose_whom_to_be() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("1/minute"), trust_proxies=1)

        async def status(*lines: str) -> int:
            headers = [(b"x-forwarded-for", line.encode()) for line in lines]
            return (await ask(app, http_scope(headers=headers))).status

        assert await status("203.0.113.1") == 200
        assert await status("203.0.113.2") == 200
        assert await status("203.0.113.1") == 429
        assert await status("9.9.9.9, 203.0.113.1") == 429
        assert await status("9.9.9.9", "203.0.113.1:8080") == 429

    asyncio.run(story())


def test_without_trusted_proxies_a_forwarded_header_changes_nothing() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("1/minute"))
        for n, status in ((1, 200), (2, 429)):
            headers = [(b"x-forwarded-for", f"203.0.113.{n}".encode())]
            assert (await ask(app, http_scope(headers=headers))).status == status

    asyncio.run(story())


def test_the_standard_header_and_a_unix_socket() -> None:
    async def story() -> None:
        proxies = Proxies(1, header="forwarded")
        app = LimitMiddleware(hello, ByAddress("1/minute"), trust_proxies=proxies)
        for n, status in ((1, 200), (2, 200), (1, 429)):
            headers = [(b"forwarded", f"for=203.0.113.{n}".encode())]
            scope = http_scope(headers=headers, client=None)
            assert (await ask(app, scope)).status == status

    asyncio.run(story())


def test_a_header_and_a_user_can_be_the_key() -> None:
    async def story() -> None:
        by_key = LimitMiddleware(hello, ByHeader("1/minute"))
        for key, status in ((b"a", 200), (b"b", 200), (b"a", 429)):
            scope = http_scope(headers=[(b"accept", b"*"), (b"x-api-key", key)])
            assert (await ask(by_key, scope)).status == status
        by_user = LimitMiddleware(hello, ByUser("1/minute"), user=lambda scope: scope.get("who"))
        for who, status in (("ann", 200), ("bob", 200), ("ann", 429), (None, 200)):
            assert (await ask(by_user, http_scope(who=who))).status == status

    asyncio.run(story())


def test_what_no_rule_is_about_passes_with_the_very_send_of_the_server() -> None:
    sends: list[Send] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sends.append(send)

    async def send(message: Message) -> None: ...

    async def receive() -> Message:
        return {}

    async def story() -> None:
        await LimitMiddleware(app, ByAddress())(http_scope("/free"), receive, send)
        exempt = LimitMiddleware(app, Broken(RuntimeError()), exempt=["/health"])
        await exempt(http_scope("/health"), receive, send)
        judged = LimitMiddleware(
            app, Broken(RuntimeError()), exempt=lambda scope: scope["method"] == "OPTIONS"
        )
        await judged(http_scope(method="OPTIONS"), receive, send)
        with pytest.raises(RuntimeError):
            await judged(http_scope(), receive, send)
        assert sends == [send, send, send]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "root", "found"),
    [
        ("/api/health", "/api", "/health"),
        ("/api/health", "/api/", "/health"),
        ("/api", "/api", "/"),
        ("/health", "/api", "/health"),  # the server has cut it off
        ("/apiary", "/api", "/apiary"),
        ("/health", "", "/health"),
    ],
)
def test_exempt_path_may_be_below_a_root_path(path: str, root: str, found: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = http_scope(path, root_path=root)
    for exempt in (found, path):
        answer = asyncio.run(ask(LimitMiddleware(app, Broken(), exempt=[exempt]), scope))
        assert answer.sent[0]["status"] == 200
    assert path_in_app(scope) == found


def test_lifespan_is_left_alone() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    async def story() -> None:
        answer = await ask(LimitMiddleware(app, Broken(RuntimeError())), {"type": "lifespan"})
        assert answer.sent == [{"type": "lifespan.startup.complete"}]

    asyncio.run(story())


def test_a_header_of_the_application_stands_and_is_not_doubled() -> None:
    async def own(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"RateLimit", b'"own";r=1'), (b"x-ratelimit-limit", b"7")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def story() -> None:
        app = LimitMiddleware(own, ByAddress(), headers="both")
        (start,) = (await ask(app, http_scope())).sent
        names = [name.lower() for name, _ in start["headers"]]
        assert len(names) == len(set(names))
        assert (b"RateLimit", b'"own";r=1') in start["headers"]
        assert (b"x-ratelimit-limit", b"7") in start["headers"]
        assert b"x-ratelimit-remaining" in names

    asyncio.run(story())


def test_a_header_in_capitals_is_known_as_well() -> None:
    async def own(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"RateLimit", b'"own";r=1')]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def story() -> None:
        (start,) = (await ask(LimitMiddleware(own, ByAddress()), http_scope())).sent
        names = [name for name, _ in start["headers"]]
        assert names == [b"RateLimit", b"ratelimit-policy"]

    asyncio.run(story())


def test_two_middlewares_tell_of_the_inner_one_once() -> None:
    async def story() -> None:
        inner = LimitMiddleware(hello, ByAddress("5/minute"))
        answer = await ask(LimitMiddleware(inner, ByAddress("9/minute")), http_scope())
        assert answer.headers["ratelimit-policy"] == '"pages";q=5;w=60'
        refusing = LimitMiddleware(hello, ByAddress("1/minute"))
        outer = LimitMiddleware(refusing, ByAddress("9/minute"))
        await ask(outer, http_scope())
        assert (await ask(outer, http_scope())).headers["ratelimit"] == '"pages";r=0;t=60'

    asyncio.run(story())


def test_an_application_that_sends_one_response_many_times_gains_headers_each_time() -> None:
    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("9/minute"))
        for left in (8, 7, 6):
            assert (
                (await ask(app, http_scope())).headers["ratelimit"].startswith(f'"pages";r={left}')
            )

    asyncio.run(story())


def test_a_response_without_headers_or_with_a_tuple_of_them_gains_its_own() -> None:
    def app_with(**more: Any) -> App:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 204, **more})

        return app

    async def story() -> None:
        for more in ({}, {"headers": ()}, {"headers": iter([(b"a", b"b")]), "trailers": True}):
            answer = await ask(LimitMiddleware(app_with(**more), ByAddress()), http_scope())
            assert "ratelimit" in answer.headers
            assert answer.start.get("trailers") == more.get("trailers")

    asyncio.run(story())


def test_an_exception_of_the_application_passes() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await ask(LimitMiddleware(failing, ByAddress()), http_scope())

    asyncio.run(story())


def test_a_guard_without_an_answer_is_a_503_and_never_a_500() -> None:
    async def story() -> None:
        answer = await ask(LimitMiddleware(hello, Broken()), http_scope())
        assert answer.status == 503
        assert answer.headers["x-ratelimit-error"] == "store_unavailable"
        assert answer.headers["retry-after"] == "1"
        assert json.loads(answer.body)["reason"] == "store_unavailable"

    asyncio.run(story())


def test_the_applications_own_unavailable_is_not_taken_for_the_guards() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise Unavailable("the database", "gone")

    async def story() -> None:
        for guard in (ByAddress(), ByAddress()):
            with pytest.raises(Unavailable):
                await ask(LimitMiddleware(failing, guard), http_scope())

    asyncio.run(story())


def test_a_bug_in_a_guard_is_not_swallowed() -> None:
    async def story() -> None:
        with pytest.raises(KeyError):
            await ask(LimitMiddleware(hello, Broken(KeyError("x"))), http_scope())

    asyncio.run(story())


def dead_store(failure: str) -> Limiter:
    # A port where nobody listens.
    return Limiter(rules={"pages": "2/minute"}, store_url="redis://127.0.0.1:1/0", failure=failure)


@pytest.mark.parametrize(
    ("failure", "statuses"),
    [("open", [200, 200, 200]), ("closed", [503, 503, 503]), ("local", [200, 200, 429])],
)
def test_a_store_that_is_gone_gives_what_the_rule_says_and_never_a_500(
    failure: str, statuses: list[int]
) -> None:
    async def story() -> None:
        async with dead_store(failure) as limiter:
            app = LimitMiddleware(hello, ByAddress(limiter=limiter))
            answers = [await ask(app, http_scope()) for _ in range(3)]
            assert [answer.status for answer in answers] == statuses
            for answer in answers:
                assert answer.headers["x-ratelimit-error"] == "store_unavailable"
                assert "ratelimit" not in answer.headers
                assert ("retry-after" in answer.headers) == (answer.status != 200)

    asyncio.run(story())


def test_a_custom_answer_gains_the_same_headers() -> None:
    def slow_down(scope: Scope, judgement: Judgement) -> App:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            rule = judgement.decision.rule_id.encode()
            await send({"type": "http.response.start", "status": 420, "headers": []})
            await send({"type": "http.response.body", "body": rule})

        return app

    async def story() -> None:
        app = LimitMiddleware(hello, ByAddress("1/minute"), on_refused=slow_down)
        await ask(app, http_scope())
        answer = await ask(app, http_scope())
        assert (answer.status, answer.body) == (420, b"pages")
        assert answer.headers["retry-after"] == "60"

    asyncio.run(story())


def test_only_what_is_asked_for_is_looked_up() -> None:
    class Untouched(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            assert name not in {"headers", "client"}, "nobody asked for this"
            return super().__getitem__(name)

    class Everyone(ByAddress):
        def key(self, arrival: object) -> str:
            return "everyone"

    async def quiet(scope: Scope, receive: Receive, send: Send) -> None: ...

    async def story() -> None:
        def never(scope: Scope) -> str:
            raise AssertionError

        app = LimitMiddleware(quiet, Everyone(), trust_proxies=3, user=never)
        await ask(app, Untouched(http_scope()))
        # An address without proxies is the socket's business alone.
        scope = http_scope()
        del scope["headers"]
        await ask(LimitMiddleware(quiet, ByAddress()), scope)

    asyncio.run(story())


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept", "headers": [(b"x-own", b"1")]})
    await send({"type": "websocket.send", "text": "hello"})


def test_an_admitted_handshake_is_accepted_with_headers() -> None:
    async def story() -> None:
        guard = ByAddress("2/minute")
        answer = await ask(LimitMiddleware(echo, guard), ws_scope())
        assert guard.lines == ["WEBSOCKET /ws"]
        assert answer.start["type"] == "websocket.accept"
        assert answer.headers["ratelimit"] == '"pages";r=1;t=30'
        assert answer.sent[1:] == [{"type": "websocket.send", "text": "hello"}]

    asyncio.run(story())


def test_a_refused_handshake_is_a_429_if_the_server_can_say_so() -> None:
    async def story() -> None:
        app = LimitMiddleware(echo, ByAddress("1/minute"))
        await ask(app, ws_scope())
        answer = await ask(app, ws_scope(extensions={"websocket.http.response": {}}))
        assert [message["type"] for message in answer.sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]
        assert answer.status == 429
        assert answer.headers["retry-after"] == "60"
        assert json.loads(answer.body)["rule"] == "pages"

    asyncio.run(story())


def test_a_refused_handshake_is_heard_before_it_is_answered() -> None:
    messages: list[str] = []

    async def receive() -> Message:
        messages.append("connect")
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        messages.append(message["type"])

    async def story() -> None:
        app = LimitMiddleware(echo, Broken())
        await app(ws_scope(), receive, send)
        assert messages == ["connect", "websocket.close"]

    asyncio.run(story())


@pytest.mark.parametrize("more", [{}, {"extensions": None}, {"extensions": {"tls": {}}}])
def test_a_refused_handshake_is_closed_before_it_is_accepted_if_not(more: dict[str, Any]) -> None:
    async def story() -> None:
        app = LimitMiddleware(echo, ByAddress("1/minute"))
        await ask(app, ws_scope())
        answer = await ask(app, ws_scope(**more))
        (close,) = answer.sent
        assert (close["type"], close["code"]) == ("websocket.close", 1008)

    asyncio.run(story())


def test_a_response_may_still_be_sent_from_another_task() -> None:
    """Some frameworks hand `send` to a task; what it returns must be awaitable once."""

    async def app(scope: Scope, receive: Receive, send: Callable[..., Awaitable[None]]) -> None:
        await asyncio.gather(send(PLAIN), send({"type": "http.response.body"}))

    async def story() -> None:
        answer = await ask(LimitMiddleware(app, ByAddress()), http_scope())
        assert "ratelimit" in answer.headers
        assert len(answer.sent) == 2

    asyncio.run(story())


def test_the_limit_of_a_program_and_that_of_its_door_are_told_apart() -> None:
    """`Refused` from inside of the program is the program's; the door does not guess."""
    limiter = Limiter("1/hour", clock=HandClock())

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        with limiter.limit(key="job"):
            await hello(scope, receive, send)

    async def story() -> None:
        app = LimitMiddleware(inside, ByAddress("9/minute"))
        await ask(app, http_scope())
        with pytest.raises(Refused):
            await ask(app, http_scope())
        assert not limiter.take_all(Claim("job"))

    asyncio.run(story())
