"""The kernel-only mode: a heap of events, no task and no loop; for runs of millions of units.

It runs a rig with a queue before its workers and fills a ledger. Of the product it runs the kernels
that the queue is made of; the policies around them, which may suspend, run in `task_mode`.

A unit arrives, waits in the queue, is served by a worker, is answered. It may be refused when it
arrives or lost while it waits. Events of one instant happen in the order in which they were set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from math import ceil
from typing import Final, TypeAlias, final

from sluicegate.lab.ledger import RunLedger
from sluicegate.lab.random_source import RandomSource
from sluicegate.lab.retries import NO_MORE, Retrier
from sluicegate.lab.rig import Rig
from sluicegate.lab.work_queue import WorkQueue, WorkUnit

MakeQueue: TypeAlias = Callable[[Rig], WorkQueue]

# What an event is; from zero on it is an arrival, of the kind of that number.
_SERVED: Final = -1
_REFUSED: Final = -2
_GIVE_UP: Final = -3
_RETRY: Final = -4


def run_queue(rig: Rig, make_queue: MakeQueue, seed: int) -> RunLedger:
    """Run the rig with that queue, and return the ledger."""
    return _KernelRun(rig, make_queue(rig), seed).run()


@final
class _KernelRun:
    def __init__(self, rig: Rig, queue: WorkQueue, seed: int) -> None:
        random_source = RandomSource(seed)
        self._rig = rig
        self._kinds = rig.kinds
        self._queue = queue
        self._idle = rig.workers
        self._service = rig.service.sampler(random_source.of("service"))
        self._arrivals: list[Iterator[int]] = []
        self._retriers: list[Retrier] = []
        self._callers = random_source.of("callers").draw
        for kind in rig.kinds:
            self._arrivals.append(
                kind.arrivals.instants_us(random_source.of(f"arrivals/{kind.name}"))
            )
            if rig.retries is not None:
                chance = random_source.of(f"retries/{kind.name}")
                self._retriers.append(Retrier(rig.retries, chance))
        self._refusal_us = rig.refusal_cost * rig.service.mean_us
        self._refusals: list[WorkUnit] = []
        # A worker refuses for no longer than it would serve; then it looks again.
        self._refusals_max = 0
        if self._refusal_us > 0:
            self._refusals_max = max(int(rig.service.mean_us / self._refusal_us), 1)
        self._events: list[tuple[int, int, int, WorkUnit | None]] = []
        self._set = 0
        self.ledger = RunLedger(rig.kinds, warm_us=rig.warm_us, span_us=rig.span_us)

    def run(self) -> RunLedger:
        """Run until the span is over; what is under way then is not counted."""
        for kind in range(len(self._kinds)):
            self._next_arrival(kind)
        events = self._events
        end_us = self._rig.span_us
        while events:
            now_us, _, what, unit = heapq.heappop(events)
            if now_us >= end_us:
                break
            if what >= 0:
                self._next_arrival(what)
                self._arrive(self._new(what, now_us), now_us)
            elif what == _REFUSED:
                self._idle += 1
                self._feed(now_us)
            elif unit is None:
                continue
            elif what == _SERVED:
                self._finish(unit, now_us)
            elif what == _RETRY:
                self._arrive(unit, now_us)
            elif not unit.abandoned:
                self._fail(unit, now_us)
        return self.ledger

    def _at(self, at_us: int, what: int, unit: WorkUnit | None) -> None:
        self._set += 1
        heapq.heappush(self._events, (at_us, self._set, what, unit))

    def _next_arrival(self, kind: int) -> None:
        at_us = next(self._arrivals[kind], None)
        if at_us is not None:
            self._at(at_us, kind, None)

    def _new(self, kind: int, now_us: int) -> WorkUnit:
        of = self._kinds[kind]
        caller = int(self._callers() * of.callers) if of.callers > 1 else 0
        if self._retriers:
            self._retriers[kind].first(now_us)
        return WorkUnit(kind, caller, now_us, now_us + of.timeout_us, 0)

    def _arrive(self, unit: WorkUnit, now_us: int) -> None:
        self.ledger.record_offer(unit.kind, now_us, unit.attempt > 0)
        if self._retriers:
            self._at(unit.deadline_us + 1, _GIVE_UP, unit)
        lost: list[WorkUnit] = []
        self._queue.arrive(unit, now_us, lost)
        if lost:
            self._lose(lost, now_us)
        if self._idle > 0:
            self._feed(now_us)
        waiting = self._queue.waiting()
        if waiting > self.ledger.queue_peak:
            self.ledger.queue_peak = waiting

    def _feed(self, now_us: int) -> None:
        """Give idle workers work: refusals first."""
        lost: list[WorkUnit] = []
        while self._idle > 0:
            if self._refusals:
                self._refuse(now_us)
                continue
            unit = self._queue.take(now_us, lost)
            if lost:
                self._lose(lost, now_us)
                lost = []
            if unit is not None:
                self._serve(unit, now_us)
            elif not self._refusals:
                return

    def _serve(self, unit: WorkUnit, now_us: int) -> None:
        self._idle -= 1
        work_us = self._service() * self._kinds[unit.kind].cost
        unit.work_us = work_us
        if unit.arrived_us >= self.ledger.warm_us:
            self.ledger.served += 1
            self.ledger.waited_us += now_us - unit.arrived_us
        self._at(self._rig.speed_profile.end_us(now_us, work_us), _SERVED, unit)

    def _finish(self, unit: WorkUnit, now_us: int) -> None:
        self._idle += 1
        in_time = now_us <= unit.deadline_us
        self.ledger.record_answer(
            unit.kind, unit.caller, unit.arrived_us, now_us, unit.work_us, in_time
        )
        if in_time:
            unit.abandoned = True  # its caller has what it came for
        self._feed(now_us)

    def _lose(self, lost: list[WorkUnit], now_us: int) -> None:
        if self._refusals_max:
            self._refusals += lost
            return
        for unit in lost:
            self._record_refusal(unit, now_us)

    def _refuse(self, now_us: int) -> None:
        """Let a worker answer those who are refused, as many as it may at a time."""
        batch = self._refusals[: self._refusals_max]
        del self._refusals[: self._refusals_max]
        self._idle -= 1
        end_us = self._rig.speed_profile.end_us(now_us, ceil(len(batch) * self._refusal_us))
        for unit in batch:
            self._record_refusal(unit, end_us)
        self._at(end_us, _REFUSED, None)

    def _record_refusal(self, unit: WorkUnit, at_us: int) -> None:
        self.ledger.record_refusal(unit.kind, unit.arrived_us, at_us)
        if self._retriers and not unit.abandoned:
            self._fail(unit, at_us)

    def _fail(self, unit: WorkUnit, at_us: int) -> None:
        """Let its caller, who was refused or waits no longer, retry."""
        unit.abandoned = True
        if not self._retriers:
            return
        wait_us = self._retriers[unit.kind].wait_us(unit.attempt, at_us)
        if wait_us == NO_MORE:
            return
        begin_us = at_us + wait_us
        timeout_us = self._kinds[unit.kind].timeout_us
        again = WorkUnit(unit.kind, unit.caller, begin_us, begin_us + timeout_us, unit.attempt + 1)
        self._at(begin_us, _RETRY, again)
