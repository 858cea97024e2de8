"""Refusals: calls that changed nothing because they might not, or could not.

What changes something is in the ledger for good. Refused calls are not: anybody can make as many as
they like, and must not make the history grow. They go to an event log, whose own bounds hold, and
the latest are kept at hand.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from functools import partial
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.event_log import EventLog, Reader

FORMAT: Final = 1
KIND: Final = "rules.refused"
TEXT_CHARS_MAX: Final = 1_000
_EVENTS_AT_ONCE: Final = 1_000
_READS_MAX: Final = 100  # what is not read by then is read at the next look
_READ_US: Final = 20_000
_PENDING_MAX: Final = 1_000
_WAIT_S_MAX: Final = 1.0

_log: Final = logging.getLogger("sluicegate.rules")


class Refusal(NamedTuple):
    """Who asked for what, and why it was not done."""

    at_us: int
    by: str
    call: str
    what: str
    error: str
    why: str


@final
class RefusalLog:
    """Notes refused calls, and tells the latest. Without a log they are kept in memory only."""

    __slots__ = ("_latest", "_lock", "_log", "_pending", "_reader", "_unlogged")

    def __init__(self, log: EventLog | None, *, kept_max: int) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._latest: deque[Refusal] = deque(maxlen=kept_max)
        self._unlogged: deque[Refusal] = deque(maxlen=kept_max)
        self._pending: deque[Future[None]] = deque(maxlen=_PENDING_MAX)
        self._reader: Reader | None = None

    def record(self, refusal: Refusal) -> None:
        """Keep one; never waits, never raises."""
        texts = (refusal.by, refusal.call, refusal.what, refusal.error, refusal.why)
        by, call, what, error, why = (text[:TEXT_CHARS_MAX] for text in texts)
        refusal = Refusal(refusal.at_us, by, call, what, error, why)
        _log.warning("%s was refused %s %s: %s", by, call, what, why)
        if self._log is None:
            with self._lock:
                self._latest.append(refusal)
            return
        body = json.dumps({"format": FORMAT, **refusal._asdict()}).encode()
        promise = self._log.append(KIND, body, refusal.at_us)
        # Who waits for a promise may go on before those whom it calls back have been.
        noted: Future[None] = Future()
        with self._lock:
            self._pending.append(noted)
        promise.add_done_callback(partial(self._on_appended, refusal, noted))

    def latest(self, count_max: int) -> list[Refusal]:
        """The latest, newest first; of all who write to the same log."""
        with self._lock:
            if self._log is not None:
                self._follow(self._log)
            refusals = sorted([*self._latest, *self._unlogged], key=lambda one: one.at_us)
            return refusals[::-1][:count_max]

    def close(self) -> None:
        """Give the log's reader back; the log is its owner's."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _on_appended(self, refusal: Refusal, noted: Future[None], promise: Future[int]) -> None:
        """What the log could not take is at least told for as long as this runs."""
        error = promise.exception()
        if error is not None:
            _log.warning("a refused call is not in the log: %s", error)
            self._unlogged.append(refusal)
        noted.set_result(None)

    def _follow(self, log: EventLog) -> None:
        wait_for_all([*self._pending], _WAIT_S_MAX)
        while self._pending and self._pending[0].done():
            self._pending.popleft()
        try:
            if self._reader is None:
                self._reader = log.reader()
                self._latest.clear()  # a new reader begins at the beginning
            for _ in range(_READS_MAX):
                events = self._reader.read(_EVENTS_AT_ONCE, 0 if self._reader.at_end else _READ_US)
                read = [_read(event.body) for event in events if event.kind == KIND]
                self._latest.extend(refusal for refusal in read if refusal is not None)
                if self._reader.at_end and not events:
                    break
        except SluicegateError as error:
            _log.warning("the log of refused calls cannot be read: %s", error)


def _read(body: bytes) -> Refusal | None:
    """A refusal; None for one of a newer program, or a damaged one."""
    try:
        fields = json.loads(body)
        if fields["format"] > FORMAT:
            return None
        texts = [fields[field] for field in ("by", "call", "what", "error", "why")]
        return Refusal(int(fields["at_us"]), *map(str, texts))
    except (ValueError, KeyError, TypeError):
        return None
