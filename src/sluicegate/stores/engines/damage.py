"""Damage: rows of an embedded engine that fail their checks are counted, and some are logged."""

from __future__ import annotations

import logging
import time
from typing import Final, final

from sluicegate.contracts.errors import Damaged

LOG_PAUSE_S: Final = 10.0  # between two lines: one bad sector may hold thousands of rows
_log: Final = logging.getLogger("sluicegate.kv")


@final
class DamageLog:
    """Counts the reads that met damage. One thread's reads may race another's; the log may not."""

    __slots__ = ("_logged", "_silent_until_s", "count", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self._logged = 0
        self._silent_until_s = 0.0

    def found(self, seen: str) -> Damaged:
        """Count one; return the error for its caller. Neither names a key, which may be private."""
        self.count += 1
        now_s = time.monotonic()
        if now_s >= self._silent_until_s:
            self._silent_until_s = now_s + LOG_PAUSE_S
            since = self.count - self._logged
            self._logged = self.count
            _log.error(
                "%s is damaged: %s (%d damaged reads since the last line); check the disk,"
                " run `sluicegate kv scrub` to list the rows, and restore a backup",
                self.what,
                seen,
                since,
            )
        return Damaged(
            f"a row in {self.what}", f"{seen}; the operator can restore it from a backup"
        )
