"""`sluicegate resilience drill`: its flags, the service's start and end, and what it prints.

The exit code is 0 if all held, 1 if something broke or the service ended, 130 for Ctrl-C; whatever
happens, the process group that was started is ended by its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Final

from sluicegate.apps.resilience.drill.caller import (
    LoopbackUrl,
    loopback_address,
    loopback_url,
)
from sluicegate.apps.resilience.drill.child import ending_of, started
from sluicegate.apps.resilience.drill.proxy import FaultProxy
from sluicegate.apps.resilience.drill.report import lines_of
from sluicegate.apps.resilience.drill.settings import (
    BOTH,
    DEPENDENCY,
    OVERLOAD,
    DrillSettings,
)
from sluicegate.apps.resilience.drill.stages import Service, ServiceDrill
from sluicegate.apps.resilience.drill.verdicts import DrillResult
from sluicegate.contracts.errors import BadValue
from sluicegate.policies.settings import part_of, within

EXAMPLES: Final = """\
examples:
  sluicegate resilience drill -- python service.py --port {port}
  sluicegate resilience drill --path /page --dependency 127.0.0.1:5432 \\
      -- python service.py --port {port} --database {dependency}
  sluicegate resilience drill --url http://127.0.0.1:8000/page --expect "<title>Shop"

In CMD, {port} is a free port that the service is to listen on, and {dependency} the address of a
proxy before --dependency; the variables PORT, SLUICEGATE_DRILL_PORT and
SLUICEGATE_DRILL_DEPENDENCY are the same. With --url and CMD, CMD is started and the URL is asked.
It wants the machine for itself, and takes about half a minute at --seconds 4.
"""

_SECOND_US: Final = 1_000_000


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("command", nargs="*", metavar="CMD", help="starts the service, after --")
    parser.add_argument("--url", help="what to ask, on this machine: http://127.0.0.1:PORT/path")
    parser.add_argument("--path", default="/", help="what to ask of CMD (default /)")
    parser.add_argument("--beside", default="", help="a path that needs no dependency")
    parser.add_argument("--health", default="/healthz", help="its health (default /healthz)")
    parser.add_argument(
        "--expect", default="", metavar="TEXT", help="text of a good answer [any content]"
    )
    parser.add_argument(
        "--health-ms", type=int, default=100, help="how long health may take (default 100)"
    )
    parser.add_argument(
        "--dependency", metavar="HOST:PORT", help="what it calls, on this machine; put a proxy here"
    )
    parser.add_argument(
        "--proxy-port", type=int, default=0, metavar="PORT", help="of the proxy (default: any)"
    )
    parser.add_argument(
        "--slow-ms", type=int, default=2_000, help="how much later a slow one answers (2000)"
    )
    parser.add_argument(
        "--patience-ms", type=int, default=500, help="how long callers wait (default 500)"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each stage (default 4)")
    parser.add_argument(
        "--rate-max", type=int, default=3_000, help="the most requests a second (default 3000)"
    )
    parser.add_argument(
        "--times", default="1,2,5", metavar="N,N", help="overloads, in its capacity (1,2,5)"
    )
    parser.add_argument(
        "--only", choices=(OVERLOAD, DEPENDENCY), default=BOTH, help="only these stages"
    )
    parser.add_argument(
        "--goodput-min", type=float, default=0.7, help="of its capacity, under overload (0.7)"
    )


def run(arguments: Namespace) -> int:
    """Play the drill, and print what broke."""
    settings = _settings(arguments)
    within("--slow-ms", arguments.slow_ms, 1, 60_000)
    within("--proxy-port", arguments.proxy_port, 0, 65_535)
    if not arguments.command and arguments.url is None:
        raise BadValue("--url", None, "give it, or a command that starts the service, after --")
    values = {}
    if arguments.url is None:
        values["port"] = str(free_port())
        url = LoopbackUrl("127.0.0.1", int(values["port"]), _path("--path", arguments.path))
    else:
        url = loopback_url("--url", arguments.url)
    target = arguments.dependency and loopback_address("--dependency", arguments.dependency)
    proxy = FaultProxy(target, arguments.slow_ms * 1_000) if target else None
    if arguments.only == DEPENDENCY and proxy is None:
        raise BadValue("--dependency", None, "give 127.0.0.1:PORT, what the service calls")
    with _ended_as_by_ctrl_c():
        result = asyncio.run(_play(arguments, url, settings, proxy, values))
    for line in lines_of(result):
        sys.stdout.write(f"{line}\n")
    return 0 if result.holds else 1


def _settings(arguments: Namespace) -> DrillSettings:
    part_of("--seconds", arguments.seconds, 0.2, 60.0)
    within("--patience-ms", arguments.patience_ms, 10, 30_000)
    within("--health-ms", arguments.health_ms, 1, 30_000)
    health = _path("--health", arguments.health)
    beside = _path("--beside", arguments.beside) if arguments.beside else ""
    times = _times(arguments.times)
    try:
        return DrillSettings(
            span_us=int(arguments.seconds * _SECOND_US),
            patience_us=arguments.patience_ms * 1_000,
            health_us_max=arguments.health_ms * 1_000,
            rate_max=arguments.rate_max,
            goodput_min=arguments.goodput_min,
            health=health,
            beside=beside,
            expect=arguments.expect,
            times=times,
            parts=arguments.only,
        )
    except BadValue as error:
        flag = f"--{error.field.removeprefix('drill.').replace('_', '-')}"
        raise BadValue(flag, error.value, error.remedy) from None


async def _play(
    arguments: Namespace,
    url: LoopbackUrl,
    settings: DrillSettings,
    proxy: FaultProxy | None,
    values: dict[str, str],
) -> DrillResult:
    try:
        if proxy is not None:
            values["dependency"] = f"127.0.0.1:{await proxy.start(arguments.proxy_port)}"
            _progress(f"the proxy of the dependency listens on {values['dependency']}")
        with contextlib.ExitStack() as stack:
            service = Service(_runs)
            if arguments.command:
                if "port" in values and not any("{port}" in word for word in arguments.command):
                    port = values["port"]
                    _progress(f"CMD has no {{port}}: it must listen on the variable PORT, {port}")
                process, printed = stack.enter_context(started(arguments.command, values))
                service = Service(lambda: ending_of(process, printed), process.pid)
            return await ServiceDrill(url, settings, proxy, service, _progress).play()
    finally:
        if proxy is not None:
            await proxy.close()


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Have SIGTERM end the drill as Ctrl-C does, so that what was started is ended too."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _times(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise BadValue("--times", text, "give numbers with commas between, as 1,2,5") from None


def _path(flag: str, path: str) -> str:
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise BadValue(flag, path, "give a path, as /page")
    return path


def _progress(words: str) -> None:
    sys.stderr.write(f"drill: {words}\n")
    sys.stderr.flush()


def _runs() -> str:
    """Return nothing: the process of a service that others have started is not known."""
    return ""
