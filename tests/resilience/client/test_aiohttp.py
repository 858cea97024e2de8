from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from sluicegate.contracts.errors import Refused
from sluicegate.resilience.client.aiohttp import ResilientMiddleware
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.settings import client_settings
from tests.resilience.client.server import (
    FAILING,
    GARBAGE,
    HANGS,
    LIMITED,
    LOST,
    OK,
    ScriptedServer,
    serving,
)

KEY: Mapping[str, str] = {"idempotency-key": "1"}


def made(**table: object) -> ResilientClient:
    return ResilientClient(client_settings({"retry": {"base_us": 1}} | table))


def send(client: ResilientClient, url: str, method: str = "GET", **more: Any) -> int:
    async def send_once() -> int:
        async with (
            aiohttp.ClientSession(middlewares=[ResilientMiddleware(client)]) as session,
            session.request(method, url, **more) as response,
        ):
            await response.read()
            return response.status

    return asyncio.run(send_once())


@pytest.mark.parametrize("fault", [FAILING, GARBAGE, HANGS], ids=["503", "garbage", "hangs"])
def test_what_is_safe_to_repeat_is_repeated(fault: bytes) -> None:
    client = made(attempt_us=200_000)
    with serving(fault, OK) as server:
        assert send(client, server.url) == 200
        assert server.received == 2
    assert client.breaker.stats().inflight == 0


def test_a_post_is_repeated_with_an_idempotency_key_alone_and_a_stream_never() -> None:
    async def stream() -> Any:
        yield b"a"

    with serving(FAILING, OK) as server:
        assert send(made(), server.url, "POST", data=b"a") == 503
    with serving(FAILING, OK) as server:
        assert send(made(), server.url, "POST", data=b"a", headers=KEY) == 200
    with serving(FAILING, OK) as server:
        assert send(made(), server.url, "POST", data=stream(), headers=KEY) == 503
        assert server.received == 1


def test_a_spent_quota_is_not_repeated_and_opens_no_breaker() -> None:
    client = made()
    with serving(LIMITED) as server:
        for _ in range(30):
            assert send(client, server.url) == 429
        assert server.received == 30
    assert client.breaker.stats().not_closed == 0


def test_a_dead_backend_is_asked_no_more_once_its_breaker_is_open() -> None:
    client = made(
        breaker={"failures_in_row": 3, "open_us": 60_000_000}, retry={"attempts": [1, 1, 1, 1]}
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    for _ in range(3):
        with pytest.raises(aiohttp.ClientConnectorError):
            send(client, url)
    with pytest.raises(Refused):
        send(client, url)


def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    client = made()

    async def cancelled(server: ScriptedServer) -> None:
        async with aiohttp.ClientSession(middlewares=[ResilientMiddleware(client)]) as session:
            task = asyncio.create_task(session.request("GET", server.url))
            await asyncio.to_thread(server.hanging.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with serving(HANGS) as server:
        asyncio.run(cancelled(server))
    assert client.retry.stats().inflight == client.breaker.stats().inflight == 0
    assert client.throttle.stats().inflight == 0


def test_a_lost_connection_is_repeated_by_the_client_and_not_by_aiohttp_as_well() -> None:
    client = made()
    with serving(LOST) as server:
        with pytest.raises(aiohttp.ClientConnectionError) as raised:
            send(client, server.url)
        assert server.received == 3
    assert isinstance(raised.value.__cause__, aiohttp.ServerDisconnectedError)
    assert client.retry.stats().calls == 1


def test_nothing_is_sent_once_the_callers_own_time_is_over() -> None:
    client = made()
    with serving(HANGS) as server:
        with pytest.raises(TimeoutError):
            send(client, server.url, timeout=aiohttp.ClientTimeout(total=0.2))
        assert server.received <= 1
    assert client.retry.stats().attempts == 1
