"""A service that stays up: protected, with quotas, objectives, less under stress, and metrics.

    python examples/resilient_service.py examples/resilient_service.toml
    curl http://127.0.0.1:7098/page
    curl http://127.0.0.1:7098/metrics

From outside to inside: quotas, so that who sends too much takes no place; objectives, which count
what callers see; the protection; faults on purpose, if they are switched on; the application.
Health passes all of them.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tomllib
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.resilience import Objectives, Resilience, degraded, measure, protect, require_time
from sluicegate.resilience.faults.asgi import inject
from sluicegate.resilience.faults.injector import FaultInjector
from sluicegate.resilience.server.metrics import families
from sluicegate.rules.web.guard import RulesGuard
from sluicegate.system import now_us
from sluicegate.telemetry.prometheus import CONTENT_TYPE, page


async def show(request: Request) -> Response:
    """A page of which one part is left out under stress."""
    parts = {"page": "hello"}
    if not degraded("recommendations"):
        require_time(now_us())  # before each call that others answer
        await asyncio.sleep(0.01)
        parts["recommendations"] = "more of it"
    return JSONResponse(parts)


async def health(request: Request) -> Response:
    """Well, whatever the load."""
    return Response("ok")


async def metrics(request: Request) -> Response:
    """Of every part of the protection."""
    shown = [*families(app.protection), *faults.families(), *objectives.families()]
    return Response(page(shown), media_type=CONTENT_TYPE)


settings = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
resilience = Resilience.load(sys.argv[1])
faults, objectives = FaultInjector(resilience.faults), Objectives(resilience.objectives)
routes = [Route("/page", show), Route("/healthz", health), Route("/metrics", metrics)]
app = protect(inject(Starlette(routes=routes), faults), resilience)
quotas = RulesGuard({"rules": settings["rules"]}, Limiter())
service: Any = LimitMiddleware(measure(app, objectives), quotas, exempt=resilience.bypass)

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", settings["port"])) as listening:
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(service, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])
