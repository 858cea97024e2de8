"""Run: start, show, stop, in the order that can be read below.

Everything that is started is ended by the block that started it, whatever happens in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Final, TextIO

from sluicegate.apps.up.services import CONSOLE_PORT, Services, started

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LOOK_S: Final = 0.25
QUIET_S_MAX: Final = 5.0  # between two lines, while nothing new is to be said
PROBE_S: Final = 2.0
_PAGE_BYTES_MAX: Final = 65_536
_LINE_BYTES_MAX: Final = 1_024
_NUMBER: Final = re.compile(r"[0-9.,]+")


def up(*, for_s: float, own_ports: bool, load: bool, out: TextIO | None = None) -> int:
    """Run every service until a signal ends it; 1 if none of them could start."""
    return asyncio.run(_up(for_s, own_ports, load, sys.stdout if out is None else out))


async def _up(for_s: float, own_ports: bool, load: bool, out: TextIO) -> int:
    ended = _ended_by_signals()
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    pause = "Enter pauses the load, " if load and sys.stdin.isatty() else ""
    _say(out, f"sluicegate up: starts every service that is installed; {pause}Ctrl-C ends it all")
    async with started(own_ports=own_ports, load=load) as services:
        with _paused_by_enter(services):
            await _show(services, ended, begun_s + for_s, out)
    if services.settled and not services.urls:
        _say(out, f"sluicegate up: {await why_none(CONSOLE_PORT)}")
        return 1
    _say(out, f"sluicegate up: ended after {loop.time() - begun_s:.0f} s")
    return 0


async def why_none(console_port: int) -> str:
    """Return why no service started, and what to do."""
    site, page = f"127.0.0.1:{console_port}", b""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", console_port)
            with contextlib.closing(writer):
                head = f"GET / HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode())
                while len(page) < _PAGE_BYTES_MAX and (more := await reader.read(4_096)):
                    page += more
    except OSError:
        pass
    if b"sluicegate" in page.lower():
        return f"already running: open http://{site}"
    return "no service could start; free their ports, or use --free-ports"


async def _show(services: Services, ended: asyncio.Event, end_s: float, out: TextIO) -> None:
    """Say what is new, and every few seconds how things are."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    said: set[str] = set()
    shown, shown_s = "", begun_s
    while not ended.is_set() and (left_s := end_s - loop.time()) > 0:
        for line in services.lines():
            if line not in said:
                said.add(line)
                _say(out, f"  {line}")
        if services.settled and not services.urls:
            return
        now_s = loop.time()
        state = f"{services.scene or 'no load'} | {services.overview}"
        news = _NUMBER.sub("", state)  # that a number is another one is none
        if services.overview and (news != shown or now_s - shown_s >= QUIET_S_MAX):
            shown, shown_s = news, now_s
            _say(out, f"{now_s - begun_s:5.0f} s  {state}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(LOOK_S, left_s))


@contextlib.contextmanager
def _paused_by_enter(services: Services) -> Iterator[None]:
    """Pause the load and let it go on with each line that a user types in the terminal."""
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()

    def typed() -> None:
        if os.read(terminal, _LINE_BYTES_MAX):
            services.pause_or_go_on()
        else:  # the terminal is gone
            loop.remove_reader(terminal)

    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, typed)
    try:
        yield
    finally:
        loop.remove_reader(terminal)


def _ended_by_signals() -> asyncio.Event:
    ended = asyncio.Event()
    for signum in END_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    return ended


def _say(out: TextIO, line: str) -> None:
    out.write(f"{line}\n")
    out.flush()
