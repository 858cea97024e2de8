"""A `sluicegate up` as a process of its own, for tests: started, asked, ended, with deadlines.

Nothing here sleeps for a fixed time and hopes; what is waited for has a deadline and a name.
"""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

DEADLINE_S = 60.0
END_S_MAX = 8.0  # less than what a slow asker is given, with room for a busy machine
POLL_GAP_S = 0.02

# What a user's shell would run; a resource left open is told on standard error.
COMMAND = (sys.executable, "-W", "default::ResourceWarning", "-m", "sluicegate.cli")


def until(ready: Callable[[], bool], what: str, within_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
    while not ready():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_GAP_S)


def stands(pid: int) -> str:
    """A process's state by the kernel's letter: R, S, T for stopped, Z for ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def has_ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    return stands(pid) == "Z"


class Up:
    """One running `sluicegate up`; use it in a `with`."""

    def __init__(self, *flags: str, keyboard: int = subprocess.DEVNULL) -> None:
        """`keyboard` is the descriptor of its standard input."""
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--free-ports", *flags],
            stdin=keyboard,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        ready = self.line("in a browser")
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+) :(\d+)", ready)}
        found = re.search(r"http://127\.0\.0\.1:(\d+)", ready)
        assert found is not None, ready
        self.ports["console"] = int(found[1])
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(None)

    def line(self, part: str) -> str:
        """The next line that has `part` in it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                line = self._coming.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                raise AssertionError(f"no line with {part!r} in time: {self.lines}") from None
            if line is None:
                raise AssertionError(f"ended without {part!r}: {self.lines} {self.errors()}")
            self.lines.append(line)
            if part in line:
                return line

    def errors(self) -> str:
        """Everything on standard error; waits for the end of the process."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def children(self) -> list[int]:
        pid = self.process.pid
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(word) for word in words]

    def end(self, signum: signal.Signals = signal.SIGINT) -> float:
        """Ask it to end; return how long that took."""
        asked_s = time.monotonic()
        self.process.send_signal(signum)
        self.process.wait(DEADLINE_S)
        return time.monotonic() - asked_s
