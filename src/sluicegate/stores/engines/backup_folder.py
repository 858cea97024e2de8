"""Backup folder: where a copy of an engine may go.

Whoever asks for a backup may be far away, so what they say is taken as it is meant or not at all: a
path from the root that says where it ends, whatever folder this process happens to be in.
"""

from __future__ import annotations

import os

from sluicegate.contracts.errors import BadValue


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
