"""Latency ratio: four times slower for half an hour, and a whole day in which nothing is wrong.

The ratio of what work usually takes to what it takes now is the quickest sign of a sick backend. It
has two ways to fail. What is slow for long enough becomes what is usual, and the ratio heals while
the patient does not. And a day has slow hours, and hours with other work in them, which are not a
sickness. The goal is to stay below 0.6 as long as it lasts, to be clear ten seconds after, and not
one false alarm in the day.

The rig: what a backend's work takes over hours, class by class, and who watches it.

Each class of work has a rate that swings with the day and may change at instants; its times are
lognormal, grow a little with the load, and are longer by a factor while the backend is sick. There
is no task and no queue: what ends is reported, as by a stack, and the state is read once a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from math import cos, exp, inf, pi, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.latency_ratio import (
    MUSSEL_ENTER,
    LatencyRatio,
    RatioSettings,
    is_stressed,
)
from sluicegate.lab.baselines.pooled_ratio import PooledRatio
from sluicegate.lab.goals import Goal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import OVER_TIME, Curves, Figures, PlotSpec, Scenario, candidate_maker
from sluicegate.policies.forms.mussel.ratio import P2Ratio
from sluicegate.policies.stress import Stress, StressSettings

SECOND_US: Final = 1_000_000
QUANTILES: Final = 4_096  # of each distribution; a draw picks one


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkClass:
    """A class of work: how much of it when, and what it takes."""

    name: str
    per_s: tuple[tuple[int, float], ...]  # from when on, before the day's swing
    median_us: float = 5_000.0
    sigma: float = 1.0

    def per_s_at(self, at_us: int) -> float:
        """The mean rate at that instant."""
        at = bisect_right(self.per_s, at_us, key=lambda step: step[0]) - 1
        return self.per_s[at][1] if at >= 0 else 0.0

    def quantiles_us(self) -> list[float]:
        """Equally likely times."""
        normal = NormalDist()
        return [
            self.median_us * exp(self.sigma * normal.inv_cdf((at + 0.5) / QUANTILES))
            for at in range(QUANTILES)
        ]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRig:
    """`swing` is of the rate over a day, and `burden` how much slower work is at its height."""

    works: tuple[WorkClass, ...]
    swing: float = 0.0
    burden: float = 0.0
    day_us: int = 86_400 * SECOND_US
    sick_us: tuple[int, int] = (0, 0)
    slower: float = 1.0
    span_us: int = 86_400 * SECOND_US

    def __post_init__(self) -> None:
        if not self.works:
            raise BadValue("works", self.works, "give at least one class of work")
        if not 0 <= self.swing < 1:
            raise BadValue("swing", self.swing, "give a share from 0 to below 1")
        if not self.sick_us[0] <= self.sick_us[1] <= self.span_us:
            raise BadValue("sick_us", self.sick_us, "give a beginning and an end within the span")


class StressReading(NamedTuple):
    """From 1 (healthy) towards 0, and whether that counts as stress."""

    ratio: float
    stressed: bool


class _StressReader(Protocol):
    """Takes in what each piece of work took, and reads the state of the backend from that."""

    def record_work(self, operation: str, service_us: int, now_us: int) -> None: ...

    def reading(self, now_us: int) -> StressReading: ...


MakeStressReader: TypeAlias = Callable[[], _StressReader]


@final
@dataclass(slots=True)
class LatencyRun:
    """The readings, one a second."""

    ratios: list[float] = field(default_factory=list)
    stressed: list[bool] = field(default_factory=list)

    @property
    def trips(self) -> int:
        """How often stress began."""
        was = [False, *self.stressed[:-1]]
        return sum(now and not before for before, now in zip(was, self.stressed, strict=True))


def play(rig: LatencyRig, make_reader: MakeStressReader, seed: int) -> LatencyRun:
    """One run: a second at a time, its work spread over it."""
    random_source = RandomSource(seed)
    reader, run = make_reader(), LatencyRun()
    chance = [random_source.of(work.name).draw for work in rig.works]
    counts = [random_source.of(f"{work.name}/count").draw for work in rig.works]
    times = [work.quantiles_us() for work in rig.works]
    normal = NormalDist()
    # An instant, a class: what ends at the same microsecond is told in the order of the classes.
    for begin_us in range(0, rig.span_us, SECOND_US):
        day = -cos(2 * pi * begin_us / rig.day_us)
        factor = 1.0 + rig.burden * (1 + day) / 2
        if rig.sick_us[0] <= begin_us < rig.sick_us[1]:
            factor *= rig.slower
        for at, work in enumerate(rig.works):
            mean = work.per_s_at(begin_us) * (1 + rig.swing * day)
            spread = normal.inv_cdf(min(max(counts[at](), 1e-9), 1 - 1e-9))
            count = max(round(mean + sqrt(mean) * spread), 0)
            _record_work(reader, work.name, count, times[at], chance[at], factor, begin_us)
        reading = reader.reading(begin_us + SECOND_US - 1)
        run.ratios.append(reading.ratio)
        run.stressed.append(reading.stressed)
    return run


def _record_work(
    reader: _StressReader,
    name: str,
    count: int,
    times_us: list[float],
    draw: Callable[[], float],
    factor: float,
    begin_us: int,
) -> None:
    """So many pieces of work of a class within one second."""
    record_work = reader.record_work
    for nth in range(count):
        took_us = int(times_us[int(draw() * QUANTILES)] * factor)
        record_work(name, took_us, begin_us + nth * SECOND_US // count)


DEFAULTS: Final = RatioSettings()
# Never stressed, and so never frozen: the median of what sub-windows of late have measured.
NEVER_FROZEN: Final = RatioSettings(enter=0.0)
EVER_US: Final = 1 << 53


class _Ratio(Protocol):
    """A latency ratio of one class."""

    def add(self, latency_us: float, now_us: int) -> None: ...

    def ratio(self, now_us: int) -> float: ...


@final
class PolicyStressReader:
    """`policies.stress`, of which the ratio alone is fed."""

    def __init__(self, settings: StressSettings | None = None) -> None:
        self._policy = Stress(settings)
        self.record_work = self._policy.record_work

    def reading(self, now_us: int) -> StressReading:
        """The picture's ratio."""
        picture = self._policy.read(now_us)
        return StressReading(picture.ratio, picture.slow)


