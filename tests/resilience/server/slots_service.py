"""A service in a process of its own that can do `SLOTS` pieces of work at once, and no more.

    python -m tests.resilience.server.slots_service DOOR KIND

DOOR is asgi (Starlette under uvicorn), wsgi (a server with threads) or grpc (grpcio with threads).
KIND says what stands before the slots: `fifo`, a queue without an end; `pool`, a bounded pool of
threads; `protected`, `protect`. It prints its port, and ends with its input. `/healthz` shows what
has begun, and how much of that after its deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from sluicegate.resilience.context import is_expired
from sluicegate.resilience.settings import Resilience
from sluicegate.system import now_us

SLOTS: Final = 4
WORK_S: Final = 0.04
CAPACITY: Final = int(SLOTS / WORK_S)
POOL_QUEUE: Final = 1_000  # what a bounded pool of threads lets wait, as Dropwizard's does
SETTINGS: Final = Resilience(slots=SLOTS)
SLOW: Final = 50  # times the work, of /slow
METHOD: Final = "/slots.Service/Work"


@final
class Slots:
    """Counts what is begun; each piece of work holds a thread for as long as it takes."""

    def __init__(self) -> None:
        self.begun = self.begun_late = 0
        self.slots = threading.Semaphore(SLOTS)

    def note(self) -> None:
        """A piece of work is about to begin."""
        self.begun += 1
        self.begun_late += is_expired(now_us())

    def work(self, path: str) -> None:
        """Take the time of this path."""
        time.sleep(WORK_S * (SLOW if path == "/slow" else 1))

    def stats(self) -> bytes:
        """Return the counts."""
        return json.dumps({"begun": self.begun, "begun_late": self.begun_late}).encode()


def asgi(kind: str, port: socket.socket) -> None:
    """Serve Starlette under uvicorn."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    from sluicegate.resilience.server.asgi import protect

    slots = Slots()
    pool = ThreadPoolExecutor(SLOTS)
    waiting = 0

    async def work(request: Request) -> Response:
        nonlocal waiting
        if kind == "pool" and waiting >= SLOTS + POOL_QUEUE:
            return PlainTextResponse("full", 503)
        waiting += 1
        slots.note()
        try:
            await asyncio.get_running_loop().run_in_executor(pool, slots.work, request.url.path)
        finally:
            waiting -= 1
        return PlainTextResponse("done")

    async def stats(request: Request) -> Response:
        return Response(slots.stats())

    app: Any = Starlette(
        routes=[Route("/work", work), Route("/slow", work), Route("/healthz", stats)]
    )
    if kind == "protected":
        app = protect(app, SETTINGS)
    config = uvicorn.Config(app, log_level="error", access_log=False, backlog=4_096)
    uvicorn.Server(config).run(sockets=[port])


@final
class _Threaded(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 1_024


@final
class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        return


def wsgi(kind: str, port: socket.socket) -> None:
    """Serve a function on a server with a thread for each connection."""
    from sluicegate.resilience.server.wsgi import protect

    slots = Slots()
    number = port.getsockname()[1]
    port.close()

    def work(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        start_response("200 OK", [("Content-Type", "text/plain")])
        if path == "/healthz":
            return [slots.stats()]
        with slots.slots:
            slots.note()
            slots.work(path)
        return [b"done"]

    app: Any = protect(work, SETTINGS) if kind == "protected" else work
    with make_server("127.0.0.1", number, app, _Threaded, _Quiet) as server:
        server.serve_forever(0.1)


def grpc(kind: str, port: socket.socket) -> None:
    """Serve a method of grpcio with threads."""
    import grpc as grpcio

    from sluicegate.resilience.server.grpc import HEALTH, ProtectInterceptor

    slots = Slots()
    number = port.getsockname()[1]
    port.close()

    def work(message: bytes, context: Any) -> bytes:
        with slots.slots:
            slots.note()
            slots.work("/work")
        return b"done"

    def stats(message: bytes, context: Any) -> bytes:
        return slots.stats()

    service, name = METHOD[1:].split("/")
    health, check = HEALTH[0][1:].split("/")
    server = grpcio.server(
        ThreadPoolExecutor(SLOTS + 8),
        interceptors=[ProtectInterceptor(SETTINGS)] if kind == "protected" else [],
    )
    unary = grpcio.unary_unary_rpc_method_handler
    server.add_generic_rpc_handlers(
        [
            grpcio.method_handlers_generic_handler(service, {name: unary(work)}),
            grpcio.method_handlers_generic_handler(health, {check: unary(stats)}),
        ]
    )
    server.add_insecure_port(f"127.0.0.1:{number}")
    server.start()
    server.wait_for_termination()


def main() -> None:
    """Serve until the input ends."""
    door, kind = sys.argv[1:]
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    sys.stdout.write(f"{port.getsockname()[1]}\n")
    sys.stdout.flush()

    def end() -> None:
        sys.stdin.read()

        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    {"asgi": asgi, "wsgi": wsgi, "grpc": grpc}[door](kind, port)


if __name__ == "__main__":
    main()
