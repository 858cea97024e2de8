"""Watch: tells when a file has changed, by looking at it now and then.

Looking works wherever a file can be, on network mounts and in containers, and sees all the ways in
which files are replaced: a rename over it, a link turned elsewhere (as Kubernetes does for its
ConfigMaps), a write in place, a deletion and its return. A new file under the name is complete and
told at once. One that is written in place may be half written, and half a rules file can be a good
one with fewer rules; so that is told when a look has found it as the look before did.

It only tells; what is read, and what a bad file means, is up to whoever is told. A watch runs in a
thread of its own, or, as `look`, in whatever calls it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, final
from weakref import WeakSet

from sluicegate.contracts.errors import BadValue

EVERY_S_DEFAULT: Final = 1.0
EVERY_S_MIN: Final = 0.01
EVERY_S_MAX: Final = 86_400.0

_log: Final = logging.getLogger("sluicegate.rules")

# What tells two states of a file apart: which file it is, and how it was last written. None: gone.
_State: TypeAlias = "tuple[tuple[int, int], tuple[int, int, int]] | None"


@final
class Watch:
    """Calls `on_change` after the file at `path` has changed, until it is closed.

    It takes the file as it is now for known. `on_change` is called from the watch's own thread,
    never twice at once; what it raises is logged, and the watch goes on. `every_s` is the time
    between looks. After a fork the child has a watch of its own.
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_looking",
        "_on_change",
        "_seen",
        "_thread",
        "_told",
        "every_s",
        "path",
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        on_change: Callable[[], object],
        *,
        every_s: float = EVERY_S_DEFAULT,
    ) -> None:
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
            raise BadValue("every_s", every_s, f"give {EVERY_S_MIN} to {EVERY_S_MAX:,.0f} seconds")
        self.path: Final = os.fspath(path)
        self.every_s: Final = every_s
        self._on_change = on_change
        self._seen = self._told = _state_of(self.path)
        self._looking = threading.RLock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Watch:
        """Look from a thread of its own; it does not keep the program alive."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(
                target=_run, args=(self, self._closed), name=f"watch {self.path}", daemon=True
            )
            self._thread.start()
            _running.add(self)
        return self

    def look(self) -> bool:
        """Look once, and tell if there is something to tell; whether it was told."""
        with self._looking:
            before, self._seen = self._seen, _state_of(self.path)
            now = self._seen
            if now == self._told:
                return False
            replaced = now is None or self._told is None or now[0] != self._told[0]
            if not replaced and now != before:
                return False  # it may still be being written
            self._told = now
            try:
                self._on_change()
            except Exception:
                _log.exception("what watches %s failed; it will be told of changes", self.path)
            return True

    def close(self) -> None:
        """End the thread; a change that is just being told is told to the end."""
        self._closed.set()
        _running.discard(self)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._thread = None

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def before_fork(self) -> None:
        """Wait until no change is being told: a child that starts amid one would never end it."""
        self._looking.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Go on; in the child, where the parent's thread is not, with a new one."""
        self._looking.release()
        if in_child:
            self._closed = threading.Event()
            self._thread = None
            self.start()


def _run(watch: Watch, closed: threading.Event) -> None:
    while not closed.wait(watch.every_s):
        watch.look()


def _state_of(path: str) -> _State:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    written = (found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    return (found.st_dev, found.st_ino), written


_running: Final[WeakSet[Watch]] = WeakSet()


_forking: Final[list[Watch]] = []


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
