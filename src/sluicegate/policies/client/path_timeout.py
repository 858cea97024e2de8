"""Path timeout: a time-out that follows the round trips of one path.

    timeout = MARGIN * p99.9 of the round trips of the last minute, from FLOOR_US to CEILING_US

An answer that arrives after its call has timed out is evidence too: it raises the time-out at once,
to MARGIN times its round trip, for a minute. Otherwise a path that becomes slower than its time-out
would never be measured again, or would be outweighed by the quick answers before. Fewer than
`COUNT_MIN` round trips cannot show a p99.9, so their highest is used. Without any, the time-out is
the ceiling.

Cost: a sample of the sketch for each read of a connection, and a quantile once a second. Bounds:
those of `WindowedQuantile`.
"""

from __future__ import annotations

from typing import Final, final

from sluicegate.kernels.windowed_quantile import WindowedQuantile

# Below this, a pause of the scheduler or of garbage collection would look like a dead server.
FLOOR_US: Final = 10_000
# A call fails at most 1.25 time-outs after its write, and that must be within the 200 ms that the
# shipped Envoy configuration waits: then the limiter still answers, and marks its answer.
CEILING_US: Final = 150_000
MARGIN: Final = 2
QUANTILE: Final = 0.999
COUNT_MIN: Final = 1_000  # from here on the p99.9 is not the highest
WINDOWS: Final = 6
SUB_WINDOW_US: Final = 10_000_000
LOOK_US: Final = 1_000_000  # the quantile is computed again after this
_SMOOTH_SHIFT: Final = 3  # as TCP smooths its round trips


@final
class PathTimeout:
    """The time-out of one path; a given `fixed_us` never changes."""

    __slots__ = (
        "_look_us",
        "_slow_end_us",
        "_slow_us",
        "_trips",
        "answers",
        "late",
        "timeout_us",
        "trip_us",
    )

    def __init__(self, fixed_us: int | None = None) -> None:
        self.timeout_us = CEILING_US if fixed_us is None else fixed_us
        self.answers = 0  # round trips, the late ones too
        self.late = 0  # calls that were answered after their time-out
        self.trip_us = 0  # smoothed over some eight round trips
        self._trips = WindowedQuantile(WINDOWS, SUB_WINDOW_US) if fixed_us is None else None
        self._look_us = 0
        self._slow_us = 0  # the last round trip above the time-out
        self._slow_end_us = 0

    def observe(self, trip_us: int, late: int, now_us: int) -> None:
        """Record a round trip, and how many calls it answered after their time-out."""
        self.late += late
        self.trip_us += (trip_us - self.trip_us) >> _SMOOTH_SHIFT if self.answers else trip_us
        self.answers += 1
        if self._trips is None:
            return
        self._trips.add(trip_us if trip_us > 0 else 0, now_us)
        if trip_us >= self.timeout_us:
            self._slow_us = trip_us
            self._slow_end_us = now_us + WINDOWS * SUB_WINDOW_US
            self.timeout_us = _bounded_us(MARGIN * trip_us)

    def look(self, now_us: int) -> int:
        """Return the time-out as of now."""
        trips = self._trips
        if trips is not None and now_us >= self._look_us:
            self._look_us = now_us + LOOK_US
            high = trips.quantile(QUANTILE if trips.count(now_us) >= COUNT_MIN else 1.0, now_us)
            slow_us = self._slow_us if now_us < self._slow_end_us else 0
            if high is None:
                self.timeout_us = CEILING_US
            else:
                self.timeout_us = _bounded_us(MARGIN * max(int(high), slow_us))
        return self.timeout_us


def _bounded_us(us: int) -> int:
    return min(max(us, FLOOR_US), CEILING_US)
