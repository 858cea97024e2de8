"""Found limit: how many units may be in flight at a resource of unknown capacity.

There is no limit until work ends too late or callers hang up. Then the limit follows the time that
work spends at the resource, which is in-flight / throughput (Little's law), so it needs no
measurement from before the overload.

    free        limit to a part of the units in flight, if in two windows in succession
                most units took more than half of the callers' patience, and work ended too late,
                took far longer than it can, or would end too late if sent now; or
                work took longer than work of its kind by itself, and at their rate the last unit
                in flight would end after half of the patience
                but not while fewer units are sent than end: the resource recovers from a stall
    still       nothing has ended since a unit was sent whose deadline has passed: send no more
                until one ends. Units in flight then say nothing about the capacity
    limiting    time above the target: fewer, in proportion
                time below the target, and a queue stands here: more, by at least one
                fewer in flight did not shorten the time, in the window after the first cut or
                twice in succession: the work is slow by itself, so more
                no queue for `_CALM_WINDOWS`: free again

The target is `TARGET_SHARE` of the callers' patience, but at least `ROOM` times what the work takes
by itself. The least time that was seen is that, unless the time has since changed in proportion to
what is in flight: then units queued at the resource even when it was least.

A window is `WINDOW` units, or those of half a patience if they are fewer. Without a limit it lasts
at least as long as the work, as slots that were filled together end together. While limiting, its
units are the first that are sent after the last change, and it ends when all of them have: the
short ones end first, and must not speak for all.

Where several processes use a resource, the units of one are too few, and `judge` takes windows of
all of them (`policies/admission/fleet_limit.py`). Then `shared` is set, and there is no limit here.

Cost: a few additions for each unit. Bounds: one record of one window.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from sluicegate.kernels.service_times import follow_least

TARGET_SHARE: Final = 0.25
HALF: Final = 0.5  # of the patience: work that takes more leaves a queue no room
ROOM: Final = 2.0
WINDOW: Final = 16
GROWTH: Final = 1.25
PATIENCE_WEIGHT: Final = 1 / 32
LIMIT_MAX: Final = 1 << 20
FEW: Final = WINDOW // 4
_CALM_WINDOWS: Final = WINDOW // 2
_HOLDS_MAX: Final = 512
_SLOWEST: Final = 4  # a window does not wait for a unit that takes so many times the mean


class Window(NamedTuple):
    """The measures of one window."""

    mean_us: float  # that one took
    slow: bool  # most took more than `HALF` of the patience
    inflight: float  # when one was sent, on average
    times: float  # the mean of what one took over the least time of such work
    late: bool  # at least one ended too late
    each_us: float  # between two ends, if the resource was never idle; else 0
    here: int  # in flight now
    draining: bool  # fewer were sent than ended
    queued: bool  # others wait


@final
class FoundLimit:
    """The limit of one resource."""

    __slots__ = (
        "_alone_inflight",
        "_blamed",
        "_calm",
        "_count",
        "_due_us",
        "_here",
        "_hold_us",
        "_holds",
        "_idle",
        "_inflight",
        "_late",
        "_members",
        "_queued",
        "_sent",
        "_since_us",
        "_slow",
        "_still",
        "_stood_us",
        "_sum",
        "_times",
        "_unmoved",
        "_wanted",
        "_was_inflight",
        "_was_times",
        "_window",
        "alone_us",
        "first",
        "limit",
        "limiting",
        "patience_us",
        "shared",
    )

    def __init__(self) -> None:
        self.limit = LIMIT_MAX
        self.limiting = False
        self.patience_us = 0.0  # of the callers, on average; 0: nobody has shown any
        self.alone_us = 0.0  # the least that work has taken; 0: not known
        self._alone_inflight = 0.0  # the number in flight then
        self._was_times = self._was_inflight = 0.0  # the window before
        self._unmoved = False  # fewer in flight did not shorten the time, once
        self.first = False  # the next window is the one after the first cut
        self.shared = False  # set by `share`
        self._hold_us = 0  # no limit before this instant
        self._holds = WINDOW
        self._here = 0  # units in flight now
        self._due_us = 0  # the deadline of the first unit sent since the last end; 0: none
        self._still = False  # that unit is late, so no more are sent
        self._stood_us = 0  # when the last standstill ended
        self._calm = 0
        self._window = 1
        self._since_us = 0
        self._members = 0  # units that were sent in this window
        self._wanted = WINDOW  # units that it needs
        self._sent = self._count = self._late = self._inflight = self._sum = 0
        self._slow = 0  # units that took more than `HALF` of the patience
        self._blamed = False  # the window before took too long, without a limit
        self._idle = True  # nothing was in flight at some time in this window
        self._times = 0.0  # the sum of the times over the least ones
        self._queued = False

    def send(self, now_us: int, deadline_us: int, patience_us: int) -> int:
        """A unit is sent; return its window, which `record` is given, or 0 if it has none.

        `patience_us` is the time its caller had in all. Both are 0 for a unit without a deadline.
        """
        if patience_us:
            self._learn_patience(patience_us)
        if not self._due_us:
            self._due_us = deadline_us
        elif now_us > self._due_us and not self.limiting:
            self._still = True
            self.limit = self._here + 1
        self._sent += 1
        self._here += 1
        if self._members >= self._wanted:
            return 0
        self._members += 1
        return self._window

    def record(
        self,
        window: int,
        took_us: int,
        now_us: int,
        inflight: int,
        least_us: float,
        late: bool,
        queued: bool,
    ) -> None:
        """Record a unit that has ended.

        `inflight` were in flight when it was sent, `least_us` is the least time that such work
        has taken, `late` whether the result came too late, and `queued` whether others wait.
        """
        self._end_one(now_us)
        if self.shared or now_us - took_us < self._stood_us:
            return
        self._queued = self._queued or queued
        if window == self._window or not self.limiting:
            self._count += 1
            self._sum += took_us
            self._slow += took_us > HALF * self.patience_us
            self._times += took_us / max(least_us, 1.0)
            self._inflight += inflight
            self._late += late
        self._end_window(now_us)

    def share(self, shared: bool) -> None:
        """The limit is found elsewhere from now on, or here again."""
        if shared != self.shared:
            self.shared = shared
            self._set_free(0)
            self._begin_window(0)

    def follow(self, limit: int) -> None:
        """Take a limit that was found elsewhere; 0 for none."""
        self.limiting = limit > 0
        self.limit = limit or LIMIT_MAX
        self._blamed = self.first = False

    def forget(self, window: int, now_us: int) -> None:
        """A unit has ended that says nothing."""
        self._end_one(now_us)
        if window == self._window and not self.shared:
            self._members -= 1
            self._end_window(now_us)

    def record_hung_up(self, age_us: int) -> None:
        """Record how old a request was when its caller hung up."""
        self._learn_patience(age_us)
        if not self.limiting:
            self._late += 1

    def record_rejected(self) -> None:
        """Record that a unit was rejected, since none may wait: that is a queue as well."""
        self._queued = True

    def _end_one(self, now_us: int) -> None:
        """Record the end of a unit, which ends a standstill."""
        self._here -= 1
        if not self._here:
            self._idle = True
        self._due_us = 0
        if self._still:
            self._still = False
            self._stood_us = now_us
            self.limit = LIMIT_MAX

    def _learn_patience(self, patience_us: int) -> None:
        weight = PATIENCE_WEIGHT if self.patience_us else 1.0
        self.patience_us += (patience_us - self.patience_us) * weight

    def _end_window(self, now_us: int) -> None:
        """Judge, if all units of the window have ended."""
        count, age_us = self._count, now_us - self._since_us
        if count < FEW:
            return
        long = age_us > HALF * self.patience_us > 0
        mean_us = self._sum / count
        if not self.limiting:
            if (count < WINDOW or age_us < self.alone_us) and not long:
                return
        else:
            if long:  # what is sent from now on belongs to no window
                self._wanted = min(self._wanted, max(FEW, self._members))
            wanted = self._wanted
            if self._members < wanted:
                return
            if count < wanted and (2 * count < wanted or age_us < _SLOWEST * mean_us):
                return
        window = Window(
            mean_us,
            2 * self._slow > count,
            self._inflight / count,
            self._times / count,
            self._late > 0,
            0.0 if self._idle else age_us / count,
            self._here,
            self._sent < count,
            self._queued,
        )
        self.judge(window, now_us)
        self._begin_window(now_us)

    def judge(self, window: Window, now_us: int) -> None:
        """Set or change the limit by what a window has shown."""
        if self.limiting:
            self._steer(window, now_us)
        else:
            self._watch(window, now_us)

    def _begin_window(self, now_us: int) -> None:
        self._window += 1
        self._since_us = now_us
        self._members = 0
        self._wanted = 2 * WINDOW if self.first else WINDOW
        self._sent = self._count = self._late = self._inflight = self._sum = self._slow = 0
        self._times = 0.0
        self._queued = self._idle = False

    def _watch(self, window: Window, now_us: int) -> None:
        """A window without a limit; the first that is too long may have a stall in it."""
        mean_us, inflight = window.mean_us, window.inflight
        patience_us = self.patience_us
        longer = mean_us / self.alone_us if self.alone_us else 0.0
        grown = min(longer, window.times) > ROOM
        doomed = grown and window.here * window.each_us > HALF * patience_us > 0
        blamed = doomed or (window.slow and patience_us > 0)
        again, self._blamed = self._blamed and blamed, blamed
        late = window.late or doomed or longer > 2 * ROOM
        if longer > ROOM:  # what is sent now finds more in flight
            late = late or mean_us * window.here > patience_us * inflight
        if not late:
            self._learn_alone(mean_us, inflight)
        elif again and not window.draining and inflight >= 2 and now_us >= self._hold_us:
            self.limiting = self.first = True
            self._unmoved = False
            self._calm = 0
            self._was_times, self._was_inflight = window.times, inflight
            share = self._target_us(self._work_us(mean_us, inflight)) / mean_us
            self.limit = max(1, int(inflight * min(HALF, max(TARGET_SHARE, share))))

    def _learn_alone(self, mean_us: float, inflight: float) -> None:
        """The least mean of a window; a larger one counts slowly."""
        if self.alone_us == 0.0 or mean_us < self.alone_us:
            self._alone_inflight = inflight
        self.alone_us = follow_least(self.alone_us, mean_us)

    def _work_us(self, mean_us: float, inflight: float) -> float:
        """Return what work takes by itself, as far as the least time shows it; else 0.

        If time grew and fell in proportion to the number in flight, work queued at the resource
        even when it took least.
        """
        most = GROWTH * mean_us * self._alone_inflight
        proportional = self.alone_us * inflight
        if proportional > most:  # it grew less
            return self.alone_us
        fewer = GROWTH * inflight < self._alone_inflight
        fell_less = fewer and mean_us * self._alone_inflight > GROWTH * proportional
        return self.alone_us if fell_less else 0.0

    def _target_us(self, work_us: float) -> float:
        patience_us = self.patience_us
        target_us = max(TARGET_SHARE * patience_us, ROOM * work_us)
        return max(1.0, min(target_us, patience_us / GROWTH))

    def _steer(self, window: Window, now_us: int) -> None:
        """A window with a limit."""
        mean_us, inflight, times = window.mean_us, window.inflight, window.times
        first, self.first = self.first, False
        least = HALF
        if GROWTH * inflight < self._was_inflight:
            proportional = self._was_times * inflight / self._was_inflight
            unmoved = times > (self._was_times + proportional) / 2
            if unmoved and (first or self._unmoved):
                self.alone_us, self._alone_inflight = mean_us, inflight
                if first:
                    self._hold(mean_us, now_us)
                    return
            self._unmoved = unmoved
            if not unmoved:
                least = 0.1
        if self.alone_us == 0.0 or mean_us < self.alone_us:
            self.alone_us, self._alone_inflight = mean_us, inflight
        work_us = self._work_us(mean_us, inflight)
        if work_us >= HALF * self.patience_us:  # a queue would leave no time for the work
            self._hold(mean_us, now_us)
            return
        self._was_times, self._was_inflight = times, inflight
        self._calm = 0 if window.queued else self._calm + 1
        if self._calm >= _CALM_WINDOWS:
            self._holds = WINDOW
            self._set_free(now_us)
            return
        ratio = mean_us / self._target_us(work_us)
        if ratio > 1.0:
            self.limit = max(1, int(min(inflight, self.limit) * max(least, 1 / ratio)))
        elif window.queued:
            most = ROOM if mean_us < GROWTH * self.alone_us else GROWTH
            grown = self.limit * min(most, 1 / ratio)
            self.limit = max(int(grown), self.limit + 1)

    def _hold(self, mean_us: float, now_us: int) -> None:
        """No limit helps here: the next trial is twice as far off."""
        self._holds = min(_HOLDS_MAX, 2 * self._holds)
        self._set_free(now_us + int(self._holds * mean_us))

    def _set_free(self, hold_us: int) -> None:
        self.limiting = False
        self._blamed = False
        self.limit = LIMIT_MAX
        self._hold_us = hold_us
        self._was_times = self._was_inflight = 0.0
