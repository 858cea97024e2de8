"""Observer group: many observers as one, none of which can harm a decision or another.

What an observer raises ends here. The first time it is logged with its traceback, every time it is
counted; a decision is made before its observers are called, and stands.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from threading import RLock
from typing import final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.observer import Observer

_log = logging.getLogger("sluicegate.telemetry")


@final
class ObserverGroup:
    """Calls each of `observers`, in order."""

    __slots__ = ("_failures", "_lock", "observers", "wants_decisions")

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers
        self.wants_decisions = any(getattr(one, "wants_decisions", True) for one in observers)
        self._failures = [0] * len(observers)
        self._lock = RLock()

    @property
    def failures(self) -> tuple[int, ...]:
        """How often each of the observers raised."""
        return tuple(self._failures)

    def record_decision(self, decision: Decision, key: str, began_us: int, ended_us: int) -> None:
        """Pass one decision on."""
        for at, observer in enumerate(self.observers):
            try:
                observer.record_decision(decision, key, began_us, ended_us)
            except Exception as error:
                self._failed(at, error)

    def record_round_trip(self, decisions: int, began_us: int, ended_us: int, failure: str) -> None:
        """Pass one round trip on."""
        for at, observer in enumerate(self.observers):
            try:
                observer.record_round_trip(decisions, began_us, ended_us, failure)
            except Exception as error:
                self._failed(at, error)

    def record_lease(self, rule: str, event: str, units: int) -> None:
        """Pass one event of a lease on."""
        for at, observer in enumerate(self.observers):
            try:
                observer.record_lease(rule, event, units)
            except Exception as error:
                self._failed(at, error)

    def record_lease_lag(self, rule: str, lag_us: int) -> None:
        """Pass the age of a block on to the observers that take it."""
        for at, observer in enumerate(self.observers):
            record = getattr(observer, "record_lease_lag", None)
            if record is not None:
                try:
                    record(rule, lag_us)
                except Exception as error:
                    self._failed(at, error)

    def _failed(self, at: int, error: Exception) -> None:
        with self._lock:
            self._failures[at] += 1
            first = self._failures[at] == 1
        if first:
            # A logger can be made to raise as well; then the count must do.
            with suppress(Exception):
                _log.error(
                    "The observer %s raised. It is still called for what follows; this is not "
                    "logged again.",
                    type(self.observers[at]).__qualname__,
                    exc_info=error,
                )
