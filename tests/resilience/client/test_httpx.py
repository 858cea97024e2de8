from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import final

import httpx
import pytest

from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import BREAKER_OPEN
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.settings import client_settings
from tests.resilience.client.server import (
    FAILING,
    GARBAGE,
    HANGS,
    LIMITED,
    OK,
    ScriptedServer,
    serving,
)

QUICK = {"base_us": 1}


def made(**table: object) -> ResilientClient:
    return ResilientClient(client_settings({"retry": QUICK} | table))


def send(client: ResilientClient, url: str, method: str, *, sync: bool) -> httpx.Response:
    if sync:
        below = httpx.HTTPTransport(verify=False)  # nothing is read from disk for each request
        with httpx.Client(transport=ResilientTransport(client, below)) as driver:
            return driver.request(method, url)

    async def send_async() -> httpx.Response:
        below = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client, below)) as driver:
            return await driver.request(method, url)

    return asyncio.run(send_async())


def holds_nothing(client: ResilientClient) -> bool:
    return (
        client.retry.stats().inflight == 0
        and client.breaker.stats().inflight == 0
        and client.throttle.stats().inflight == 0
    )


both = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@both
@pytest.mark.parametrize("fault", [FAILING, GARBAGE], ids=["503", "garbage"])
def test_what_is_safe_to_repeat_is_repeated(fault: bytes, sync: bool) -> None:
    client = made()
    with serving(fault, OK) as server:
        assert send(client, server.url, "GET", sync=sync).text == "ok"
        assert server.received == 2
    assert client.retry.stats().mended == 1
    assert holds_nothing(client)


@both
def test_a_post_that_may_have_run_is_sent_once_and_its_response_is_handed_over(sync: bool) -> None:
    client = made()
    with serving(FAILING, OK) as server:
        assert send(client, server.url, "POST", sync=sync).status_code == 503
        assert server.received == 1
    assert client.retry.stats().not_idempotent == 1
    assert holds_nothing(client)


@both
def test_a_spent_quota_is_not_repeated_and_opens_no_breaker(sync: bool) -> None:
    client = made()
    with serving(LIMITED) as server:
        for _ in range(30):
            assert send(client, server.url, "GET", sync=sync).status_code == 429
        assert server.received == 30
    assert client.breaker.stats().not_closed == 0


@both
def test_an_attempt_that_hangs_is_given_up_and_the_next_one_answers(sync: bool) -> None:
    client = made(attempt_us=100_000)
    with serving(HANGS, OK) as server:
        assert send(client, server.url, "GET", sync=sync).text == "ok"
        assert server.received == 2
    assert holds_nothing(client)


