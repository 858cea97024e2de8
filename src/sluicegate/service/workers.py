"""Workers: several processes that share one port, and the one above them that serves nobody.

The parent has no event loop and no threads, so it can fork at any time. It waits for signals: those
to end or to reload are passed on, a worker that ends unasked is replaced. Workers that die again
and again are not: then something is wrong that a restart does not mend, and all end.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.service.temporary_folder import temporary_folder
from sluicegate.system import now_us

DEATHS_MAX: Final = 5
DEATHS_US: Final = 30_000_000
SET_PARENT_DEATH_SIGNAL: Final = 1  # linux/prctl.h
SENT_BY_KERNEL: Final = 0x80  # asm-generic/siginfo.h: SI_KERNEL
_LOOK_S: Final = 0.05
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALS: Final = frozenset({*_FORWARDED, signal.SIGCHLD})
_READY_BYTES_MAX: Final = 4_096

_log: Final = logging.getLogger("sluicegate.service.workers")

# A worker's number and what tells that it is ready, to its exit code.
Serve = Callable[[int, Callable[[str], None]], int]
# Likewise, and before these the folder where workers find each other; "" for one that is alone.
ServeIn = Callable[[str, int, Callable[[str], None]], int]


def run_workers(app: str, count: int, serve: ServeIn) -> int:
    """One worker in this process, or several below it; the exit code when all have ended."""
    if count == 1:
        return serve("", 0, print_ready)
    with temporary_folder(app) as folder:
        return WorkerSupervisor(count, partial(serve, str(folder)), print_ready).run()


def print_ready(words: str) -> None:
    """Print the line that says the service is ready."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


@final
class WorkerSupervisor:
    """Keeps `count` workers alive until a signal ends it."""

    def __init__(self, count: int, serve: Serve, ready: Callable[[str], None]) -> None:
        self._count = count
        self._serve = serve
        self._print_ready = ready
        self._pids: dict[int, int] = {}  # by process, the worker's number
        self._deaths: deque[int] = deque(maxlen=DEATHS_MAX)
        self._ready: set[int] = set()
        self._ending = False
        self._status = 0

    def run(self) -> int:
        """Start them all, and come back when all have ended."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            for worker in range(self._count):
                self._start(worker, writing)
            while self._pids:
                received = signal.sigtimedwait(_SIGNALS, _LOOK_S)
                if received is not None and received.si_signo in _FORWARDED:
                    self._pass_on(received)
                self._read_ready(reading)
                self._replace_ended(writing)
        finally:
            for pid in self._pids:
                os.kill(pid, signal.SIGKILL)
            os.close(reading)
            os.close(writing)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._status

    def _start(self, worker: int, writing: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._pids[pid] = worker
            return
        status = 1
        try:
            _end_with(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

            def ready(words: str) -> None:
                os.write(writing, f"{worker} {words}\n".encode()[:_READY_BYTES_MAX])

            status = self._serve(worker, ready)
        except SluicegateError as error:
            sys.stderr.write(f"sluicegate: worker {worker}: {error}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _pass_on(self, received: signal.struct_siginfo) -> None:
        if received.si_code == SENT_BY_KERNEL:
            self._ending = self._ending or received.si_signo != signal.SIGHUP
            return  # a terminal has sent it to the workers too, and a second one cuts their end
        self._forward(received.si_signo)

    def _forward(self, signum: int) -> None:
        if signum != signal.SIGHUP:
            self._ending = True
        for pid in self._pids:
            os.kill(pid, signum)

    def _read_ready(self, reading: int) -> None:
        while select.select([reading], [], [], 0)[0]:
            text = os.read(reading, _READY_BYTES_MAX).decode()
            if not text:
                return
            for line in text.splitlines():
                worker, _, words = line.partition(" ")
                self._ready.add(int(worker))
                if len(self._ready) == self._count and not self._ending:
                    self._print_ready(words)
                    self._print_ready = _ignore

    def _replace_ended(self, writing: int) -> None:
        while self._pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            worker = self._pids.pop(pid, None)
            if worker is None or self._ending:
                continue
            code = os.waitstatus_to_exitcode(status)
            _log.error("worker %d (process %d) has ended by itself: %d", worker, pid, code)
            at_us = now_us()
            self._deaths.append(at_us)
            # One that ends before all were ready is a start that has failed.
            again = len(self._deaths) == DEATHS_MAX and at_us - self._deaths[0] < DEATHS_US
            if again or len(self._ready) < self._count:
                self._status = 1
                self._forward(signal.SIGTERM)
                continue
            self._start(worker, writing)


def _end_with(parent: int) -> None:
    """In a worker: have the kernel end it when the parent is gone, where it is Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before we asked
            os.kill(os.getpid(), signal.SIGTERM)


def _ignore(_: str) -> None:
    """It was printed once."""