@final
class _RatioStressReader:
    """A ratio for each class, or one for all, and the policy's hysteresis over the worst."""

    def __init__(self, make: Callable[[], _Ratio], *, by_class: bool, enter: float) -> None:
        self._make = make
        self._by_class = by_class
        self._enter = enter
        self._ratios: dict[str, _Ratio] = {}
        self._stressed = False

    def record_work(self, operation: str, service_us: int, now_us: int) -> None:
        name = operation if self._by_class else ""
        ratio = self._ratios.get(name)
        if ratio is None:
            ratio = self._ratios[name] = self._make()
        ratio.add(service_us, now_us)

    def reading(self, now_us: int) -> StressReading:
        worst = min([ratio.ratio(now_us) for ratio in self._ratios.values()], default=1.0)
        self._stressed = is_stressed(self._stressed, worst, self._enter, DEFAULTS.leave)
        return StressReading(worst, self._stressed)


def by_class(make: Callable[[], _Ratio], enter: float = DEFAULTS.enter) -> MakeStressReader:
    """A ratio for each class of work."""
    return lambda: _RatioStressReader(make, by_class=True, enter=enter)


def never_frozen() -> LatencyRatio:
    """The product's kernel without what is its point."""
    return LatencyRatio(NEVER_FROZEN)


def unwindowed_p2() -> P2Ratio:
    """The long estimate is one P2 from the first value to the last."""
    return P2Ratio(long_us=EVER_US)


def one_for_all() -> _RatioStressReader:
    """The product's kernel, for all classes together."""
    return _RatioStressReader(LatencyRatio, by_class=False, enter=DEFAULTS.enter)


candidate: Final = candidate_maker(play)


SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
NOTICED_S: Final = 10  # after that it should know
BELOW: Final = 0.6
USUAL: Final = WorkClass(name="get", per_s=((0, 75.0),))

STRESS: Final = LatencyRig(
    works=(USUAL,),
    sick_us=(15 * MINUTE, 45 * MINUTE),
    slower=4.0,
    span_us=48 * MINUTE,
)


def day(hours: int) -> LatencyRig:
    """A day in so many hours: load by 30% up and down, work by 30% slower at its height.

    From noon for a quarter of it there are 15 times as many scans, which take ten times as long.
    """
    noon, dusk = hours * HOUR // 2, hours * HOUR * 3 // 4
    scans = WorkClass(name="scan", per_s=((0, 2.0), (noon, 30.0), (dusk, 2.0)), median_us=50_000.0)
    return LatencyRig(
        works=(USUAL, scans), swing=0.3, burden=0.3, day_us=hours * HOUR, span_us=hours * HOUR
    )


def measure(rig: LatencyRig, run: LatencyRun) -> Figures:
    """In sickness: the highest ratio, and how soon it is clear; in health: false alarms."""
    begin_s, end_s = (us // SECOND for us in rig.sick_us)
    if begin_s == end_s:
        return {"trips": float(run.trips), "ratio_min": min(run.ratios)}
    sick = run.ratios[begin_s:end_s]
    after = run.stressed[end_s:]
    return {
        "seen_s": float(next((at for at, ratio in enumerate(sick) if ratio < BELOW), inf)),
        "ratio_max": max(sick[NOTICED_S:]),
        "clear_s": float(after.index(False)) if False in after else inf,
        "trips": float(run.trips - 1),
    }


def curves(rig: LatencyRig, run: LatencyRun) -> Curves:
    """The ratio over time, the lowest of each stretch."""
    step = max(len(run.ratios) // 400, 1)
    spans = range(0, len(run.ratios), step)
    return {"ratio": [(at / 60, min(run.ratios[at : at + step])) for at in spans]}


P2: Final = StressSettings(ratio="p2", ratio_enter=MUSSEL_ENTER, ratio_hard=MUSSEL_ENTER)

SCENARIO: Final = Scenario(
    number=21,
    name="latency-ratio",
    title="Half an hour of slow work, and a day without any",
    why="An alarm that gets used to the fire is none, nor is one that rings at noon.",
    rigs={"stress": STRESS, "day": day(8)},
    candidates={
        "stress": candidate(PolicyStressReader),
        "mussel-p2": candidate(lambda: PolicyStressReader(P2)),
        "p2-unwindowed": candidate(by_class(unwindowed_p2, MUSSEL_ENTER)),
        "pooled": candidate(by_class(PooledRatio)),
        "without-freezing": candidate(by_class(never_frozen)),
        "without-classes": candidate(one_for_all),
    },
    ours="stress",
    must_fail=("p2-unwindowed", "pooled", "without-freezing", "without-classes"),
    goals=(
        Goal(figure="ratio_max", at_most=BELOW, cases=("stress",)),
        Goal(figure="clear_s", at_most=10, cases=("stress",)),
        Goal(figure="trips", at_most=0),
    ),
    measure=measure,
    curves=curves,
    columns=("seen_s", "ratio_max", "clear_s", "trips"),
    plots=(PlotSpec("Latency ratio", ("ratio",), OVER_TIME, "ratio", "minutes"),),
    scale="The day passes in 8 hours, so all that drifts does so three times as fast; the proofs "
    "play one of 24.",
)
