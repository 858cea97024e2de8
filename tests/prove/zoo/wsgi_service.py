"""A service with slots as a WSGI application, for real gunicorn. Nothing here is a test.

ZOO_SLOTS is the number of requests that it works for at a time; others wait in order of arrival.
ZOO_LIMIT is the limit of `protect`, and ZOO_ENDED a file with a byte for each piece of work done.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.zoo.service import HEALTH
from sluicegate.lab.zoo.shape import SECOND_US
from sluicegate.resilience.server.wsgi import protect
from sluicegate.resilience.settings import Resilience
from tests.prove.zoo.http import CALLER, END, WORK_US

CALLERS: Final = [f"work-{Criticality.CRITICAL.name}-{number}" for number in range(8)]
_slots = threading.Semaphore(int(os.environ.get("ZOO_SLOTS", "1000")))
_ended = os.open(os.environ.get("ZOO_ENDED", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Work for as long as the request says."""
    if environ["PATH_INFO"] != HEALTH:
        with _slots:
            time.sleep(int(_field(environ, WORK_US)) / SECOND_US)
        os.write(_ended, b".")
    start_response("200 OK", [("Content-Length", str(len(END)))])
    return [END]


def _field(environ: dict[str, Any], name: str) -> str:
    return str(environ.get("HTTP_" + name.upper().replace("-", "_"), ""))


protected = protect(
    app,
    Resilience(
        slots=int(os.environ.get("ZOO_LIMIT", "0")),
        callers=dict.fromkeys(CALLERS, Criticality.CRITICAL),
    ),
    caller=lambda environ: _field(environ, CALLER),
)
