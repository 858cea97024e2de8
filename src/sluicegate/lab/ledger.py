"""RunLedger: what became of each unit of work, counted as it ends.

Only what ends after the warm-up is counted, and of the classes only what also arrived after it.
`measures` reads it.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.lab.rig import WorkKind

BUCKET_US: Final = 100_000


@final
class KindCounts:
    """The counts of one kind."""

    __slots__ = ("callers", "good", "good_us", "late", "offered", "refused", "refused_us")

    def __init__(self, callers: int) -> None:
        self.offered = 0
        self.good = 0  # answered in time
        self.late = 0  # served, and nobody waited for it any more
        self.refused = 0
        self.good_us: list[int] = []  # from arrival to answer
        self.refused_us: list[int] = []
        self.callers = [0] * callers  # good answers of each


@final
class RunLedger:
    """The counts of a run."""

    def __init__(self, kinds: tuple[WorkKind, ...], *, warm_us: int, span_us: int) -> None:
        self.by_kind = [KindCounts(kind.callers) for kind in kinds]
        self.warm_us = warm_us
        self.span_us = span_us
        buckets = span_us // BUCKET_US + 1
        self.good_at = [0] * buckets  # of every bucket of the run, warm-up and all
        self.offered_at = [0] * buckets
        self.useful_us_at = [0] * buckets  # work that was answered in time
        self.good_us_at: list[list[int]] = [[] for _ in range(buckets)]
        self.queue_peak = 0
        self.retries = 0
        self.started = 0  # calls: first attempts
        self.served = 0  # units whose service began and whose wait is in `waited_us`
        self.waited_us = 0
        self.work_us = 0  # workers' time that was spent
        self.useful_us = 0
        self.wasted_us = 0  # on answers that came too late

    def record_offer(self, kind: int, at_us: int, retry: bool) -> None:
        """Count a unit that has arrived."""
        bucket = at_us // BUCKET_US
        if bucket < len(self.offered_at):
            self.offered_at[bucket] += 1
        if at_us < self.warm_us:
            return
        self.by_kind[kind].offered += 1
        if retry:
            self.retries += 1
        else:
            self.started += 1

    def record_answer(
        self, kind: int, caller: int, arrived_us: int, at_us: int, work_us: int, in_time: bool
    ) -> None:
        """Count a unit that was served."""
        if in_time:
            bucket = at_us // BUCKET_US
            if bucket < len(self.good_at):
                self.good_at[bucket] += 1
                self.useful_us_at[bucket] += work_us
                self.good_us_at[bucket].append(at_us - arrived_us)
        if at_us < self.warm_us:
            return
        row = self.by_kind[kind]
        self.work_us += work_us
        if in_time:
            self.useful_us += work_us
            row.good += 1
            row.good_us.append(at_us - arrived_us)
            row.callers[caller] += 1
        else:
            self.wasted_us += work_us
            row.late += 1

    def record_refusal(self, kind: int, arrived_us: int, at_us: int) -> None:
        """Count a unit that was refused."""
        if at_us < self.warm_us:
            return
        row = self.by_kind[kind]
        row.refused += 1
        row.refused_us.append(at_us - arrived_us)
