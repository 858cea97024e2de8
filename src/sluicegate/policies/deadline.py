"""Deadline: work that cannot be done in time is not begun.

Refusing what has already expired is worth nearly nothing: under overload everything is then done a
few milliseconds too late. The slack rule refuses sooner:

    refused  <=>  deadline - now  <  p99 of the time that such work takes       (or it has passed)

The p99 is that of the backend's own time, without any queue of ours (a queue would make the rule
refuse more because we are slow, and slower because it lets in less), learned for each operation
class from work that was done, by `kernels/windowed_quantile`. Airbnb's "Building Services, Part 3"
(2018) carries a deadline along the chain of calls and looks whether it has passed; that form is
`DeadlineSettings(slack=False)`.

Goodput of one server behind a line, in parts of what it can do, where every request is given 50
times the mean of its work (the tests' rig):

    load                1.2     2      5
    expired refused     0.84    0.56   0.21
    slack rule          1.00    1.00   1.00

- A request without a deadline gets `default_us`, and none is further off than `furthest_us`.
- Until a class has `samples_min` in its window, `assumed_us` stands for its p99 (0: only what has
  expired is refused).
- What was slow once must not refuse for as long as the window remembers it. So no more time is
  asked for than the slowest work of the last moment took (`recent_us`, and what was before it), or
  than the p99 of the best of the sub-windows, whichever is longer: after a stall that is the p99 as
  it was, and while work is slow the slow work itself.
- Work that was cut off at its deadline says "at least so long", never "so long". After `cuts_min`
  of it in a row, with nothing done in between, whoever has no more time than they had is refused.
- Where nothing of a class was let in for `probe_us`, one is that has too little time. One that is
  done ends a row of cuts, and brings the last moment up to date. While such probes are in time more
  are let in, one more at work for each round of them, and half as many after one that is not: what
  was learned of a crowd is not true of a few. With 32 places before four workers of 10 ms, callers
  who wait for 60 ms were all refused while nothing was at work: 0.05 of what can be done was
  served at twice the load, and is 0.41 with no worker idle.
- A refusal is final: no waiting makes the time that is left longer. Refusing early at the door is
  one look; `look` is for the others: on leaving a queue, before each call, before a retry.

Behind another service ask for the median, `quantile=0.5`: whoever is refused there takes with him
what the hops before have done. Measure the time of the whole way from here on, calls included, and
hold the permit until they are answered. Three hops in a row at twice the load, each with places for
its own part alone, in parts of what all of them can do, in time and in vain:

    behind the first hop                       the p99          the median
    500 ms granted, plain pools for queues     0.58   0.26      0.91   0.08
    120 ms for what takes 84 at the p99        0.87   0.09      0.92   0.06

`wasted` counts work that ended after its deadline, and `wasted_us` the time that it took: what this
policy is there to keep near zero.

Cost: a look-up and a comparison; learning is a `WindowedQuantile.add`; the p99 is taken once each
`refresh_us`. Bounds: `operations_max` classes. The rest share one, of which only what has expired
is refused: what is slow among them would be asked of what is quick. What nobody has asked for in
ten minutes makes room for what comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.permit import BasePermit, Outcome
from sluicegate.contracts.policy import BasePolicy
from sluicegate.contracts.reasons import DEADLINE
from sluicegate.contracts.request import Request
from sluicegate.kernels.bounds import ranged
from sluicegate.kernels.verdict import NEVER
from sluicegate.kernels.windowed_quantile import WindowedQuantile
from sluicegate.policies.keyed_table import FORGET_US
from sluicegate.policies.settings import check_ranges

RULE_ID: Final = "deadline"
OTHERS: Final = "(others)"
_SWEEP_US: Final = 1_000_000
_SPAN_US_MAX: Final = 1 << 53
_NEVER_US: Final = -(1 << 60)


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
    refresh_us: int = ranged(100_000, 0, _SPAN_US_MAX)
    recent_us: int = ranged(300_000, 1, _SPAN_US_MAX)
    cuts_min: int = ranged(10, 1, _SPAN_US_MAX)
    probe_us: int = ranged(100_000, 0, _SPAN_US_MAX)
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

    __slots__ = (
        "_before_us",
        "_cut_after_us",
        "_cut_at_us",
        "_cuts",
        "_settings",
        "_since_us",
        "_slack",
        "_slowest_us",
        "_trials",
        "_trials_cut_us",
        "_trials_max",
        "admitted_us",
        "asked_us",
        "due_us",
        "need_us",
        "times",
    )

    def __init__(self, settings: DeadlineSettings, slack: bool, now_us: int) -> None:
        self._settings = settings
        self._slack = slack
        self.asked_us = now_us  # when anybody last wanted to be let in
        self.times = WindowedQuantile(settings.windows, settings.window_us)
        self.need_us = settings.assumed_us
        self.due_us = 0
        self.admitted_us = _NEVER_US  # the last one
        # The slowest of this moment, and of the one before.
        self._since_us = 0
        self._slowest_us = self._before_us = 0
        # A row of work that was cut off, with nothing done in between.
        self._cuts = 0
        self._cut_after_us = 0
        self._cut_at_us = 0
        # Those at work that had too little time, and how many that may be.
        self._trials = 0
        self._trials_max = 0.0
        self._trials_cut_us = 0

    def begin_trial(self, now_us: int, probe_us: int) -> bool:
        """Whether one that has too little time is let in, to see."""
        if self._trials >= int(self._trials_max) and 0 <= now_us - self.admitted_us < probe_us:
            return False
        self._trials += 1
        return True

    def end_trial(self, in_time: bool | None, began_us: int, now_us: int) -> None:
        """One of them has ended, in time or not; None where that shows nothing."""
        self._trials -= 1
        if in_time is None:
            return
        most = self._trials_max
        if in_time:
            self._trials_max = most + 1.0 / most if most >= 1.0 else 1.0
        elif began_us >= self._trials_cut_us:  # else it was begun before there were fewer
            self._trials_max = most / 2 if most >= 2.0 else 0.0
            self._trials_cut_us = now_us

    def record_done(self, service_us: int, now_us: int) -> None:
        """It took so long."""
        self.times.add(service_us, now_us)
        if now_us - self._since_us >= self._settings.recent_us:
            self._roll(now_us)
        if service_us > self._slowest_us:
            self._slowest_us = service_us
        if self._cuts >= self._settings.cuts_min:
            self.due_us = now_us
        self._cuts = self._cut_after_us = 0

    def record_cut(self, service_us: int, now_us: int) -> None:
        """It was given up after so long."""
        self._cuts += 1
        self._cut_at_us = now_us
        if service_us > self._cut_after_us:
            self._cut_after_us = service_us

    def learn(self, now_us: int) -> None:
        """Say anew how much time there must be."""
        settings = self._settings
        self.due_us = now_us + settings.refresh_us
        self.need_us = self._learned_us(now_us)
        if not self._slack or self._cuts < settings.cuts_min:
            return
        if now_us - self._cut_at_us < settings.window_us:
            self.need_us = max(self.need_us, self._cut_after_us + 1)

    def _learned_us(self, now_us: int) -> int:
        settings, times = self._settings, self.times
        if not self._slack or times.count(now_us) < settings.samples_min:
            return settings.assumed_us
        need_us = int(times.quantile(settings.quantile, now_us) or 0.0)
        best_us = times.lowest(settings.quantile, settings.samples_min // settings.windows)
        self._roll(now_us)
        recent_us = max(self._slowest_us, self._before_us)
        if best_us is None or recent_us == 0:
            return need_us
        return min(need_us, max(recent_us, int(best_us)))

    def _roll(self, now_us: int) -> None:
        """Begin the moment of now."""
        passed_us = now_us - self._since_us
        if passed_us >= self._settings.recent_us:
            near = passed_us < 2 * self._settings.recent_us
            self._before_us = self._slowest_us if near else 0
            self._slowest_us = 0
            self._since_us = now_us


@final
class DeadlinePermit(BasePermit):
    """Work under way; when it ends its time is learned, and whether it was too late."""

    __slots__ = ("_began_us", "_deadline", "_ended", "_request", "_times")

    def __init__(
        self, deadline: Deadline, time: _ServiceTime, request: Request, began_us: int = 0
    ) -> None:
        """`began_us` is given for a trial, a probe that is counted; 0 for all others."""
        self._deadline = deadline
        self._times = time
        self._request = request
        self._began_us = began_us
        self._ended = False

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """Learn from it, once."""
        if self._ended:
            return False
        self._ended = True
        if self._began_us:
            self._times.end_trial(self._in_time(outcome, now_us, spent), self._began_us, now_us)
        self._deadline.record_end(self._times, self._request, outcome, now_us, spent)
        return True

    def _in_time(self, outcome: Outcome, now_us: int, spent: bool) -> bool | None:
        if not spent or outcome is Outcome.IGNORE:
            return None
        deadline_us = self._request.deadline_us
        return outcome is Outcome.SUCCESS and (deadline_us is None or now_us <= deadline_us)


@final
class Deadline(BasePolicy):
    """Judges whether there is time enough."""

    __slots__ = (
        "_admitted",
        "_by_shard",
        "_ended",
        "_expired",
        "_probes",
        "_refresh_us",
        "_shards",
        "_swept_us",
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
        self._swept_us = 0
        self._admitted = self._expired = self._too_late = self._probes = 0
        self._unwound = self._ended = self._wasted = self._wasted_us = self._worked_us = 0

    def admit(self, request: Request, now_us: int) -> DeadlinePermit | Decision:
        """Give it a deadline if it has none, and refuse it if there is not time enough."""
        remaining_us = self._settle(request, now_us)
        time = self._time_of(request, now_us)
        time.asked_us = now_us
        if remaining_us <= 0:
            self._expired += 1
            return refusal()
        if now_us >= time.due_us or time.due_us - now_us > self._refresh_us:
            time.learn(now_us)
        began_us = 0
        if remaining_us < time.need_us:
            if not time.begin_trial(now_us, self.settings.probe_us):
                self._too_late += 1
                return refusal()
            self._probes += 1
            began_us = now_us
        time.admitted_us = now_us
        self._admitted += 1
        return DeadlinePermit(self, time, request, began_us)

    def look(self, request: Request, now_us: int) -> Decision | None:
        """A refusal if it is too late by now; nothing is held, and nobody is let in to probe."""
        deadline_us = request.deadline_us
        if deadline_us is None:
            return None
        remaining_us = deadline_us - now_us
        if remaining_us <= 0:
            self._expired += 1
        elif remaining_us < self._need_us(self._time_of(request, now_us), now_us):
            self._too_late += 1
        else:
            return None
        return refusal()

    def need_us(self, operation: str, now_us: int) -> int:
        """The least time that work of this class is begun with."""
        return self._need_us(self._time_for(operation, now_us), now_us)

    def record_end(
        self, time: _ServiceTime, request: Request, outcome: Outcome, now_us: int, spent: bool
    ) -> None:
        """A permit has ended; called by the permit."""
        if not spent:
            self._unwound += 1
            time.admitted_us = _NEVER_US  # refused further on, so it shows nothing
            return
        self._ended += 1
        measured = request.measured
        service_us = 0
        if measured is not None and not measured.from_cache:
            service_us = measured.service_us
            self._worked_us += service_us
        deadline_us = request.deadline_us
        if service_us > 0:
            # Whoever was cancelled, or failed before its time was up, says nothing about it.
            if outcome is Outcome.SUCCESS:
                time.record_done(service_us, now_us)
            elif outcome is Outcome.DROPPED and deadline_us is not None and now_us >= deadline_us:
                time.record_cut(service_us, now_us)
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

    def _time_of(self, request: Request, now_us: int) -> _ServiceTime:
        operation, shard = request.operation, request.shard
        if not self._by_shard or not shard:
            return self._times.get(operation) or self._time_for(operation, now_us)
        of_shard = self._shards.get(shard)
        if of_shard is not None:
            time = of_shard.get(operation)
            if time is not None:
                return time
        time = self._time_for(f"{operation}@{shard}", now_us)
        if time is not self._times.get(OTHERS):
            self._shards.setdefault(shard, {})[operation] = time
        return time

    def _time_for(self, operation: str, now_us: int) -> _ServiceTime:
        time = self._times.get(operation)
        if time is None:
            if len(self._times) >= self.settings.operations_max:
                self._make_room(now_us)
            if len(self._times) >= self.settings.operations_max:
                operation = OTHERS
                time = self._times.get(OTHERS)
            if time is None:
                slack = self.settings.slack and operation != OTHERS
                time = self._times[operation] = _ServiceTime(self.settings, slack, now_us)
        return time

    def _make_room(self, now_us: int) -> None:
        """Forget what nobody asks for; what is under way of it ends as it would have."""
        if 0 <= now_us - self._swept_us < _SWEEP_US:
            return
        self._swept_us = now_us
        forgotten = [
            operation
            for operation, time in self._times.items()
            if now_us - time.asked_us >= FORGET_US
        ]
        if forgotten:
            for operation in {*forgotten, OTHERS} & self._times.keys():
                del self._times[operation]
            self._shards.clear()  # filled again from what is left

    def _need_us(self, time: _ServiceTime, now_us: int) -> int:
        if now_us >= time.due_us or time.due_us - now_us > self._refresh_us:
            time.learn(now_us)
        return time.need_us


def refusal() -> Decision:
    """Return what is decided where too little time is left."""
    return Decision(False, 0, NEVER, 0, DEADLINE, RULE_ID)
