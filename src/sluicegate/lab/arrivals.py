"""Arrivals: when work comes, as a value that yields instants in ascending order.

All of these are open-loop: the next arrival never waits for an answer. Callers who do are in
`clients`. Between two changes of rate arrivals are Poisson, and a change forgets nothing, because
an exponential gap has no memory.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import Pareto

RATE_PER_S_MAX: Final = 1e7
_US: Final = 1e6


class Arrivals(Protocol):
    """A process of arrivals."""

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come, from 0 on; it may never end."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent callers, `per_s` on average."""

    per_s: float

    def __post_init__(self) -> None:
        _check_rate("per_s", self.per_s)

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come."""
        if self.per_s <= 0:
            return
        gap_us, draw, log = -_US / self.per_s, chance.draw, math.log
        at_us = 0.0
        while True:
            at_us += gap_us * log(1.0 - draw())
            yield int(at_us)


@final
@dataclass(frozen=True, slots=True)
class Even:
    """A metronome, `per_s`."""

    per_s: float

    def __post_init__(self) -> None:
        _check_rate("per_s", self.per_s)

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come, without a draw."""
        count = 0
        while self.per_s > 0:
            count += 1
            yield int(count * _US / self.per_s)


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """Poisson at a rate that changes: each step says from when on and how many a second."""

    steps: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        begins = [begin_us for begin_us, _ in self.steps]
        if not begins or begins[0] != 0 or begins != sorted(set(begins)):
            raise BadValue("steps", self.steps, "begin at 0 and go on in ascending order")
        for _, per_s in self.steps:
            _check_rate("steps", per_s)

    def per_s_at(self, at_us: int) -> float:
        """The rate at that instant."""
        return self.steps[bisect_right(self.steps, at_us, key=lambda step: step[0]) - 1][1]

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come."""
        ends: list[float] = [float(begin_us) for begin_us, _ in self.steps[1:]]
        for (begin_us, per_s), end_us in zip(self.steps, [*ends, math.inf], strict=True):
            yield from _poisson_us(chance, per_s, float(begin_us), end_us)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff:
    """Bursts: Poisson at `on_per_s` for a while, then at `off_per_s`, over and over.

    Both times are exponential around their means.
    """

    on_per_s: float
    on_us: int
    off_us: int
    off_per_s: float = 0.0

    def __post_init__(self) -> None:
        _check_rate("on_per_s", self.on_per_s)
        _check_rate("off_per_s", self.off_per_s)
        for field, us in (("on_us", self.on_us), ("off_us", self.off_us)):
            _check_time(field, us)

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come."""
        end_us = 0.0
        on = False
        while True:
            begin_us, on = end_us, not on
            end_us -= (self.on_us if on else self.off_us) * math.log(1.0 - chance.draw())
            per_s = self.on_per_s if on else self.off_per_s
            yield from _poisson_us(chance, per_s, begin_us, end_us)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoOnOff:
    """Bursts as those of `OnOff`, of times that no mean describes: both are Pareto's, of `alpha`.

    At 1.5 a few bursts last so long that no average over them settles, as in traffic that looks
    alike on every scale.
    """

    on_per_s: float
    on_us: int
    off_us: int
    off_per_s: float = 0.0
    alpha: float = 1.5

    def __post_init__(self) -> None:
        _check_rate("on_per_s", self.on_per_s)
        _check_rate("off_per_s", self.off_per_s)
        for field, us in (("on_us", self.on_us), ("off_us", self.off_us)):
            _check_time(field, us)
            Pareto(us, self.alpha)

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come."""
        spells = [Pareto(us, self.alpha).sampler(chance) for us in (self.on_us, self.off_us)]
        end_us = 0.0
        while True:
            for draw_us, per_s in zip(spells, (self.on_per_s, self.off_per_s), strict=True):
                begin_us, end_us = end_us, end_us + draw_us()
                yield from _poisson_us(chance, per_s, begin_us, end_us)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """Poisson whose rate swings as a sine: `mean_per_s` times 1 less to 1 plus `swing` a day."""

    mean_per_s: float
    swing: float = 0.5
    day_us: int = 86_400_000_000

    def __post_init__(self) -> None:
        _check_rate("mean_per_s", self.mean_per_s)
        if not 0 <= self.swing <= 1:
            raise BadValue("swing", self.swing, "give a share from 0 to 1")
        if self.day_us < 1:
            raise BadValue("day_us", self.day_us, "give at least a microsecond")

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come: those of the highest rate, thinned."""
        peak = 1 + self.swing
        angle = 2 * math.pi / self.day_us
        for at_us in Poisson(self.mean_per_s * peak).instants_us(chance):
            if chance.draw() * peak < 1 - self.swing * math.cos(angle * at_us):
                yield at_us


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """As it was recorded: instants from 0 on, `speed` times as fast."""

    us: tuple[int, ...]
    speed: float = 1.0

    def __post_init__(self) -> None:
        if any(late < early for early, late in zip(self.us, self.us[1:], strict=False)):
            raise BadValue("us", self.us, "sort the instants")
        if not 0 < self.speed <= 1e6:
            raise BadValue("speed", self.speed, "give a factor above 0, at most 1,000,000")

    def instants_us(self, chance: Chance) -> Iterator[int]:
        """Yield when they come, without a draw."""
        for at_us in self.us:
            yield int(at_us / self.speed)


def _poisson_us(chance: Chance, per_s: float, at_us: float, end_us: float) -> Iterator[int]:
    while per_s > 0:
        at_us -= _US / per_s * math.log(1.0 - chance.draw())
        if at_us >= end_us:
            return
        yield int(at_us)


def poisson_count(mean: float, draw: Callable[[], float]) -> int:
    """How many come where `mean` do on average; from 50 on by the normal distribution."""
    if mean >= 50.0:
        normal = math.sqrt(-2.0 * math.log(1.0 - draw())) * math.cos(2.0 * math.pi * draw())
        return max(round(mean + math.sqrt(mean) * normal), 0)
    count, left = 0, draw()
    none = math.exp(-mean)
    while left > none:
        count, left = count + 1, left * draw()
    return count


def _check_time(field: str, us: int) -> None:
    if us < 1:
        raise BadValue(field, us, "give at least a microsecond")


def _check_rate(field: str, per_s: float) -> None:
    if not 0 <= per_s <= RATE_PER_S_MAX:
        raise BadValue(field, per_s, f"give a rate from 0 to {RATE_PER_S_MAX:g} a second")
