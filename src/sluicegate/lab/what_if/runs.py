"""The runs of a what-if: the same capture against every rulebook, one after the other.

Each begins without history and without load, with the same arrivals and the same work, so runs
differ only by the decisions of the rules. A plain pool or policies of `sluicegate lab replay` stand
between the rules and the backend. Policies see the class that the rulebook settles, as in a
service; without a rulebook they see the class that requests are counted in.

An attempt that its caller gives up is not cancelled: no network notifies the server. Bound:
`queue_max` requests inside, besides those in flight; further requests are turned away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final
from zlib import crc32

from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.request import Measured, Request
from sluicegate.lab.arrivals import Even
from sluicegate.lab.backend import Backend
from sluicegate.lab.baselines.queues import fifo_pool
from sluicegate.lab.durations import Constant
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.replay.station import CALLERS
from sluicegate.lab.retries import NO_MORE, Retrier
from sluicegate.lab.rig import Rig, WorkKind
from sluicegate.lab.rigs.server_chain import server_chain
from sluicegate.lab.station_candidates import queue
from sluicegate.lab.task_mode import MakePolicy
from sluicegate.lab.what_if.outcomes import GAVE_UP, GOOD, REFUSED, TURNED_AWAY, OutcomeCounts
from sluicegate.lab.what_if.plan import CLASSES, WhatIfPlan
from sluicegate.lab.what_if.traffic import RUN_US_MAX, TimedRequest, Traffic
from sluicegate.lab.world import World, run
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.shadow.replay import SingleReplay
from sluicegate.shadow.replay_rules import ReplayRules
from sluicegate.shadow.traffic import CapturedTraffic
from sluicegate.testing import START_US

BOOKS_MAX: Final = 8
FIFO: Final = "fifo"

# Called with how many requests have come, of how many, and the rulebook of the run.
Progress: TypeAlias = Callable[[int, int, str], object]


class NamedRules(NamedTuple):
    """A rulebook, and its name in the report."""

    name: str
    rules: ReplayRules


class RulebookResult(NamedTuple):
    """The outcomes under a rulebook; it puts `reclassified` requests into another class."""

    book: NamedRules
    counts: OutcomeCounts
    reclassified: int


def class_rules(books: Sequence[NamedRules]) -> NamedRules:
    """The rulebook by whose classes all requests are counted: the first that has any rules."""
    return next((book for book in books if not book.rules.empty), books[0])


def classes_of(
    book: NamedRules, captured: CapturedTraffic, mesh: MeshSettings | None = None
) -> list[Criticality]:
    """The class of each request, as this rulebook settles it."""
    single = SingleReplay(book.rules, captured.queries, mesh=mesh)
    return [single.priority(request) for request in range(len(captured.queries))]


def check_front(name: str) -> None:
    """Refuse a name that `--with` does not know."""
    if name not in POLICIES:
        raise BadValue("--with", name, f"give one of {', '.join(POLICIES)}")


def run_rulebooks(
    plan: WhatIfPlan,
    traffic: Traffic,
    books: Sequence[NamedRules],
    *,
    front: str = FIFO,
    mesh: MeshSettings | None = None,
    progress: Progress | None = None,
) -> list[RulebookResult]:
    """Run all of them, in the order in which they were given."""
    if not 1 <= len(books) <= BOOKS_MAX:
        remedy = f"give it 1 to {BOOKS_MAX} times: rulebooks, or none"
        raise BadValue("--rules", f"{len(books)} times", remedy)
    check_front(front)
    results: list[RulebookResult] = []
    each, total = len(traffic), len(traffic) * len(books)
    for number, book in enumerate(books):
        done, name = number * each, book.name

        def on_count(come: int, done: int = done, name: str = name) -> None:
            if progress is not None:
                progress(done + come, total, name)

        on_count(0)
        results.append(_run(plan, traffic, book, front, mesh, on_count))
    if progress is not None:
        progress(total, total, "")
    return results


def _run(
    plan: WhatIfPlan,
    traffic: Traffic,
    book: NamedRules,
    front: str,
    mesh: MeshSettings | None,
    on_count: Callable[[int], None],
) -> RulebookResult:
    single = SingleReplay(book.rules, traffic.captured.queries, mesh=mesh)
    common = [Criticality(of) for of in traffic.classes]
    classes = common
    if not book.rules.empty:
        classes = [single.priority(request) for request in range(len(common))]
    counts = run_policies(plan, traffic, single, POLICIES[front], on_count, classes=classes)
    other = [mine is not theirs for mine, theirs in zip(classes, common, strict=True)]
    return RulebookResult(book, counts, sum(map(other.__getitem__, traffic.captured.which)))


BLOCK: Final = 2_048  # requests between two reports of progress
POLICIES: Final[Mapping[str, MakePolicy]] = {
    "fifo": fifo_pool,
    "chain": server_chain,
    "queue": queue,
}
_UNASKED: Final = -1
_US: Final = 1_000_000

# Called with the number of requests that have arrived.
OnCount: TypeAlias = Callable[[int], object]


def make_retriers(plan: WhatIfPlan) -> list[Retrier]:
    """Return a retrier for the callers of each class; none without retries."""
    if plan.retries is None:
        return []
    random_source = RandomSource(plan.seed)
    return [Retrier(plan.retries, random_source.of(f"retries/{one.name}")) for one in CLASSES]


def run_policies(
    plan: WhatIfPlan,
    traffic: Traffic,
    single: SingleReplay,
    make_policy: MakePolicy,
    on_count: OnCount,
    *,
    classes: list[Criticality],
) -> OutcomeCounts:
    """Run the traffic past the rules into the policies, which see the `classes` by request."""

    async def main(world: World) -> OutcomeCounts:
        policy_run = _PolicyRun(world, plan, traffic, single, make_policy, classes)
        await policy_run.run(on_count)
        await world.cancel_others()
        return policy_run.counts

    return run(main, plan.seed, span_us_max=2 * RUN_US_MAX).value


def rig_of(plan: WhatIfPlan, traffic: Traffic) -> Rig:
    """The rig that policies are built for: the workers, and callers of four classes."""
    kinds = tuple(
        WorkKind(
            name=one.name,
            arrivals=Even(0),
            criticality=one,
            timeout_us=plan.timeout_us,
            callers=CALLERS,
        )
        for one in CLASSES
    )
    span_us = traffic.span_us + plan.timeout_us + _US
    return Rig(
        kinds=kinds, workers=plan.backend.workers, service=Constant(1), span_us=span_us, warm_us=0
    )


@final
class _PolicyRun:
    """The policies, the backend behind them, and the callers."""

    def __init__(
        self,
        world: World,
        plan: WhatIfPlan,
        traffic: Traffic,
        single: SingleReplay,
        make_policy: MakePolicy,
        classes: list[Criticality],
    ) -> None:
        workers = plan.backend.workers
        self._world = world
        self._plan = plan
        self._traffic = traffic
        self._single = single
        self._classes = classes
        self._callers = [
            f"{of.name}-{crc32(entity.encode('utf-8', 'surrogatepass')) % CALLERS}"
            for of, entity in zip(classes, traffic.captured.entities, strict=True)
        ]
        self._policy = make_policy(rig_of(plan, traffic), world)
        self._backend = Backend(world, Constant(1), workers=workers)
        self._retriers = make_retriers(plan)
        self._inside_max = plan.queue_max + workers
        self._inside = 0
        self._open = 0
        self.counts = OutcomeCounts(span_us=traffic.span_us, workers=workers)

    async def run(self, on_count: OnCount) -> None:
        """Run until all that came has ended."""
        world, traffic = self._world, self._traffic
        for number, arrival in enumerate(traffic.arrivals(self._plan), 1):
            await world.until_us(arrival.at_us)
            kind = traffic.classes[arrival.request]
            if self._retriers:
                self._retriers[kind].first(arrival.at_us)
            # Most rejected requests end here, without a task.
            how = self._decide(arrival.request)
            if how == REFUSED and not self._retriers:
                self.counts.record_end(kind, REFUSED, arrival.at_us, arrival.at_us)
            elif how != _UNASKED:
                self._open += 1
                world.spawn(self._caller(arrival, kind, how), f"request-{number}")
            if number % BLOCK == 0:
                on_count(number)
        while self._open or self._inside:
            await world.sleep_us(_US)

    def _decide(self, request: int) -> int:
        """Ask the rules: GOOD admits the request."""
        counts, single = self.counts, self._single
        code = single.decide(request, self._traffic.began_us + self._world.elapsed_us)
        if code < 0:
            counts.unasked += 1
            return _UNASKED
        counts.attempts += 1
        if code > 0:
            counts.record_refusal(single.rule_id(request, code))
            return REFUSED
        return GOOD

    async def _caller(self, arrival: TimedRequest, kind: int, how: int) -> None:
        """Wait for the answer, and retry as often as retries allow."""
        world, timeout_us = self._world, self._plan.timeout_us
        attempt, begun_us = 0, arrival.at_us
        try:
            while True:
                if how == GOOD:
                    how = await self._attempt_until(arrival, begun_us + timeout_us)
                if how == GOOD or not self._retriers:
                    break
                wait_us = self._retriers[kind].wait_us(attempt, world.elapsed_us)
                if wait_us == NO_MORE:
                    break
                attempt += 1
                if wait_us:
                    await world.sleep_us(wait_us)
                begun_us = world.elapsed_us
                how = self._decide(arrival.request)
            if how == _UNASKED:
                return
            ended_us = begun_us + timeout_us if how == GAVE_UP else world.elapsed_us
            self.counts.record_end(kind, how, arrival.at_us, ended_us)
        finally:
            self._open -= 1

    async def _attempt_until(self, arrival: TimedRequest, deadline_us: int) -> int:
        work = self._attempt(arrival, deadline_us)
        if not self._retriers:
            return (
                await work
            )  # a caller who gives up does nothing else, so its end may be counted late
        task = self._world.spawn(work, "attempt")
        # An answer at the deadline is in time.
        left_us = deadline_us + 1 - self._world.elapsed_us
        done, _ = await asyncio.wait([task], timeout=left_us / _US)
        return task.result() if done else GAVE_UP

    async def _attempt(self, arrival: TimedRequest, deadline_us: int) -> int:
        """Pass the policies and be served; return how it ended, as its caller sees it."""
        if self._inside >= self._inside_max:
            return TURNED_AWAY
        world, counts = self._world, self.counts
        self._inside += 1
        counts.record_queue(max(self._inside - self._plan.backend.workers, 0), world.elapsed_us)
        admitted = Request(
            self._traffic.captured.entities[arrival.request],
            caller=self._callers[arrival.request],
            cost=max(self._traffic.units[arrival.request], 1),
            criticality=self._classes[arrival.request],
            arrived_us=world.clock.now_us(),
            deadline_us=START_US + deadline_us,
        )
        try:
            permit = await self._policy.admit(admitted, world.clock)
            if isinstance(permit, Decision):
                return GAVE_UP if world.elapsed_us > deadline_us else TURNED_AWAY
            begun_us = world.elapsed_us
            outcome = Outcome.IGNORE
            try:
                await self._backend.serve(arrival.work_us)
                now_us = world.elapsed_us
                good = now_us <= deadline_us
                outcome = Outcome.SUCCESS if good else Outcome.DROPPED
                counts.record_work(now_us - arrival.work_us, now_us, useful=good)
                return GOOD if good else GAVE_UP
            finally:
                admitted.measured = Measured(service_us=world.elapsed_us - begun_us)
                permit.end(outcome, world.clock.now_us())
        finally:
            self._inside -= 1
