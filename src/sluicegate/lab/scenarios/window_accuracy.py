"""Window accuracy: is a source above its limit now, asked of a window that forgets when.

A sliding window in a few counters supposes that what is expiring came evenly. On bursts it did not,
and then some requests are judged wrongly. Cloudflare has published for its two counters 0.003% of
requests and a mean error of the rate of 6%, on its own traffic. The goal is no more wrong than that
and half the error, on three traces with a limit well above what honest sources send: a public site,
crowds behind shared addresses, and bursts of all lengths.

A flood by a few is the fourth. As it passes the limit some of its own requests are misjudged, and
where most requests are the flood's that may be 0.2% of them. What can be asked is how far from the
limit whoever is misjudged may be. A flood of 15 limits fills a cell with one and a half; where it
began or ended in the middle of that, a quarter of them is taken for others' time: 0.38 limits. With
two counters it is ten times as much, and who has sent next to nothing is refused.

The fifth, where crowds hover at the limit, shows what that takes; there the error of the rate and
the distance are goals.

The rig: traces of many sources, and how near a sliding window's count comes to the truth.

A trace is made from a seed: instants and sources, most of them far below the limit as on any public
site, a few far above it. Every request counts, refused or not, so that what is asked is whether a
source is above its limit now; whoever differs from the exact log in that has misjudged a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import log
from typing import Final, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.sliding_window import CELLS_DEFAULT, cells_roll
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import (
    AS_BARS,
    KERNELS,
    Curves,
    Figures,
    PlotSpec,
    Scenario,
    candidate_maker,
)

WINDOW_US: Final = 60_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources alike: each is on and off in turn, `per_window` on average while it is on.

    `on_us` and `off_us` are the means of exponential whiles; without `off_us` it is always on.
    `spread` is how unequal their rates are: they lie between a `spread`-th of the mean and it.
    """

    count: int
    per_window: float
    on_us: int = WINDOW_US
    off_us: int = 0
    spread: float = 1.0

    def instants_us(self, chance: Chance, span_us: int) -> Iterator[int]:
        """When one of them sends."""
        gap_us = WINDOW_US / self.per_window * self.spread ** chance.draw()
        cycle_us = self.on_us + self.off_us
        end_us = begin_us = -chance.draw() * cycle_us if self.off_us else 0.0
        while begin_us < span_us:
            end_us = begin_us - self.on_us * log(1 - chance.draw()) if self.off_us else span_us
            at_us = begin_us - gap_us * log(1 - chance.draw())
            while at_us < min(end_us, span_us):
                if at_us >= 0:
                    yield int(at_us)
                at_us -= gap_us * log(1 - chance.draw())
            begin_us = end_us - self.off_us * log(1 - chance.draw()) if self.off_us else end_us


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRig:
    """Who sends, against a limit of so many in a window of a minute."""

    sources: tuple[Sources, ...]
    limit: int
    span_us: int = 10 * WINDOW_US

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise BadValue("limit", self.limit, "give at least 1")

    def trace(self, seed: int) -> list[tuple[int, int]]:
        """Instants and sources, in order."""
        random_source = RandomSource(seed)
        found: list[tuple[int, int]] = []
        number = 0
        for group in self.sources:
            for _ in range(group.count):
                chance = random_source.of(f"source/{number}")
                found += [(at_us, number) for at_us in group.instants_us(chance, self.span_us)]
                number += 1
        return sorted(found)


class _WindowCount(Protocol):
    """Counts a request of one source; how many there were in the window that ends now."""

    def count(self, now_us: int) -> float: ...


