"""Durable files: files that are on the disk, under their name, when a call returns.

A file is written aside, synced, and moved; then the folder that names it is synced too. Whoever is
killed on the way leaves a file aside, which nobody takes for anything.

A disk that is asked for several syncs at once does them as one, so they are asked for from several
threads; one after the other they would take a commit most of its time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from dulwich.file import SharedPerm, adjust_shared_perm

_THREADS_MAX: Final = 16


def write_aside(
    folder: str, content: bytes, *, prefix: str, mode: int, shared: SharedPerm | None
) -> str:
    """The path of a new file in the folder that holds this; not synced yet."""
    handle, path = tempfile.mkstemp(prefix=prefix, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            adjust_shared_perm(path, shared)
    except BaseException:
        remove_all([path])
        raise
    return path


def remove_all(paths: Iterable[str]) -> None:
    """Remove files, as far as they are there and may be removed."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def sync_together(paths: Collection[str]) -> None:
    """Have the disk hold all of these."""
    if len(paths) < 2:
        for path in paths:
            sync_file(path)
        return
    with ThreadPoolExecutor(min(len(paths), _THREADS_MAX)) as threads:
        for _ in threads.map(sync_file, paths):
            pass


def sync_file(path: str) -> None:
    """Have the disk hold what the file (or the folder) holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: str, *, shared: SharedPerm | None) -> None:
    """Make a folder and those it is in, as far as they are missing; they stay if this returns."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, shared=shared)
    with suppress(FileExistsError):
        os.mkdir(path)
        adjust_shared_perm(path, shared)
    sync_file(above)


def sync_all(folder: str) -> None:
    """Sync everything in a folder that was just made."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync_file(os.path.join(parent, name))
        sync_file(parent)


def umask_mode(mode: int, like: str) -> int:
    """A file's mode where its folder's tells what the umask was when the repository was made."""
    return mode & (os.stat(like).st_mode | 0o700)
