"""Workload: who comes, how often, and until when an answer is of use; all of it values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.criticality import DEFAULT_CRITICALITY, Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arrivals import Arrivals

COST_MAX: Final = 1_000_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
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
