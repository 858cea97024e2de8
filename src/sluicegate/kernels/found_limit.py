"""Found limit: how many units may be in flight where nobody knows it.

There is no limit until work ends too late or callers hang up. Then the limit follows the time that
work spends at the resource, which is in-flight / throughput (Little's law), so it needs no
measurement from before the overload.

    free        work takes more than half of the callers' patience, and ends in vain or takes far
                longer than it once did: limit to a part of what is in flight
                but not if the time falls: a stall has ended, and what stood is worked off
    limiting    time above the target: fewer, in proportion, at most half
                time below the target, and a queue stands here: more
                fewer in flight did not shorten the time, in the window after the first cut or
                twice in succession: the work is slow by itself, so more
                no queue for `CALM_WINDOWS`: free again

The target is `TARGET_SHARE` of the callers' patience, but at least `ROOM` times what the work takes
by itself, as far as that is known.

While limiting, a window is the first `WINDOW` units that are sent after the last change. It ends
when all of them have: the short ones end first, and must not speak for all.

Cost: a few additions for each unit. Bounds: one record of one window.
"""

from __future__ import annotations

from typing import Final, final

TARGET_SHARE: Final = 0.25
TARGET_MOST: Final = 0.8
ROOM: Final = 2.0
LATE_SHARE: Final = 0.05
WINDOW: Final = 16
FEW: Final = 4
GROWTH: Final = 1.25
CALM_WINDOWS: Final = 8
BLAMED_SHARE: Final = 0.5
PATIENT_SHARE: Final = 0.5
ALONE_WEIGHT: Final = 1 / 512
HOLDS_MIN: Final = 16
HOLDS_MAX: Final = 512
LIMIT_MAX: Final = 1 << 20
_PATIENCE_WEIGHT: Final = 1 / 32
_SLOWEST: Final = 4  # a window does not wait for a unit that takes so many times the mean


