"""Temporary folder: goes with the block that made it, or with the next if that was killed.

Whoever made one holds a lock on a file in it, and the system gives that back however it ends. So a
folder of the same kind and user whose lock is free belongs to nobody any more. One that is younger
than `YOUNG_S` is left alone, since it may just not be locked yet.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sluicegate.system import now_us

YOUNG_S: Final = 60
_LOCK: Final = ".lock"


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """A folder for as long as the block runs; its name begins with `sluicegate-KIND-`."""
    prefix = f"sluicegate-{kind}-"
    _remove_abandoned(prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(prefix: str) -> None:
    """Remove what was left by those that were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError):  # it has gone meanwhile, or is not ours
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    is_young = found.st_mtime > now_us() / 1e6 - YOUNG_S
    if is_young or found.st_uid != os.getuid():
        return
    lock = os.open(Path(entry.path) / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)
