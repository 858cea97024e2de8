"""Draw: how shapes get their numbers, around named ones, so that none can be tuned to.

`station` is most shapes: slots, a mean work, a load relative to their capacity, a patience relative
to the work, and the standard mix of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias, final

from sluicegate.contracts.criticality import Criticality
from sluicegate.lab.arrivals import Arrivals, Diurnal, OnOff, Poisson, Steps
from sluicegate.lab.durations import Bimodal, Constant, Duration, Exponential, Lognormal
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.zoo.shape import (
    DEADLINE,
    SECOND_US,
    Bursts,
    Correlated,
    Incident,
    ShapeTraffic,
    ZooShape,
)

MIX: Final = {
    Criticality.CRITICAL: 0.2,
    Criticality.DEGRADED: 0.5,
    Criticality.BEST_EFFORT: 0.2,
    Criticality.BULK: 0.1,
}
ONE_CLASS: Final = {Criticality.DEGRADED: 1.0}
SPREAD: Final = 0.2

AtRate: TypeAlias = Callable[[float], Arrivals]
OfMean: TypeAlias = Callable[[float], Duration]


@final
class Draw:
    """Draws the numbers of shapes, each from the seed and the shape's name."""

    def __init__(self, seed: int, family: str) -> None:
        self._dice = RandomSource(seed)
        self._family = family

    def around(self, name: str, value: float, spread: float = SPREAD) -> float:
        """Return a number near `value`."""
        return value * (1 + spread * (2 * self._dice.of(f"{self._family}/{name}").draw() - 1))

    def plain(self, name: str, *, per_s: float, **fields: Any) -> ZooShape:
        """Return a shape of one kind of traffic and any number of slots."""
        kind = {key: fields.pop(key) for key in tuple(fields) if key in ShapeTraffic.__slots__}
        rate = self.around(f"{name}/rate", per_s)
        fields = {"arrivals": Poisson(rate), **fields}
        traffic = (ShapeTraffic(**{"callers": 8, **kind}),)
        return ZooShape(name=name, family=self._family, traffic=traffic, **fields)

    def station(
        self,
        name: str,
        *,
        slots: int = 8,
        ms: float = 150,
        load: float,
        law: OfMean = lambda mean: Constant(round(mean)),
        arrivals: AtRate = Poisson,
        patience: float = 10,
        tells: str = DEADLINE,
        mix: dict[Criticality, float] = MIX,
        exact: bool = False,
        callers: int = 4,
        **fields: Any,
    ) -> ZooShape:
        """Return a shape of slots; `patience` is in means of the work, 0 for none."""
        if not exact:
            ms = self.around(f"{name}/ms", ms)
            load = self.around(f"{name}/load", load, 0.1)
            patience = max(self.around(f"{name}/patience", patience), min(patience, 2.1))
        work = law(ms * 1_000)
        patience_us = round(patience * ms) * 1_000
        traffic = tuple(
            ShapeTraffic(
                work=work,
                share=share,
                criticality=of,
                patience_us=patience_us,
                tells=tells,
                callers=callers,
            )
            for of, share in mix.items()
        )
        one = {
            "slots": slots,
            "known": slots,
            "overload": load > 1,
            "traffic": traffic,
            **fields,
        }
        resources = 1 if one.get("shared") else one.get("shards", 1)
        servers = min(slots, one.get("cores") or slots)
        per_s = load * servers * resources * 1_000 / ms
        return ZooShape(name=name, family=self._family, arrivals=arrivals(per_s), **one)


# How arrivals vary around a rate.


def bursts(size: int) -> AtRate:
    """Groups of `size` at once."""
    return lambda per_s: Bursts(per_s, size)


def on_off(on_ms: int, off_ms: int) -> AtRate:
    """All requests in a part of the time."""
    times = (on_ms + off_ms) / on_ms
    return lambda per_s: OnOff(on_per_s=per_s * times, on_us=on_ms * 1_000, off_us=off_ms * 1_000)


def diurnal(swing: float) -> AtRate:
    """A day of ten seconds."""
    return lambda per_s: Diurnal(mean_per_s=per_s, swing=swing, day_us=10 * SECOND_US)


def steps(*changes: tuple[float, float]) -> AtRate:
    """Multiples of the rate, each from a second on."""
    return lambda per_s: Steps(tuple((round(at * SECOND_US), per_s * n) for at, n in changes))


# How work varies around its mean.


def exponential(mean_us: float) -> Duration:
    """Memoryless."""
    return Exponential(mean_us)


def lognormal(mean_us: float) -> Duration:
    """Many short, a few long."""
    return Lognormal(mean_us, 1.0)


def bimodal(mean_us: float) -> Duration:
    """One in a hundred takes a hundred times as long."""
    short = mean_us / 1.99
    return Bimodal(Constant(round(short)), Constant(round(100 * short)), 0.01)


def correlated(mean_us: float) -> Duration:
    """Like the one before."""
    return Correlated(mean_us)


# Incidents.


def stalls(from_s: int, to_s: int) -> tuple[Incident, ...]:
    """Return a stall of half a second in every two."""
    return tuple(
        Incident(at * SECOND_US, at * SECOND_US + SECOND_US // 2, 0.0)
        for at in range(from_s, to_s, 2)
    )


def slowed(from_s: float, to_s: float, speed: float, shard: int = -1) -> tuple[Incident, ...]:
    """Return one span at another speed."""
    return (Incident(round(from_s * SECOND_US), round(to_s * SECOND_US), speed, shard),)


def with_traffic(shape: ZooShape, of: Criticality, **changes: Any) -> ZooShape:
    """Return the shape with another traffic of that class."""
    traffic = [
        replace(kind, **changes) if kind.criticality is of else kind for kind in shape.traffic
    ]
    return replace(shape, traffic=tuple(traffic))
