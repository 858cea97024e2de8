"""Pair: two rule sets beside each other. Each request is decided by both, and counted once.

What is counted is kept by query, not by request: how often the current rules did this while the
candidate did that. Everything else (rules, callers, classes) follows from the query, so it is
worked out from these counts afterwards. What came while limits still had no history is counted
apart.

Counts of different queries have nothing in common. So requests may be replayed in parts, and the
counts of the parts added, as long as queries that share a counter are in one part.

Cost: two decisions of the limiter and a handful of additions for each request. Only `step` runs for
each request; it is called for a block of them, so that others get their turn between blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.rule import BURSTING, Algorithm, Limit
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.shadow.replay_parts import VirtualClock
from sluicegate.shadow.side import AnyRule, Query, ReplaySide

SLICES: Final = 60  # of the whole time, for the pictures
CLASSES: Final = 4
SLICE_CELLS: Final = 4 * CLASSES  # by class, by what the current did, by what the candidate did
PHASES: Final = 2  # while there is no history yet, and afterwards
EARLY: Final = 0
LATER: Final = 1


def history_us(limit: Limit) -> int:
    """How long before now a limit may look: what came earlier says nothing any more."""
    if limit.algorithm in BURSTING:
        return -(-limit.burst * limit.period_us // limit.count)
    if limit.algorithm is Algorithm.SLIDING_WINDOW:
        return limit.period_us + limit.period_us // limit.cells
    return limit.period_us


def rule_history_us(rule: AnyRule) -> int:
    """The longest of its limits."""
    if isinstance(rule, ResourceRule):
        return history_us(rule.kind.limit)
    limits = [counting.limit for counting in rule.form.countings]
    return max([history_us(limit) for limit in limits if limit is not None], default=0)


class PairCounts(NamedTuple):
    """What a pair has counted; queries by their place in it."""

    tally: bytes
    slices: tuple[int, ...]
    agreement: tuple[int, ...]
    invalid: int
    replayed: int
    first_us: dict[int, int]
    current: dict[tuple[int, str], int]  # trials
    candidate: dict[tuple[int, str], int]


@final
class ReplayPair:
    """The two sides and what they did.

    `began_us` and `ends_us` are of the whole capture, also where only a part of it is replayed.
    `by_candidate` takes the classes of requests from the candidate, where there is no current rule
    set.
    """

    __slots__ = (
        "_base",
        "_began_us",
        "_clock",
        "_ends_us",
        "_until_us",
        "_width",
        "agreement",
        "by_candidate",
        "candidate",
        "classes",
        "current",
        "first_us",
        "invalid",
        "replayed",
        "slices",
        "tally",
    )

    def __init__(
        self,
        current: ReplaySide,
        candidate: ReplaySide,
        clock: VirtualClock,
        *,
        began_us: int,
        ends_us: int,
        by_candidate: bool = False,
    ) -> None:
        self.current: Final = current
        self.candidate: Final = candidate
        self.by_candidate: Final = by_candidate
        self._clock: Final = clock
        self._began_us: Final = began_us
        self._ends_us: Final = ends_us
        self._base: list[int] = []
        self._width: list[int] = []
        self._until_us: list[int] = []
        self.classes: list[int] = []
        self.tally: list[int] = []
        self.first_us: dict[int, int] = {}  # by query: when it was first newly refused
        self.slices: list[int] = [0] * (SLICES * SLICE_CELLS)
        self.agreement: list[int] = [0] * (PHASES * 4)  # by outcome then and now
        self.invalid = 0
        self.replayed = 0

    def prepare(self, query: Query) -> None:
        """Add the next query."""
        one = self.current.prepare(query)
        other = self.candidate.prepare(query)
        width = len(other.rules) + 1
        self._base.append(len(self.tally))
        self._width.append(width)
        self.tally += [0] * (PHASES * (len(one.rules) + 1) * width)
        longest_us = 0
        for rule in (*one.rules, *other.rules):
            longest_us = max(longest_us, rule_history_us(rule))
        self._until_us.append(self._began_us + longest_us)
        self.classes.append(int(other.priority if self.by_candidate else one.priority))

    def outcomes_of(self, query: int, phase: int) -> list[tuple[int, int, int]]:
        """The outcomes of a query: the current's code, the candidate's, how often; never none."""
        width = self._width[query]
        rows = len(self.current.prepared[query].rules) + 1
        begin = self._base[query] + phase * rows * width
        return [
            (cell // width, cell % width, self.tally[begin + cell])
            for cell in range(rows * width)
            if self.tally[begin + cell]
        ]

    def step(
        self,
        at_us: array[int],
        which: array[int],
        outcomes: array[int],
        begin: int,
        end: int,
    ) -> None:
        """Replay the requests from `begin` to before `end`; their instants never go back."""
        clock, current, candidate = self._clock, self.current, self.candidate
        tally, slices, agreement = self.tally, self.slices, self.agreement
        span_us = self._ends_us - self._began_us + 1
        at_slice, slice_ends_us = 0, -1
        for at in range(begin, end):
            now_us = at_us[at]
            clock.at_us = now_us
            query = which[at]
            did = current.decide(query, now_us)
            would = candidate.decide(query, now_us)
            if did < 0 or would < 0:
                self.invalid += 1
                continue
            if now_us >= slice_ends_us:
                place = (now_us - self._began_us) * SLICES // span_us
                at_slice = place * SLICE_CELLS
                slice_ends_us = self._began_us - (-(place + 1) * span_us // SLICES)
            phase = LATER if now_us >= self._until_us[query] else EARLY
            width = self._width[query]
            cell = self._base[query] + did * width + would
            if phase == LATER:
                cell += (len(current.prepared[query].rules) + 1) * width
            tally[cell] += 1
            cell = at_slice + 4 * self.classes[query]
            if did > 0:
                cell += 2
            if would > 0:
                cell += 1
                if did == 0 and query not in self.first_us:
                    self.first_us[query] = now_us
            slices[cell] += 1
            outcome = outcomes[at]
            if outcome >= 0:
                agreement[4 * phase + 2 * outcome + (1 if did > 0 else 0)] += 1
        self.replayed += end - begin

    # Parts.

    def counts(self) -> PairCounts:
        """What was counted, as it travels between processes."""
        return PairCounts(
            array("Q", self.tally).tobytes(),
            tuple(self.slices),
            tuple(self.agreement),
            self.invalid,
            self.replayed,
            self.first_us,
            self.current.trials,
            self.candidate.trials,
        )

    def add(self, counts: PairCounts, queries: Sequence[int]) -> None:
        """Add what was counted of a part, whose queries are these of ours in this order."""
        tally, place = array("Q"), 0
        tally.frombytes(counts.tally)
        for query in queries:
            begin = self._base[query]
            for cell in range(begin, begin + self._cells(query)):
                self.tally[cell] += tally[place]
                place += 1
        for cell, count in enumerate(counts.slices):
            self.slices[cell] += count
        for cell, count in enumerate(counts.agreement):
            self.agreement[cell] += count
        self.invalid += counts.invalid
        self.replayed += counts.replayed
        for query, first_us in counts.first_us.items():
            self.first_us[queries[query]] = first_us
        for side, trials in ((self.current, counts.current), (self.candidate, counts.candidate)):
            for (query, rule_id), count in trials.items():
                side.trials[queries[query], rule_id] = count

    def _cells(self, query: int) -> int:
        return PHASES * (len(self.current.prepared[query].rules) + 1) * self._width[query]
