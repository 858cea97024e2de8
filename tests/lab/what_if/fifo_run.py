"""An oracle of what-if: a plain pool, first in, first out, on a heap of events without tasks.

The queue serves also requests whose callers have given up. It is bounded (`queue_max`); a request
that finds it full is turned away. Events of one instant happen in this order: first what was
scheduled (a worker is done, a caller gives up or retries), in the order of scheduling, and then
what comes.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final, final

from sluicegate.lab.retries import NO_MORE
from sluicegate.lab.what_if.outcomes import GAVE_UP, GOOD, REFUSED, TURNED_AWAY, OutcomeCounts
from sluicegate.lab.what_if.plan import WhatIfPlan
from sluicegate.lab.what_if.runs import make_retriers
from sluicegate.lab.what_if.traffic import Traffic
from sluicegate.shadow.replay import SingleReplay

_SERVED: Final = 0
_GIVE_UP: Final = 1
_AGAIN: Final = 2


@final
@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt at one captured request."""

    request: int
    kind: int  # its class
    first_us: int
    deadline_us: int
    work_us: int
    number: int
    begun_us: int = 0
    over: bool = False  # its caller has an answer, or waits no longer


def run_fifo(plan: WhatIfPlan, traffic: Traffic, single: SingleReplay) -> OutcomeCounts:
    """Run the traffic past the rules into the pool."""
    return _FifoRun(plan, traffic, single).run()


@final
class _FifoRun:
    def __init__(self, plan: WhatIfPlan, traffic: Traffic, single: SingleReplay) -> None:
        self._plan = plan
        self._traffic = traffic
        self._single = single
        self._began_us = traffic.began_us
        self._retriers = make_retriers(plan)
        self._idle = plan.backend.workers
        self._queue: deque[_Attempt] = deque()
        self._events: list[tuple[int, int, int, _Attempt]] = []
        self._set = 0
        self.counts = OutcomeCounts(span_us=traffic.span_us, workers=plan.backend.workers)

    def run(self) -> OutcomeCounts:
        """Run until all that came has ended."""
        events, classes = self._events, self._traffic.classes
        timeout_us = self._plan.timeout_us
        for request, at_us, work_us in self._traffic.arrivals(self._plan):
            while events and events[0][0] <= at_us:
                self._run_event()
            kind = classes[request]
            if self._retriers:
                self._retriers[kind].first(at_us)
            self._enter(_Attempt(request, kind, at_us, at_us + timeout_us, work_us, 0), at_us)
        while events:
            self._run_event()
        return self.counts

    def _run_event(self) -> None:
        now_us, _, what, attempt = heapq.heappop(self._events)
        if what == _SERVED:
            self._finish(attempt, now_us)
        elif what == _AGAIN:
            self._enter(attempt, now_us)
        elif not attempt.over:
            self._fail(attempt, now_us, GAVE_UP)

    def _at(self, at_us: int, what: int, attempt: _Attempt) -> None:
        self._set += 1
        heapq.heappush(self._events, (at_us, self._set, what, attempt))

    def _enter(self, attempt: _Attempt, now_us: int) -> None:
        counts, single = self.counts, self._single
        code = single.decide(attempt.request, self._began_us + now_us)
        if code < 0:
            counts.unasked += 1
            return
        counts.attempts += 1
        if code > 0:
            counts.record_refusal(single.rule_id(attempt.request, code))
            self._fail(attempt, now_us, REFUSED)
        elif self._idle > 0:
            self._idle -= 1
            self._serve(attempt, now_us)
            if self._retriers and now_us + attempt.work_us > attempt.deadline_us:
                self._at(attempt.deadline_us + 1, _GIVE_UP, attempt)
        elif len(self._queue) >= self._plan.queue_max:
            self._fail(attempt, now_us, TURNED_AWAY)
        else:
            self._queue.append(attempt)
            counts.record_queue(len(self._queue), now_us)
            if self._retriers:
                # An answer at the deadline is in time.
                self._at(attempt.deadline_us + 1, _GIVE_UP, attempt)

    def _serve(self, attempt: _Attempt, now_us: int) -> None:
        attempt.begun_us = now_us
        self._at(now_us + attempt.work_us, _SERVED, attempt)

    def _finish(self, attempt: _Attempt, now_us: int) -> None:
        good = now_us <= attempt.deadline_us  # until then nobody gives up
        self.counts.record_work(attempt.begun_us, now_us, useful=good)
        if good:
            attempt.over = True
            self.counts.record_end(attempt.kind, GOOD, attempt.first_us, now_us)
        elif not attempt.over:
            self._fail(attempt, now_us, GAVE_UP)
        if self._queue:
            self._serve(self._queue.popleft(), now_us)
        else:
            self._idle += 1

    def _fail(self, attempt: _Attempt, now_us: int, how: int) -> None:
        """End the attempt; its caller may retry."""
        attempt.over = True
        if self._retriers:
            wait_us = self._retriers[attempt.kind].wait_us(attempt.number, now_us)
            if wait_us != NO_MORE:
                begin_us = now_us + wait_us
                again = _Attempt(
                    attempt.request,
                    attempt.kind,
                    attempt.first_us,
                    begin_us + self._plan.timeout_us,
                    attempt.work_us,
                    attempt.number + 1,
                )
                self._at(begin_us, _AGAIN, again)
                return
        ended_us = attempt.deadline_us if how == GAVE_UP else now_us
        self.counts.record_end(attempt.kind, how, attempt.first_us, ended_us)
