"""The plan of a what-if: what serves the traffic, how long callers wait, and how they retry.

Capacity, workers and the cost of a unit depend on each other: a second has `workers` seconds of
work in it. So two of them are given and the third follows; if all three are given and do not agree,
they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import DURATION_US_MAX, Duration, Exponential
from sluicegate.lab.replay.station import LOAD
from sluicegate.lab.retries import NAIVE, SMART, Retries
from sluicegate.lab.rig import WORKERS_MAX

CLASSES: Final = tuple(Criticality)
WORKERS_DEFAULT: Final = 8
QUEUE_MAX_DEFAULT: Final = 1_000_000
QUEUE_MAX_MAX: Final = 10_000_000
TIMEOUT_US_DEFAULT: Final = 500_000
SPEED_MAX: Final = 1e6
CAPACITY_MAX: Final = 1e9
WHOLE_US: Final = 1_000_000  # what a sampler draws on average: the work of a request is a share
RETRIES: Final[Mapping[str, Retries | None]] = {"none": None, "naive": NAIVE, "smart": SMART}
_AGREES: Final = 1e-3
_US: Final = 1e6


class BackendSpec(NamedTuple):
    """Units a second by so many workers; `unit_us` is what a unit takes one, by class."""

    capacity: float
    workers: int
    unit_us: tuple[float, ...]
    chosen: bool = False  # no flag says how much it can do


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPlan:
    """How the traffic is results; the same for every rulebook."""

    backend: BackendSpec
    service: Duration = Exponential(float(WHOLE_US))  # noqa: RUF009 - frozen
    timeout_us: int = TIMEOUT_US_DEFAULT
    speed: float = 1.0
    retries: Retries | None = None
    queue_max: int = QUEUE_MAX_DEFAULT
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_us <= DURATION_US_MAX:
            raise BadValue("--timeout", self.timeout_us, "give milliseconds up to a day's")
        if not 0 < self.speed <= SPEED_MAX:
            raise BadValue("--speed", self.speed, f"give a factor above 0, up to {SPEED_MAX:,.0f}")
        if not 1 <= self.queue_max <= QUEUE_MAX_MAX:
            raise BadValue("--queue", self.queue_max, f"give 1 to {QUEUE_MAX_MAX:,}")


def parse_costs(text: str) -> dict[Criticality | None, float]:
    """`20000` or `20000,BULK=50000`: what a unit takes a worker, in microseconds; None is else."""
    costs: dict[Criticality | None, float] = {}
    for one in text.split(","):
        name, mark, number = one.strip().rpartition("=")
        of = parse_criticality(name, field="--cost") if mark else None
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not 0 < value <= DURATION_US_MAX:
            remedy = "give microseconds above 0 for a unit: 20000, or 20000,BULK=50000"
            raise BadValue("--cost", text, remedy)
        if of in costs:
            raise BadValue("--cost", text, "give each class once")
        costs[of] = value
    return costs


def derive_backend(
    *,
    capacity: float | None,
    workers: int | None,
    costs: Mapping[Criticality | None, float],
    offered_per_s: float,
) -> BackendSpec:
    """Derive what serves from what is given; the rest follows.

    With nothing given, 8 workers for whom `offered_per_s` units are a load of four fifths. Capacity
    is counted in units of the class that has no cost of its own.
    """
    base_us = costs.get(None)
    if costs and base_us is None:
        if len(costs) < len(CLASSES):
            remedy = "give the cost of a unit of the other classes too: 20000,BULK=50000"
            raise BadValue("--cost", _costs_text(costs), remedy)
        if capacity is not None:
            remedy = "leave out --capacity, or give the cost that it is counted in: 20000,BULK=..."
            raise BadValue("--cost", _costs_text(costs), remedy)
        base_us = sum(costs.values()) / len(costs)
    chosen = capacity is None and base_us is None
    if base_us is None:
        many = WORKERS_DEFAULT if workers is None else workers
        able = max(offered_per_s, 1e-6) / LOAD if capacity is None else capacity
        base_us = many * _US / able
    elif capacity is None:
        many = WORKERS_DEFAULT if workers is None else workers
        able = many * _US / base_us
    else:
        able = capacity
        many = max(round(able * base_us / _US), 1)
        if workers is not None and workers != many:
            remedy = f"these need {many} workers; leave out one of --capacity, --workers, --cost"
            raise BadValue("--workers", workers, remedy)
        if abs(many * _US / base_us - able) > _AGREES * able:
            remedy = f"no whole number of workers does this; {many} do {many * _US / base_us:g}/s"
            raise BadValue("--capacity", capacity, remedy)
    if not 1 <= many <= WORKERS_MAX:
        raise BadValue("--workers", many, f"give what takes 1 to {WORKERS_MAX:,} workers")
    if not 0 < able <= CAPACITY_MAX:
        raise BadValue("--capacity", able, f"give units a second, up to {CAPACITY_MAX:,.0f}")
    unit_us = tuple([costs.get(one, base_us) for one in CLASSES])
    return BackendSpec(able, many, unit_us, chosen)


def scale_backend(backend: BackendSpec, share: float) -> BackendSpec:
    """The same share of it, for a capture of that share of all entities; at least one worker."""
    if share >= 1:
        return backend
    many = max(round(backend.workers * share), 1)
    # Of too few workers each is slower, so that together they do no more than their share.
    slower = many / (backend.workers * share)
    unit_us = tuple([us * slower for us in backend.unit_us])
    return BackendSpec(backend.capacity * share, many, unit_us, backend.chosen)


def _costs_text(costs: Mapping[Criticality | None, float]) -> str:
    words = [f"{us:g}" if of is None else f"{of.name}={us:g}" for of, us in costs.items()]
    return ",".join(words)
