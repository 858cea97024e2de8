"""Serve: the socket, and uvicorn kept to what we ask of it.

Its server must not take our signals, and its parser must not gather a request head without end;
both are mended here by small subclasses. No route and no decision is known in this file.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Any, Final

import uvicorn

from sluicegate.contracts.errors import SluicegateError

HEAD_BYTES_MAX: Final = 64 * 1024
CONNECTIONS_MAX: Final = 512
BACKLOG: Final = 128
STARTED_GAP_S: Final = 0.005


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or an error that says what stands in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SluicegateError(_why_not(host, port, error)) from None
    listener.setblocking(False)
    return listener


def netloc(host: str, port: int) -> str:
    """`host:port` as a URL writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hosts_of(host: str, port: int) -> frozenset[str]:
    """The Host headers that name this machine to itself."""
    names = {netloc(name, port) for name in (host, "127.0.0.1", "::1", "localhost")}
    if port == 80:
        names |= {name.removesuffix(":80") for name in names}
    return frozenset(names)


def reachable(host: str) -> str:
    """Where a client on this machine finds a listener on `host`."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return "::1" if address.version == 6 else "127.0.0.1"


@asynccontextmanager
async def served(app: Callable[..., Any], listener: socket.socket) -> AsyncIterator[None]:
    """Answer on `listener` with `app`, until the block ends."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=_protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not (server.started or task.done()):
            await asyncio.sleep(STARTED_GAP_S)
        if server.started:
            yield
    finally:
        server.should_exit = True
        await task
        listener.close()


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override,unused-ignore]
        yield


def _protocol() -> type[asyncio.Protocol]:
    """The faster parser where it is installed. h11 bounds a request's head by itself."""
    try:
        from uvicorn.protocols.http.httptools_impl import (  # noqa: PLC0415 - may be missing
            HttpToolsProtocol,
        )
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415 - likewise

        return H11Protocol

    class Bounded(HttpToolsProtocol):
        """Hangs up on a request line and headers that have no end."""

        head_bytes = 0
        in_head = False

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.in_head:
                self.head_bytes += len(data)
                if self.head_bytes > HEAD_BYTES_MAX:
                    self.transport.abort()

        def on_message_begin(self) -> None:
            self.head_bytes, self.in_head = 0, True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.in_head = False
            super().on_headers_complete()

    return Bounded


def _why_not(host: str, port: int, error: OSError) -> str:
    at = netloc(host, port)
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; end what listens there, "
            "or choose another with --listen (port 0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"may not listen on {at}; choose a port from 1024 up with --listen"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; choose one that is with --listen"
    return f"cannot listen on {at}: {error.strerror}; choose another address with --listen"
