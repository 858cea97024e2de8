"""One child process with its log, and the one place where anything here waits.

A `Child` is known by its own process id and ended by it alone, never by name or by group. What the
process is and what it means to be ready is not known here: see `kafka.py` and `cassandra.py`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError

from tests.engines.fork_server import ForkedProcess, ForkServer

POLL_GAP_S = 0.05
PATIENCE_S = 60.0
STOP_S_MAX = 20.0
TAIL_LINES = 15
TAIL_COLUMNS = 200
TAIL_BYTES_MAX = 64 * 1024  # of a log's end that is read to find those lines
PORTS = range(15_000, 32_000)  # below the kernel's own pick, so no client is given one of ours
PORT_TRIES_MAX = 200

LEASH = Path(__file__).with_name("leash.py")

OURS = ("sluicegate.", "tests.")  # modules that the fork server starts

T = TypeVar("T")

# Services that tests stop have no load balancer that must notice first. A test of the wait sets
# --leave-s itself.
for _app in ("LIMITER", "KV", "PUBSUB", "IMAGES", "CONSOLE", "RULES"):
    os.environ.setdefault(f"SLUICEGATE_{_app}_LEAVE_S", "0")

_claimed: set[int] = set()  # the ports that this process was given

# The kernel's parent-death signal follows the *thread* that started the child. Tests restart
# servers from short-lived threads too, so one thread that lives as long as the process starts all.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine-launcher")


class EngineFailedError(RuntimeError):
    """A server did not start, did not answer in time or ended by itself; holds its log's tail."""


class Child:
    """A process that ends with us at the latest, and whose output is in one file."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._popen = _launcher.submit(self._start, command).result()

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes] | ForkedProcess:
        if is_forked(command):
            return _fork_server().start(command[2], command[3:], self.log)
        leashed = [*leash(), *command]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal then reaches only pytest, which ends us in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, the same before and after the leash becomes the command."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def wait(self, within_s: float) -> int | None:
        """Its exit code, or None when it still runs after that time."""
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """kill -9: no goodbye to peers, no flush. Returns when the process is gone."""
        if self.exit_code is None:
            self._popen.kill()
        self._popen.wait()

    def stop(self, within_s: float = STOP_S_MAX) -> None:
        """SIGTERM and the time to obey it, then kill -9."""
        if self.exit_code is None:
            self._popen.send_signal(signal.SIGTERM)
            if self.wait(within_s) is None:
                self.kill()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The end of its log under a title that tells how the process stands."""
        code = self.exit_code
        state = f"runs as {self.pid}" if code is None else f"ended with code {code}"
        with self.log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES_MAX))
            end = log.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join(
            [
                f"--- {self.name} {state}, {self.log} ends so:",
                *(line[:TAIL_COLUMNS] for line in end),
            ]
        )


def run_to_end(
    command: Sequence[str], within_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its exit code and its output.

    Our own programs start as `Child` starts them, so that each does not import all modules again.
    """
    if not is_forked(command):
        return subprocess.run(
            command, capture_output=True, text=True, timeout=within_s, check=False
        )
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        start = _fork_server().start
        process = _launcher.submit(start, command[2], command[3:], output, errors).result()
        try:
            code = process.wait(within_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            command, code, output.read_text("utf-8"), errors.read_text("utf-8")
        )


def leash() -> list[str]:
    """The words before a command that let it end with us."""
    return [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]


def is_forked(command: Sequence[str]) -> bool:
    """Whether it is a Python program of ours, without flags of the interpreter, and a test asks.

    A benchmark measures what a user would wait for: there programs start anew.
    """
    of_python = list(command[:2]) == [sys.executable, "-m"] and command[2].startswith(OURS)
    return of_python and sys.platform == "linux" and "PYTEST_VERSION" in os.environ


@cache
def _fork_server() -> ForkServer:
    server = ForkServer(leash())
    atexit.register(server.close)
    return server


def until(
    ready: Callable[[], T | None],
    what: str,
    within_s: float = PATIENCE_S,
    children: Iterable[Child] = (),
) -> T:
    """Poll `ready` until it gives something true, and return that.

    The time is patience with a busy machine, and no promise of whoever is waited for. Fails with
    the children's logs when it is over, and at once when a child is dead. An exception from `ready`
    counts as "not yet", and the last one is told in the failure.
    """
    children = tuple(children)
    deadline = time.monotonic() + within_s
    last: Exception | None = None
    while True:
        try:
            if found := ready():
                return found
        except Exception as error:  # a server that is coming up fails in every way
            last = error
            if isinstance(error, HTTPError):
                error.close()  # it is the response, too
        dead = [child for child in children if child.exit_code is not None]
        if dead or time.monotonic() >= deadline:
            why = f"{dead[0].name} ended" if dead else f"not within {within_s:g} s"
            detail = f"\nlast answer: {type(last).__name__}: {last}" if last else ""
            tails = [child.tail() for child in dead or children]
            raise EngineFailedError("\n".join([f"{what}: {why}{detail}", *tails]))
        time.sleep(POLL_GAP_S)


def free_port(*hosts: str) -> int:
    """A port that is free on all the hosts right now, and that nobody else is given who asks here.

    What asked has not bound it yet when the next one asks, in this process or in one beside it:
    each port that was given stays this process's own to its end.
    """
    for port in random.sample(PORTS, PORT_TRIES_MAX):
        if _claim(port) and all(_can_bind(host, port) for host in hosts):
            return port
    raise EngineFailedError(f"no free port on {', '.join(hosts)} in {PORT_TRIES_MAX} tries")


def _claim(port: int) -> bool:
    """Whether the port was nobody's: a byte of one file a port, locked as long as we live."""
    if port in _claimed:
        return False
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _claimed.add(port)
    return True


@cache
def _claims() -> int:
    """The file, open for good: closing it once would give every lock away."""
    path = Path(tempfile.gettempdir(), f"sluicegate-test-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _can_bind(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
