"""Run: start, show, stop, in the order that can be read below.

Everything that is started is ended by the block that started it, whatever happens in between:
first the view gives the terminal back, then the load ends, then the services, then the server and
its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Protocol, Self, TextIO

from sluicegate.apps.up.counts import Snapshot
from sluicegate.apps.up.load import LoadProcess, loaded
from sluicegate.apps.up.named_limits import NamedLimits, compiled
from sluicegate.apps.up.pages import served
from sluicegate.apps.up.plain import PlainLines, summary
from sluicegate.apps.up.services import Services, started
from sluicegate.apps.up.settings import Settings
from sluicegate.doors.binding import Address, bind, bound_address
from sluicegate.doors.http.site import hosts_of
from sluicegate.doors.listener import new_loop
from sluicegate.doors.listener_settings import ListenerSettings
from sluicegate.system import SystemClock

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class View(Protocol):
    """What shows the snapshots, in whichever form."""

    gap_s: float

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def show(
        self, snapshot: Snapshot, keys: dict[str, int], load: str, services: Sequence[str]
    ) -> None:
        """Show one snapshot, and where the services are."""
        ...


def up(settings: Settings, out: TextIO | None = None) -> int:
    """Serve until a signal ends it; 0 when that went well."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_up(settings, sys.stdout if out is None else out))


async def _up(settings: Settings, out: TextIO) -> int:
    ended = _ended_by_signals()
    gate = NamedLimits(settings.rules, SystemClock())
    (listening,) = bind(Address(settings.host, settings.port), ListenerSettings())
    address = Address(_reachable(settings.host), bound_address(listening).port)
    url = f"http://{address}"
    hosts = hosts_of([bound_address(listening)], secret=False)
    async with (
        served(gate, url, listening, hosts),
        _services(settings) as services,
        loaded(address.host, address.port, settings.rules, settings.load_per_s) as load,
    ):
        with _view(settings, url, out) as view:
            await _show(view, gate, load, services, ended, settings.for_s)
    out.write(summary(gate))
    out.flush()
    return 0


async def _show(
    view: View,
    gate: NamedLimits,
    load: LoadProcess | None,
    services: Services | None,
    ended: asyncio.Event,
    for_s: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    end_s = math.inf if for_s is None else loop.time() + for_s
    while not ended.is_set() and (left_s := end_s - loop.time()) > 0:
        words = "no demo load" if load is None else load.words()
        if services is not None and services.scene:
            words += f" · of the services: {services.scene}"
        view.show(gate.snapshot(), gate.keys(), words, () if services is None else services.lines())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(view.gap_s, left_s))


@asynccontextmanager
async def _services(settings: Settings) -> AsyncIterator[Services | None]:
    if settings.alone:
        yield None
        return
    own_ports = settings.port != 0
    async with started(own_ports=own_ports, load=settings.load_per_s > 0) as services:
        yield services


def _ended_by_signals() -> asyncio.Event:
    ended = asyncio.Event()
    for signum in END_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    return ended


def _view(settings: Settings, url: str, out: TextIO) -> View:
    """The live view where it can be drawn, lines where not."""
    if not settings.plain and out.isatty():
        try:
            from sluicegate.apps.up.view import About, LiveView, can_show  # noqa: PLC0415 - needs rich
        except ModuleNotFoundError:
            out.write("the live view needs rich; pip install '.[server]' in the checkout\n")
        else:
            if can_show(out):
                rules = {rule.name: rule for rule in settings.rules}
                return LiveView(out, About(url, rules, compiled(), settings.insecure))
    return PlainLines(out, url, settings)


def _reachable(host: str) -> str:
    """Where a client on this machine finds a listener on `host`."""
    address = ip_address(host)
    if not address.is_unspecified:
        return host
    return "::1" if address.version == 6 else "127.0.0.1"
