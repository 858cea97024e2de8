"""What `protect(app)` costs an admitted request, beside a middleware with a context variable.

    python -m benchmarks.resilience

In one thread and one event loop, without a server, around an application that answers at once. The
middleware is Starlette's `BaseHTTPMiddleware` as its page shows it, setting a context variable.

The bar: at most what the middleware costs and 10 us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from starlette.middleware.base import BaseHTTPMiddleware

from benchmarks.rounds import Bars, build_of, interleaved, print_results
from sluicegate.policies import stack as policy_module
from sluicegate.resilience.server.asgi import protect

CALLS = 1_000
ABOVE_NS_BAR = 10_000
HEADERS = [
    (b"host", b"localhost"),
    (b"accept", b"*/*"),
    (b"user-agent", b"benchmark"),
    (b"x-sluicegate-deadline-ms", b"1000"),
]
SCOPE = {"type": "http", "method": "GET", "path": "/page", "query_string": b"", "headers": HEADERS}
TENANT: ContextVar[str] = ContextVar("tenant", default="")


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """What is protected."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


class TenantMiddleware(BaseHTTPMiddleware):
    """Sets a context variable."""

    async def dispatch(self, request: Any, call_next: Any) -> Any:
        """For as long as the request is served."""
        token = TENANT.set("shop")
        try:
            return await call_next(request)
        finally:
            TENANT.reset(token)


async def receive() -> dict[str, Any]:
    """Return an empty body."""
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: Any) -> None:
    """Take a part of the response."""


def served(app: Any) -> Callable[[], int]:
    """A candidate that serves requests one after the other."""

    async def serve() -> None:
        for _ in range(CALLS):
            await app(dict(SCOPE), receive, send)

    def run() -> int:
        asyncio.run(serve())
        return CALLS

    return run


def main() -> None:
    """Measure and print."""
    build = build_of(policy_module.__file__)
    results = interleaved(
        {
            "plain": served(plain),
            "protect": served(protect(plain)),
            "middleware": served(TenantMiddleware(plain)),
        }
    )
    print_results(f"A request that is admitted, {build}", results, "plain")
    plain_ns = results["plain"].median_ns
    ours_ns = results["protect"].median_ns - plain_ns
    theirs_ns = results["middleware"].median_ns - plain_ns
    text = f"protect costs {ours_ns / 1_000:.1f} us, the middleware {theirs_ns / 1_000:.1f} us"
    bars = Bars()
    bars.check(ours_ns <= theirs_ns + ABOVE_NS_BAR, text)
    bars.exit()


if __name__ == "__main__":
    main()
