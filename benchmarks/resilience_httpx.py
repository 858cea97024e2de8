"""Time that the transport of httpx adds to a request, next to stamina with aiobreaker.

    python -m benchmarks.resilience_httpx

Each candidate sends a `GET` to a stub that answers immediately. The added time is the candidate's
time less that of the stub alone. The figures include neither httpx itself nor a socket or a server.
stamina and aiobreaker wrap the same call, and the asynchronous candidates run on asyncio's loop.

The bar, for the compiled build: at most 25 us added to a request, sync and async.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from importlib import import_module
from typing import Any

import httpx

from benchmarks.rounds import Bars, Result, build_of, interleaved, print_results
from sluicegate.policies.client import breaker as policy_module
from sluicegate.resilience import Client

CALLS = 2_000
BAR_US = 25
LIMITS = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}


class Stub(httpx.BaseTransport):
    """Answers at once."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return an answer."""
        return httpx.Response(200, stream=httpx.ByteStream(b"ok"))


class AsyncStub(httpx.AsyncBaseTransport):
    """Answers at once."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return an answer."""
        return httpx.Response(200, stream=httpx.ByteStream(b"ok"))


def request() -> httpx.Request:
    """A request with the fields that httpx adds by itself."""
    fields = {
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "connection": "keep-alive",
        "user-agent": "python-httpx/0.28.1",
    }
    url = "http://search.internal:8080/items?q=lamp"
    return httpx.Request("GET", url, headers=fields, extensions={"timeout": LIMITS})


def repeat(send: Callable[[httpx.Request], Any]) -> Callable[[], int]:
    """A candidate that sends one request after another."""
    sent = request()

    def run() -> int:
        for _ in range(CALLS):
            send(sent)
        return CALLS

    return run


def repeat_async(
    loop: asyncio.AbstractEventLoop, send: Callable[[httpx.Request], Coroutine[Any, Any, Any]]
) -> Callable[[], int]:
    """The same on a loop."""
    sent = request()

    async def send_all() -> None:
        for _ in range(CALLS):
            await send(sent)

    def run() -> int:
        loop.run_until_complete(send_all())
        return CALLS

    return run


def added_us(results: dict[str, Result], name: str) -> float:
    """Return the time of a candidate less that of the stub alone."""
    return (results[name].median_ns - results["stub alone"].median_ns) / 1_000


def main() -> None:
    """Measure and print."""
    stamina, aiobreaker = import_module("stamina"), import_module("aiobreaker")
    build = build_of(policy_module.__file__)
    stub, async_stub = Stub(), AsyncStub()
    loop = asyncio.new_event_loop()
    breaker = aiobreaker.CircuitBreaker(fail_max=5, timeout_duration=timedelta(seconds=60))

    async def send(sent: httpx.Request) -> httpx.Response:
        return await async_stub.handle_async_request(sent)

    def send_now(sent: httpx.Request) -> httpx.Response:
        return stub.handle_request(sent)

    retry = stamina.retry(on=httpx.HTTPError, attempts=3)
    peer, peer_now = retry(breaker(send)), retry(breaker(send_now))
    ours = Client().httpx_transport(stub)
    ours_async = Client().async_httpx_transport(async_stub)
    bars = Bars()
    for title, results in (
        (
            "blocking",
            interleaved(
                {
                    "stub alone": repeat(stub.handle_request),
                    "sluicegate": repeat(ours.handle_request),
                    "stamina + aiobreaker": repeat(peer_now),
                }
            ),
        ),
        (
            "asyncio",
            interleaved(
                {
                    "stub alone": repeat_async(loop, async_stub.handle_async_request),
                    "sluicegate": repeat_async(loop, ours_async.handle_async_request),
                    "stamina + aiobreaker": repeat_async(loop, peer),
                }
            ),
        ),
    ):
        print_results(f"A request of httpx, {title}, {build}", results, "stamina + aiobreaker")
        own_us, peer_us = added_us(results, "sluicegate"), added_us(results, "stamina + aiobreaker")
        text = f"{title}: at most {BAR_US} us added: {own_us:.1f} (peer {peer_us:.1f})"
        if build == "compiled":
            bars.check(own_us <= BAR_US, text)
        else:
            print(f"  {text}")
    loop.close()
    bars.exit()


if __name__ == "__main__":
    main()
