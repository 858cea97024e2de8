"""`sluicegate resilience serve`: its flags, and its processes from start to drain.

The exit code is 0 after SIGTERM or Ctrl-C, 1 if a worker does not start, 2 for wrong flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from sluicegate.contracts.errors import BadValue, MissingPackage, Unavailable
from sluicegate.doors.http.forwarded import TrustedProxies
from sluicegate.doors.listener import new_loop
from sluicegate.policies.settings import part_of, within
from sluicegate.resilience.settings import Resilience
from sluicegate.service.command import LOG_FORMAT
from sluicegate.service.temporary_folder import temporary_folder

EXAMPLES: Final = """\
examples:
  sluicegate resilience serve shop:app --workers 2 --threads 8
  sluicegate resilience serve shop.wsgi:application --listen 0.0.0.0:8000
  sluicegate resilience serve shop:app --settings resilience.toml
  sluicegate resilience serve shop:app --trusted-proxies 10.0.0.0/8 --caller-header X-User

APP is imported from the current folder, in each worker. At most workers x threads requests are in
flight; others wait in the queue of `protect`, most critical first, and are rejected with 503 or
504 when they can no longer be served in time. One more thread of each worker serves health paths.
"""
_PACKAGES: Final = ("httptools", "uvicorn", "waitress")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_WORKERS_MAX: Final = 256
_THREADS_MAX: Final = 1_024


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("app", metavar="APP", help="WSGI callable, as MODULE:NAME")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="worker processes [1]; one per core"
    )
    parser.add_argument(
        "--threads", type=int, default=4, metavar="M", help="threads of each worker [4]"
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8000", metavar="HOST:PORT",
        help="address to listen on [127.0.0.1:8000]; port 0 takes a free one",
    )  # fmt: skip
    parser.add_argument(
        "--settings", metavar="FILE", help="settings of the queue, as Resilience.load reads"
    )
    parser.add_argument(
        "--trusted-proxies", default="", metavar="NETWORK,NETWORK",
        help="proxies whose X-Forwarded-* headers count [none]",
    )  # fmt: skip
    parser.add_argument(
        "--caller-header", default="", metavar="NAME",
        help="header in which these proxies name the caller [none]",
    )  # fmt: skip
    parser.add_argument(
        "--leave-s", type=float, default=5.0, metavar="SECONDS",
        help="time to serve, but not ready, after SIGTERM [5]",
    )  # fmt: skip
    parser.add_argument(
        "--drain-s", type=float, default=30.0, metavar="SECONDS",
        help="time to finish requests after that [30]",
    )  # fmt: skip


def run(arguments: Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    within("--workers", arguments.workers, 1, _WORKERS_MAX)
    within("--threads", arguments.threads, 1, _THREADS_MAX)
    part_of("--leave-s", arguments.leave_s, 0.0, 3_600.0)
    part_of("--drain-s", arguments.drain_s, 0.0, 3_600.0)
    _check_app(arguments.app)
    settings = Resilience.load(arguments.settings) if arguments.settings else Resilience()
    proxies = _proxies(arguments.trusted_proxies)
    if arguments.caller_header and proxies is None:
        remedy = "add --trusted-proxies: only they may name a caller"
        raise BadValue("--caller-header", arguments.caller_header, remedy)
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingPackage(package, "wsgi")
    listening = _listen(arguments.listen)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with (
        _signals_ignored(),
        listening,
        temporary_folder("wsgi") as folder,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(_serve(arguments, settings, proxies, listening, folder))
    return 0


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore both for a block: uvicorn sends the signal that ended it to the handlers before it."""
    before = [(number, signal.signal(number, _ignore)) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


async def _serve(
    arguments: Namespace,
    settings: Resilience,
    proxies: TrustedProxies | None,
    listening: socket.socket,
    folder: Path,
) -> None:
    import uvicorn  # noqa: PLC0415 - may be missing

    from sluicegate.apps.resilience.serve.front import Front, with_slots  # noqa: PLC0415
    from sluicegate.apps.resilience.serve.leaving_server import LeavingServer  # noqa: PLC0415
    from sluicegate.apps.resilience.serve.workers import Workers  # noqa: PLC0415

    slots = arguments.workers * arguments.threads
    workers = Workers(arguments.app, arguments.workers, arguments.threads, folder)
    header = arguments.caller_header.lower().encode("ascii")
    front = Front(workers, with_slots(settings, slots), proxies, header)
    config = uvicorn.Config(
        front,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # a worker writes both
        timeout_graceful_shutdown=max(1, round(arguments.drain_s)),
    )
    server = LeavingServer(config, front, arguments.leave_s)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, ended.set)  # until uvicorn has its own
    starting = asyncio.create_task(workers.start())
    try:
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not starting.done():
            return
        starting.result()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, server.handle_exit)  # before it begins: none may be lost
        sys.stdout.write(
            f"http://{_shown(listening)}: {arguments.workers} workers x {arguments.threads} "
            f"threads of {arguments.app}; limit {slots} (workers x threads)\n"
        )
        sys.stdout.flush()
        await server.serve(sockets=[listening])
    finally:
        starting.cancel()
        await workers.stop()


def _check_app(target: str) -> None:
    module, _, name = target.partition(":")
    if not module or not name:
        raise BadValue("APP", target, "write MODULE:NAME, as shop.wsgi:application")


def _proxies(text: str) -> TrustedProxies | None:
    if not text:
        return None
    try:
        return TrustedProxies([ip_network(one.strip()) for one in text.split(",")])
    except ValueError as error:
        remedy = f"write networks with commas between, as 10.0.0.0/8 ({error})"
        raise BadValue("--trusted-proxies", text, remedy) from None


def _listen(text: str) -> socket.socket:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise BadValue("--listen", text, "write HOST:PORT, as 127.0.0.1:8000")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=2_048)
    except OSError as error:
        raise Unavailable(f"--listen {text}", f"{error.strerror}; choose another port") from None


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ignore(number: int, frame: object) -> None:
    """Leave the end to the server."""
