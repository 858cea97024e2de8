"""Store watch: whether the store behind quotas, or the engine, answers; logged once on a change.

Heartbeats, leased blocks and minute counters each report success or failure under a name of their
own, and so do the operations of an engine. The first failure logs a warning. It is back when no
name is failing and none has failed for `QUIET_US`, so a flapping store logs two lines a second at
most, whatever the traffic.
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

    def __init__(
        self, clock: Clock, meanwhile: str, *, what: str = "the store", forget_us: int = 0
    ) -> None:
        """Without a failure for `forget_us` (0: never) it counts as back: nobody may be asking."""
        self._clock = clock
        self._what = what
        self._forget_us = forget_us
        self._meanwhile = meanwhile
        self._silent: set[str] = set()  # those that were not answered the last time
        self.down = False
        self.answered_us = 0  # the last answer while it is down
        self._losses = self._failed_us = self._since_us = 0
        self._why = ""

    def failed(self, who: str, error: BaseException) -> None:
        """Record that a call under this name failed."""
        now_us = self._clock.now_us()
        self._failed_us = now_us
        self._silent.add(who)
        if self.down:
            return
        self.down = True
        self._losses += 1
        self._since_us = now_us
        self._why = _error_text(error)
        _log.warning(
            "%s does not answer: %s; until it does, %s", self._what, self._why, self._meanwhile
        )

    def answered(self, who: str) -> None:
        """Record that a call under this name succeeded."""
        if self.down:
            self.answered_us = self._clock.now_us()
            self._silent.discard(who)
            self._silent.discard(START)
            self._settle()

    def stats(self) -> StoreState:
        """How it stands."""
        self._settle()
        return StoreState(self.down, self._since_us, self._why, self._losses)

    def _settle(self) -> None:
        """Declare the store back if no name is failing, and none has for a moment."""
        now_us = self._clock.now_us()
        unasked = bool(self._silent) and 0 < self._forget_us <= now_us - self._failed_us
        if unasked:
            self._silent.clear()
        if not self.down or self._silent or now_us - self._failed_us < QUIET_US:
            return
        self.down = False
        gone_s = (now_us - self._since_us) / 1e6
        self._since_us = now_us
        if unasked:
            quiet_s = self._forget_us / 1e6
            sentence = "%s counts as answering, after %.1f s: what failed was not asked for %.0f s"
            _log.warning(sentence, self._what, gone_s, quiet_s)
        else:
            _log.warning("%s answers again, after %.1f s", self._what, gone_s)

    def state(self) -> Mapping[str, object]:
        """The same for `GET /v1/state`."""
        return self.stats()._asdict()


def _error_text(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = " ".join(str(error).split())
    return text[:SEEN_CHARS_MAX] or type(error).__name__
