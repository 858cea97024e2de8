"""File watch: polls files, and calls back when they have changed.

Polling works wherever a file can be, on network mounts and in containers, and sees all the ways in
which files are replaced: a rename over it, a link turned elsewhere (as Kubernetes does for its
ConfigMaps), a write in place, a deletion and its return. A file that was moved over another is
complete and reported at once. One that is written in place may be half written, and half a rules
file can be a good one with fewer rules; so it is reported when a poll has found it as the poll
before did, and so is a file that is new in a folder. Two writes within one tick of the file
system's clock leave the same times, so a file that has just been written is told by its content
too.

The watch only reports. What is read, and what a bad file means, is up to whoever it calls. It runs
in a thread of its own or, as `poll`, in whatever calls it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias, final
from weakref import WeakSet

from sluicegate.contracts.errors import BadValue, SluicegateError
from sluicegate.system import now_us

EVERY_S_DEFAULT: Final = 1.0
EVERY_S_MIN: Final = 0.01
EVERY_S_MAX: Final = 86_400.0
CLOSE_S_MAX: Final = 60.0
TICK_US_MAX: Final = 2_000_000  # of a file system's clock; FAT's

_log: Final = logging.getLogger("sluicegate.rules")


class _State(NamedTuple):
    """What tells two states of a file apart."""

    file: tuple[int, int]  # which one it is
    written: tuple[int, int, int]  # its times and its size
    digest: bytes  # of its content


_States: TypeAlias = "dict[str, _State | None]"


@final
class FileWatch:
    """Calls `on_change` after files have changed, until it is closed.

    `list_files` names them, at each poll anew. As they are now, they are not reported. `on_change`
    is never called twice at once; what it raises is logged, and the watch goes on. If it returns a
    number of seconds, it is called again after that time though nothing has changed. With
    `survives_fork` a forked child has a watch of its own; else only the parent goes on.
    """

    def __init__(
        self,
        list_files: Callable[[], Iterable[str]],
        on_change: Callable[[], float | None],
        *,
        every_s: float = EVERY_S_DEFAULT,
        survives_fork: bool = False,
    ) -> None:
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
            raise BadValue("every_s", every_s, f"give {EVERY_S_MIN} to {EVERY_S_MAX:,.0f} seconds")
        self.every_s: Final = every_s
        self._paths = list_files
        self._on_change = on_change
        self._survives_fork = survives_fork
        self._retry_polls = 0
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        # Files that were read when their last write was long ago: another one shows in their times,
        # so they are not read at each poll.
        self._settled: dict[str, _State] = {}
        self._polled = self._reported = self._states()

    def start(self) -> FileWatch:
        """Poll from a thread of its own; it does not keep the program alive."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="watch files", daemon=True)
            self._thread.start()
            if self._survives_fork:
                _running.add(self)
        return self

    def poll(self) -> bool:
        """Look at the files once, and report a change; whether there was one."""
        with self._lock:
            before, self._polled = self._polled, self._states()
            if self._polled == self._reported:
                if not self._retry_polls:
                    return False
                self._retry_polls -= 1
                if self._retry_polls:
                    return False
            elif self._is_half_written(before):
                return False
            self._report()
            return True

    def report_now(self) -> None:
        """Call `on_change`, changed or not; from the thread, if there is one."""
        if self._thread is None or self.is_current_thread():
            with self._lock:
                self._polled = self._states()
                self._report()
        else:
            self._wake.set()

    def close(self) -> None:
        """End the thread; a call of `on_change` that is under way goes on to its end."""
        self._closed.set()
        self._wake.set()
        _running.discard(self)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S_MAX)
        self._thread = None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed.is_set()

    def is_current_thread(self) -> bool:
        """Whether the caller runs in the thread of this watch."""
        return threading.current_thread() is self._thread

    def __enter__(self) -> FileWatch:
        return self.start()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def before_fork(self) -> None:
        """Wait for a report under way: a child that is forked amid one would never end it."""
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Go on; in the child, where the parent's thread is not, with a new one."""
        self._lock.release()
        if in_child:
            self._wake = threading.Event()
            self._closed = threading.Event()
            self._thread = None
            self.start()

    def _run(self) -> None:
        closed, wake = self._closed, self._wake
        while not closed.is_set():
            woken = wake.wait(self.every_s)
            if closed.is_set():
                return
            if woken:
                wake.clear()
                self.report_now()
            else:
                self.poll()

    def _report(self) -> None:
        self._reported = self._polled
        retry_s: float | None = None
        try:
            retry_s = self._on_change()
        except Exception:
            _log.exception("what watches %s failed", ", ".join([*self._polled][:3]))
        self._retry_polls = 0 if retry_s is None else max(1, round(retry_s / self.every_s))

    def _states(self) -> _States:
        """How all files are now; a folder that cannot be read is a state as well."""
        try:
            states = {path: self._state_of(path) for path in self._paths()}
        except SluicegateError as error:
            states = {str(error): None}
        for path in self._settled.keys() - states.keys():
            del self._settled[path]
        return states

    def _state_of(self, path: str) -> _State | None:
        polled_us = now_us()
        try:
            status = os.stat(path)
            file = (status.st_dev, status.st_ino)
            written = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            before = self._settled.get(path)
            if before is not None and (before.file, before.written) == (file, written):
                return before
            state = _State(file, written, _digest_of(path, status))
        except (OSError, ValueError):
            return None
        if max(written[:2]) // 1_000 < polled_us - TICK_US_MAX:
            self._settled[path] = state
        return state

    def _is_half_written(self, before: _States) -> bool:
        """Whether some file may still be being written."""
        for path, state in self._polled.items():
            if state is None or state == self._reported.get(path):
                continue
            last = self._reported.get(path)
            # Another file under the same name was moved there and is complete.
            replaced = path in self._reported and (last is None or state.file != last.file)
            if not replaced and state != before.get(path):
                return True
        return False


def _digest_of(path: str, status: os.stat_result) -> bytes:
    """Of the content; empty where there is none to be read without waiting."""
    if not stat.S_ISREG(status.st_mode):
        return b""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


_running: Final[WeakSet[FileWatch]] = WeakSet()
_forking: Final[list[FileWatch]] = []


def _before_fork() -> None:
    for watch in list(_running):
        watch.before_fork()
        _forking.append(watch)


def _after_fork(*, in_child: bool) -> None:
    while _forking:
        _forking.pop().after_fork(in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, in_child=False),
        after_in_child=partial(_after_fork, in_child=True),
    )
