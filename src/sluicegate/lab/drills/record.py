"""Record: what became of each request of a load, and the figures that are made of it.

A request is *good* if it was served within its stream's timeout, counted from the instant it was
due: what a generator or a connection kept it waiting is its callers' wait too. *Refused* is what
was answered with one of the errors that say so; every other error is neither.

A record also has how the generator did. One that sends late, is too busy or runs out of
connections measures itself: then the run is void, and `void_reasons` says why.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import SluicegateError
from sluicegate.contracts.reasons import REASONS
from sluicegate.lab.measures import quantile

# What a request has become; other numbers are places in `LoadRecord.error_words`.
UNSENT: Final = 0  # no connection had room for it
UNANSWERED: Final = 1
SERVED: Final = 2
FIRST_ERROR: Final = 3

REFUSALS: Final = frozenset(reason.resp_error for reason in REASONS.values())

LATE_US_MAX: Final = 5_000  # of the latest hundredth of all that is sent
BUSY_MAX: Final = 0.8
UNSENT_MAX: Final = 0.001  # of all that was due
US: Final = 1_000_000


NIL: Final = "NIL"


class ErrorText(SluicegateError):  # noqa: N818 - it names the thing
    """An error reply."""


def error_word(reply: object) -> str:
    """Return the first word of an error; empty if it was served."""
    if reply is None:
        return NIL
    if isinstance(reply, ErrorText):
        return str(reply).partition(" ")[0]
    return ""


@final
@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One stream's requests, in the order in which they were due."""

    timeout_us: int
    due_us: array[int]
    took_us: array[int]  # from the instant it was due to its reply
    results: array[int]


@final
@dataclass(frozen=True, slots=True)
class LoadRecord:
    """All streams of a load, by name, and how the generator did."""

    streams: Mapping[str, StreamRecord]
    error_words: tuple[str, ...]  # the first words of the error replies that came
    late_p99_us: int
    busy: float  # CPU time, as a share of the time it took
    unsent: int
    lost: int  # connections that the other side closed

    def error_of(self, result: int) -> str:
        """Return the error of a result; empty if it was served or unanswered."""
        return self.error_words[result - FIRST_ERROR] if result >= FIRST_ERROR else ""

    def void_reasons(self) -> list[str]:
        """Return why this run measured itself; nothing if it is valid."""
        found = []
        sent = sum(len(rows.due_us) for rows in self.streams.values())
        if self.late_p99_us > LATE_US_MAX:
            found.append(
                f"the generator was late: p99 {self.late_p99_us / 1e3:.1f} ms,"
                f" at most {LATE_US_MAX / 1e3:g} ms"
            )
        if self.busy > BUSY_MAX:
            found.append(f"the generator was {self.busy:.0%} busy, at most {BUSY_MAX:.0%}")
        if self.unsent > UNSENT_MAX * sent:
            found.append(f"{self.unsent:,} of {sent:,} found no connection with room for them")
        return found


@final
class RecordSlice:
    """The requests of some streams that were due from `begin_us` to before `end_us`."""

    __slots__ = ("_ends", "_record", "begin_us", "end_us")

    def __init__(
        self, record: LoadRecord, streams: Iterable[str], *, begin_us: int, end_us: int
    ) -> None:
        self._record = record
        self.begin_us = begin_us
        self.end_us = end_us
        self._ends: list[tuple[int, int, int, bool]] = []  # due, took, result, good
        for name in streams:
            rows = record.streams[name]
            limit_us = rows.timeout_us
            self._ends += [
                (due_us, took_us, result, result == SERVED and took_us <= limit_us)
                for due_us, took_us, result in zip(
                    rows.due_us, rows.took_us, rows.results, strict=True
                )
                if begin_us <= due_us < end_us
            ]

    @property
    def offered(self) -> int:
        """All of them."""
        return len(self._ends)

    @property
    def good(self) -> int:
        """Those served in time."""
        return sum(good for _, _, _, good in self._ends)

    @property
    def served(self) -> int:
        """Those served, in time or not."""
        return sum(result == SERVED for _, _, result, _ in self._ends)

    @property
    def success(self) -> float:
        """The share that was served in time; 0 of nothing."""
        return self.good / len(self._ends) if self._ends else 0.0

    @property
    def good_per_s(self) -> float:
        """Served in time, by when they were due."""
        return self.good * US / (self.end_us - self.begin_us)

    def answered_per_s(self, begin_us: int, end_us: int) -> float:
        """Served in time between the two instants, by when they were answered."""
        inside = sum(
            good and begin_us <= due_us + took_us < end_us
            for due_us, took_us, _, good in self._ends
        )
        return inside * US / (end_us - begin_us)

    def p_us(self, share: float) -> float:
        """The time within which that share of the good ones was served."""
        return quantile([took_us for _, took_us, _, good in self._ends if good], share)

    def refused_p_us(self, share: float) -> float:
        """The time within which that share of the refusals came."""
        return quantile(
            [took_us for _, took_us, result, _ in self._ends if self._is_refusal(result)], share
        )

    def errors(self) -> dict[str, int]:
        """How many were refused or failed with which word, the most frequent first."""
        found: dict[str, int] = {}
        for _, _, result, _ in self._ends:
            word = self._record.error_of(result)
            if word or result in (UNSENT, UNANSWERED):
                word = word or ("unsent" if result == UNSENT else "unanswered")
                found[word] = found.get(word, 0) + 1
        return dict(sorted(found.items(), key=lambda row: -row[1]))

    def over_time(self, bin_us: int) -> dict[str, list[tuple[float, float]]]:
        """Offered, good and refused a second, by when they were due; at the middles of bins."""
        bins = max((self.end_us - self.begin_us) // bin_us, 1)
        offered, good_in, refused = [0] * bins, [0] * bins, [0] * bins
        for due_us, _, result, good in self._ends:
            at = min((due_us - self.begin_us) // bin_us, bins - 1)
            offered[at] += 1
            good_in[at] += good
            refused[at] += self._is_refusal(result)
        middles = [(self.begin_us + (at + 0.5) * bin_us) / US for at in range(bins)]

        def curve(counts: list[int]) -> list[tuple[float, float]]:
            return [(x, count * US / bin_us) for x, count in zip(middles, counts, strict=True)]

        return {"offered": curve(offered), "good": curve(good_in), "refused": curve(refused)}

    def shares(self, bin_us: int) -> list[tuple[float, float]]:
        """The share of each bin that was served in time."""
        curves = self.over_time(bin_us)
        pairs = zip(curves["good"], curves["offered"], strict=True)
        return [(x, good / offered) for (x, good), (_, offered) in pairs if offered]

    def times_ms(self, bin_us: int, share: float = 0.99) -> list[tuple[float, float]]:
        """The time within which that share of the good ones of each bin was served."""
        bins: dict[int, list[int]] = {}
        for due_us, took_us, _, good in self._ends:
            if good:
                bins.setdefault((due_us - self.begin_us) // bin_us, []).append(took_us)
        return [
            ((self.begin_us + (at + 0.5) * bin_us) / US, quantile(bins[at], share) / 1e3)
            for at in sorted(bins)
        ]

    def _is_refusal(self, result: int) -> bool:
        return result >= FIRST_ERROR and self._record.error_of(result) in REFUSALS


def slice_of(record: LoadRecord, *streams: str, begin_us: int, end_us: int) -> RecordSlice:
    """The part of these streams, of all if none is named."""
    return RecordSlice(record, streams or record.streams, begin_us=begin_us, end_us=end_us)
