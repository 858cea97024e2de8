"""Announcements: a node reads the announcements of its fleet, in a thread of its own.

An announcement is a hint that carries the signed rollout: the receiver verifies it, and it is
followed at once. Nothing depends on it. The log is read from where it begins, for nobody knows
where a log ends without reading it, and an old rollout is known by its number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread, current_thread
from typing import Final, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.event_log import OLDEST, EventLog, Reader
from sluicegate.contracts.rulebook import RULES_CHANGED
from sluicegate.kernels.backoff import reconnect_backoff
from sluicegate.rules.following.failures import ANNOUNCEMENTS, FailureRecord

EVENTS_MAX: Final = 256
WAIT_US: Final = 250_000
RETRY_US_MIN: Final = 200_000
RETRY_US_MAX: Final = 30_000_000

_log: Final = logging.getLogger("sluicegate.rules")

Notify = Callable[[bytes, int], None]


@final
class AnnouncementReader:
    """Reads a log and tells what it hears, until it is closed; starts again after a failure."""

    def __init__(
        self, log: EventLog, announced: Notify, record: FailureRecord, chance: Chance
    ) -> None:
        self._log = log
        self._announced = announced
        self._record = record
        self._chance = chance
        self._offset = OLDEST
        self._reader: Reader | None = None
        self._closed = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Listen in a thread that does not keep the program alive."""
        self._thread = Thread(target=self._run, name="hear rules", daemon=True)
        self._thread.start()

    def listen(self, wait_us: int = 0) -> int:
        """Hear what there is, and wait so long for it; how many events there were."""
        if self._reader is None:
            self._reader = self._log.reader(self._offset)
        events = self._reader.read(EVENTS_MAX, wait_us)
        for event in events:
            self._offset = event.offset + 1
            if event.kind == RULES_CHANGED:
                self._announced(event.body, event.at_us)
        return len(events)

    def close(self, timeout_s: float) -> None:
        """Stop listening."""
        self._closed.set()
        thread, self._thread = self._thread, None
        if thread is None:
            self._close_reader()
        elif thread is not current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        backoff = reconnect_backoff(RETRY_US_MIN, RETRY_US_MAX)
        attempt = 0
        while not self._closed.is_set():
            try:
                self.listen(WAIT_US)
            except Exception as error:
                if self._record.add(ANNOUNCEMENTS, error):
                    _log.warning("the announcements of rules are not heard: %s", error)
                self._close_reader()
                self._closed.wait(backoff.wait_us(attempt, self._chance.draw()) / 1e6)
                attempt += 1
            else:
                attempt = 0
                self._record.clear(ANNOUNCEMENTS)
        self._close_reader()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(Exception):  # it has failed already, and is given back all the same
                reader.close()
