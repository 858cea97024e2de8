"""Gates: a limit on how many are at work, before workers whose number changes.

Calls come faster than they can be served; the gate admits or refuses each at once, and the admitted
wait for a worker in the order in which they came. A worker that is taken away ends its work first.
A run plays on a heap of events, without a task for each call. What counts is the limit itself, over
time, beside the number of workers, which by Little's law is the best limit there is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome, Permit
from sluicegate.contracts.policy import Policy
from sluicegate.contracts.request import Request
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.measures import quantile
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import Curves, Figures, candidate_maker

SAMPLE_US: Final = 100_000
_REQUEST: Final = Request("call")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GateRig:
    """`workers` are numbers of them, each from an instant on."""

    arrivals: Arrivals
    workers: tuple[tuple[int, int], ...]
    service: Duration = Exponential(20_000.0)  # noqa: RUF009 - frozen
    span_us: int = 60_000_000

    def __post_init__(self) -> None:
        begins = [begin_us for begin_us, _ in self.workers]
        if not begins or begins[0] != 0 or begins != sorted(set(begins)):
            raise BadValue("workers", self.workers, "begin at 0 and go on in ascending order")
        if any(count < 1 for _, count in self.workers):
            raise BadValue("workers", self.workers, "give at least one at any time")

    def workers_at(self, at_us: int) -> int:
        """How many there are at that instant."""
        return self.workers[bisect_right(self.workers, at_us, key=lambda step: step[0]) - 1][1]


class _Gate(Policy, Protocol):
    """A policy with a limit on how many are at work."""

    @property
    def limit(self) -> int: ...


MakeGate: TypeAlias = Callable[[GateRig, RandomSource], _Gate]


@final
class GateRun:
    """The limit ten times a second, and the calls that were answered by when they were."""

    __slots__ = ("answered", "limits", "took_us")

    def __init__(self, span_us: int) -> None:
        samples = span_us // SAMPLE_US
        self.limits = [0] * samples
        self.answered = [0] * (samples + 1)
        self.took_us: list[list[int]] = [[] for _ in range(samples + 1)]


def play(rig: GateRig, make_gate: MakeGate, seed: int) -> GateRun:
    """Play one run."""
    random_source = RandomSource(seed)
    run = GateRun(rig.span_us)
    station = _Station(rig, random_source, run)
    gate = make_gate(rig, random_source)
    sample = 0
    for now_us in rig.arrivals.instants_us(random_source.of("arrivals")):
        station.serve_until(min(now_us, rig.span_us))
        while sample < len(run.limits) and sample * SAMPLE_US <= now_us:
            run.limits[sample] = gate.limit
            sample += 1
        if now_us >= rig.span_us:
            break
        permit = gate.admit(_REQUEST, now_us)
        if not isinstance(permit, Decision):
            station.take(permit, now_us)
    return run


@final
class _Station:
    """Workers, and the calls that wait for them."""

    def __init__(self, rig: GateRig, random_source: RandomSource, run: GateRun) -> None:
        self._rig = rig
        self._run = run
        self._service = rig.service.sampler(random_source.of("service"))
        self._ends: list[tuple[int, int, int, Permit]] = []
        self._waiting: deque[tuple[Permit, int]] = deque()
        self._busy = 0
        self._next = 0
        self._workers = 0
        self._steps = deque(rig.workers)

    def take(self, permit: Permit, now_us: int) -> None:
        """Serve an admitted call as soon as there is a worker."""
        self._waiting.append((permit, now_us))
        self._begin(now_us)

    def serve_until(self, until_us: int) -> None:
        ends, steps = self._ends, self._steps
        while True:
            step_us = steps[0][0] if steps else until_us + 1
            end_us = ends[0][0] if ends else until_us + 1
            if min(step_us, end_us) > until_us:
                return
            if step_us <= end_us:
                self._workers = steps.popleft()[1]
                self._begin(step_us)
            else:
                self._end()

    def _end(self) -> None:
        now_us, _, arrived_us, permit = heapq.heappop(self._ends)
        self._busy -= 1
        sample = now_us // SAMPLE_US
        self._run.answered[sample] += 1
        self._run.took_us[sample].append(now_us - arrived_us)
        permit.end(Outcome.SUCCESS, now_us)
        self._begin(now_us)

    def _begin(self, now_us: int) -> None:
        while self._waiting and self._busy < self._workers:
            permit, arrived_us = self._waiting.popleft()
            self._busy += 1
            self._next += 1
            heapq.heappush(self._ends, (now_us + self._service(), self._next, arrived_us, permit))


SECOND_US: Final = 1_000_000
SETTLE_US: Final = 10 * SECOND_US
NEAR: Final = 0.25  # of the number of workers


def settled(rig: GateRig, run: GateRun) -> list[tuple[int, list[int]]]:
    """Of each phase the workers, and the limits from ten seconds after its beginning."""
    ends = [begin_us for begin_us, _ in rig.workers[1:]] + [rig.span_us]
    return [
        (workers, run.limits[(begin_us + SETTLE_US) // SAMPLE_US : end_us // SAMPLE_US])
        for (begin_us, workers), end_us in zip(rig.workers, ends, strict=True)
    ]


def measure(rig: GateRig, run: GateRun) -> Figures:
    """How far off the limit is once it had time, what calls took, and where it ends up."""
    phases = settled(rig, run)
    off = [abs(limit / workers - 1) for workers, limits in phases for limit in limits]
    took = [us for bucket in run.took_us for us in bucket]
    alone_us = rig.service.mean_us * log(100)
    done = sum(run.answered[SECOND_US // SAMPLE_US :])
    possible = sum(
        rig.workers_at(at * SAMPLE_US) * SAMPLE_US / rig.service.mean_us
        for at in range(SECOND_US // SAMPLE_US, len(run.limits))
    )
    means = [(workers, fmean(limits)) for workers, limits in phases]
    third = max(len(means) // 6, 1) * 2  # phases of the first and of the last third
    return {
        "astray": sum(share > NEAR for share in off) / len(off),
        "off_max": max(off),
        "p99_growth": quantile(took, 0.99) / alone_us - 1,
        "drift": max(
            abs(_mean_at(means[-third:], count) / _mean_at(means[:third], count) - 1)
            for count in {workers for workers, _ in means}
        ),
        "goodput": done / possible,
        "goodput_3s": sum(run.answered[10:30])
        / (2 * rig.workers[0][1] / rig.service.mean_us * SECOND_US),
    }


def _mean_at(means: list[tuple[int, float]], workers: int) -> float:
    return fmean(mean for count, mean in means if count == workers)


def curves(rig: GateRig, run: GateRun) -> Curves:
    """The limit over time, beside the workers."""
    step = max(len(run.limits) // 400, 1)
    samples = range(0, len(run.limits), step)
    return {
        "limit": [(at * SAMPLE_US / SECOND_US, float(run.limits[at])) for at in samples],
        "workers": [
            (at * SAMPLE_US / SECOND_US, float(rig.workers_at(at * SAMPLE_US))) for at in samples
        ],
    }


candidate: Final = candidate_maker(play)