@final
class FoundLimit:
    """The limit of one resource."""

    __slots__ = (
        "_alone_inflight",
        "_alone_us",
        "_blamed",
        "_calm",
        "_count",
        "_first",
        "_here",
        "_hold_us",
        "_holds",
        "_inflight",
        "_late",
        "_members",
        "_queued",
        "_sent",
        "_since_us",
        "_sum",
        "_times",
        "_unmoved",
        "_wanted",
        "_was_inflight",
        "_was_times",
        "_window",
        "limit",
        "limiting",
        "patience_us",
    )

    def __init__(self) -> None:
        self.limit = LIMIT_MAX
        self.limiting = False
        self.patience_us = 0.0  # of the callers, on average; 0: nobody has shown any
        self._alone_us = 0.0  # the least that work has taken; 0: not known
        self._alone_inflight = 0.0  # with so many in flight
        self._was_times = self._was_inflight = 0.0  # the window before
        self._unmoved = False  # fewer in flight did not shorten the time, once
        self._first = False  # the window after the first cut
        self._hold_us = 0  # no limit before this instant
        self._holds = HOLDS_MIN
        self._here = 0  # units in flight now
        self._calm = 0
        self._window = 1
        self._since_us = 0
        self._members = 0  # units that were sent in this window
        self._wanted = WINDOW  # of which it has so many
        self._sent = self._count = self._late = self._inflight = self._sum = 0
        self._blamed = False  # the window before took too long, without a limit
        self._times = 0.0  # the sum of the times over the usual ones
        self._queued = False

    def send(self) -> int:
        """A unit is sent; return its window, which `record` is given, or 0 if it has none."""
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
        patience_us: int,
        usual_us: float,
        late: bool,
        queued: bool,
    ) -> None:
        """Record a unit that has ended.

        `inflight` were in flight when it was sent, `patience_us` is the time its caller had in all
        (0: not known), `usual_us` the time that such work usually takes, `late` whether the result
        was in vain, and `queued` whether others wait.
        """
        self._here -= 1
        if patience_us:
            self._learn_patience(patience_us)
        self._queued = self._queued or queued
        if window == self._window or not self.limiting:
            self._count += 1
            self._sum += took_us
            self._times += took_us / max(usual_us, 1.0)
            self._inflight += inflight
            self._late += late
        self._end_window(now_us)

    def forget(self, window: int, now_us: int) -> None:
        """A unit has ended that says nothing."""
        self._here -= 1
        if window == self._window:
            self._members -= 1
            self._end_window(now_us)

    def record_hung_up(self, age_us: int) -> None:
        """Record how old a request was when its caller hung up."""
        self._learn_patience(age_us)
        if not self.limiting:
            self._late += 1

    def _learn_patience(self, patience_us: int) -> None:
        weight = _PATIENCE_WEIGHT if self.patience_us else 1.0
        self.patience_us += (patience_us - self.patience_us) * weight

    def _end_window(self, now_us: int) -> None:
        """Decide, if all units of the window have ended."""
        count, age_us = self._count, now_us - self._since_us
        if count < FEW:
            return
        if (
            age_us > BLAMED_SHARE * self.patience_us > 0
        ):  # what is not sent by now belongs to no window
            self._wanted = min(self._wanted, max(FEW, self._members))
        mean_us = self._sum / count
        if self.limiting:
            if self._members < self._wanted:
                return
            if count < self._wanted and (2 * count < self._wanted or age_us < _SLOWEST * mean_us):
                return
        elif count < WINDOW and not age_us > BLAMED_SHARE * self.patience_us > 0:
            return
        late = self._late > LATE_SHARE * count
        inflight, times = self._inflight / count, self._times / count
        if self.limiting:
            self._steer(mean_us, inflight, times, late, now_us)
        else:
            self._watch(mean_us, inflight, times, late, now_us)
        self._window += 1
        self._since_us = now_us
        self._members = 0
        self._wanted = 2 * WINDOW if self._first else WINDOW
        self._sent = self._count = self._late = self._inflight = self._sum = 0
        self._times = 0.0
        self._queued = False

    def _watch(
        self, mean_us: float, inflight: float, times: float, late: bool, now_us: int
    ) -> None:
        """A window without a limit.

        One window too long may be the end of a stall, and so are more while fewer units are sent
        than end: then what stood in the meantime is worked off, and a limit would be in the way.
        """
        blamed = mean_us > BLAMED_SHARE * self.patience_us
        again, self._blamed = self._blamed and blamed, blamed
        longer = mean_us / self._alone_us if self._alone_us else 0.0
        late = late or longer > 2 * ROOM
        if longer > ROOM:  # what is sent now finds more in flight
            late = late or mean_us * self._here > self.patience_us * inflight
        if not blamed or not late:
            if not late:
                self._learn_alone(mean_us, inflight)
        elif not again or self._sent < self._count:
            return
        elif now_us >= self._hold_us and inflight >= 2 and self.patience_us:
            self.limiting = self._first = True
            self._unmoved = False
            self._calm = 0
            self._was_times, self._was_inflight = times, inflight
            share = self._target_us(self._work_us(mean_us, inflight)) / mean_us
            self.limit = max(1, int(inflight * min(0.5, max(0.25, share))))

    def _learn_alone(self, mean_us: float, inflight: float) -> None:
        """The least mean of a window; a larger one counts slowly."""
        if self._alone_us == 0.0 or mean_us < self._alone_us:
            self._alone_us, self._alone_inflight = mean_us, inflight
        else:
            self._alone_us += (mean_us - self._alone_us) * ALONE_WEIGHT

    def _work_us(self, mean_us: float, inflight: float) -> float:
        """Return what work takes by itself, as far as the least time shows it; else 0.

        If time grew in proportion to what was in flight, work queued at the resource even then.
        """
        alone_us = self._alone_us
        return alone_us if alone_us * inflight > GROWTH * mean_us * self._alone_inflight else 0.0

    def _target_us(self, work_us: float) -> float:
        patience_us = self.patience_us
        target_us = max(TARGET_SHARE * patience_us, ROOM * work_us)
        return max(1.0, min(target_us, TARGET_MOST * patience_us))

    def _steer(
        self, mean_us: float, inflight: float, times: float, late: bool, now_us: int
    ) -> None:
        """A window with a limit."""
        first, self._first = self._first, False
        least = 0.5
        if inflight < 0.8 * self._was_inflight:
            proportional = self._was_times * inflight / self._was_inflight
            unmoved = times > (self._was_times + proportional) / 2
            if unmoved and (first or self._unmoved):
                self._alone_us, self._alone_inflight = mean_us, inflight
                if first:
                    self._hold(mean_us, now_us)
                    return
            self._unmoved = unmoved
            if not unmoved:
                least = 0.1
        if self._alone_us == 0.0 or mean_us < self._alone_us:
            self._alone_us, self._alone_inflight = mean_us, inflight
        work_us = self._work_us(mean_us, inflight)
        if work_us >= PATIENT_SHARE * self.patience_us:  # a queue would help nobody
            self._hold(mean_us, now_us)
            return
        self._was_times, self._was_inflight = times, inflight
        self._calm = 0 if self._queued else self._calm + 1
        if self._calm >= CALM_WINDOWS:
            self._holds = HOLDS_MIN
            self._set_free(now_us)
            return
        ratio = mean_us / self._target_us(work_us)
        if ratio > 1.0:
            self.limit = max(1, int(min(inflight, self.limit) * max(least, 1 / ratio)))
        elif self._queued:
            most = 2.0 if mean_us < GROWTH * self._alone_us else GROWTH
            grown = self.limit * min(most, 1 / ratio)
            self.limit = max(int(grown), self.limit + (ratio < 0.8))

    def _hold(self, mean_us: float, now_us: int) -> None:
        """No limit helps here: the next trial is twice as far off."""
        self._holds = min(HOLDS_MAX, 2 * self._holds)
        self._set_free(now_us + int(self._holds * mean_us))

    def _set_free(self, hold_us: int) -> None:
        self.limiting = False
        self._blamed = False
        self.limit = LIMIT_MAX
        self._hold_us = hold_us
        self._was_times = self._was_inflight = 0.0
