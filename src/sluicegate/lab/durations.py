"""Durations: how long a thing takes, as a distribution that is a value.

A duration knows its mean and makes a sampler: a function that draws one duration, in microseconds,
from the stream it was made with. Samples are rounded to the microsecond, and are never below zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.errors import BadValue

DURATION_US_MAX: Final = 86_400_000_000

Sampler: TypeAlias = Callable[[], int]


class Duration(Protocol):
    """A distribution of durations."""

    @property
    def mean_us(self) -> float:
        """The mean."""
        ...

    def sampler(self, chance: Chance) -> Sampler:
        """Return what draws one duration a call."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    us: int

    def __post_init__(self) -> None:
        if not 0 <= self.us <= DURATION_US_MAX:
            raise BadValue("us", self.us, "give microseconds from 0 to a day's")

    @property
    def mean_us(self) -> float:
        """The mean."""
        return float(self.us)

    def sampler(self, chance: Chance) -> Sampler:
        """Return what always gives the same."""
        us = self.us
        return lambda: us


@final
@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless: what is left never depends on what has passed."""

    mean_us: float

    def __post_init__(self) -> None:
        _check_mean(self.mean_us)

    def sampler(self, chance: Chance) -> Sampler:
        """Return what draws durations."""
        mean_us, draw, log = -self.mean_us, chance.draw, math.log
        return lambda: int(mean_us * log(1.0 - draw()) + 0.5)


@final
@dataclass(frozen=True, slots=True)
class Lognormal:
    """Many short, a few long: `sigma` is the spread of the logarithm (1 is wide, 2 is wild)."""

    mean_us: float
    sigma: float

    def __post_init__(self) -> None:
        _check_mean(self.mean_us)
        if not 0 < self.sigma <= 5:
            raise BadValue("sigma", self.sigma, "give a number above 0, at most 5")

    def sampler(self, chance: Chance) -> Sampler:
        """Return what takes two draws for each, by Box and Muller."""
        mu = math.log(self.mean_us) - self.sigma * self.sigma / 2
        sigma, draw, tau = self.sigma, chance.draw, 2 * math.pi

        def duration_us() -> int:
            radius = math.sqrt(-2.0 * math.log(1.0 - draw()))
            return min(int(math.exp(mu + sigma * radius * math.cos(tau * draw())) + 0.5), 1 << 53)

        return duration_us


@final
@dataclass(frozen=True, slots=True)
class Bimodal:
    """One of two, as a cache's hit and miss; `rare` is the share of the second."""

    often: Duration
    seldom: Duration
    rare: float

    def __post_init__(self) -> None:
        if not 0 <= self.rare <= 1:
            raise BadValue("rare", self.rare, "give a share from 0 to 1")

    @property
    def mean_us(self) -> float:
        """The mean."""
        return self.often.mean_us * (1 - self.rare) + self.seldom.mean_us * self.rare

    def sampler(self, chance: Chance) -> Sampler:
        """Return what draws which of the two, and then from it."""
        often, seldom = self.often.sampler(chance), self.seldom.sampler(chance)
        rare, draw = self.rare, chance.draw
        return lambda: seldom() if draw() < rare else often()


@final
@dataclass(frozen=True, slots=True)
class Pareto:
    """Most near the least, and a tail without end: `alpha` at 1.5 is heavy, at 3 it is light."""

    mean_us: float
    alpha: float

    def __post_init__(self) -> None:
        _check_mean(self.mean_us)
        if not 1 < self.alpha <= 100:
            raise BadValue("alpha", self.alpha, "give a number above 1, at most 100")

    def sampler(self, chance: Chance) -> Sampler:
        """Return what draws durations; none is longer than a day."""
        least_us, power, draw = self.mean_us * (1 - 1 / self.alpha), -1 / self.alpha, chance.draw
        return lambda: int(min(least_us * (1.0 - draw()) ** power, DURATION_US_MAX) + 0.5)


def _check_mean(mean_us: float) -> None:
    if not 0 < mean_us <= DURATION_US_MAX:
        raise BadValue("mean_us", mean_us, "give microseconds above 0, at most a day's")
