"""Failures of background work: each message is logged once; the last one and a count are shown."""

from __future__ import annotations

import logging
from typing import Final, final

from sluicegate.contracts.errors import SluicegateError

_log: Final = logging.getLogger("sluicegate.kv")
_MESSAGES_MAX: Final = 64  # remembered; beyond, they are forgotten and may be logged again


@final
class Failures:
    """Those of one kind of work. `last_error` is empty as long as there was none."""

    __slots__ = ("_logged", "_work", "count", "last_error")

    def __init__(self, work: str) -> None:
        self._work = work
        self._logged: set[str] = set()
        self.count = 0
        self.last_error = ""

    def note(self, error: Exception) -> None:
        """Count it, and log it unless it was logged before."""
        self.count += 1
        expected = isinstance(error, SluicegateError)
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        self.last_error = text
        if text in self._logged:
            return
        if len(self._logged) >= _MESSAGES_MAX:
            self._logged.clear()
        self._logged.add(text)
        trace = None if expected else error
        _log.warning("%s: %s; it is tried again", self._work, text, exc_info=trace)
