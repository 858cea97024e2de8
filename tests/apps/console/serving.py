"""A protected service with two slots, under uvicorn, that shows what it does."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from sluicegate.apps.resilience.state_server import StateSettings, serve_state
from sluicegate.resilience.server.asgi import protect
from sluicegate.resilience.settings import Resilience
from tests.apps.console.process import HOSTILE

SETTINGS = Resilience(slots=2, queue_length=8)
WORK_S = 0.03


async def work(scope: Any, receive: Any, send: Any) -> None:
    """Take the time of a call to a backend."""
    await asyncio.sleep(WORK_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


def main(port: str, state_port: str) -> None:
    """Serve until a signal ends it."""
    import uvicorn

    app = protect(work, SETTINGS)
    config = uvicorn.Config(
        app, port=int(port), log_level="error", access_log=False, lifespan="off"
    )
    settings = StateSettings(listen=(f"127.0.0.1:{state_port}",))
    with serve_state({}, settings, protections={HOSTILE: app}):
        uvicorn.Server(config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
