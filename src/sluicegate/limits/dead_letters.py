"""Dead letters: decisions taken without the store go to a log, and no decision waits for it.

`offer` is called on the way of an answer: it takes a place in a bounded ring, and nothing else. One
thread carries letters from the ring to the log, in batches, and tries again for as long as there is
room. When the ring is full, because the log is slow or dead, a letter is dropped and counted; its
number stays unused, so the gap shows in the log what was lost there, and how much it weighed.

A batch that was not acknowledged is sent again, and may then stand in the log twice: the copies
have one id. The ring, the letters under way and the retries are one bound, `buffer_max`.

This lives beside the limiter, above the stores: it knows what a decision is and the promise of an
event log, and not which log it is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from threading import Event as Flag
from threading import Lock, Thread
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.clock import Clock
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.event_log import EventLog
from sluicegate.limits.dead_letter import (
    BEGUN,
    CLOSED,
    DEAD_LETTER,
    DeadLetter,
    ProcessMark,
    pack,
    pack_mark,
)

BUFFER_MAX_DEFAULT: Final = 100_000
BATCH_MAX_DEFAULT: Final = 1_000
LINGER_US_DEFAULT: Final = 50_000
RETRY_US_DEFAULT: Final = 500_000
GRACE_US_DEFAULT: Final = 5_000_000
NODE_CHARS_MAX: Final = 200
_STEP_S: Final = 0.05  # between looks at the clock while a batch is under way


class DeadLetterStats(NamedTuple):
    """What became of all letters so far: `offered` is the sum of `written`, `dropped`, `depth`."""

    offered: int
    written: int
    dropped: int
    depth: int  # in the ring, or under way
    retries: int  # batches that were sent again, in part or whole
    last_error: str


@final
class DeadLetters:
    """Carries letters to a log. `node` names this machine or pod; the log is closed with us.

    `refusals` is the share of plain refusals that are wanted too, 0 to 1.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        node: str,
        clock: Clock,
        buffer_max: int = BUFFER_MAX_DEFAULT,
        batch_max: int = BATCH_MAX_DEFAULT,
        linger_us: int = LINGER_US_DEFAULT,
        retry_us: int = RETRY_US_DEFAULT,
        refusals: float = 0.0,
        chance: Chance | None = None,
    ) -> None:
        for name, value, least in (
            ("buffer_max", buffer_max, 1),
            ("batch_max", batch_max, 1),
            ("linger_us", linger_us, 1),
            ("retry_us", retry_us, 1),
        ):
            if value < least:
                raise BadValue(f"dead_letters.{name}", value, f"give at least {least}")
        if not 0 <= refusals <= 1 or (0 < refusals < 1 and chance is None):
            raise BadValue(
                "dead_letters.refusals", refusals, "give a share from 0 to 1, and a chance to draw"
            )
        if not 1 <= len(node) <= NODE_CHARS_MAX:
            raise BadValue(
                "dead_letters.node", node, f"give a name of 1 to {NODE_CHARS_MAX} characters"
            )
        self._log = log
        self._clock = clock
        self._buffer_max = buffer_max
        self.batch_max = batch_max
        self._linger_s = linger_us / 1e6
        self._retry_s = retry_us / 1e6
        self._refusals = refusals
        self._chance = chance
        # Another start of the same process number is another process.
        self.process = f"{node}/{os.getpid()}/{clock.now_us()}"
        self._lock = Lock()
        self._wake = Flag()
        self._ring: deque[DeadLetter] = deque()
        self._held = 0  # letters in the ring or under way
        self._number = self._before = 0  # of the next letter
        self._written = self._dropped = self._retries = 0
        self._last_error = ""
        self._begin_marked = False
        self._closing = self._ended = False
        self._until_us = 0  # when closing: how long there is
        self._carrier = Thread(target=self._run, name="sluicegate-dead-letters", daemon=True)
        self._carrier.start()

    # On the way of a decision.

    def accepts(self, decision: Decision) -> bool:
        """Whether this decision is to be kept: taken without the store, or a sampled refusal."""
        if decision.degraded:
            return True
        if decision.allowed or not self._refusals:
            return False
        chance = self._chance
        return self._refusals >= 1 or (chance is not None and chance.draw() < self._refusals)

    def offer(self, letter: DeadLetter) -> int:
        """Have the letter kept if there is room; its number here. Never waits, never raises."""
        with self._lock:
            number = letter.number = self._number
            letter.before = self._before
            letter.process = self.process
            self._number = number + 1
            self._before += letter.cost
            if self._held >= self._buffer_max or self._closing:
                self._dropped += 1
            else:
                self._held += 1
                self._ring.append(letter)
        return number

    # For whoever looks after it.

    def stats(self) -> DeadLetterStats:
        """Return what became of the letters so far."""
        with self._lock:
            return DeadLetterStats(
                self._number,
                self._written,
                self._dropped,
                self._held,
                self._retries,
                self._last_error,
            )

    def close(self, grace_us: int = GRACE_US_DEFAULT) -> DeadLetterStats:
        """Write what is there within a grace period, drop and count the rest, close the log."""
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            self._until_us = self._clock.now_us() + grace_us
            self._wake.set()
            self._carrier.join(grace_us / 1e6 + 10 * _STEP_S)
            self._ended = True
            self._log.close()
            self._carrier.join(10 * _STEP_S)
        return self.stats()

    # The thread.

    def _run(self) -> None:
        pause_s = self._linger_s
        while True:
            if not self._closing:
                self._wake.wait(pause_s)
            if self._closing and self._late():
                break
            pause_s = self._linger_s
            if not self._begin_marked:
                self._begin_marked = self._mark(BEGUN, 0, 0)
            batch = self._take()
            if not batch:
                if self._closing:
                    break
            elif not self._carry(batch):
                pause_s = self._retry_s
                if self._closing:
                    Flag().wait(min(pause_s, _STEP_S))
            elif len(batch) == self.batch_max:
                pause_s = 0.0
        self._end()

    def _late(self) -> bool:
        return self._ended or self._clock.now_us() >= self._until_us

    def _take(self) -> list[DeadLetter]:
        # Without the lock, so that no decision ever waits for a batch: only this thread takes out.
        ring = self._ring
        return [ring.popleft() for _ in range(min(len(ring), self.batch_max))]

    def _carry(self, batch: Sequence[DeadLetter]) -> bool:
        """Write a batch; what fails goes back to the head of the ring. Whether all was written."""
        under_way: list[tuple[DeadLetter, Future[int]]] = []
        unwritable = 0
        for letter in batch:
            try:
                under_way.append(
                    (letter, self._log.append(DEAD_LETTER, pack(letter), letter.at_us))
                )
            except Exception as error:  # the next one may be writable
                unwritable += 1
                self._last_error = str(error)
        self._await([promise for _, promise in under_way])
        again = [letter for letter, promise in under_way if not self._was_written(promise)]
        self._ring.extendleft(reversed(again))
        with self._lock:
            self._written += len(under_way) - len(again)
            self._dropped += unwritable
            self._held -= len(batch) - len(again)
            self._retries += 1 if again else 0
        return not again

    def _await(self, promises: Sequence[Future[int]]) -> None:
        """Until all are kept or broken; a log breaks in time what it cannot keep."""
        while wait(promises, _STEP_S).not_done:
            if self._closing and self._late():
                return

    def _was_written(self, promise: Future[int]) -> bool:
        if not promise.done():
            self._last_error = "the grace period ended before the log had answered"
            return False
        error = promise.exception()
        if error is not None:
            self._last_error = str(error)
        return error is None

    def _mark(self, kind: str, number: int, before: int) -> bool:
        now_us = self._clock.now_us()
        mark = ProcessMark(kind, self.process, number, before, now_us)
        try:
            promise = self._log.append(kind, pack_mark(mark), now_us)
        except Exception as error:  # the letters matter more than their frame
            self._last_error = str(error)
            return False
        self._await([promise])
        return self._was_written(promise)

    def _end(self) -> None:
        with self._lock:
            self._dropped += len(self._ring)
            self._held -= len(self._ring)
            self._ring.clear()
            number, before = self._number, self._before
        if not self._late():
            self._mark(CLOSED, number, before)
