"""A real grpcio server with our methods, in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.grpcio_server import GrpcioServer
from sluicegate.contracts.access import EVERY_GRANT, Identity
from sluicegate.doors.grpc.methods import Methods


class Everybody:
    """Access for whoever comes, to everything."""

    anonymous: Identity | None = Identity("somebody", EVERY_GRANT)

    def by_token(self, token: str) -> Identity | None:
        return self.anonymous

    def by_certificate(self, names: Sequence[str]) -> Identity | None:
        return self.anonymous


@contextmanager
def serve(methods: Methods) -> Iterator[int]:
    """The port, while it serves."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="grpcio server")
    thread.start()

    async def start() -> tuple[GrpcioServer, int]:
        server = GrpcioServer(methods, Everybody())
        return server, await server.start("127.0.0.1:0")

    try:
        server, port = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        yield port
        asyncio.run_coroutine_threadsafe(server.drain(0), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
