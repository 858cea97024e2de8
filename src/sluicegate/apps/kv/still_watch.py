"""Still watch: whether the engine has stopped ending what it was given.

An engine that fails says so (`store_watch.py`); one that stands still says nothing at all. It does
if work is under way and none has ended for `STILL_US`. That is logged once, and once when work ends
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from sluicegate.contracts.clock import Clock
from sluicegate.policies.stack import StackStats

LOOK_S: Final = 0.5
STILL_US: Final = 5_000_000
_log: Final = logging.getLogger("sluicegate.kv")


@final
class StillWatch:
    """Looks at the counts of a stack now and then."""

    __slots__ = ("_clock", "_ended", "_moved_us", "_stats", "_what", "still", "under_way")

    def __init__(self, stats: Callable[[], StackStats], clock: Clock, what: str) -> None:
        self._stats = stats
        self._clock = clock
        self._what = what
        self._ended = 0
        self._moved_us = clock.now_us()
        self.still = False
        self.under_way = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Take note of how much has ended."""
        stats, now_us = self._stats(), self._clock.now_us()
        self.under_way = stats.under_way
        if stats.ended != self._ended or stats.under_way == 0:
            if self.still:
                gone_s = (now_us - self._moved_us) / 1e6
                _log.warning("%s works again, after %.1f s", self._what, gone_s)
            self._ended, self._moved_us, self.still = stats.ended, now_us, False
        elif not self.still and now_us - self._moved_us >= STILL_US:
            self.still = True
            _log.warning("%s", self.why())

    def why(self) -> str:
        """What is wrong, as a sentence; empty if it moves."""
        if not self.still:
            return ""
        seconds = (self._clock.now_us() - self._moved_us) // 1_000_000
        return (
            f"{self._what} stands still: none of {self.under_way} operations has ended "
            f"for {seconds} s"
        )
