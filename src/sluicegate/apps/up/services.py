"""Services: every service that is installed, with a console before them, and who asks them.

Each is the command that a user would type, as a process of its own, on its usual port or on free
ones; on loopback alone. What they keep lies in a folder that goes with us. One that cannot start
says why in a line, and keeps no other from starting. `sluicegate top` says how things are.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, final

from sluicegate.apps.up.children import ChildProcess, stop_all
from sluicegate.apps.up.story_parts import CALLERS, LIMITER_RULES, QUOTAS, token_of
from sluicegate.contracts.errors import MissingPackage
from sluicegate.policies.access import token_digest
from sluicegate.service.temporary_folder import temporary_folder

CHILD: Final = "sluicegate.apps.up.child"
STORY: Final = "sluicegate.apps.up.story"
CONSOLE: Final = "console"
CONTROL: Final = "engine.json"
GRACE_S: Final = "0.5"
_URL: Final = re.compile(r"127\.0\.0\.1:\d+")


class UpService(NamedTuple):
    """How a service is started: its command, its port, and packages that an extra brings."""

    name: str
    words: tuple[str, ...]
    port: int
    packages: tuple[str, ...] = ()
    extra: str = ""


def glass_url(folder: Path) -> str:
    """Where the console's Emergency page stops what limiter and dispatcher enforce."""
    return f"file:{folder / 'glass.json'}"


def plans(folder: Path) -> tuple[UpService, ...]:
    """All services but the console; what they read and keep is in `folder`."""
    glass = ("--glass", glass_url(folder))
    rules, quotas, access = folder / "rules.yaml", folder / "quotas.yaml", folder / "callers.toml"
    engine = f"faulty+memory:?slots=16&work_ms=2&shards=4&control={folder / CONTROL}"
    kv = ("--engine", engine, "--rules", f"{quotas}", "--access", f"{access}", *glass)
    images = (
        *("--kv", "memory:", "--blobs", f"files:{folder / 'blobs'}", "--processes", "1"),
        *("--origin-networks", "127.0.0.1/32"),
    )
    return (
        UpService("limiter", ("limiter", "--rules", f"{rules}", *glass), 7070),
        UpService("kv", ("kv", *kv), 7080),
        UpService("pubsub", ("pubsub", "--history", f"{folder / 'history'}"), 7090),
        UpService(
            "images", ("images", "serve", *images), 7060, ("aiohttp", "lmdb", "pyvips"), "images"
        ),
    )


CONSOLE_PORT: Final = 7050


@final
class Services:
    """Those that run, and why the others do not."""

    def __init__(self, *, own_ports: bool, load: bool) -> None:
        self.urls: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.settled = False
        self._own_ports = own_ports
        self._load = load
        self._running: dict[str, ChildProcess] = {}
        self._story: ChildProcess | None = None
        self._top: ChildProcess | None = None

    def lines(self) -> list[str]:
        """What runs where, and what does not run and why."""
        if not self.settled:
            return []
        others = {name: url for name, url in self.urls.items() if name != CONSOLE}
        if console := self.urls.get(CONSOLE):
            ports = ", ".join(f"{name} :{url.rpartition(':')[2]}" for name, url in others.items())
            lines = [f"open {console} in a browser ({ports})"]
        else:
            lines = [f"{name} runs on {url}" for name, url in others.items()]
        lines += [f"{name} does not run: {why}" for name, why in self._failed()]
        return lines

    @property
    def scene(self) -> str:
        """What the load does just now."""
        return "" if self._story is None else self._story.printed

    @property
    def overview(self) -> str:
        """How things are, in a line of `sluicegate top`."""
        return "" if self._top is None else self._top.printed

    def pause_or_go_on(self) -> None:
        """Have the load rest, or go on where it was."""
        if self._story is not None:
            self._story.write("\n")

    async def start(self, folder: Path) -> None:
        """Start all that can be, then the console, then the load."""
        write_files(folder)
        await asyncio.gather(*(self._start(plan) for plan in plans(folder)))
        if self.urls:
            flags = [word for url in self.urls.values() for word in ("--services", url)]
            words = (CONSOLE, *flags, "--glass", glass_url(folder))
            await self._start(UpService(CONSOLE, words, CONSOLE_PORT))
        self.settled = True
        targets = [f"{name}={url}" for name, url in self.urls.items() if name != CONSOLE]
        if self._load and targets:
            self._story = await ChildProcess.start(STORY, str(folder / CONTROL), *targets)
        if targets:
            at = [word for one in targets for word in ("--at", one.partition("=")[2])]
            self._top = await ChildProcess.start(CHILD, "top", "--brief", *at)

    async def stop(self) -> None:
        """End who asks, and then those that are asked."""
        console = self._running.pop(CONSOLE, None)
        await stop_all([one for one in (self._story, self._top, console) if one is not None])
        await stop_all([*self._running.values()])

    async def _start(self, plan: UpService) -> None:
        missing = missing_package(plan)
        if missing:
            self.failures[plan.name] = missing
            return
        port = plan.port if self._own_ports else 0
        listen = ("--listen", f"127.0.0.1:{port}", "--leave-s", "0", "--grace-s", GRACE_S)
        child = await ChildProcess.start(CHILD, *plan.words, *listen)
        self._running[plan.name] = child
        found = _URL.search(await child.first_line())
        if found is not None:
            self.urls[plan.name] = f"http://{found[0]}"

    def _failed(self) -> Iterator[tuple[str, str]]:
        yield from self.failures.items()
        for name, child in self._running.items():
            if child.code is not None:
                yield name, child.complaint.removeprefix("sluicegate: ") or f"code {child.code}"
        if self._story is not None and self._story.code is not None:
            yield "the load", self._story.complaint or f"code {self._story.code}"


def missing_package(plan: UpService) -> str:
    """Return what is missing, and how to get it; empty if nothing is."""
    missing = next((one for one in plan.packages if find_spec(one) is None), None)
    return "" if missing is None else str(MissingPackage(missing, plan.extra))


@asynccontextmanager
async def started(*, own_ports: bool, load: bool) -> AsyncIterator[Services]:
    """Have them start while the block runs, and ended after it."""
    with temporary_folder("up") as folder:
        services = Services(own_ports=own_ports, load=load)
        starting = asyncio.create_task(services.start(folder))
        try:
            yield services
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await services.stop()


def write_files(folder: Path) -> None:
    """Write what the services read."""
    (folder / "rules.yaml").write_text(LIMITER_RULES, encoding="utf-8")
    (folder / "quotas.yaml").write_text(QUOTAS, encoding="utf-8")
    (folder / "callers.toml").write_text(access_text(CALLERS), encoding="utf-8")
    (folder / CONTROL).write_text("{}", encoding="utf-8")


def access_text(callers: Iterable[str]) -> str:
    """An access file in which whoever comes without a token may do everything, as without one."""
    lines = [
        "[anonymous]",
        'grants = ["check", "audit", "operate"]',
        'tables = { "*" = ["read", "write", "bulk"] }',
    ]
    for name in callers:
        digest = token_digest(token_of(name))
        lines += [
            "[[callers]]",
            f'name = "{name}"',
            f'token_sha256 = "{digest}"',
            'tables = { "*" = ["read", "write"] }',
            'highest = "CRITICAL"',
        ]
    return "\n".join(lines) + "\n"
