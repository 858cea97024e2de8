"""Recovery: an embedded engine that became unusable, and when to try again.

Used by the one thread that writes. `why` may be read from any thread.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, final

PAUSE_S_MIN: Final = 0.1  # a fault of one moment costs no more
PAUSE_S_MAX: Final = 5.0
_log: Final = logging.getLogger("sluicegate.kv")


@final
class Recovery:
    """One outage at a time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.why = ""  # empty while the engine is usable
        self._pause_s = 0.0
        self._due = threading.Event()

    def lose(self, why: str) -> None:
        """Note an outage; the first attempt is due at once, later ones after a growing pause."""
        if not self.why:
            self._pause_s = 0.0
            self._due.set()
            _log.error("%s is unusable: %s; it is opened again", self._what, why)
        self.why = f"it is unusable ({why}) and opened again with growing pauses; check the disk"

    def begin_attempt(self) -> bool:
        """Whether an attempt is due; then the next one is after a pause."""
        if not self._due.is_set():
            return False
        self._due.clear()
        self._pause_s = min(max(2 * self._pause_s, PAUSE_S_MIN), PAUSE_S_MAX)
        timer = threading.Timer(self._pause_s, self._due.set)
        timer.daemon = True
        timer.start()
        return True

    def end(self) -> None:
        """Note that the engine is usable again."""
        self.why = ""
        _log.warning("%s is usable again", self._what)
