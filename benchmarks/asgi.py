"""Time that a limit adds to a request: our ASGI middleware beside slowapi and asgi-ratelimit.

Every candidate is the same bare Starlette application, called in this process without a server; the
store is memory, every request is admitted, and what is printed is the time above the bare one. Ours
judges by a rulebook and writes its headers; asgi-ratelimit writes none, and slowapi is measured
without and with its own.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import ratelimit
import slowapi
from ratelimit.backends.simple import MemoryBackend
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from benchmarks.peers import step
from benchmarks.rounds import Bars, Result, build_of, interleaved, print_results
from sluicegate import Claim, Limiter
from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.guard import Judgement
from sluicegate.doors import headers
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.rules.web.guard import RulesGuard

REQUESTS = 2_000
ROUNDS = 9
RULE = "1000000000/minute"

BARE = "bare Starlette"
OURS = "sluicegate"
OURS_PLAIN = "sluicegate, a guard of one line"
OURS_BOTH = "sluicegate, both kinds of headers"
SLOWAPI = "slowapi decorator"
SLOWAPI_HEADERS = "slowapi decorator, headers"
SLOWAPI_ASGI = "slowapi ASGI middleware, headers"
ASGI_RATELIMIT = "asgi-ratelimit"

App = Any  # a Starlette, or one with a middleware around

SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "path": "/page",
    "raw_path": b"/page",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"host", b"localhost"), (b"accept", b"*/*"), (b"user-agent", b"bench")],
    "client": ("127.0.0.1", 4711),
    "server": ("127.0.0.1", 80),
}


async def page(request: Request) -> Response:
    """All that the application does."""
    return PlainTextResponse("hello")


def bare() -> Starlette:
    """The application that all candidates are."""
    return Starlette(routes=[Route("/page", page)])


class ByAddress:
    """The least that a guard can be: one rule for everyone's address."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter

    def judge(self, arrival: Arrival) -> Judgement | None:
        """Judge it now."""
        return self.limiter.judge(Claim(arrival.address(), "pages"))

    async def ajudge(self, arrival: Arrival) -> Judgement | None:
        """Likewise."""
        return await self.limiter.ajudge(Claim(arrival.address(), "pages"))


def ours(style: str = "ietf", *, plain: bool = False) -> App:
    """Ours, judged by a rulebook of one rule; or by a guard of one line."""
    limiter = Limiter(rules={"pages": RULE})
    guard: Any = ByAddress(limiter)
    if not plain:
        rule = {"match": {"path": "/**"}, "key": "address", "limit": RULE}
        guard = RulesGuard({"rules": {"pages": rule}}, limiter)
    app = bare()
    app.add_middleware(LimitMiddleware, guard=guard, headers=style)
    return app


def slowapi_decorated(*, with_headers: bool) -> App:
    """`slowapi` as its documentation has it, on its memory storage."""
    limiter = slowapi.Limiter(key_func=get_remote_address, headers_enabled=with_headers)
    app = Starlette(routes=[Route("/page", limiter.limit(RULE)(page))])
    app.state.limiter = limiter
    return app


def slowapi_middleware() -> App:
    """`slowapi`'s ASGI middleware with a default limit."""
    from slowapi.middleware import SlowAPIASGIMiddleware

    app = bare()
    app.state.limiter = slowapi.Limiter(
        key_func=get_remote_address, default_limits=[RULE], headers_enabled=True
    )
    app.add_middleware(SlowAPIASGIMiddleware)
    return app


def asgi_ratelimit() -> App:
    """`asgi-ratelimit` on its memory backend; it sends no headers."""

    async def who(scope: Mapping[str, Any]) -> tuple[str, str]:
        return scope["client"][0], "default"

    app = bare()
    rules = {r"^/": [ratelimit.Rule(minute=1_000_000_000)]}
    middleware: Any = ratelimit.RateLimitMiddleware
    backend: Any = MemoryBackend
    app.add_middleware(middleware, authenticate=who, backend=backend(), config=rules)
    return app


def requests_of(app: App) -> Callable[[], int]:
    """Request after request; the harness itself is the same for all."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    admitted = 0

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal admitted
        if message["type"] == "http.response.start" and message["status"] == 200:
            admitted += 1

    def run() -> int:
        nonlocal admitted
        admitted = 0
        for _ in range(REQUESTS):
            step(app(SCOPE.copy(), receive, send))
        if admitted != REQUESTS:
            raise RuntimeError("not every request was admitted")
        return REQUESTS

    return run


def added_us(results: Mapping[str, Result], name: str) -> float:
    """Median of what a candidate adds to the bare application of its own round."""
    return statistics.median(_added(results[name].ns, results[BARE].ns)) / 1_000


def added_ratio(results: Mapping[str, Result], name: str, than: str) -> float:
    """How much of what `than` adds is added by `name`; median of the rounds' own ratios."""
    bare_ns = results[BARE].ns
    pairs = zip(_added(results[name].ns, bare_ns), _added(results[than].ns, bare_ns), strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def _added(ns: Sequence[float], bare_ns: Sequence[float]) -> list[float]:
    return [one - bare_one for one, bare_one in zip(ns, bare_ns, strict=True)]


async def main() -> None:
    """Measure, print, and judge."""
    bars = Bars()
    print(f"sluicegate is {build_of(headers.__file__)}")
    apps: dict[str, App] = {
        BARE: bare(),
        OURS: ours(),
        OURS_PLAIN: ours(plain=True),
        OURS_BOTH: ours("both"),
        SLOWAPI: slowapi_decorated(with_headers=False),
        SLOWAPI_HEADERS: slowapi_decorated(with_headers=True),
        SLOWAPI_ASGI: slowapi_middleware(),
        ASGI_RATELIMIT: asgi_ratelimit(),
    }
    results = interleaved({name: requests_of(app) for name, app in apps.items()}, rounds=ROUNDS)
    print_results("A request", results, BARE)
    print("\nAdded to the bare application")
    for name in apps:
        if name != BARE:
            print(f"  {name:<32}  {added_us(results, name):6.1f} us")
    print()
    to_slowapi = added_ratio(results, OURS, SLOWAPI)
    to_peer = added_ratio(results, OURS, ASGI_RATELIMIT)
    bars.check(to_slowapi <= 0.25, f"at most 1/4 of what slowapi adds: {to_slowapi:.2f}")
    bars.check(to_peer <= 1.0, f"no more than asgi-ratelimit adds: {to_peer:.2f}")
    bars.exit()


if __name__ == "__main__":
    asyncio.run(main())
