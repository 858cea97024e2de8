"""The traffic of a what-if: captured requests as arrivals, the same for every rulebook.

An arrival's instant, class and work do not depend on the rulebook: work is drawn for each request
as it comes, whether or not it is then admitted, so rulebooks differ by what they decide and by
nothing else. The classes by which requests are counted are those of the first rulebook that has any
rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, final

from sluicegate.contracts.checks import CheckRequest, MeshRequest
from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import DURATION_US_MAX
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.what_if.plan import WHOLE_US, BackendSpec, WhatIfPlan
from sluicegate.shadow.side import Query
from sluicegate.shadow.traffic import ALL, CapturedTraffic

UNITS_MAX: Final = 1_000_000
RUN_US_MAX: Final = 400 * 86_400_000_000


class TimedRequest(NamedTuple):
    """A request: its place among the captured ones, when it comes, what it will take a worker."""

    request: int
    at_us: int
    work_us: int


@final
class Traffic:
    """A capture replayed `speed` times as fast; `classes` and `units` are by request."""

    __slots__ = ("began_us", "captured", "classes", "out_of_order", "span_us", "speed", "units")

    def __init__(self, captured: CapturedTraffic, classes: Sequence[int], *, speed: float) -> None:
        if not len(captured):
            raise BadValue("--capture", "", "there is no captured request in it")
        self.captured: Final = captured
        self.classes: Final = classes
        self.units: Final = [units_of(request) for request in captured.queries]
        self.speed: Final = speed
        self.began_us: Final = captured.at_us[0]
        latest_us, late = self.began_us, 0
        for at_us in captured.at_us:
            if at_us < latest_us:
                late += 1
            else:
                latest_us = at_us
        self.out_of_order: Final = late
        self.span_us: Final = max(int((latest_us - self.began_us) / speed), 1)
        if self.span_us > RUN_US_MAX:
            raise BadValue("--speed", speed, "replay it faster: it would take longer than 400 days")

    def __len__(self) -> int:
        return len(self.captured)

    @property
    def share(self) -> float:
        """Of all entities, how many were captured."""
        return self.captured.share / ALL

    def units_per_s(self) -> float:
        """What comes on average."""
        return sum(map(self.units.__getitem__, self.captured.which)) * 1e6 / self.span_us

    def load(self, backend: BackendSpec) -> float:
        """What all of it would take the workers, as a share of the time they have."""
        unit_us, classes, units = backend.unit_us, self.classes, self.units
        work_us = [unit_us[of] * count for of, count in zip(classes, units, strict=True)]
        return sum(map(work_us.__getitem__, self.captured.which)) / (backend.workers * self.span_us)

    def arrivals(self, plan: WhatIfPlan) -> Iterator[TimedRequest]:
        """The requests as they come; the same ones each time."""
        draw = plan.service.sampler(RandomSource(plan.seed).of("service"))
        unit_us, classes, units = plan.backend.unit_us, self.classes, self.units
        # The work of a request, in millionths of what is drawn.
        mean = [unit_us[of] * count / WHOLE_US for of, count in zip(classes, units, strict=True)]
        began_us, latest_us, speed = self.began_us, 0, self.speed
        for at_us, request in zip(self.captured.at_us, self.captured.which, strict=True):
            latest_us = max(latest_us, at_us - began_us)
            elapsed_us = latest_us if speed == 1.0 else int(latest_us / speed)
            work_us = min(max(round(mean[request] * draw()), 1), DURATION_US_MAX)
            yield TimedRequest(request, elapsed_us, work_us)


def units_of(request: Query) -> int:
    """Its weight: what it says it costs; of several descriptors the most."""
    if isinstance(request, CheckRequest):
        return min(request.cost, UNITS_MAX)
    return min(max([_hits(request, one.cost) for one in request.descriptors], default=1), UNITS_MAX)


def _hits(request: MeshRequest, own: int) -> int:
    return own if own >= 0 else request.cost or 1
