"""File modes: warnings of files that other users may read or change.

    key, settings file with a secret    only its owner reads it; the group where another user owns
                                        it, as in a mounted secret
    access file                         no other user changes it; it holds digests, no secrets

A warning never stops a service. Each file is named once, and again when its mode has changed.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
from collections.abc import Iterable
from typing import Final, NamedTuple, final

_log: Final = logging.getLogger("sluicegate.files")
_FILES_MAX: Final = 1_024  # remembered; a service has a handful


class GuardedFile(NamedTuple):
    """A file whose mode is checked: the setting that names it, and whether it holds a secret."""

    setting: str
    path: str
    secret: bool


class LooseFile(NamedTuple):
    """A file that other users may read or change, its mode, and the command that fixes it."""

    file: GuardedFile
    mode: int
    fix: str

    def __str__(self) -> str:
        does = "read" if self.file.secret and not self.mode & 0o022 else "change"
        return (
            f"{self.file.setting} {self.file.path}: mode {self.mode:04o} lets other users {does} "
            f"it; {self.fix}"
        )


def loose_file(file: GuardedFile) -> LooseFile | None:
    """The file if its mode is too open; None if it is not, or is no regular file."""
    try:
        status = os.stat(file.path)
    except (OSError, ValueError):
        return None  # whatever reads the file reports this
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        return None
    path = shlex.quote(file.path)
    if not file.secret:
        return LooseFile(file, mode, f"chmod o-w {path}") if mode & 0o002 else None
    if status.st_uid == os.geteuid():
        return LooseFile(file, mode, f"chmod 600 {path}") if mode & 0o077 else None
    return LooseFile(file, mode, f"chmod 640 {path}") if mode & 0o027 else None


@final
class FileModes:
    """Logs loose files, each once."""

    __slots__ = ("_logged",)

    def __init__(self) -> None:
        self._logged: dict[str, int] = {}  # the mode of each file that was logged

    def check(self, files: Iterable[GuardedFile]) -> None:
        """Log those that are too open and were not logged with this mode."""
        for file in files:
            loose = loose_file(file) if file.path else None
            if loose is None:
                self._logged.pop(file.path, None)
            elif self._logged.get(file.path) != loose.mode:
                if len(self._logged) < _FILES_MAX:
                    self._logged[file.path] = loose.mode
                _log.warning("%s", loose)
