"""Deadline chain: three services in a row, twice what they can do, and nobody works for the dead.

Each service does its part and asks the next; all are equally strong. Without control all of them
work on what nobody waits for. Looking whether a deadline has passed saves little: what is left of
it runs out one hop further on, and the work of the hops before is lost too. So is the work for whom
a later hop refuses for any other reason. The goal is to lose less than a hundredth of what the
services can do, and to answer in time with all the rest.

Refuse at the first hop; behind it, finish what was begun. A protected service keeps a place for a
request until that is answered, calls included, so the places of the first bound what is on its way
and with it the lines behind. Where a place is kept for the own part alone, the first hop lets in
what it can do itself: if chance makes a later one slower by two hundredths, the line before that
grows until deadlines end it, and what is refused there has had two hops of work. One seed of a
hundred wasted 0.022 so (52050), with 375 ms for the median answer; no quantile of what the way
takes helped, for who is refused behind it tells the first hop nothing about how long it takes.

All hops have the settings that come, and twelve places for each worker. With three, one for each
hop, 0.90 of what is possible is answered, for chance leaves some hop without work; with six 0.97 to
0.98, with twelve 0.98 to 1. Far more is no better: a line as long as callers wait serves nobody.

Chance alone makes a hop's 32,000 units 0.6% longer or shorter, and of three hops the slowest
counts: the others stand idle for the difference, whoever guards them. So goodput is a share of what
the slowest allows with the work that was drawn (0.981 to 0.998 of all three).

The rig: services in a row, each of which does its part and then asks the next.

A request enters at the first with so much time; each passes on what is left of it. Work is counted
with the request that it was done for, and judged by how that ended: answered in time it was useful,
else wasted, at whichever hop and for whatever reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.policy import WaitingPolicy
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.arrivals import Poisson
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.queues import QueuedPool
from sluicegate.lab.clients import run_callers
from sluicegate.lab.durations import Duration, Exponential
from sluicegate.lab.goals import Goal
from sluicegate.lab.measures import quantile
from sluicegate.lab.rig import WorkKind
from sluicegate.lab.rigs.shipped import protected_station
from sluicegate.lab.scenario import Figures, Scenario, candidate_maker
from sluicegate.lab.world import World, run
from sluicegate.policies.admission.gate import Gate
from sluicegate.policies.admission.settings import GateSettings

HOPS_MAX: Final = 16


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """Services in a row, all alike, and what is asked of the first."""

    hops: tuple[str, ...] = ("edge", "api", "store")
    workers: int = 16  # each
    places_each: int = 12  # for each worker
    service: Duration = Exponential(10_000.0)  # noqa: RUF009 - frozen
    load: float = 2.0
    timeout_us: int = 500_000
    span_us: int = 22_000_000
    warm_us: int = 2_000_000

    def __post_init__(self) -> None:
        if not 1 <= len(self.hops) <= HOPS_MAX:
            raise BadValue("hops", self.hops, f"name from 1 to {HOPS_MAX}")
        if not 0 <= self.warm_us < self.span_us:
            raise BadValue("warm_us", self.warm_us, f"give 0 to below span_us ({self.span_us})")

    @property
    def places(self) -> int:
        """How many may be in a service at once, on its way behind it included."""
        return self.places_each * self.workers

    @property
    def kind(self) -> WorkKind:
        """What comes: `load` times what a service can do."""
        per_s = self.load * self.workers * 1e6 / self.service.mean_us
        return WorkKind(name="get", arrivals=Poisson(per_s), timeout_us=self.timeout_us)

    @property
    def capacity_us(self) -> float:
        """Work that all services can do while it is counted."""
        return len(self.hops) * self.workers * float(self.span_us - self.warm_us)


MakeHop: TypeAlias = Callable[[Hops, World], WaitingPolicy]  # its permit ends with the answer


def protect(rig: Hops, world: World) -> WaitingPolicy:
    """What `sluicegate.resilience` puts before an application, as it comes."""
    return protected_station(world, rig.places)


def queue_alone(rig: Hops, world: World) -> WaitingPolicy:
    """Its queue alone."""
    return Gate(GateSettings(slots=rig.places))


def nothing(rig: Hops, world: World) -> WaitingPolicy:
    """Whoever comes waits."""
    return QueuedPool(rig.places)


class HopsRun(NamedTuple):
    """What came of a run, after its warm-up."""

    good_us: list[int]  # from arrival to answer, of those in time
    late: int
    refused: dict[str, int]  # by hop
    useful_us: int
    wasted_us: int
    worked_us: int
    means_us: list[float]  # what a unit took in each hop


@final
class _Journey:
    """One request on its way through the hops."""

    def __init__(self, arrived_us: int) -> None:
        self.arrived_us = arrived_us
        self.worked_us = 0


@final
class _Hop:
    """One hop."""

    def __init__(
        self, world: World, name: str, rig: Hops, policy: WaitingPolicy, after: _Hop | None
    ) -> None:
        self._world = world
        self._backend = Backend(world, rig.service, name=name, workers=rig.workers)
        self._policy = policy
        self._next = after
        self._rig = rig
        self._units = 0
        self._units_us = 0
        self.refused = 0

    @property
    def mean_us(self) -> float:
        """What a unit took since the warm-up, or takes on average if there was none."""
        return self._units_us / self._units if self._units else self._rig.service.mean_us

    async def handle(self, request: Request, journey: _Journey) -> bool:
        """Do its part, and have the rest done; False if it was refused here or further on."""
        clock = self._world.clock
        permit = await self._policy.admit(request, clock)
        if isinstance(permit, Decision):
            self.refused += 1
            return False
        begun_us = clock.now_us()
        outcome = Outcome.IGNORE
        try:
            await self._work(journey)
            done = self._next is None or await self._next.handle(self._onward(request), journey)
            outcome = Outcome.SUCCESS if done else Outcome.DROPPED
            return done
        finally:
            now_us = clock.now_us()
            request.measured = Measured(service_us=now_us - begun_us)
            permit.end(outcome, now_us)

    async def _work(self, journey: _Journey) -> None:
        work_us = self._backend.draw_us()
        await self._backend.serve(work_us)
        journey.worked_us += work_us
        if self._world.elapsed_us >= self._rig.warm_us:
            self._units += 1
            self._units_us += work_us

    def _onward(self, request: Request) -> Request:
        """What the next hop is asked: the time that is left goes with it, not an instant."""
        now_us = self._world.clock.now_us()
        left_us = request.remaining_us(now_us)
        return Request(
            request.key,
            caller=request.caller,
            criticality=request.criticality,
            arrived_us=now_us,
            deadline_us=None if left_us is None else now_us + left_us,
            operation=request.operation,
        )


def play(rig: Hops, make_hop: MakeHop, seed: int) -> HopsRun:
    """Play one run."""

    async def main(world: World) -> HopsRun:
        good_us: list[int] = []
        services: list[_Hop] = []
        late = useful_us = wasted_us = 0
        first: _Hop | None = None
        for name in reversed(rig.hops):
            first = _Hop(world, name, rig, make_hop(rig, world), first)
            services.insert(0, first)
        assert first is not None  # there is at least one hop
        entry = first

        async def ask(request: Request) -> None:
            nonlocal late, useful_us, wasted_us
            journey = _Journey(world.elapsed_us)
            done = await entry.handle(request, journey)
            if world.elapsed_us < rig.warm_us:
                return
            took_us = world.elapsed_us - journey.arrived_us
            if done and took_us <= rig.timeout_us:
                good_us.append(took_us)
                useful_us += journey.worked_us
            else:
                late += done
                wasted_us += journey.worked_us

        await run_callers(world, [(rig.kind, ask)], until_us=rig.span_us)
        refused = {name: each.refused for name, each in zip(rig.hops, services, strict=True)}
        worked_us = useful_us + wasted_us
        means_us = [each.mean_us for each in services]
        return HopsRun(good_us, late, refused, useful_us, wasted_us, worked_us, means_us)

    return run(main, seed).value


def measure(rig: Hops, ended: HopsRun) -> Figures:
    """Useful work of what the slowest service allowed, wasted work of what all could do."""
    good_us = sorted(ended.good_us)
    possible = sum(ended.means_us) / len(rig.hops) / max(ended.means_us)
    return {
        "goodput": ended.useful_us / (rig.capacity_us * possible),
        "wasted": ended.wasted_us / rig.capacity_us,
        "p50_ms": quantile(good_us, 0.5) / 1000 if good_us else inf,
        "p99_ms": quantile(good_us, 0.99) / 1000 if good_us else inf,
        "late": float(ended.late),
        **{f"refused.{name}": float(count) for name, count in ended.refused.items()},
    }


candidate: Final = candidate_maker(play)


SCENARIO: Final = Scenario(
    number=19,
    name="deadline-chain",
    title="Three hops with a deadline, at twice the load",
    why="What is refused late has already cost something.",
    rigs={"500 ms": Hops(), "tight": Hops(timeout_us=120_000, places_each=4, span_us=6_000_000)},
    candidates={
        "protect": candidate(protect),
        "queue-alone": candidate(queue_alone),
        "fifo": candidate(nothing),
    },
    ours="protect",
    must_fail=("fifo",),
    own_settings={
        "slots: twelve for each worker": "a place is kept until the answer: it is for "
        "whoever sets up a service to say how many may be on their way, behind it included; six "
        "for each answer 0.97 of what is possible, one for each hop 0.90",
    },
    goals=(
        Goal(figure="wasted", at_most=0.01, cases=("500 ms",)),
        Goal(figure="goodput", at_least=0.98, cases=("500 ms",)),
    ),
    measure=measure,
    columns=("goodput", "wasted", "p50_ms", "p99_ms"),
    scale="half the workers of the other rigs",
    limits=(
        "'tight' grants 120 ms for work whose p99 is 84 ms without any waiting, and has no goal: "
        "with four places for each worker ours answers 0.90 in time and wastes 0.05; with eight, "
        "which make a line of 80 ms in each hop, 0.20 and 0.29"
    ),
)
