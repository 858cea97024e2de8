"""Outcome: the fate of the requests of a run, in tenths of a second.

Requests count at their arrival. Work counts twice: at the arrival of its request, and at its end.
Under overload only the latter is fair: by arrival, a candidate that serves the oldest first would
gain, and a candidate that rejects early would lose the work that others do after the last arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.measures import quantile
from sluicegate.lab.zoo.shape import DEADLINE, SETTLED_US, ZooRequest, ZooShape

BUCKET_US: Final = 100_000
END_US: Final = 1 << 60
OPEN, SERVED, LATE, REFUSED, LEFT = range(5)


@final
class Record:
    """The fate of each request, as the run continues."""

    def __init__(self, shape: ZooShape, load: Sequence[ZooRequest]) -> None:
        self.shape = shape
        self.load = load
        self.fate = [OPEN] * len(load)
        self.first_us = [0] * len(load)  # of the answer or the refusal
        self.begun = [False] * len(load)  # it reached the resource or the application
        self.health_us: list[int] = []

    def answer(self, ask: ZooRequest, at_us: int) -> None:
        """Note the first byte of an answer."""
        if self.fate[ask.number] == OPEN and not self.first_us[ask.number]:
            self.first_us[ask.number] = at_us

    def end(self, ask: ZooRequest) -> None:
        """Note the last byte of an answer."""
        if self.fate[ask.number] == OPEN:
            took_us = self.first_us[ask.number] - ask.at_us
            in_time = took_us <= self.shape.traffic[ask.kind].patience_of()
            self.fate[ask.number] = SERVED if in_time else LATE

    def refuse(self, ask: ZooRequest, at_us: int) -> None:
        """Note a refusal; of a request that was in service it is a late answer."""
        if self.fate[ask.number] == OPEN:
            self.fate[ask.number] = LATE if self.begun[ask.number] else REFUSED
            self.first_us[ask.number] = at_us

    def leave(self, ask: ZooRequest) -> bool:
        """Note that the caller has hung up; return whether it had no answer yet."""
        waits = self.fate[ask.number] == OPEN and not self.first_us[ask.number]
        if waits:
            self.fate[ask.number] = LEFT
        return waits

    def has_left(self, ask: ZooRequest) -> bool:
        """Return whether the caller has hung up."""
        return self.fate[ask.number] == LEFT

    def _least_us(self, kind: int) -> float:
        """Return what a quarter of the work of a kind takes at most.

        With less time left a refusal is inevitable: the work of most requests cannot finish.
        """
        work_us = sorted(ask.work_us for ask in self.load if ask.kind == kind)
        return quantile(work_us, 0.25) if work_us else 0.0

    def outcome(self) -> ShapeOutcome:
        """Return the sums."""
        found = ShapeOutcome(self.shape.until_us // BUCKET_US + 1)
        waits_us, untold_us = [], []
        late: list[tuple[int, float]] = []  # when it arrived, and how late it was rejected
        least_us = [self._least_us(number) for number in range(len(self.shape.traffic))]
        refused = silent = 0
        for ask in self.load:
            kind, fate = self.shape.traffic[ask.kind], self.fate[ask.number]
            served = fate == SERVED
            slow = ask.shard == self.shape.slow_shard
            found.count(ask, kind.criticality, slow, self.first_us[ask.number] if served else 0)
            took_us = self.first_us[ask.number] - ask.at_us
            told = kind.tells == DEADLINE and kind.patience_us > 0
            inevitable_us = max(kind.patience_us - least_us[ask.kind], 0)
            if served:
                waits_us.append(took_us)
            elif fate == REFUSED:
                refused += 1
                if told:
                    late.append((ask.at_us, max(took_us - inevitable_us, 0)))
                elif kind.patience_us:
                    untold_us.append(took_us / kind.patience_us)
            elif not self.begun[ask.number]:
                silent += 1
                if fate == OPEN and told:
                    left_us = self.shape.span_us - ask.at_us
                    late.append((ask.at_us, max(left_us - inevitable_us, 0)))
        found.p99_us = quantile(waits_us, 0.99)
        found.refusal_late_us = _p99(late, 0)
        found.settled_late_us = _p99(late, self.shape.onset_us + SETTLED_US)
        found.refusal_patience = quantile(untold_us, 0.99) if untold_us else 0.0
        found.refused, found.silent = refused, silent
        found.health_us = max(self.health_us, default=0)
        return found


@final
@dataclass(slots=True)
class ShapeOutcome:
    """The sums of a run; a list has an entry for each tenth of a second."""

    buckets: int
    offered_us: list[int] = field(default_factory=list)  # work
    useful_us: list[int] = field(default_factory=list)  # of answers in time, by arrival
    done_us: list[int] = field(default_factory=list)  # the same, by its end
    slow_us: list[int] = field(default_factory=list)  # the same of the slow shard
    offered: dict[str, list[int]] = field(default_factory=dict)  # requests, by class
    served: dict[str, list[int]] = field(default_factory=dict)
    p99_us: float = inf
    refused: int = 0
    silent: int = 0  # unserved, and never rejected
    refusal_late_us: float = 0.0  # p99, after the instant at which the refusal was inevitable
    settled_late_us: float = 0.0  # the same of what arrived once a search had its time
    refusal_patience: float = 0.0  # p99, as a share of the patience of callers that told none
    health_us: int = 0

    def __post_init__(self) -> None:
        self.offered_us, self.useful_us, self.done_us, self.slow_us = (
            [0] * self.buckets for _ in range(4)
        )

    def count(self, ask: ZooRequest, of: Criticality, slow: bool, done_at_us: int) -> None:
        """Count one request, done then or 0; those of the slow shard also as their own class."""
        bucket, served = ask.at_us // BUCKET_US, done_at_us > 0
        self.offered_us[bucket] += ask.work_us
        self.useful_us[bucket] += ask.work_us * served
        if served and (end := done_at_us // BUCKET_US) < self.buckets:
            self.done_us[end] += ask.work_us
            self.slow_us[end] += ask.work_us * slow
        for name in (of.name, f"slow {of.name}") if slow else (of.name,):
            if name not in self.offered:
                self.offered[name], self.served[name] = ([0] * self.buckets for _ in range(2))
            self.offered[name][bucket] += 1
            self.served[name][bucket] += served

    def share(self, of: str = "", from_us: int = 0, to_us: int = END_US) -> float:
        """Return the served share of a class, or of all; 1 if nothing arrived."""
        names = [of] if of else [name for name in self.offered if not name.startswith("slow")]
        none: list[int] = []
        offered = sum(total(self.offered.get(name, none), from_us, to_us) for name in names)
        served = sum(total(self.served.get(name, none), from_us, to_us) for name in names)
        return served / offered if offered else 1.0


def total(counts: Sequence[int], from_us: int = 0, to_us: int = END_US) -> int:
    """Return the sum of the tenths of a second between two instants."""
    return sum(counts[from_us // BUCKET_US : to_us // BUCKET_US])


def _p99(late: list[tuple[int, float]], from_us: int) -> float:
    chosen = [late_us for at_us, late_us in late if at_us >= from_us]
    return quantile(chosen, 0.99) if chosen else 0.0
