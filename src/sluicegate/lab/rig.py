"""Rig: one arrangement to try things in: who comes, what serves them, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.course import STEADY, Course
from sluicegate.lab.retries import Retries
from sluicegate.lab.spans import Exponential, Span
from sluicegate.lab.workload import Kind

WORKERS_MAX: Final = 100_000
_US: Final = 1e6


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Workers that serve one unit each at a time, and the work that comes.

    What ends before `warm_us` is not counted. `refusal_cost` is what a refusal takes of a worker,
    as a share of a mean unit of work; refusals come before other work, as reading and answering a
    request does in a server.
    """

    kinds: tuple[Kind, ...]
    workers: int = 32
    service: Span = Exponential(10_000.0)  # noqa: RUF009 - frozen
    course: Course = STEADY
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
