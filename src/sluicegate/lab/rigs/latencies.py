"""Latencies: what a backend's work takes over hours, class by class, and who watches it.

Each class of work has a rate that swings with the day and may change at instants; its times are
lognormal, grow a little with the load, and are longer by a factor while the backend is sick. There
is no task and no queue: what ends is told, as by a stack, and the reader is read once a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, exp, pi, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.latency_ratio import LatencyRatio, P2Ratio, RatioSettings, is_stressed
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.scenario import candidate_maker
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

    def worked(self, operation: str, service_us: int, now_us: int) -> None: ...

    def reading(self, now_us: int) -> StressReading: ...


MakeStressReader: TypeAlias = Callable[[], _StressReader]


@final
class LatencyRun:
    """The readings, one a second."""

    __slots__ = ("ratios", "stressed")

    def __init__(self) -> None:
        self.ratios: list[float] = []
        self.stressed: list[bool] = []

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
    worked = reader.worked
    for nth in range(count):
        took_us = int(times_us[int(draw() * QUANTILES)] * factor)
        worked(name, took_us, begin_us + nth * SECOND_US // count)


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
        self.worked = self._policy.record_work

    def reading(self, now_us: int) -> StressReading:
        """The picture's ratio."""
        picture = self._policy.read(now_us)
        return StressReading(picture.ratio, picture.slow)


@final
class RatioStressReader:
    """A ratio for each class, or one for all, and the policy's hysteresis over the worst."""

    def __init__(self, make: Callable[[], _Ratio], *, by_class: bool, enter: float) -> None:
        self._make = make
        self._by_class = by_class
        self._enter = enter
        self._ratios: dict[str, _Ratio] = {}
        self._stressed = False

    def worked(self, operation: str, service_us: int, now_us: int) -> None:
        """Into the ratio of its class."""
        name = operation if self._by_class else ""
        ratio = self._ratios.get(name)
        if ratio is None:
            ratio = self._ratios[name] = self._make()
        ratio.add(service_us, now_us)

    def reading(self, now_us: int) -> StressReading:
        """The worst of them."""
        worst = min([ratio.ratio(now_us) for ratio in self._ratios.values()], default=1.0)
        self._stressed = is_stressed(self._stressed, worst, self._enter, DEFAULTS.leave)
        return StressReading(worst, self._stressed)


def by_class(make: Callable[[], _Ratio], enter: float = DEFAULTS.enter) -> MakeStressReader:
    """A ratio for each class of work."""
    return lambda: RatioStressReader(make, by_class=True, enter=enter)


def never_frozen() -> LatencyRatio:
    """The product's kernel without what is its point."""
    return LatencyRatio(NEVER_FROZEN)


def unwindowed_p2() -> P2Ratio:
    """The long estimate is one P2 from the first value to the last."""
    return P2Ratio(long_us=EVER_US)


def one_for_all() -> RatioStressReader:
    """The product's kernel, for all classes together."""
    return RatioStressReader(LatencyRatio, by_class=False, enter=DEFAULTS.enter)


candidate: Final = candidate_maker(play)
