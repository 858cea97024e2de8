"""A rig: one arrangement to run candidates in: the load, what serves it, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Arrivals
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.retries import Retries
from sluicegate.lab.speed_profile import STEADY, SpeedProfile

WORKERS_MAX: Final = 100_000
COST_MAX: Final = 1_000_000
_US: Final = 1e6


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind:
    """One kind of work: its arrivals, its class, how long an answer is of use, what it costs.

    `cost` multiplies the service time. `callers` is how many of them there are; each arrival is of
    one of them, all equally likely.
    """

    name: str
    arrivals: Arrivals
    criticality: Criticality = DEFAULT_CRITICALITY
    timeout_us: int = 500_000
    cost: int = 1
    callers: int = 1
    operation: str = ""
    shard: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise BadValue("name", self.name, "give it a name")
        if self.timeout_us < 1:
            raise BadValue("timeout_us", self.timeout_us, "give at least a microsecond")
        if not 1 <= self.cost <= COST_MAX:
            raise BadValue("cost", self.cost, f"give a whole number from 1 to {COST_MAX}")
        if self.callers < 1:
            raise BadValue("callers", self.callers, "give at least one")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Workers that serve one unit each at a time, and the work that comes.

    What ends before `warm_us` is not counted. `refusal_cost` is what a refusal takes of a worker,
    as a share of a mean unit of work; refusals come before other work, as reading and answering a
    request does in a server.
    """

    kinds: tuple[WorkKind, ...]
    workers: int = 32
    service: Duration = Exponential(10_000.0)  # noqa: RUF009 - frozen
    speed_profile: SpeedProfile = STEADY
    retries: Retries | None = None
    refusal_cost: float = 0.0
    span_us: int = 10_000_000
    warm_us: int = 2_000_000

    def __post_init__(self) -> None:
        if not self.kinds:
            raise BadValue("kinds", self.kinds, "give at least one kind of work")
        if not 1 <= self.workers <= WORKERS_MAX:
            raise BadValue("workers", self.workers, f"give 1 to {WORKERS_MAX}")
        if not 0 <= self.refusal_cost < 1:
            raise BadValue("refusal_cost", self.refusal_cost, "give a share from 0 to below 1")
        if not 0 <= self.warm_us < self.span_us:
            raise BadValue("warm_us", self.warm_us, f"give 0 to below span_us ({self.span_us})")

    @property
    def capacity_per_s(self) -> float:
        """Units of cost 1 a second that the workers can serve at speed 1."""
        return self.workers * _US / self.service.mean_us

    def ceiling(self, load: float) -> float:
        """The goodput over capacity that nobody can pass at `load`, with refusals at their cost."""
        if load <= 1:
            return load
        return max((1 - self.refusal_cost * load) / (1 - self.refusal_cost), 0.0)