@both
def test_a_dead_backend_is_asked_no_more_once_its_breaker_is_open(sync: bool) -> None:
    client = made(
        breaker={"failures_in_row": 5, "open_us": 60_000_000},
        retry_budget={"reserve_milli_per_s": 0},
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for _ in range(5):
        with pytest.raises(httpx.ConnectError):
            send(client, f"http://127.0.0.1:{port}/", "GET", sync=sync)
    with pytest.raises(Refused) as refused:
        send(client, f"http://127.0.0.1:{port}/", "GET", sync=sync)
    assert refused.value.decision.reason is BREAKER_OPEN
    assert holds_nothing(client)
    with serving(OK) as server:
        assert send(client, server.url, "GET", sync=sync).text == "ok", "another backend"


@both
def test_repeats_are_a_share_of_the_calls_where_a_backend_only_fails(sync: bool) -> None:
    budget = {"reserve_milli_per_s": 0}
    breaker = {"failures_in_row": 0, "failure_percent": 0}
    client = made(retry_budget=budget, breaker=breaker)
    with serving(FAILING) as server:
        for _ in range(100):
            assert send(client, server.url, "GET", sync=sync).status_code == 503
        assert server.received <= 115
    naive = made(retry_budget={"deposit_milli": 10_000}, breaker=breaker)
    with serving(FAILING) as server:
        for _ in range(10):
            send(naive, server.url, "GET", sync=sync)
        assert server.received == 30, "without a budget each call is three"


def test_a_body_that_can_be_read_once_is_sent_once() -> None:
    client = made()
    with serving(FAILING, OK) as server:
        driver = httpx.Client(transport=ResilientTransport(client))
        with driver:
            assert driver.put(server.url, content=iter([b"a"])).status_code == 503
        assert server.received == 1


def test_a_cancelled_caller_leaves_nothing_behind_and_blames_nobody() -> None:
    client = made()

    async def cancelled(server: ScriptedServer) -> None:
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client)) as driver:
            task = asyncio.create_task(driver.get(server.url))
            await asyncio.to_thread(server.hanging.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with serving(HANGS) as server:
        asyncio.run(cancelled(server))
    assert holds_nothing(client)
    assert client.breaker.stats().not_closed == 0
    assert client.retry.stats().attempts == 0, "no result, so nothing was judged"


@both
def test_an_attempt_that_is_too_late_is_a_time_out_of_httpx(sync: bool) -> None:
    client = made(attempt_us=100_000)
    with serving(HANGS) as server, pytest.raises(httpx.TimeoutException):
        send(client, server.url, "GET", sync=sync)
    assert client.retry.stats().attempts == 3


@both
def test_what_cannot_be_sent_is_the_callers_own_fault(sync: bool) -> None:
    client = made()
    with pytest.raises(httpx.UnsupportedProtocol):
        send(client, "ftp://127.0.0.1/", "GET", sync=sync)
    assert client.retry.stats().attempts == 0
    assert holds_nothing(client)


@both
def test_the_body_of_a_response_has_the_time_that_its_caller_gives(sync: bool) -> None:
    """A stream may pause for longer than an attempt may take.

    What finds no connection says so before the timer of the attempt ends it, which does not know
    that it may be sent again.
    """
    client = made(attempt_us=200_000)
    limits: list[float | None] = []

    def below(request: httpx.Request) -> httpx.Response:
        asked = request.extensions["timeout"]
        limits.append(asked["read"])
        assert asked["connect"] < 0.19
        assert asked["pool"] < 0.19

        def body() -> Iterator[bytes]:
            limits.append(asked["read"])
            yield b"ok"

        async def body_async() -> AsyncIterator[bytes]:
            for part in body():
                yield part

        return httpx.Response(200, content=body() if sync else body_async())

    transport = httpx.MockTransport(below)

    async def send_async() -> str:
        above = AsyncResilientTransport(client, transport)
        async with httpx.AsyncClient(transport=above, timeout=30) as driver:
            return (await driver.get("http://b/")).text

    if sync:
        above = ResilientTransport(client, transport)
        with httpx.Client(transport=above, timeout=30) as driver:
            assert driver.get("http://b/").text == "ok"
    else:
        assert asyncio.run(send_async()) == "ok"
    attempt_s, body_s = limits
    assert attempt_s is not None
    assert attempt_s <= 0.2
    assert body_s == 30


def test_whenever_a_caller_is_cancelled_the_pool_keeps_its_connections() -> None:
    """httpcore loses one that is cancelled before it is used (encode/httpcore#1093)."""
    client = made(breaker={"failures_in_row": 0, "failure_percent": 0})

    async def story(url: str) -> None:
        limits = httpx.Limits(max_connections=2)
        below = httpx.AsyncHTTPTransport(verify=False, limits=limits)
        above = AsyncResilientTransport(client, below)
        async with httpx.AsyncClient(transport=above, timeout=2) as driver:
            for turns in range(40):
                callers = [asyncio.create_task(driver.get(url)) for _ in range(4)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for caller in callers:
                    caller.cancel()
                await asyncio.gather(*callers, return_exceptions=True)
            assert [(await driver.get(url)).text for _ in range(4)] == ["ok"] * 4

    with serving(OK) as server:
        asyncio.run(story(server.url))
    assert holds_nothing(client)


@final
class SlowToClose(httpx.AsyncByteStream):
    def __init__(self) -> None:
        self.closing, self.may_close, self.closed = asyncio.Event(), asyncio.Event(), False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b""

    async def aclose(self) -> None:
        self.closing.set()
        await self.may_close.wait()
        self.closed = True


@pytest.mark.parametrize("status", [200, 503])
def test_a_response_is_closed_though_its_caller_leaves_meanwhile(status: int) -> None:
    async def story() -> None:
        body = SlowToClose()
        below = httpx.MockTransport(lambda request: httpx.Response(status, stream=body))
        async with httpx.AsyncClient(transport=AsyncResilientTransport(made(), below)) as driver:
            caller = asyncio.create_task(driver.get("http://b/"))
            await body.closing.wait()
            caller.cancel()
            await asyncio.wait([caller])
            body.may_close.set()
            for _ in range(10):
                await asyncio.sleep(0)
            assert body.closed

    asyncio.run(story())
