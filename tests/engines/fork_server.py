"""Starts Python processes as forks of one that has imported what services need.

Four hundred services are started in one run of all tests; a third of a second of CPU each went into
the same imports. Each is a process of its own as before: its own session, output, environment and
end. `python -m tests.engines.fork_server` reads orders from its standard input, which is a socket,
and answers there; it ends with who started it, and what it started ends with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]  # where `tests` is found, wherever a test is meanwhile
ORDER_BYTES_MAX = 128 * 1024
PR_SET_PDEATHSIG = 1  # linux/prctl.h

# What the services import once they run. Whatever starts a thread stays out: a fork has but one.
PRELOADED = (
    "sluicegate.cli",
    "sluicegate.apps.console.app",
    "sluicegate.apps.images.app",
    "sluicegate.apps.kv.app",
    "sluicegate.apps.limiter.app",
    "sluicegate.apps.pubsub.app",
    "sluicegate.apps.rulebook.server",
    "uvloop",
)


class ForkServer:
    """The side that asks: one fork server, and the orders to it, one at a time."""

    def __init__(self, starter: Sequence[str]) -> None:
        """`starter` are words before the command, which see to it that it ends with us."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [*starter, sys.executable, "-m", __name__]
            self._popen = subprocess.Popen(
                command, stdin=theirs.fileno(), cwd=_ROOT, start_new_session=True
            )
        self._turn = threading.Lock()

    def start(
        self, module: str, arguments: Sequence[str], log: Path, errors: Path | None = None
    ) -> ForkedProcess:
        """Start `python -m module arguments` here and now, with its output added to `log`.

        Its standard error is added to `errors`, or to `log` too.
        """
        order = {
            "module": module,
            "arguments": list(arguments),
            "log": str(log.absolute()),
            "errors": str((errors or log).absolute()),
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
        }
        return ForkedProcess(self, self.ask(order))

    def close(self) -> None:
        """End the fork server, and wait until it has ended."""
        self._socket.close()
        self._popen.wait()

    def ask(self, order: Mapping[str, Any]) -> Any:
        """Send one order and return what is answered."""
        with self._turn:
            self._socket.send(json.dumps(order).encode())
            return json.loads(self._socket.recv(ORDER_BYTES_MAX))


class ForkedProcess:
    """What `subprocess.Popen` is to a process whose parent is the fork server."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._ended = os.pidfd_open(pid)  # readable when the process is no more
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._code is None and select.select([self._ended], [], [], 0)[0]:
            os.close(self._ended)
            self._code = self._server.ask({"ended": self.pid})
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as soon as it has one."""
        if self._code is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def main() -> None:
    """Serve orders; in a process that was forked for one, return into what was ordered."""
    for name in PRELOADED:
        import_module(name)
    tasks = os.listdir("/proc/self/task")
    if len(tasks) > 1:
        sys.exit(f"{len(tasks)} threads run after the imports: none of them would be in a fork")
    gc.collect()
    gc.freeze()
    orders = socket.socket(fileno=os.dup(0))
    while message := orders.recv(ORDER_BYTES_MAX):
        order = json.loads(message)
        if "ended" in order:
            _, status = os.waitpid(order["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            parent_pid = os.getpid()
            answer = os.fork()
            if answer == 0:
                orders.close()
                _become(order, parent_pid)
                return
        orders.send(json.dumps(answer).encode())


def _become(order: Mapping[str, Any], parent_pid: int) -> None:
    """Be the process that was ordered."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the fork server ended before its child began")
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output, errors = (
        os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for name in ("log", "errors")
    )
    for theirs, ours in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(theirs, ours)
        os.close(theirs)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.path[0] = order["folder"]
    sys.argv = [order["module"], *order["arguments"]]
    sys.modules.pop(order["module"], None)  # it is run as the main program
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
