"""Worker: one process that runs a WSGI application in waitress, on a Unix socket.

    python -m sluicegate.apps.resilience.serve.worker SOCKET MODULE:NAME THREADS

The process in front names client, scheme and host in X-Forwarded-*, and deadline and criticality in
the headers of `doors/claims.py`; no other process can connect. The application reads the time that
is left from `resilience/context.py`. The worker ends when its standard input ends.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import waitress

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY
from sluicegate.contracts.errors import BadValue
from sluicegate.doors.claims import CRITICALITY, DEADLINE_MS, criticality_of, left_us_of
from sluicegate.resilience.context import ServedRequest, set_served
from sluicegate.service.command import LOG_FORMAT
from sluicegate.system import now_us

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_BAD_TARGET: Final = 2
_FORWARDED: Final = {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"}


def load(target: str) -> WSGIApplication:
    """Import the application that `MODULE:NAME` names, from the current folder too."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise BadValue("app", target, "write MODULE:NAME, as shop.wsgi:application")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        remedy = f"no module {error.name!r} in {Path.cwd()} or on PYTHONPATH; start it from there"
        raise BadValue("app", target, remedy) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadValue("app", target, f"{module} has no {name!r}; name the WSGI callable")
        found = getattr(found, part)
    if not callable(found):
        remedy = f"{name} is of type {type(found).__name__}; name the WSGI callable"
        raise BadValue("app", target, remedy)
    application: WSGIApplication = found
    return application


@final
class ContextApp:
    """Runs an application with the deadline and the criticality of its request."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request; the next one on this thread replaces its context."""
        left_us = left_us_of(_values(environ, DEADLINE_MS))
        criticality = criticality_of(_values(environ, CRITICALITY))
        served = ServedRequest(
            deadline_us=now_us() + left_us if left_us >= 0 else None,
            criticality=DEFAULT_CRITICALITY if criticality is None else criticality,
        )
        set_served(served)
        return self._app(environ, start_response)


def _values(environ: dict[str, Any], name: bytes) -> list[bytes]:
    value = environ.get(f"HTTP_{name.decode().upper().replace('-', '_')}", "")
    return [value.encode("latin-1")] if value else []


def main(arguments: list[str]) -> int:
    """Serve until standard input ends."""
    path, target, threads = arguments
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("waitress").setLevel(logging.WARNING)
    # A thread that has answered is not free at once, so a queue of one is usual.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    ended = threading.Event()

    def stop_if_ended(number: int, frame: object) -> None:
        if ended.is_set():
            raise SystemExit(0)

    signal.signal(signal.SIGINT, stop_if_ended)
    signal.signal(signal.SIGTERM, stop_if_ended)
    try:
        application = load(target)
    except BadValue as error:
        sys.stderr.write(f"sluicegate: {error}\n")
        return _BAD_TARGET
    signal.signal(signal.SIGINT, stop_if_ended)  # the application may have set others
    signal.signal(signal.SIGTERM, stop_if_ended)
    server = waitress.create_server(
        ContextApp(application),
        unix_socket=path,
        threads=int(threads),
        trusted_proxy="*",
        trusted_proxy_count=1,
        trusted_proxy_headers=_FORWARDED,
        clear_untrusted_proxy_headers=True,
        ident=None,
        channel_request_lookahead=1,  # or a client that disconnects is not noticed
    )

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="wait-for-end", daemon=True).start()
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
