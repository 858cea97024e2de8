"""Outcomes of a what-if run: how every captured request ended, and how workers spent their time.

A request is counted once, by how it ended: answered in time, given up by its caller, turned away
before the backend, or refused by the rules. With retries that is how its last attempt ended.

Memory is bounded, however long the capture: a wait is counted in a cell whose width is a thousandth
of it, and time is cut into `SLICES`.
"""

from __future__ import annotations

from math import ceil
from typing import Final, final

CLASSES: Final = 4
SLICES: Final = 60
_CELLS_BITS: Final = 10  # cells of a factor of two: 1,024 of them

# How a request ends.
GOOD: Final = 0  # answered in time
GAVE_UP: Final = 1  # its caller has waited in vain
TURNED_AWAY: Final = 2  # by policies before the backend, or because its queue was full
REFUSED: Final = 3  # by the rules
ENDS: Final = 4


@final
class WaitHistogram:
    """Durations, each to a thousandth of it."""

    __slots__ = ("_cells", "count")

    def __init__(self) -> None:
        self._cells: dict[int, int] = {}
        self.count = 0

    def add(self, us: int) -> None:
        """One more."""
        octave = us.bit_length() - _CELLS_BITS - 1
        cell = us if octave <= 0 else us >> octave << octave
        self._cells[cell] = self._cells.get(cell, 0) + 1
        self.count += 1

    def merge(self, other: WaitHistogram) -> None:
        """All of another's too."""
        for cell, count in other._cells.items():
            self._cells[cell] = self._cells.get(cell, 0) + count
        self.count += other.count

    def quantile(self, share: float) -> int | None:
        """What `share` of them do not pass (nearest rank); None if there are none."""
        left = max(ceil(share * self.count), 1)
        for cell in sorted(self._cells):
            left -= self._cells[cell]
            if left <= 0:
                return cell
        return None


@final
class OutcomeCounts:
    """The counts of one rulebook. Waits are of callers that the rules let in, by class."""

    def __init__(self, *, span_us: int, workers: int) -> None:
        self._span_us = span_us
        self._workers = workers
        self.ended = [0] * (CLASSES * ENDS)
        self.waits = [WaitHistogram() for _ in range(CLASSES)]
        self.slice_ended = [0] * (SLICES * CLASSES * ENDS)
        self.slice_waits = [WaitHistogram() for _ in range(SLICES)]
        self.by_rule: dict[str, int] = {}
        self.attempts = 0  # all that the rules were asked about
        self.unasked = 0
        self.busy_us = 0  # workers' time within the span
        self.useful_us = 0  # and how much of it went into answers in time
        self.queue_peak = 0
        self.queue_peaks = [0] * SLICES

    def slice_of(self, at_us: int) -> int:
        """Which slice of the span an instant is in; what comes later is in the last."""
        return min(at_us * SLICES // self._span_us, SLICES - 1)

    def record_end(self, of: int, how: int, first_us: int, now_us: int) -> None:
        """Count a request of that class, which first came at `first_us`, by how it ended."""
        self.ended[of * ENDS + how] += 1
        at = self.slice_of(first_us)
        self.slice_ended[(at * CLASSES + of) * ENDS + how] += 1
        if how <= GAVE_UP:
            self.waits[of].add(now_us - first_us)
            self.slice_waits[at].add(now_us - first_us)

    def record_refusal(self, rule_id: str) -> None:
        """Count an attempt that a rule refused."""
        self.by_rule[rule_id] = self.by_rule.get(rule_id, 0) + 1

    def record_work(self, begin_us: int, end_us: int, *, useful: bool) -> None:
        """Count a worker's time; what lies beyond the span is left out."""
        work_us = min(end_us, self._span_us) - min(begin_us, self._span_us)
        self.busy_us += work_us
        if useful:
            self.useful_us += work_us

    def record_queue(self, length: int, now_us: int) -> None:
        """Note how many wait now."""
        self.queue_peak = max(self.queue_peak, length)
        at = self.slice_of(now_us)
        self.queue_peaks[at] = max(self.queue_peaks[at], length)

    # What it comes to.

    def count(self, of: int, how: int) -> int:
        """How many of a class ended so."""
        return self.ended[of * ENDS + how]

    def offered(self, of: int) -> int:
        """How many of a class came."""
        return sum(self.ended[of * ENDS : (of + 1) * ENDS])

    def total(self, how: int) -> int:
        """How many of all ended so."""
        return sum(self.ended[how::ENDS])

    def all_waits(self) -> WaitHistogram:
        """Those of all classes."""
        every = WaitHistogram()
        for waits in self.waits:
            every.merge(waits)
        return every

    def utilization(self) -> float:
        """How much of their time the workers were busy."""
        return self.busy_us / (self._workers * self._span_us)

    def useful(self) -> float:
        """How much of their time went into answers in time."""
        return self.useful_us / (self._workers * self._span_us)
