"""Outage watch: says once that a limiter's store does not answer, and once that it does again.

A failure policy decides in the store's place, which nobody notices who does not look at the
decisions. So the first failure is a warning in the log, with its cause and what it means, and the
end of the outage is another. While one server of several is away, others answer: an outage is over
when `CALM_US` pass without a failure. What comes and goes is told once in `AGAIN_US`.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import Final, final

from sluicegate.contracts.errors import Unavailable
from sluicegate.limits.rule import Failure
from sluicegate.system import now_us

CALM_US: Final = 1_000_000
AGAIN_US: Final = 60_000_000

_log: Final = logging.getLogger("sluicegate.limits")
_MEANING: Final = {
    Failure.OPEN: "admitting everything",
    Failure.CLOSED: "refusing everything",
    Failure.LOCAL: "counting in this process alone",
}


@final
class OutageWatch:
    """Whether the store of a limiter answers, as its decisions find it."""

    __slots__ = ("_failed_us", "_failures", "_lock", "_logged", "_logged_us", "_since_us", "away")

    def __init__(self) -> None:
        self._lock = Lock()
        self._failures = 0
        self._failed_us = self._since_us = 0
        self._logged = False
        self._logged_us: int | None = None
        self.away = False  # whoever gets an answer looks at this first

    def fail(self, error: Unavailable, failure: Failure) -> None:
        """A decision was made without the store, for this reason and by this policy."""
        with self._lock:
            self._failed_us = at_us = now_us()
            self._failures += 1
            if self.away:
                return
            self.away = True
            self._since_us = at_us
            self._failures = 1
            self._logged = self._logged_us is None or at_us - self._logged_us >= AGAIN_US
            if self._logged:
                self._logged_us = at_us
        if self._logged:
            _log.warning("%s; %s: failure=%s", error, _MEANING[failure], failure.value)

    def answer(self, what: str = "the store") -> None:
        """The store has answered, and was away before."""
        with self._lock:
            at_us = now_us()
            if not self.away or at_us - self._failed_us < CALM_US:
                return
            self.away = False
            away_s = (at_us - self._since_us) / 1e6
            failures = self._failures
        if self._logged:
            _log.warning(
                "%s answers again after %.1f s; %d decisions were made without it",
                what,
                away_s,
                failures,
            )
