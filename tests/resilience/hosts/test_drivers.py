"""Each HTTP driver with a group of hosts, over TLS: where it connects, and whose name counts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, final

import aiohttp
import httpx
import pytest
import requests
import trustme

from sluicegate.contracts.errors import BadValue
from sluicegate.resilience.client.aiohttp import ResilientMiddleware
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.grpc import AsyncResilientInterceptor
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.requests import ResilientAdapter
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.hosts.group import HostGroup
from sluicegate.resilience.hosts.sources import list_source

NAME: Final = "search.example"
URL: Final = f"https://{NAME}/find?q=lamp"
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@final
class TlsHost:
    """One host of the service; `names` are what TLS was asked for, `heads` what was sent."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.names: list[str | None] = []
        self.heads: list[str] = []
        context.sni_callback = lambda _, name, __: self.names.append(name)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), plain:
                plain.settimeout(10)
                with self._context.wrap_socket(plain, server_side=True) as connection:
                    self.heads.append(connection.recv(65_536).decode("latin-1"))
                    connection.sendall(OK)


@contextlib.contextmanager
def host_named(ca: trustme.CA, name: str) -> Iterator[TlsHost]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    host = TlsHost(context)
    try:
        yield host
    finally:
        host.close()


# Ask the URL with a client that trusts the authority in this file; the text and the final URL.
Ask: TypeAlias = Callable[[ResilientClient, Path], tuple[str, str]]


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


def by_httpx(client: ResilientClient, ca: Path) -> tuple[str, str]:
    below = httpx.HTTPTransport(verify=trusting(ca))
    with httpx.Client(transport=ResilientTransport(client, below)) as driver:
        found = driver.get(URL)
        return found.text, str(found.url)


def by_httpx_async(client: ResilientClient, ca: Path) -> tuple[str, str]:
    async def ask() -> tuple[str, str]:
        below = httpx.AsyncHTTPTransport(verify=trusting(ca))
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client, below)) as driver:
            found = await driver.get(URL)
            return found.text, str(found.url)

    return asyncio.run(ask())


def by_requests(client: ResilientClient, ca: Path) -> tuple[str, str]:
    with requests.Session() as driver:
        driver.trust_env = False
        driver.mount("https://", ResilientAdapter(client))
        found = driver.get(URL, verify=str(ca))
        return found.text, found.url


def by_aiohttp(client: ResilientClient, ca: Path) -> tuple[str, str]:
    async def ask() -> tuple[str, str]:
        async with (
            aiohttp.ClientSession(middlewares=[ResilientMiddleware(client)]) as driver,
            driver.get(URL, ssl=trusting(ca)) as found,
        ):
            return await found.text(), str(found.real_url)

    return asyncio.run(ask())


each_driver = pytest.mark.parametrize("ask", [by_httpx, by_httpx_async, by_requests, by_aiohttp])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    ca, path = trustme.CA(), tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return ca, path


def client_of(*hosts: str) -> ResilientClient:
    settings = client_settings({"retry": {"base_us": 1}})
    return ResilientClient(settings, HostGroup(list_source(hosts)))


@each_driver
def test_a_call_goes_to_the_hosts_and_the_service_keeps_its_name(
    ask: Ask, authority: tuple[trustme.CA, Path]
) -> None:
    """One of the two is dead: whoever is sent there is sent on, and that leaves nothing held."""
    ca, path = authority
    with host_named(ca, NAME) as host, socket.create_server(("127.0.0.1", 0)) as dead:
        port = dead.getsockname()[1]
        dead.close()
        client = client_of(f"127.0.0.1:{port}", host.host)
        for _ in range(4):
            assert ask(client, path) == ("ok", URL)
        assert host.names == [NAME] * 4
        assert all(head.startswith("GET /find?q=lamp HTTP/1.1\r\n") for head in host.heads)
        assert all(f"\r\nhost: {NAME}\r\n" in head.lower() for head in host.heads)
        assert client.hosts is not None
        assert client.hosts.balance.stats().inflight == 0


@each_driver
def test_a_host_that_proves_another_name_is_not_believed(
    ask: Ask, authority: tuple[trustme.CA, Path]
) -> None:
    ca, path = authority
    with host_named(ca, "other.example") as host:
        with pytest.raises(Exception, match=r"(?i)certificate|hostname"):
            ask(client_of(host.host), path)
        assert not any(host.heads)


def hedging() -> ResilientClient:
    return ResilientClient(client_settings({"hedge": {}}))


def test_driver_that_sends_one_request_at_a_time_refuses_hedges() -> None:
    with pytest.raises(BadValue, match=r"client\.hedge"):
        ResilientMiddleware(hedging())
    ResilientTransport(hedging())
    ResilientAdapter(hedging())
    AsyncResilientTransport(hedging())
    AsyncResilientInterceptor(hedging(), "b")
