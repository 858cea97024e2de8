"""Damage: rows of an embedded engine that fail their checks are counted, and some are logged."""

from __future__ import annotations

import logging
from typing import Final, final

from sluicegate.contracts.errors import DataLoss

_log: Final = logging.getLogger("sluicegate.kv")


@final
class DamageLog:
    """Counts the reads that met damage. The first is logged, then the tenth, the hundredth..."""

    __slots__ = ("_log_at", "count", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.count = 0
        self._log_at = 1

    def found(self, seen: str) -> DataLoss:
        """Count one; return the error for its caller. Neither names a key, which may be private."""
        self.count += 1
        if self.count >= self._log_at:
            self._log_at *= 10
            _log.error(
                "%s is damaged: %s (%d damaged reads so far); check the disk, run"
                " `sluicegate kv scrub` to list the rows, and restore a backup",
                self.what,
                seen,
                self.count,
            )
        return DataLoss(
            f"a row in {self.what}", f"{seen}; the operator can restore it from a backup"
        )
