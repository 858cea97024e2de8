"""Folders: which folder an embedded engine may use for its files, and for a backup of them.

LMDB and RocksDB each take a folder of the other's for an empty one, and would show nothing of what
is stored there. So the names in it are checked before anything is created. A folder with files of
both is refused: which of the two is meant is for a person to say.

Whoever asks for a backup may be on another machine, so its folder must be an absolute path.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from sluicegate.contracts.errors import BadValue, DataLoss

# By the scheme of their URLs: what they are called, and the files that they always have.
_MARKS: Final[dict[str, tuple[str, re.Pattern[str]]]] = {
    "lmdb": ("LMDB", re.compile(r"data\.mdb")),
    "rocksdb": ("RocksDB", re.compile(r"CURRENT|MANIFEST-[0-9]+|.+\.sst")),
}


# Written once an engine has created its files. Without it, files that were emptied would be taken
# for those of a new store.
CREATED: Final = "sluicegate-store"


def was_created(folder: str) -> bool:
    """Whether an engine has created its files here before."""
    return os.path.exists(os.path.join(folder, CREATED))


def mark_created(folder: str, scheme: str) -> None:
    """Note, durably, that an engine has created its files here."""
    path = Path(folder, CREATED)
    if path.exists():
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, f"{scheme}: a store was created in this folder\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(folder)


def check_not_emptied(scheme: str, folder: str, name: str) -> None:
    """Raise `DataLoss` if a store was created here, and the file that it always has is empty."""
    if not was_created(folder):
        return
    path = Path(folder, name)
    size = path.stat().st_size if path.exists() else None
    if not size:
        state = "missing" if size is None else "empty"
        raise DataLoss(
            f"the engine {scheme}:{folder}",
            f"{name} is {state}, but a store was created here ({CREATED}); restore a backup"
            f" into the folder, or delete {CREATED} to begin with an empty store",
        )


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_owner(scheme: str, folder: str) -> None:
    """Raise `BadValue` for a folder with another engine's files; nothing is made or changed.

    A folder that is not there, or that may not be looked into, is for the engine to tell.
    """
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(folder))
    marks_found = {
        owner: next(filter(marks.fullmatch, names), None) for owner, (_, marks) in _MARKS.items()
    }
    own = marks_found.pop(scheme)
    for owner, name in marks_found.items():
        if name is None:
            continue
        called, other = _MARKS[scheme][0], _MARKS[owner][0]
        if own is None:
            remedy = (
                f"it holds files of {other} ({name}); start with {owner}:{folder},"
                f" or give {called} a folder of its own"
            )
        else:
            remedy = (
                f"it holds files of {other} ({name}) beside those of {called} ({own});"
                " move those of one engine into a folder of their own"
            )
        raise BadValue(f"{scheme}.folder", folder, remedy)


def check_backup_folder(folder: str, own: str) -> None:
    """Raise `BadValue` for a folder that cannot be one, or lies in the engine's `own`."""
    try:
        os.fsencode(folder)
        folder.encode()
    except UnicodeEncodeError:
        raise BadValue("backup", folder, "give a path that can be encoded") from None
    if "\0" in folder:
        raise BadValue("backup", folder, "give a path without a zero byte")
    if not os.path.isabs(folder):
        raise BadValue("backup", folder, "give an absolute path, as /backups/monday")
    real, real_own = os.path.realpath(folder), os.path.realpath(own)
    if os.path.commonpath([real, real_own]) == real_own:
        raise BadValue("backup", folder, f"give a folder outside the engine's own, {own}")
    if real == "/":
        raise BadValue("backup", folder, "give an empty folder")
