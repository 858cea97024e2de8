"""Store watch: whether the store behind quotas answers, logged once whenever that changes.

Heartbeats, leased blocks and minute counters each report success or failure under a name of their
own. The first failure logs a warning. The store is back when no name is failing and none has failed
for `QUIET_US`, so a flapping store logs two lines a second at most, whatever the traffic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.clock import Clock

START: Final = "start"  # whoever connects first; the first answer to anybody ends that
QUIET_US: Final = 500_000
SEEN_CHARS_MAX: Final = 200
_log: Final = logging.getLogger("sluicegate.kv")


class StoreState(NamedTuple):
    """How it stands now, and how often it was lost since the beginning."""

    gone: bool
    since_us: int  # when it went, or came back; 0: it has never been gone
    why: str  # what was seen when it was lost the last time
    losses: int


@final
class StoreWatch:
    """Collects failures and successes of store calls; logs outages."""

    def __init__(self, clock: Clock, meanwhile: str) -> None:
        self._clock = clock
        self._meanwhile = meanwhile
        self._silent: set[str] = set()  # those that were not answered the last time
        self._down = False
        self._losses = self._failed_us = self._since_us = 0
        self._why = ""

    def failed(self, who: str, error: BaseException) -> None:
        """Record that a call under this name failed."""
        now_us = self._clock.now_us()
        self._failed_us = now_us
        self._silent.add(who)
        if self._down:
            return
        self._down = True
        self._losses += 1
        self._since_us = now_us
        self._why = _error_text(error)
        _log.warning("the store does not answer: %s; until it does, %s", self._why, self._meanwhile)

    def answered(self, who: str) -> None:
        """Record that a call under this name succeeded."""
        if self._down:
            self._silent.discard(who)
            self._silent.discard(START)
            self._settle()

    def stats(self) -> StoreState:
        """How it stands."""
        self._settle()
        return StoreState(self._down, self._since_us, self._why, self._losses)

    def _settle(self) -> None:
        """Declare the store back if no name is failing, and none has for a moment."""
        now_us = self._clock.now_us()
        if not self._down or self._silent or now_us - self._failed_us < QUIET_US:
            return
        self._down = False
        gone_s = (now_us - self._since_us) / 1e6
        self._since_us = now_us
        _log.warning("the store answers again, after %.1f s", gone_s)

    def state(self) -> Mapping[str, object]:
        """The same for `GET /v1/state`."""
        return self.stats()._asdict()


def _error_text(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = " ".join(str(error).split())
    return text[:SEEN_CHARS_MAX] or type(error).__name__
