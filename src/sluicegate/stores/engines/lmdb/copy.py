"""Copy: an LMDB environment into an empty folder, by a process of its own.

    python -m sluicegate.stores.engines.lmdb.copy FROM TO

It prints the bytes of the copy, which is of one instant and synced when the process ends. Pages
that nobody uses are left out.
"""

from __future__ import annotations

import os
import sys

import lmdb

from sluicegate.contracts.errors import BadValue, SluicegateError, Unavailable
from sluicegate.stores.engines.folders import mark_created


def copy_environment(source: str, folder: str) -> int:
    """Copy it; the bytes of the copy."""
    os.umask(0o077)  # what is kept is for whoever runs this alone
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.listdir(folder):
            raise BadValue("backup", folder, "give an empty folder")
        os.chmod(folder, 0o700)
        with lmdb.open(source, readonly=True, create=False, max_readers=512) as env:
            env.copy(folder, compact=True)
        path = os.path.join(folder, "data.mdb")
        mark_created(folder, "lmdb")
        for place in (path, folder, os.path.dirname(os.path.abspath(folder))):
            _sync(place)
        return os.stat(path).st_size
    except (OSError, lmdb.Error) as error:
        raise Unavailable(f"a backup into {folder}", str(error)) from error


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{copy_environment(*sys.argv[1:3])}\n")
    except SluicegateError as error:
        sys.exit(str(error))