@final
class CellsCount:
    """`kernels.sliding_window` in `cells`, every request counted; one cell is the two counters."""

    __slots__ = ("_cell_us", "_cells", "_state")

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._cell_us = WINDOW_US // cells
        self._state: tuple[int, ...] = ()

    def count(self, now_us: int) -> float:
        """The whole cells, and of the one that expires what is left of it."""
        state = cells_roll(self._state, now_us // self._cell_us, self._cells)
        state = self._state = (*state[:-1], state[-1] + 1)
        left = 1 - (now_us - state[0] * self._cell_us) / self._cell_us
        return sum(state[2:]) + state[1] * left


@final
class FixedCount:
    """The count of the clock's minute."""

    __slots__ = ("_count", "_window")

    def __init__(self) -> None:
        self._window = -1
        self._count = 0

    def count(self, now_us: int) -> float:
        """Since the minute began."""
        window = now_us // WINDOW_US
        if window != self._window:
            self._window, self._count = window, 0
        self._count += 1
        return float(self._count)


@final
class ExactCount:
    """Every instant of the last window: the truth."""

    __slots__ = ("_instants",)

    def __init__(self) -> None:
        self._instants: deque[int] = deque()

    def count(self, now_us: int) -> float:
        """How many there are."""
        instants = self._instants
        instants.append(now_us)
        while instants[0] <= now_us - WINDOW_US:
            instants.popleft()
        return float(len(instants))


@final
@dataclass(slots=True)
class TraceRun:
    """What was counted against the truth, request by request."""

    requests: int = 0
    over: int = 0  # requests of a source above its limit
    false_above: int = 0
    false_below: int = 0
    error_sum: float = 0.0
    farthest: float = 0.0  # from the limit was the truth of a request that was misjudged
    busiest: list[tuple[int, float, int]] = field(default_factory=list)  # when, count, truth


def play(rig: TraceRig, make: Callable[[], _WindowCount], seed: int) -> TraceRun:
    """One run; what comes in the first window is counted, and not judged."""
    run = TraceRun()
    counters: dict[int, tuple[_WindowCount, ExactCount]] = {}
    trace = rig.trace(seed)
    shown = max((source for _, source in trace), default=0)
    for at_us, source in trace:
        pair = counters.get(source)
        if pair is None:
            pair = counters[source] = (make(), ExactCount())
        count, truth = pair[0].count(at_us), pair[1].count(at_us)
        if at_us < WINDOW_US:
            continue
        if source == shown:
            run.busiest.append((at_us, count, int(truth)))
        run.requests += 1
        run.error_sum += abs(count / truth - 1)
        above, is_above = count > rig.limit, truth > rig.limit
        run.over += is_above
        if above is not is_above:
            run.farthest = max(run.farthest, abs(truth / rig.limit - 1))
        run.false_above += above and not is_above
        run.false_below += is_above and not above
    return run


candidate: Final = candidate_maker(play, KERNELS)


SECOND: Final = 1_000_000
LIMIT: Final = 600

CROWD: Final = Sources(count=10, per_window=1_000, on_us=30 * SECOND, off_us=90 * SECOND)

RIGS: Final = {
    "site": TraceRig(
        sources=(Sources(count=120, per_window=120, spread=20), Sources(count=2, per_window=1_800)),
        limit=LIMIT,
    ),
    "flood": TraceRig(
        sources=(
            Sources(count=60, per_window=120, spread=20),
            Sources(count=3, per_window=9_000, on_us=90 * SECOND, off_us=60 * SECOND),
        ),
        limit=LIMIT,
    ),
    "shared": TraceRig(sources=(CROWD,), limit=4 * LIMIT),
    "bursts": TraceRig(
        sources=tuple(
            Sources(count=10, per_window=200, on_us=on_us, off_us=3 * on_us)
            for on_us in (2 * SECOND, 8 * SECOND, 30 * SECOND, 120 * SECOND)
        ),
        limit=LIMIT,
    ),
    "tight": TraceRig(sources=(CROWD,), limit=900),
}


def measure(rig: TraceRig, run: TraceRun) -> Figures:
    """Shares of all requests, and the mean error of the count."""
    wrong = run.false_above + run.false_below
    return {
        "misclassified": wrong / run.requests,
        "rate_error": run.error_sum / run.requests,
        "farthest": run.farthest,
        "over": run.over / run.requests,
        "requests": float(run.requests),
    }


def curves(rig: TraceRig, run: TraceRun) -> Curves:
    """The count of the busiest source beside the truth, at most 250 points each."""
    step = max(len(run.busiest) // 250, 1)
    points = run.busiest[::step][:250]
    return {
        "counted": [(at_us / SECOND, count) for at_us, count, _ in points],
        "truth": [(at_us / SECOND, float(truth)) for at_us, _, truth in points],
    }


SCENARIO: Final = Scenario(
    number=22,
    name="window-accuracy",
    title="A sliding window's count on bursty traces",
    why="Who keeps to a limit must not be punished for the way it is counted.",
    rigs=RIGS,
    candidates={
        "cells": candidate(lambda: CellsCount(CELLS_DEFAULT)),
        "two-counters": candidate(lambda: CellsCount(1)),
        "without-sliding": candidate(FixedCount),
    },
    ours="cells",
    must_fail=("two-counters", "without-sliding"),
    goals=(
        Goal(
            figure="misclassified",
            at_most=0.00003,
            cases=("site", "shared", "bursts"),
        ),
        Goal(figure="farthest", at_most=0.45),
        Goal(figure="rate_error", at_most=0.03),
    ),
    measure=measure,
    curves=curves,
    columns=("misclassified", "farthest", "rate_error", "over", "requests"),
    plots=(
        PlotSpec("Error of the rate", ("rate_error",), AS_BARS, "share"),
        PlotSpec("Requests misjudged", ("misclassified",), AS_BARS, "share"),
    ),
    scale="Traces of 18,000 to 175,000 requests by 10 to 122 sources, ten windows of a minute.",
    limits="A flood that resumes while the last one expires is misjudged as it passes the limit: "
    "of the seeds 1000 to 1039 seven misjudge more than 0.003% of `flood`, the worst 0.29%, and "
    "the mean is 0.025% (two counters: 0.4%). Where sources hover at the limit, 0.4% of theirs "
    "are misjudged (`tight`; two counters 5 to 8%): a count that is half a percent off is on the "
    "wrong side that often. "
    "No count short of the exact log does better.",
)
