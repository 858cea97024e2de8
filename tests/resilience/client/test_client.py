"""Client and the names of `sluicegate.resilience`: settings in seconds, functions, drivers."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import grpc
import httpx
import pytest
import requests
from starlette.applications import Starlette

from sluicegate.contracts.errors import BadValue, Refused
from sluicegate.resilience import Client, Resilience, protect, resilient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source
from sluicegate.resilience.server.asgi import ProtectedApp
from sluicegate.resilience.server.asgi import protect as asgi_protect
from sluicegate.resilience.server.wsgi import ProtectedWsgiApp
from sluicegate.resilience.server.wsgi import protect as wsgi_protect
from sluicegate.testing import HandClock, SeededChance
from tests.resilience.client.server import FAILING, OK, serving

misused: Any = protect
NO_APP: Any = None
HOSTS = ["127.0.0.1:1", "127.0.0.1:2"]


def made(**settings: Any) -> Client:
    clock = HandClock()
    return Client(
        clock=clock,
        chance=SeededChance(1),
        pause=lambda seconds: clock.advance(us=int(seconds * 1e6)),
        **settings,
    )


def failing(times: int, error: Exception) -> tuple[Any, list[int]]:
    """A function whose first calls fail, and the list of its calls."""
    calls: list[int] = []

    def work() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return work, calls


def test_settings_in_seconds_replace_those_of_the_table() -> None:
    client = Client(
        timeout_s=2.5,
        attempt_timeout_s=0.25,
        attempts=5,
        retry_share=0.2,
        hedge=True,
        settings=client_settings({"margin_us": 7, "retry": {"base_us": 9}}),
    )
    found = client.settings
    assert (found.timeout_us, found.attempt_us, found.margin_us) == (2_500_000, 250_000, 7)
    assert (found.retry.attempts, found.retry.base_us) == ((5, 5, 5, 1), 9)
    assert found.retry_budget.deposit_milli == 200
    assert client.hedge is not None
    assert Client().settings == client_settings({})


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"timeout_s": 0.0}, "client.timeout_us"),
        ({"timeout_s": "2"}, "timeout_s"),
        ({"attempt_timeout_s": float("nan")}, "attempt_timeout_s"),
        ({"attempts": 0}, "retry.attempts"),
        ({"retry_share": 2.0}, "retry_share"),
        ({"on": 3}, "on"),
        ({"hosts": "127.0.0.1:1"}, "hosts"),
    ],
)
def test_bad_setting_of_client_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadValue, match=f"^{field}"):
        Client(**settings)


@pytest.mark.parametrize(
    "hosts", [HOSTS, list_source(HOSTS), HostGroup(list_source(HOSTS))], ids=["list", "source", ""]
)
def test_hosts_of_client_are_a_group(hosts: Any) -> None:
    group = Client(hosts=hosts).hosts
    assert group is not None
    assert group.balance.stats().hosts == 2


def test_idempotent_work_is_repeated_and_other_work_is_not() -> None:
    work, calls = failing(1, ConnectionResetError())
    assert made().run_now("stock", work, idempotent=True) == "done"
    assert len(calls) == 2
    work, calls = failing(1, ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        made().run_now("stock", work)
    assert len(calls) == 1


def test_coroutine_is_awaited_and_repeated() -> None:
    work, calls = failing(1, ConnectionRefusedError())
    client = Client(settings=client_settings({"retry": {"base_us": 1, "wait_us_max": 1}}))

    async def fetch() -> str:
        return str(work())

    assert asyncio.run(client.run("prices", fetch)) == "done"
    assert len(calls) == 2


def test_rules_of_a_call_replace_those_of_the_client() -> None:
    client = made(on=KeyError)
    work, calls = failing(1, KeyError("mine"))
    assert client.run_now("a", work, idempotent=True) == "done"
    work, calls = failing(1, KeyError("mine"))
    with pytest.raises(KeyError):
        client.run_now("a", work, idempotent=True, ignore=KeyError)
    assert len(calls) == 1


def test_decorator_without_client_has_its_own_client() -> None:
    work, calls = failing(1, KeyError("mine"))
    decorated = resilient(attempts=2, idempotent=True, on=KeyError)(work)
    assert decorated() == "done"
    assert len(calls) == 2
    with pytest.raises(BadValue, match="give the limits to the client"):
        resilient(made(), attempts=2)


def test_decorator_without_brackets_raises_with_the_fix() -> None:
    def stock() -> int:
        return 1

    with pytest.raises(BadValue, match=r"stock at .* cannot be used; write @resilient\(\)"):
        resilient(stock)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="decorate a function"):
        resilient()(None)  # type: ignore[type-var]


def test_ignored_error_is_neither_repeated_nor_counted() -> None:
    client = made()
    work, calls = failing(99, ConnectionResetError())
    decorated = resilient(client, "a", idempotent=True, ignore=ConnectionError)(work)
    for _ in range(50):
        with pytest.raises(ConnectionResetError):
            decorated()
    assert len(calls) == 50
    assert set(client.breaker.states().values()) == {"closed"}


def test_driver_of_each_kind_sends_by_the_client() -> None:
    client = Client(attempts=2)
    with serving(FAILING, OK) as server:
        with httpx.Client(transport=client.httpx_transport()) as web:
            assert web.get(server.url).text == "ok"
        server.then(FAILING, OK)
        with requests.Session() as session:
            session.trust_env = False
            session.mount("http://", client.requests_adapter())
            assert session.get(server.url).text == "ok"

        async def tasks() -> None:
            server.then(FAILING, OK)
            async with httpx.AsyncClient(transport=client.async_httpx_transport()) as own:
                assert (await own.get(server.url)).text == "ok"
            server.then(FAILING, OK)
            async with aiohttp.ClientSession(middlewares=[client.aiohttp_middleware()]) as other:
                assert await (await other.get(server.url)).text() == "ok"

        asyncio.run(tasks())
    assert client.retry.stats().mended == 4


def test_channel_of_grpc_is_refused_by_an_open_breaker() -> None:
    client = Client(settings=client_settings({"breaker": {"failures_in_row": 1}}))
    with grpc.insecure_channel("127.0.0.1:1") as plain:
        channel = grpc.intercept_channel(plain, client.grpc_interceptor("search"))
        method: Any = channel.unary_unary("/T/Get")
        with pytest.raises(grpc.RpcError):
            method(b"", timeout=5)
        with pytest.raises(Refused):
            method(b"", timeout=5)
    assert len(client.async_grpc_interceptors("search")) == 4


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize(
    ("app", "kind"), [(asgi, ProtectedApp), (Starlette(), ProtectedApp), (wsgi, ProtectedWsgiApp)]
)
def test_protect_takes_asgi_and_wsgi_applications(app: Any, kind: type[object]) -> None:
    assert isinstance(protect(app), kind)


def test_protect_takes_asgi_by_its_three_arguments() -> None:
    apps: list[tuple[Any, type[object]]] = [
        (lambda scope, receive, send: asgi(scope, receive, send), ProtectedApp),  # noqa: PLW0108
        (lambda environ, start, more=None: [], ProtectedWsgiApp),
        (lambda *given: [], ProtectedWsgiApp),
    ]
    for app, kind in apps:
        assert isinstance(protect(app), kind)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: misused(None), "protect.app: None cannot be used; give an application"),
        (lambda: asgi_protect(NO_APP), "a callable of ASGI"),
        (lambda: wsgi_protect(NO_APP), "a callable of WSGI"),
        (lambda: misused(lambda scope: scope), "ASGI takes \\(scope, receive, send\\)"),
        (lambda: misused(Starlette(), {"slots": 4}), "give Resilience\\(slots=...\\)"),
        (lambda: misused(Starlette(), protection=Resilience()), "give a Protection"),
    ],
)
def test_bad_argument_of_protect_is_named_with_its_fix(use: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        use()
