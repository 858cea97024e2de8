"""Folders below one folder, reached handle by handle, so that no link and no `..` leads out of it.

Every step opens the next folder relative to the one before and follows no link; a name that is
swapped for a link meanwhile is met with an error, not followed. Only the outermost folder may be a
link: it is the user's own word.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final

from sluicegate.contracts.errors import Unavailable

LOCK: Final = ".lock"
TEMPORARY: Final = ".tmp-"  # no name begins with a dot, so neither can be a blob
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GAP_US_MIN, _GAP_US_MAX = 500, 20_000  # between two tries for a lock


class BlobInPathError(Exception):
    """A blob stands where a name wants one of its folders."""


@contextmanager
def open_folder(root: str, segments: Sequence[str]) -> Iterator[int]:
    """A handle of the folder so far below the root.

    `FileNotFoundError` if it is not there, `BlobInPathError` if it cannot be.
    """
    handle = os.open(root, _FOLDER)
    try:
        for at in range(len(segments)):
            inner = _enter(handle, segments, at)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def make(root: str, segments: Sequence[str], mode: int) -> None:
    """Have the folder and those above it, each of them durable in the one that holds it."""
    _make_root(Path(root), mode)
    for depth in range(len(segments)):
        with open_folder(root, segments[:depth]) as handle:
            try:
                os.mkdir(segments[depth], mode, dir_fd=handle)
            except FileExistsError:
                pass  # by somebody who may not have come to sync it; so that is done here
            else:
                _set_mode(handle, segments[depth], mode)
            os.fsync(handle)


def _make_root(root: Path, mode: int) -> None:
    if not root.is_dir():
        if root.parent != root:
            _make_root(root.parent, mode)
        with suppress(FileExistsError):  # somebody was faster; or it is a file, as opening it tells
            os.mkdir(root, mode)
            os.chmod(root, mode)
    # What stands already may have been made by somebody who was killed before this.
    with suppress(PermissionError):
        handle = os.open(root.parent, _FOLDER)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _set_mode(folder: int, name: str, mode: int) -> None:
    # The mode of mkdir is cut by the umask, and may be more or less than what was asked for.
    handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _enter(handle: int, segments: Sequence[str], at: int) -> int:
    name = segments[at]
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except OSError as error:
        path = "/".join(segments[: at + 1])
        if is_link(handle, name):
            raise link_error(path) from error
        if isinstance(error, NotADirectoryError):
            raise BlobInPathError(path) from error
        raise


def is_link(folder: int, name: str) -> bool:
    """Return whether this name is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def is_folder(folder: int, name: str) -> bool:
    """Return whether this name is a folder."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def link_error(name: str) -> OSError:
    """Return the error that a symbolic link in the store is."""
    return OSError(0, "it is a symbolic link, which is not followed; remove it", name)


@contextmanager
def lock_folder(folder: int, wait_us: int, what: str) -> Iterator[None]:
    """Alone among all threads and processes that write here; the kernel frees what is killed."""
    handle = os.open(LOCK, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600, dir_fd=folder)
    try:
        _take(handle, wait_us, what)
        yield
    finally:
        os.close(handle)


def _take(handle: int, wait_us: int, what: str) -> None:
    # Waiting in the kernel has no time limit, and a process that is stopped keeps its lock.
    waited_us, gap_us = 0, _GAP_US_MIN
    never = Event()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited_us >= wait_us:
                reason = f"another writer has held its lock for {wait_us / 1_000:.0f} ms"
                raise Unavailable(what, reason) from None
        else:
            return
        never.wait(gap_us / 1e6)
        waited_us += gap_us
        gap_us = min(2 * gap_us, _GAP_US_MAX)


def open_temporary(folder: int, mode: int) -> tuple[int, str]:
    """Return a new file that is no blob yet, and its name."""
    name = TEMPORARY + os.urandom(12).hex()
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, mode, dir_fd=folder)
    os.fchmod(handle, mode)
    return handle, name


def open_blob(folder: int, name: str) -> int | None:
    """Return a handle of a blob to be read; None if there is none, or a folder of others."""
    try:
        # Without waiting, or a pipe of that name would hold us forever.
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _SAFELY, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise (link_error(name) if is_link(folder, name) else error) from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        return None
    raise OSError(0, "it is no ordinary file; remove it", name)


def sweep(folder: int, newest: str, age_us: int) -> None:
    """Remove what killed writers left behind, by the file system's own clock.

    A writer that is alive but slower than that finds its part gone, and begins again.
    """
    now_ns = os.stat(newest, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY) and entry.is_file(follow_symlinks=False):
                try:
                    made_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    if now_ns - made_ns > age_us * 1_000:
                        os.unlink(entry.name, dir_fd=folder)
                except FileNotFoundError:
                    pass  # its writer is done with it, or somebody else swept
