"""Deadline: work that cannot be done in time is not begun.

Refusing what has already expired is worth nearly nothing: under overload everything is then done a
few milliseconds too late. The slack rule refuses sooner:

    refused  <=>  deadline - now  <  p99 of the time that such work takes       (or it has passed)

The p99 is that of the backend's own time, without any queue of ours (a queue would make the rule
refuse more because we are slow, and slower because it lets in less), learned for each operation
class from permits that end with `request.measured`, by `kernels/windowed_quantile`. Airbnb's
"Building Services, Part 3" (2018) carries a deadline along the chain of calls and looks whether it
has passed; that form is `DeadlineSettings(slack=False)`.

Goodput of one server behind a line, in parts of what it can do, where every request is given 50
times the mean of its work (the tests' rig):

    load                1.2     2      5
    expired refused     0.84    0.56   0.21
    slack rule          1.00    1.00   1.00

- A request without a deadline gets `default_us`, and none is further off than `furthest_us`.
- Until a class has `samples_min` in its window, `assumed_us` stands for its p99 (0: only what has
  expired is refused).
- Of every `probe_every` that have time left, but too little, one is let in. Else a class whose p99
  has passed all its deadlines would never be seen to recover.
- A refusal is final: no waiting makes the time that is left longer. Refusing early at the door is
  one look; `look` is for the others: on leaving a queue, before each call, before a retry.

Choose the quantile below what the deadlines allow: with work whose p99 is longer than what callers
grant it, 99 of 100 are refused although most would have made it. `quantile=0.9` then.

Behind another service ask for the median, `quantile=0.5`: whoever is refused there takes with him
what the hops before have done. Measure the time of the whole way from here on, calls included, and
hold the permit until they are answered. Three hops in a row at twice the load (the lab's
`deadline-chain`), in parts of what all of them can do, in time and in vain:

    behind the first hop                       the p99          the median
    500 ms granted, plain pools for queues     0.58   0.26      0.91   0.08
    120 ms for what takes 84 at the p99        0.87   0.09      0.92   0.06

`wasted` counts work that ended after its deadline, and `wasted_us` the time that it took: what this
policy is there to keep near zero.

Cost: a look-up and a comparison; learning is a `WindowedQuantile.add`; the p99 is taken once each
`refresh_us`. Bounds: `operations_max` classes, the rest share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.verdict import NEVER
from sluicegate.kernels.windowed_quantile import WindowedQuantile
from sluicegate.policies.settings import check_ranges

RULE_ID: Final = "deadline"
OTHERS: Final = "(others)"
_SPAN_US_MAX: Final = 1 << 53


@final
@dataclass(frozen=True, kw_only=True)
class DeadlineSettings:
    """How much time is asked for, and how that is learned."""

    slack: bool = True
    default_us: int = ranged(10_000_000, 1, _SPAN_US_MAX)
    furthest_us: int = ranged(300_000_000, 1, _SPAN_US_MAX)
    quantile: float = ranged(0.99, 0.0, 1.0)
    assumed_us: int = ranged(0, 0, _SPAN_US_MAX)
    samples_min: int = ranged(200, 1, _SPAN_US_MAX)
    windows: int = ranged(6, 1, 4096)
    window_us: int = ranged(5_000_000, 1, _SPAN_US_MAX)
    refresh_us: int = ranged(500_000, 0, _SPAN_US_MAX)
    probe_every: int = ranged(100, 2, _SPAN_US_MAX)
    operations_max: int = ranged(64, 1, 4096)
    by_shard: bool = False  # learn it for each shard too: one that is slow must not refuse for all

    def __post_init__(self) -> None:
        check_ranges("deadline", self)
        if self.default_us > self.furthest_us:
            raise BadValue(
                "deadline.default_us",
                self.default_us,
                f"it must not be above furthest_us, {self.furthest_us}",
            )


class DeadlineStats(NamedTuple):
    """What was judged, and what became of it."""

    admitted: int
    expired: int  # refused: the deadline had passed
    too_late: int  # refused: time left, but too little
    probes: int  # admitted with too little time, to see
    unwound: int
    under_way: int
    ended: int
    wasted: int
    wasted_us: int
    worked_us: int
    needs_us: tuple[tuple[str, int], ...]  # by operation class


@final
class _ServiceTime:
    """How long the work of one class takes."""

    __slots__ = ("due_us", "need_us", "times")

    def __init__(self, settings: DeadlineSettings) -> None:
        self.times = WindowedQuantile(settings.windows, settings.window_us)
        self.need_us = settings.assumed_us
        self.due_us = 0


@final
class DeadlinePermit:
    """Work under way; when it ends its time is learned, and whether it was too late."""

    __slots__ = ("_deadline", "_ended", "_request", "_times")

    def __init__(self, deadline: Deadline, time: _ServiceTime, request: Request) -> None:
        self._deadline = deadline
        self._times = time
        self._request = request
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Learn from it, once."""
        if self._ended:
            return False
        self._ended = True
        self._deadline.record_end(self._times, self._request, outcome, now_us, spent)
        return True


