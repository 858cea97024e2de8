"""Reporter: a node reports to its fleet what it runs, after each change and now and then.

In a thread of its own, for a store that hangs must not keep the node from following. What cannot be
told is counted, and tried again, less and less often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread, current_thread
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.rulebook import NodeReport
from sluicegate.kernels.backoff import reconnect_backoff
from sluicegate.rules.following.failures import REPORTS, FailureRecord

RETRY_US_MIN: Final = 500_000

_log: Final = logging.getLogger("sluicegate.rules")


@final
class Reporter:
    """Sends reports; `make` makes one, and `send` puts it where the fleet looks."""

    def __init__(
        self,
        make: Callable[[], NodeReport],
        send: Callable[[NodeReport], None],
        record: FailureRecord,
        chance: Chance,
        *,
        every_us: int,
    ) -> None:
        self._make = make
        self._send = send
        self._record = record
        self._chance = chance
        self._every_us = every_us
        self._wake = Event()
        self._closed = Event()
        self._thread: Thread | None = None
        self.sent = 0

    def start(self) -> None:
        """Report in a thread that does not keep the program alive."""
        self._thread = Thread(target=self._run, name="report rules", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Report soon; never waits."""
        self._wake.set()

    def report(self) -> bool:
        """Report now; whether that went well."""
        try:
            self._send(self._make())
        except Exception as error:
            if self._record.add(REPORTS, error):
                _log.warning("the rules in force could not be reported: %s", error)
            return False
        self._record.clear(REPORTS)
        self.sent += 1
        return True

    def close(self, timeout_s: float) -> None:
        """Stop reporting."""
        self._closed.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        backoff = reconnect_backoff(min(RETRY_US_MIN, self._every_us), self._every_us)
        attempt = 0
        while not self._closed.is_set():
            self._wake.clear()
            if self.report():
                attempt, rest_us = 0, self._every_us
            else:
                rest_us = backoff.wait_us(attempt, self._chance.draw())
                attempt += 1
            self._wake.wait(rest_us / 1e6)
