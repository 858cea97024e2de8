"""A service on a real socket: the RESP door, and behind it the service of `checks.py`.

It answers from a thread and a loop of its own, so that tests on any loop or none may ask it.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any, Self

from sluicegate.contracts.access import EVERY_GRANT, Grant
from sluicegate.doors.resp.protocol import RespDoor
from sluicegate.system import now_us
from tests.stores.service.checks import Checks, Doorman


class Ear(asyncio.Protocol):
    """Stands between a socket and the door: it can be deaf, and knows who is there."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.inner = service.door.protocol()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.service.ears.add(self)
        self.service.ready += 1
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.service.ears.discard(self)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.service.reads += 1
        if not self.service.silent:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class Service:
    """A service on a free port of the loopback, until `close`."""

    def __init__(
        self,
        *,
        token: str = "",
        grants: frozenset[Grant] = EVERY_GRANT,
        tls: ssl.SSLContext | None = None,
        checks: Checks | None = None,
    ) -> None:
        self.token = token
        self.silent = False  # hears everything, answers nothing
        self.reads = 0
        self.ready = 0  # connections, ever
        self.ears: set[Ear] = set()
        self.checks = Checks(now_us) if checks is None else checks
        self.door = RespDoor(self.checks, Doorman(token, grants))
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        scheme = "sluicegate" if self._tls is None else "sluicegates"
        token = f":{self.token}@" if self.token else ""
        # A busy machine may be slow, and few of these tests are about being slow.
        return f"{scheme}://{token}{self.address}?timeout_ms=5000"

    def open(self) -> None:
        """Listen, on the port of the last time if there was one."""

        async def listen() -> None:
            self._server = await self._loop.create_server(
                lambda: Ear(self), "127.0.0.1", self.port, ssl=self._tls
            )
            self.port = self._server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(60)

    def shut(self) -> None:
        """Stop listening, and hang up."""

        async def hang_up() -> None:
            if self._server is not None:
                self._server.close()
            for ear in [*self.ears]:
                ear.transport.abort()
            await asyncio.sleep(0.01)

        asyncio.run_coroutine_threadsafe(hang_up(), self._loop).result(60)

    def close(self) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
