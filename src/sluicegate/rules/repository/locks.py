"""Locks: one writer of a ref at a time, be it a thread, a process, or somebody's `git push`.

Git's own protocol: whoever makes `<ref>.lock` may look at the ref, and moves the lock over it, or
takes it away. Here the lock is made by a link to a file that already holds the new value and is
synced. So it is never there without its content, and held for three system calls.

Git leaves the lock of a killed process for a person to remove. A publisher must come back by
itself, so ours can be told apart: a twin of the lock (the same file, under another name) stays in
`sluicegate/` until the lock is gone, and all of us take turns by a lock that the system drops with
a process (flock). Whoever has the turn and finds a lock with its twin knows that its maker is dead.
Git's locks have no twin, and are waited for.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha1
from typing import Final, final
from urllib.parse import quote, unquote

from sluicegate.contracts.clock import Clock
from sluicegate.contracts.errors import Unavailable
from sluicegate.rules.repository.durable_files import (
    make_folder,
    remove_all,
    sync_file,
    umask_mode,
    write_aside,
)
from sluicegate.rules.repository.folders import GitFolders

_FOLDER: Final = "sluicegate"
_LOOK_S_MIN: Final = 0.001
_LOOK_S_MAX: Final = 0.05
_TWIN: Final = ".twin"
_DRAFT: Final = "new-"
_TWIN_CHARS_MAX: Final = 200
_FILE_MODE: Final = 0o644


@final
class Locks:
    """The locks of one repository."""

    __slots__ = ("_clock", "_folders", "_wait_us_max", "what")

    def __init__(self, what: str, folders: GitFolders, *, wait_us_max: int, clock: Clock) -> None:
        self.what = what
        self._folders = folders
        self._wait_us_max = wait_us_max
        self._clock = clock

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only one of us who changes refs here."""
        folder = os.path.join(self._folders.common, _FOLDER)
        make_folder(folder, shared=self._folders.shared)
        path = os.path.join(folder, "turn")
        # To read is enough for a lock, so a repository that several users share needs no more.
        handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait(lambda: _try_lock(handle), path)
            self._heal(folder)
            yield
        finally:
            # Closed is not enough: a process that was forked meanwhile has it open too.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    @contextmanager
    def hold(self, path: str, content: bytes) -> Iterator[str]:
        """Hold the lock of the file at `path`; what is yielded may be renamed over it.

        Only within a turn. The folder of the path must be there.
        """
        folder = os.path.join(self._folders.common, _FOLDER)
        twin = os.path.join(folder, _twin_name(os.path.relpath(path, self._folders.common)))
        lock = f"{path}.lock"
        _release(lock, twin)
        mode = umask_mode(_FILE_MODE, os.path.dirname(path))
        draft = write_aside(folder, content, prefix=_DRAFT, mode=mode, shared=self._folders.shared)
        try:
            if content:
                sync_file(draft)
            os.rename(draft, twin)
            self._wait(lambda: _try_link(twin, lock), lock)
            yield lock
        finally:
            remove_all([draft])
            _release(lock, twin)

    def _heal(self, folder: str) -> None:
        """Take away what a killed one of us left; none can be at work, since we have the turn."""
        for name in os.listdir(folder):
            if name.startswith(_DRAFT):
                remove_all([os.path.join(folder, name)])
            elif name.endswith(_TWIN):
                # One whose name was too long is found when its ref is changed again.
                relative = unquote(name.removesuffix(_TWIN))
                lock = os.path.join(self._folders.common, f"{relative}.lock")
                if os.path.lexists(lock):
                    _release(lock, os.path.join(folder, name))

    def _wait(self, attempt: Callable[[], bool], path: str) -> None:
        until_us = self._clock.now_us() + self._wait_us_max
        look_s, pause = _LOOK_S_MIN, threading.Event()
        while not attempt():
            if self._clock.now_us() >= until_us:
                raise Unavailable(
                    self.what,
                    f"{path} is held by somebody else; if no git is at work there, it was left by"
                    " one that was killed, and can be removed",
                )
            pause.wait(look_s)
            look_s = min(2 * look_s, _LOOK_S_MAX)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_link(twin: str, lock: str) -> bool:
    try:
        os.link(twin, lock)
    except FileExistsError:
        return False
    return True


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _release(lock: str, twin: str) -> None:
    """Remove a lock, if it is the one with this twin, and then the twin."""
    if _same(lock, twin):
        remove_all([lock])
    remove_all([twin])


def _twin_name(relative: str) -> str:
    name = quote(relative, safe="")
    if len(name) > _TWIN_CHARS_MAX:
        digest = sha1(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[: _TWIN_CHARS_MAX - len(digest)]}{digest}"
    return name + _TWIN
