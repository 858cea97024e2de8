"""A web app whose limits hold across all its processes, since they are counted in Redis.

    redis-server --port 6379 &
    STORE_URL=redis://127.0.0.1:6379 uvicorn --app-dir examples web_app:app --port 8000 --workers 2
    curl -i -H 'x-user: ann' http://127.0.0.1:8000/api/items

Without STORE_URL each process counts for itself. While Redis is away, `/api` goes on without limits
and says so in a header, and nobody logs in: each rule decides that for itself.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sluicegate import Limiter
from sluicegate.doors.asgi import LimitMiddleware
from sluicegate.rules.web.guard import RulesGuard

RULES: dict[str, Any] = {
    "rules": {
        "health": {"match": {"path": "/health"}, "exempt": True},
        "login": {
            "match": {"path": "/login", "method": "POST"},
            "key": "address",
            "limit": "5/minute",
            "failure": "closed",
        },
        "api": {
            "match": {"path": "/api/**"},
            "key": "header:x-user",
            "or_key": "address",
            "limit": "100/minute burst 20",
            "failure": "open",
        },
    }
}


async def items(_request: Request) -> PlainTextResponse:
    """What is limited."""
    return PlainTextResponse("items\n")


async def health(_request: Request) -> PlainTextResponse:
    """What is not."""
    return PlainTextResponse("ok\n")


guard = RulesGuard(RULES, Limiter(store_url=os.environ.get("STORE_URL", "memory:")))
routes = [
    Route("/api/items", items),
    Route("/login", items, methods=["POST"]),
    Route("/health", health),
]
app = Starlette(routes=routes)
app.add_middleware(LimitMiddleware, guard=guard)