@final
class Deadline:
    """Judges whether there is time enough."""

    __slots__ = (
        "_admitted",
        "_by_shard",
        "_ended",
        "_expired",
        "_probes",
        "_refresh_us",
        "_shards",
        "_short",
        "_times",
        "_too_late",
        "_unwound",
        "_wasted",
        "_wasted_us",
        "_worked_us",
        "settings",
    )

    def __init__(self, settings: DeadlineSettings | None = None) -> None:
        self.settings = DeadlineSettings() if settings is None else settings
        self._refresh_us = self.settings.refresh_us
        self._times: dict[str, _ServiceTime] = {}
        self._by_shard = self.settings.by_shard
        self._shards: dict[str, dict[str, _ServiceTime]] = {}  # the same, by shard and operation
        self._short = 0
        self._admitted = self._expired = self._too_late = self._probes = 0
        self._unwound = self._ended = self._wasted = self._wasted_us = self._worked_us = 0

    def admit(self, request: Request, now_us: int) -> DeadlinePermit | Decision:
        """Give it a deadline if it has none, and refuse it if there is not time enough."""
        remaining_us = self._settle(request, now_us)
        time = self._time_of(request)
        if remaining_us <= 0:
            self._expired += 1
            return _refusal()
        if remaining_us < self._need_us(time, now_us):
            self._short += 1
            if self._short < self.settings.probe_every:
                self._too_late += 1
                return _refusal()
            self._short = 0
            self._probes += 1
        self._admitted += 1
        return DeadlinePermit(self, time, request)

    def look(self, request: Request, now_us: int) -> Decision | None:
        """A refusal if it is too late by now; nothing is held, and nobody is let in to probe."""
        deadline_us = request.deadline_us
        if deadline_us is None:
            return None
        remaining_us = deadline_us - now_us
        if remaining_us <= 0:
            self._expired += 1
        elif remaining_us < self._need_us(self._time_of(request), now_us):
            self._too_late += 1
        else:
            return None
        return _refusal()

    def need_us(self, operation: str, now_us: int) -> int:
        """The least time that work of this class is begun with."""
        return self._need_us(self._time_for(operation), now_us)

    def record_end(
        self, time: _ServiceTime, request: Request, outcome: Outcome, now_us: int, spent: bool
    ) -> None:
        """A permit has ended; called by the permit."""
        if not spent:
            self._unwound += 1
            return
        self._ended += 1
        measured = request.measured
        service_us = 0
        if measured is not None and not measured.from_cache:
            service_us = measured.service_us
            self._worked_us += service_us
            # Whoever was cancelled says nothing about how long the work takes.
            if service_us > 0 and outcome is not Outcome.IGNORE:
                time.times.add(service_us, now_us)
        deadline_us = request.deadline_us
        if deadline_us is not None and now_us > deadline_us:
            self._wasted += 1
            self._wasted_us += service_us

    def stats(self) -> DeadlineStats:
        """Counts since the start, and the time asked for now."""
        return DeadlineStats(
            self._admitted,
            self._expired,
            self._too_late,
            self._probes,
            self._unwound,
            self._admitted - self._unwound - self._ended,
            self._ended,
            self._wasted,
            self._wasted_us,
            self._worked_us,
            tuple([(operation, one.need_us) for operation, one in self._times.items()]),
        )

    def _settle(self, request: Request, now_us: int) -> int:
        """The time left; a deadline that is absent or too far off is set."""
        settings = self.settings
        deadline_us = request.deadline_us
        if deadline_us is None:
            # From its arrival, if that is known: what it has waited is gone.
            since_us = request.arrived_us
            if not 0 < since_us <= now_us:
                since_us = now_us
            deadline_us = since_us + settings.default_us
            request.deadline_us = deadline_us
        elif deadline_us - now_us > settings.furthest_us:
            deadline_us = now_us + settings.furthest_us
            request.deadline_us = deadline_us
        return deadline_us - now_us

    def _time_of(self, request: Request) -> _ServiceTime:
        operation, shard = request.operation, request.shard
        if not self._by_shard or not shard:
            return self._time_for(operation)
        of_shard = self._shards.get(shard)
        if of_shard is not None:
            time = of_shard.get(operation)
            if time is not None:
                return time
        time = self._time_for(f"{operation}@{shard}")
        if time is not self._times.get(OTHERS):
            self._shards.setdefault(shard, {})[operation] = time
        return time

    def _time_for(self, operation: str) -> _ServiceTime:
        time = self._times.get(operation)
        if time is None:
            if len(self._times) >= self.settings.operations_max:
                operation = OTHERS
                time = self._times.get(OTHERS)
            if time is None:
                time = self._times[operation] = _ServiceTime(self.settings)
        return time

    def _need_us(self, time: _ServiceTime, now_us: int) -> int:
        if now_us >= time.due_us or time.due_us - now_us > self._refresh_us:
            self._learn(time, now_us)
        return time.need_us

    def _learn(self, time: _ServiceTime, now_us: int) -> None:
        settings = self.settings
        time.due_us = now_us + settings.refresh_us
        time.need_us = settings.assumed_us
        if settings.slack and time.times.count(now_us) >= settings.samples_min:
            time.need_us = int(time.times.quantile(settings.quantile, now_us) or 0.0)


def _refusal() -> Decision:
    return Decision(False, 0, NEVER, 0, DEADLINE, RULE_ID)
