"""Recovery: an embedded engine that became unusable, when to try again, and since when it is so.

Used by the one thread that writes. `why` and `lost_s` may be read from any thread.
"""

from __future__ import annotations

import logging
import time
from typing import Final, final

PAUSE_S_MIN: Final = 0.1  # a fault of one moment costs no more
PAUSE_S_MAX: Final = 5.0
_log: Final = logging.getLogger("sluicegate.kv")


@final
class Recovery:
    """One outage at a time."""

    __slots__ = ("_lost_s", "_next_s", "_pause_s", "_what", "why")

    def __init__(self, what: str) -> None:
        self._what = what
        self.why = ""  # empty while the engine is usable
        self._lost_s = self._next_s = self._pause_s = 0.0

    def lose(self, why: str) -> None:
        """Note an outage; the first attempt is due at once, later ones after a growing pause."""
        if not self.why:
            self._lost_s = time.monotonic()
            self._next_s = self._pause_s = 0.0
            _log.error("%s is unusable: %s; it is opened again", self._what, why)
        self.why = f"it is unusable ({why}) and opened again with growing pauses; check the disk"

    def begin_attempt(self) -> bool:
        """Whether an attempt is due; counts it."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._pause_s = min(max(2 * self._pause_s, PAUSE_S_MIN), PAUSE_S_MAX)
        self._next_s = now_s + self._pause_s
        return True

    def end(self) -> None:
        """Note that the engine is usable again."""
        _log.warning("%s is usable again, after %.1f s", self._what, self.lost_s())
        self.why = ""

    def lost_s(self) -> float:
        """Return for how long it has been unusable."""
        return time.monotonic() - self._lost_s if self.why else 0.0
