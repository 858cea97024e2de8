"""Three services of a chain, each in a process of its own: FastAPI, then gRPC, then Flask.

    python -m tests.resilience.chain_services ROLE BACKEND_PORT SKEW_S

Each is protected and asks the next with a client of the kit. It prints its port, and ends with its
input. Its wall clock is SKEW_S off. `/stats` tells what is held.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

if __name__ == "__main__":  # a wall clock that was wrong when the process began
    real_time_ns = time.time_ns
    time.time_ns = lambda: real_time_ns() + int(sys.argv[3]) * 1_000_000_000

    time.time_ns = real_time_ns  # grpc's own instants go to a library that reads it for itself

from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.settings import client_settings
from sluicegate.resilience.server.protection import Protection
from sluicegate.resilience.settings import Resilience

PAGE: Final = "/T/Page"
STATS: Final = "/T/Stats"
SETTINGS: Final = Resilience(bypass=("/stats", STATS))


def client() -> ResilientClient:
    """Quick to give up, and quick to look again."""
    return ResilientClient(
        client_settings(
            {
                "attempt_us": 150_000,
                "retry": {"base_us": 5_000},
                "breaker": {"open_us": 200_000, "open_us_max": 400_000},
            }
        )
    )


def held(protection: Protection, found: ResilientClient | None) -> dict[str, int]:
    """What has not ended."""
    counts = {"served": protection.stats().gate.inflight}
    if found is not None:
        counts["calls"] = found.retry.stats().inflight
        counts["attempts"] = found.breaker.stats().inflight + found.throttle.stats().inflight
    return counts


def edge(listening: socket.socket, backend: int) -> None:
    """FastAPI under uvicorn."""
    import grpc.aio
    import uvicorn
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    from sluicegate.contracts.errors import Refused
    from sluicegate.resilience.client.grpc import AsyncResilientInterceptor
    from sluicegate.resilience.server.asgi import protect

    found, app = client(), FastAPI()
    channels: list[Any] = []

    @app.get("/page")
    async def page() -> PlainTextResponse:
        if not channels:
            interceptors = AsyncResilientInterceptor(found, "middle", idempotent=[PAGE]).all
            target = f"127.0.0.1:{backend}"
            channels.append(grpc.aio.insecure_channel(target, interceptors=interceptors))
        try:
            text = await channels[0].unary_unary(PAGE)(b"")
        except (grpc.aio.AioRpcError, Refused):
            return PlainTextResponse("no page", 502)
        return PlainTextResponse(text.decode())

    @app.get("/stats")
    async def stats() -> dict[str, int]:
        return held(door.protection, found)

    door = protect(app, SETTINGS)
    config = uvicorn.Config(door, log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def middle(listening: socket.socket, backend: int) -> None:
    """gRPC with threads."""
    import json

    import grpc
    import httpx

    from sluicegate.contracts.errors import Refused
    from sluicegate.resilience.client.httpx import ResilientTransport
    from sluicegate.resilience.server.grpc import ProtectInterceptor

    found, door = client(), ProtectInterceptor(SETTINGS)
    below = httpx.HTTPTransport(verify=False)
    driver = httpx.Client(transport=ResilientTransport(found, below))

    def page(message: bytes, context: Any) -> bytes:
        try:
            answer = driver.get(f"http://127.0.0.1:{backend}/item")
            answer.raise_for_status()
        except (httpx.HTTPError, Refused) as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, type(error).__name__)
        return answer.content

    def stats(message: bytes, context: Any) -> bytes:
        return json.dumps(held(door.protection, found)).encode()

    number = listening.getsockname()[1]
    listening.close()
    server = grpc.server(ThreadPoolExecutor(64), interceptors=[door])
    handlers: Any = {
        "Page": grpc.unary_unary_rpc_method_handler(page),
        "Stats": grpc.unary_unary_rpc_method_handler(stats),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("T", handlers)])
    server.add_insecure_port(f"127.0.0.1:{number}")
    server.start()
    server.wait_for_termination()


def store(listening: socket.socket, backend: int) -> None:
    """Flask on a server with threads."""
    from flask import Flask
    from werkzeug.serving import WSGIRequestHandler, make_server

    from sluicegate.resilience.server.wsgi import protect

    app = Flask(__name__)

    @app.get("/item")
    def item() -> str:
        return "item"

    @app.get("/stats")
    def stats() -> dict[str, int]:
        return held(door.protection, None)

    class Quiet(WSGIRequestHandler):
        def log(self, *args: Any, **kwargs: Any) -> None:
            return

    door = protect(app.wsgi_app, SETTINGS)
    number = listening.getsockname()[1]
    listening.close()
    make_server("127.0.0.1", number, door, threaded=True, request_handler=Quiet).serve_forever()


def main() -> None:
    """Serve until the input ends."""
    role, backend = sys.argv[1], int(sys.argv[2])
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()

    def end() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    {"edge": edge, "middle": middle, "store": store}[role](listening, backend)


if __name__ == "__main__":
    main()
